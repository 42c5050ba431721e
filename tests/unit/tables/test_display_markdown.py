"""Tables as Markdown: no text of a cell can break one."""

from __future__ import annotations

from tfscaling.tables import display
from tfscaling.tables.display import FormattedNumber, TextTable

HEADER = ["platform", "nodes", "reason"]


def shown(*rows: list[str], **parts: object) -> TextTable:
    usual: dict[str, object] = {"title": "A table", "notes": ("first note", "second note")}
    cells = [[platform, FormattedNumber(nodes, 2), reason] for platform, nodes, reason in rows]
    return TextTable.from_rows(columns=HEADER, rows=cells, **{**usual, **parts})  # type: ignore[arg-type]


def test_markdown_has_heading_table_and_notes() -> None:
    text = display.to_markdown(shown(["gcp", "2", "none"], above="All configurations: x."))
    heading, above, table, notes = text.strip().split("\n\n")
    assert heading == "# A table"
    assert above == "All configurations: x."
    assert notes.splitlines() == ["- first note", "- second note"]
    lines = [line.strip("|").split("|") for line in table.splitlines()]
    header, align, *rows = [[cell.strip() for cell in line] for line in lines]
    assert header == HEADER
    assert [cell.strip("-") for cell in align] == [":", ":", ":"]
    assert (align[0][0], align[1][-1], align[2][0]) == (":", ":", ":")  # text left, numbers right
    assert rows == [["gcp", "2", "none"]]


def test_a_table_without_rows_says_none() -> None:
    assert display.to_markdown(shown(notes=())) == "# A table\n\nNone.\n"
