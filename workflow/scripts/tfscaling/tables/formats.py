"""Tables as Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from tfscaling.tables.data_warnings import DataWarning, placed
from tfscaling.tables.display import TextTable

_LATEX = {
    **{char: "\\" + char for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
}
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
.text {{ text-align: left; }}
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
    align = ["left" if name in shown.texts else "right" for name in cells]
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
    columns = "".join("l" if name in shown.texts else "r" for name in shown.cells)
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        f"\\caption{{{_latex(' '.join((shown.title + '.', shown.above)).strip())}}}",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        _latex_row(list(shown.cells.columns)),
        "\\midrule",
        *(_latex_row(row) for row in shown.cells.itertuples(index=False)),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    notes = [*(f"Warning: {warning.text}" for warning in found), *shown.notes]
    if notes:
        lines += ["", "\\footnotesize", *(_latex(note) + "\\par" for note in notes)]
    return "\n".join([*lines, "\\end{table}", ""])


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_latex(cell) for cell in cells) + r" \\"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)


def html_table(shown: TextTable) -> str:
    """The table alone, as an HTML element."""
    kinds = [' class="text"' if name in shown.texts else "" for name in shown.cells]

    def row(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(kinds, cells, strict=True)
        return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in pairs)

    head = f"<thead><tr>{row('th', list(shown.cells.columns))}</tr></thead>"
    rows = (f"<tr>{row('td', cells)}</tr>" for cells in shown.cells.itertuples(index=False))
    return "\n".join(["<table>", head, "<tbody>", *rows, "</tbody>", "</table>"])


def html_page(shown: TextTable, found: Sequence[DataWarning] = ()) -> str:
    """The table with heading, warnings and notes as a page of its own."""
    before, after = ([f"Warning: {text}" for text in texts] for texts in placed(found))
    notes = "\n".join(f"<li>{html.escape(note)}</li>" for note in [*after, *shown.notes])
    body = [f"<h1>{html.escape(shown.title)}</h1>"]
    body += [f'<p class="warning" role="note">{html.escape(text)}</p>' for text in before]
    body += [f"<p>{html.escape(shown.above)}</p>"] if shown.above else []
    body += [html_table(shown), f"<ul>\n{notes}\n</ul>"]
    return _PAGE.format(title=html.escape(shown.title), body="\n".join(body))
