"""Tables as Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfscaling.tables.data_warnings import DataWarning, placed
from tfscaling.tables.display import TextTable

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

_LATEX = str.maketrans(
    {char: "\\" + char for char in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--"}
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 1rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.2rem 0.6rem; text-align: right; border-bottom: 1px solid #ccc; }}
{left}
.warning {{ border-left: 0.3rem solid #d55e00; padding-left: 0.6rem; max-width: 60rem; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def markdown(shown: TextTable, level: int = 1) -> str:
    """A heading, the table, the notes as a list."""
    # a bar ends a cell, and Markdown drops "<class 'int'>" of an error as HTML
    cells = shown.cells.map(lambda text: text.replace("|", "\\|").replace("<", "\\<"))
    align = ["right" if shown.is_number(name) else "left" for name in cells]
    table = cells.to_markdown(index=False, disable_numparse=True, colalign=align)
    parts = [f"{'#' * level} {shown.title}", shown.above, table if len(cells) else "None."]
    parts.append("\n".join(f"- {note}" for note in shown.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def with_warnings(page: str, found: Sequence[DataWarning]) -> str:
    """A page of Markdown with these warnings below its first heading, the last ones at its end."""
    heading, _, rest = page.strip().partition("\n")
    before, after = (
        "\n".join(f"- **Warning:** {text}" for text in texts).replace("<", "\\<")
        for texts in placed(found)
    )
    return "\n\n".join(part for part in (heading, before, rest.strip(), after) if part) + "\n"


def markdown_page(shown: TextTable, found: Sequence[DataWarning] = ()) -> str:
    """The table as a page of its own, the warnings about its data before it."""
    return with_warnings(markdown(shown), found)


def latex(shown: TextTable, found: Sequence[DataWarning] = ()) -> str:
    """A table environment for the package booktabs; warnings and notes stand below the table."""
    text = _written(shown, _latex).to_latex(
        column_format="".join("r" if shown.is_number(name) else "l" for name in shown.cells),
        caption=_latex(" ".join((shown.title + ".", shown.above)).strip()),
        hrules=True,
    )
    notes = [*(f"Warning: {warning.text}" for warning in found), *shown.notes]
    below = "".join(_latex(note) + "\\par\n" for note in notes)
    start, end, rest = text.rpartition("\\end{table}")
    notes_text = f"\n\\footnotesize\n{below}" if notes else ""
    return f"% needs \\usepackage{{booktabs}}\n{start}{notes_text}{end}{rest}"


def _written(shown: TextTable, escape: Callable[[str], str]) -> Styler:
    """The table with every text escaped: pandas' own escaping takes twice the time of the rest."""
    return shown.cells.map(escape).rename(columns=escape).style.hide(axis="index")


def _latex(text: str) -> str:
    return text.translate(_LATEX)


def html_page(shown: TextTable, found: Sequence[DataWarning] = ()) -> str:
    """The table with heading, warnings and notes as a page of its own."""
    before, after = ([f"Warning: {text}" for text in texts] for texts in placed(found))
    notes = "\n".join(f"<li>{html.escape(note)}</li>" for note in [*after, *shown.notes])
    body = [f"<h1>{html.escape(shown.title)}</h1>"]
    body += [f'<p class="warning" role="note">{html.escape(text)}</p>' for text in before]
    body += [f"<p>{html.escape(shown.above)}</p>"] if shown.above else []
    table = _written(shown, html.escape).to_html(exclude_styles=True)
    body += [table, f"<ul>\n{notes}\n</ul>"]
    places = (n for n, name in enumerate(shown.cells, 1) if not shown.is_number(name))
    left = ", ".join(f"th:nth-child({n}), td:nth-child({n})" for n in places)
    return _PAGE.format(
        title=html.escape(shown.title),
        left=f"{left} {{ text-align: left; }}" if left else "",
        body="\n".join(body),
    )
