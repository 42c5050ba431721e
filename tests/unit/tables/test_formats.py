"""The same table as Markdown, LaTeX and HTML; no text of a cell can break it."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from builders import manifest_of, raw_config, write_failure, write_record
from tfscaling.spec import configuration
from tfscaling.tables import comparison, display, runs_table
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.display import Number, TextTable

HEADER = ["platform", "nodes", "reason"]


def shown(*rows: list[str], **parts: object) -> TextTable:
    usual: dict[str, object] = {"title": "A table", "notes": ("first note", "second note")}
    cells = [[platform, Number(nodes, 2), reason] for platform, nodes, reason in rows]
    return TextTable.of(columns=HEADER, rows=cells, **{**usual, **parts})  # type: ignore[arg-type]


def failed(runs_dir: Path, message: str) -> TextTable:
    """A comparison as the workflow makes it, of a point that ran and one that failed."""
    planned = manifest_of(configuration.validate(raw_config()))
    write_record(runs_dir, planned.runs[0], 60.0)
    write_failure(runs_dir, planned.runs[1], message=message)
    runs, _ = runs_table.run_tables(planned.runs, runs_dir)
    table = comparison_table(runs, planned)
    return comparison.as_text(table, "T", ["execution_time_s", "loss"])


def markdown_cells(text: str) -> list[list[str]]:
    """The rows of the first table of a Markdown text: header, separator, rows."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
        rows.append([cell.replace("\\|", "|").replace("\\<", "<").strip() for cell in cells])
    return rows


NASTY = "first line\nsecond | line || end | <class 'int'> & 50 % of #1_a"
ONE_LINE = " ".join(NASTY.split())


def test_markdown_has_heading_table_and_notes() -> None:
    text = display.markdown(shown(["gcp", "2", "none"], above="All configurations: x."))
    heading, above, table, notes = text.strip().split("\n\n")
    assert heading == "# A table"
    assert above == "All configurations: x."
    assert notes.splitlines() == ["- first note", "- second note"]
    header, align, *rows = markdown_cells(table)
    assert header == HEADER
    assert [cell.strip("-") for cell in align] == [":", ":", ":"]
    assert (align[0][0], align[1][-1], align[2][0]) == (":", ":", ":")  # text left, numbers right
    assert rows == [["gcp", "2", "none"]]


def test_a_table_without_rows_says_none() -> None:
    assert display.markdown(shown(notes=())) == "# A table\n\nNone.\n"
    assert display.latex(shown()).count(r"\\") == 1  # the header
    assert Page(display.html_page(shown())).rows == [HEADER]


def test_bars_and_lines_of_a_reason_cannot_break_a_markdown_table(tmp_path: Path) -> None:
    table = failed(tmp_path, NASTY)
    header, _, *rows = markdown_cells(display.markdown(table))
    assert [len(row) for row in rows] == [len(header)] * 2
    reason = rows[1][header.index("reason")]
    assert reason.endswith(ONE_LINE)
    assert rows[0][header.index("execution_time_s")] == "60.0"


LATEX_TEXTS = {
    "a & b": r"a \& b", "50 %": r"50 \%", "batch_size": r"batch\_size", "#1": r"\#1",
    "$x^2$": r"\$x\textasciicircum{}2\$", "{a}": r"\{a\}", "~": r"\textasciitilde{}",
    r"C:\new": r"C:\textbackslash{}new", "1.0–2.0": "1.0--2.0", r"\_": r"\textbackslash{}\_",
}  # fmt: skip


@pytest.mark.parametrize("text", LATEX_TEXTS)
@pytest.mark.parametrize("place", ["cell", "title", "note"])
def test_latex_escapes_what_it_takes_for_commands(text: str, place: str) -> None:
    table = {
        "cell": shown(["gcp", "2", text]),
        "title": shown(title=text),
        "note": shown(notes=(text,)),
    }[place]
    line = {
        "cell": f"gcp & 2 & {LATEX_TEXTS[text]} \\\\",
        "title": f"\\caption{{{LATEX_TEXTS[text]}.}}",
        "note": f"{LATEX_TEXTS[text]}\\par",
    }[place]
    assert line in display.latex(table).splitlines()


def check_latex(text: str, columns: int) -> None:
    """Environments and braces are balanced, and every row has all columns."""
    environments: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            environments.append(name)
        else:
            assert environments.pop() == name
    assert environments == []
    bare = re.sub(r"\\[{}&%#_$\\]", "", text)
    assert bare.count("{") == bare.count("}")
    inside = bare.split("\\midrule")[1].split("\\bottomrule")[0].strip().splitlines()
    assert [line.count("&") for line in inside] == [columns - 1] * len(inside)
    body = text.split("\\begin{table}")[1]
    assert not re.search(r"(?<!\\)[%#_$]", body)


def test_latex_is_complete_whatever_the_reason_of_a_failure(tmp_path: Path) -> None:
    table = failed(tmp_path, NASTY + r" \end{table} }")
    text = display.latex(table)
    assert text.startswith("% needs \\usepackage{booktabs}\n\\begin{table}\n")
    assert text.endswith("\\end{table}\n")
    check_latex(text, len(table.cells.columns))
    (spec,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert spec == "".join("r" if table.is_number(name) else "l" for name in table.cells)
    assert text.count("\\par") == len(table.notes)
    rules = [line for line in text.splitlines() if line.endswith("rule")]
    assert rules == ["\\toprule", "\\midrule", "\\bottomrule"]


class Page(HTMLParser):
    """Tags must close as they opened; collects the texts of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


EVIL = "<script>alert('&')</script>"


def test_html_escapes_scripts_everywhere() -> None:
    table = shown(["gcp", "2", EVIL], title=EVIL, above=EVIL, notes=(EVIL,))
    text = display.html_page(table)
    page = Page(text)
    assert "<script" not in text and "script" not in page.seen
    assert html.unescape(text).count(EVIL) == 5
    assert page.rows == [HEADER, ["gcp", "2", EVIL]]


def test_an_html_page_has_title_table_and_notes_and_loads_nothing(tmp_path: Path) -> None:
    table = failed(tmp_path, NASTY)
    text = display.html_page(table)
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>\n")
    assert "<title>T</title>" in text and "<h1>T</h1>" in text
    assert page.rows[0] == list(table.cells.columns)
    assert page.rows[1:] == table.cells.to_numpy().tolist()
    assert page.rows[2][page.rows[0].index("reason")].endswith(ONE_LINE)
    assert page.seen.count("li") == len(table.notes)
    assert not {"script", "link", "img", "iframe"} & set(page.seen)
    assert "http" not in text
