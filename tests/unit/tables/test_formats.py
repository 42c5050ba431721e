"""Tables as Markdown: no text of a cell can break one."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_bars_and_lines_of_a_reason_cannot_break_a_markdown_table(tmp_path: Path) -> None:
    table = failed(tmp_path, NASTY)
    header, _, *rows = markdown_cells(display.markdown(table))
    assert [len(row) for row in rows] == [len(header)] * 2
    reason = rows[1][header.index("reason")]
    assert reason.endswith(ONE_LINE)
    assert rows[0][header.index("execution_time_s")] == "60.0"
