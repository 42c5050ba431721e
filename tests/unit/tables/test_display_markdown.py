"""Tables as Markdown: no text of a cell can break one."""

from __future__ import annotations

import random
import re

import pytest
from markdown_it import MarkdownIt
from tfscaling.tables import display
from tfscaling.tables.display import FormattedNumber, Markdown, TextTable

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


#: Renders Markdown as GitHub does, and lets HTML through.
RENDERER = MarkdownIt("commonmark").enable("table")
#: Elements of the rendered table; links and elements of a text would be others.
ELEMENTS = {"h1", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code"}
#: Texts that Markdown would run, link, emphasise, or show in parts only.
HOSTILE = [
    "<script>alert(1)</script>", "\\<img src=x onerror=alert(1)>", "\\\\<b>", "<class 'int'>",
    "[x](javascript:alert(1))", "![x](javascript:1)", "\\[x](javascript:1)", "[x]: javascript:1",
    "<javascript:alert(1)>", "` <b> ``", "``` <b> `", "\\` <b> `", "`` ` <b> `", "a `<b>` c",
    "a|b", "a\\|b", "`a|b`", "*a* **b** _c_ ~~d~~", "__init__.py", "execution_time_s", "C:\\new\\|",
    "&lt;b&gt; &#60;", "$\\frac{1}{2}$", "=1+1", "1.000", "-1.5", "> a", "===",
    "# a", "- a", "1. a", "a\\", "tail\\\\",
]  # fmt: skip


def element_texts(page: str) -> list[str]:
    """The texts of a rendered page's elements, with backticks around those of code."""
    html = RENDERER.render(page)
    assert set(re.findall(r"<(\w+)", html)) <= ELEMENTS, html
    texts = re.findall(r"<(?:h1|p|th|td|li)\b[^>]*>(.*?)</(?:h1|p|th|td|li)>", html, re.DOTALL)
    texts = [re.sub("</?code>", "`", text).replace("&quot;", '"') for text in texts]
    return [t.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for t in texts]


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_a_text_wherever_it_is(text: str) -> None:
    """In title, heading, cell, sentence and note; its neighbours are shown as well."""
    table = TextTable.from_rows(text, ["a", text], [["b", text], [text, "c"]], [text, "n"], text)
    shown = element_texts(display.to_markdown(table))
    assert shown == [text, text, "a", text, "b", text, text, "c", text, "n"]


def test_markdown_shows_a_random_text(dice: random.Random) -> None:
    for _ in range(200):
        text = "".join(dice.choices("ab <>[]()`\\|*_~&;#!:", k=dice.randint(1, 30))).strip() or "x"
        table = TextTable.from_rows("t", ["a", "b"], [[text, "c"]], [])
        html = RENDERER.render(display.to_markdown(table))
        assert set(re.findall(r"<(\w+)", html)) <= ELEMENTS, text
        assert html.count("<td") == 2 and ">c</td>" in html, text


def test_a_link_of_ours_stays_a_link() -> None:
    table = TextTable.from_rows("t", ["a"], [[Markdown("[records](../runs/a)")], ["[no](b)"]], [])
    assert re.findall('href="(.*?)"', RENDERER.render(display.to_markdown(table))) == ["../runs/a"]
