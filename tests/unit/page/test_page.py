"""The page is complete, honest and needs nothing but itself."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import study_folder, valid_config
from report_inputs import (
    COLUMNS,
    SVG,
    TITLE,
    clouds,
    decision,
    findings,
    headline,
    next_steps,
    results,
    study,
)
from tfscaling.conclusions.base import CONCLUSIONS, Conclusion, ConclusionFunctions
from tfscaling.page.html_page import Plot, render
from tfscaling.page.plot_registry import PLOTS
from tfscaling.page.words import FORMULAE
from tfscaling.record.metrics import METRICS, describe_metrics
from tfscaling.stages import write_page
from tfscaling.tables import data_warnings
from tfscaling.tables.display import TextTable
from tfscaling.tables.row_types import EpochRow, columns

GOLDEN = Path(__file__).with_name("golden_page.txt")
#: The conclusions that every page has.
CONCLUDED = {
    "headline": headline(),
    "decision": decision(),
    "findings": findings(),
    "next_steps": next_steps(),
}
#: Elements without an end tag.
VOID = {"meta", "img", "wbr", "input", "link", "br"}
LOADING = {"src", "srcset", "data", "poster", "action", "formaction", "background"}


class Page(HTMLParser):
    """The page's elements with their attributes and the text below them, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_data(" " if tag in ("th", "td", "summary") else "")
        element = (tag, dict(attrs), list[str]())
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for *_, texts in self._open:
            texts.append(data)

    def all(self, tag: str, **attributes: str) -> list[tuple[dict[str, str | None], str]]:
        return [
            (has, " ".join("".join(texts).split()))
            for name, has, texts in self.elements
            if name == tag and attributes.items() <= has.items()
        ]


def rendered(tmp_path: Path, fails: bool = True, **changes: Any) -> str:
    shown = results(study(tmp_path / "runs", fails), **changes)
    return render(shown, TITLE, COLUMNS, tmp_path)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return rendered(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def is_definition(words: str) -> bool:
    """Whether it is the row of a metric, which is its entry in METRICS, or the row's summary."""
    found = {**describe_metrics(), **FORMULAE}
    return any(
        words.startswith(f"{name} {metric.title} ") or words[:60] == found[name][:60]
        for name, metric in METRICS.items()
    )


def lines_of(page: Page) -> list[str]:
    """What a reader sees, one line per heading, paragraph, row, term and picture.

    The definitions of metrics are left out: a new metric changes no page that tests compare.
    """
    shown = []
    for tag, has, texts in page.elements:
        words = " ".join("".join(texts).split())
        if is_definition(words):
            continue
        if tag == "tr":
            shown.append(f"| {words}")
        elif tag == "img":
            shown.append(f"image: {has['alt']}")
        elif tag in ("h1", "h2", "h3", "p", "li", "dt", "dd", "summary", "article"):
            shown.append(f"{tag} {words}")
    return shown


def test_the_page_reads_as_the_golden_one(page: Page) -> None:
    """The one test of wording; `UPDATE_GOLDEN=1 pytest FILE` writes the golden page anew."""
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text("\n".join(lines_of(page)) + "\n")
    assert lines_of(page) == GOLDEN.read_text().splitlines()


def test_the_contents_lead_to_what_is_there(page: Page) -> None:
    ids = [has["id"] for _, has, _ in page.elements if "id" in has]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    inside = [str(has["href"])[1:] for has, _ in page.all("a") if str(has["href"])[0] == "#"]
    assert set(inside) <= set(ids)
    assert {"answer", "comparison", "runs", "plots", "validity", "environment"} <= set(inside)


def test_it_can_be_read_by_a_screen_reader(page: Page) -> None:
    assert [has["lang"] for has, _ in page.all("html")] == ["en"]
    assert all(has["scope"] in ("col", "row") for has, _ in page.all("th"))
    assert all(has["alt"] for has, _ in page.all("img"))
    named = [has["aria-labelledby"] for has, _ in page.all("table")]
    assert len(named) == 7 and len(set(named)) == 7


def test_it_names_nothing_on_the_network(text: str, page: Page) -> None:
    for tag, has, _ in page.elements:
        for name in LOADING & has.keys():
            assert str(has[name]).startswith("data:"), f"{tag} {name}"
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert "style" not in has
    styles = " ".join(style for _, style in page.all("style"))
    assert styles and not re.search(r"url\(|@import|https?:", styles)
    scripts = " ".join(code for _, code in page.all("script", type="module"))
    assert scripts and not re.search(r"https?:|//[a-z0-9-]+\.[a-z]|fetch\(|XMLHttp", scripts)
    assert [has["type"] for has, _ in page.all("script")] == ["application/octet-stream", "module"]


def test_a_policy_forbids_every_request(text: str, page: Page) -> None:
    ((policy, _),) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    rules = dict(rule.split(maxsplit=1) for rule in str(policy["content"]).split(";"))
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",
        "script-src": f"'sha256-{own_script(text)}' blob:",
    }


def own_script(text: str) -> str:
    """The checksum by which the page allows its own script, and no other that is in it."""
    (script,) = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def test_datatables_is_in_the_page_once(page: Page) -> None:
    ((_, packed),) = page.all("script", id="datatables")
    source = gzip.decompress(base64.b64decode(packed)).decode()
    assert " as default" in source and "DataTables" in source
    assert len(packed) < 400_000


def test_cells_with_numbers_sort_as_numbers(page: Page) -> None:
    ranged = [has for has, words in page.all("td") if re.fullmatch(r"[\d.]+ \(.*–.*\)", words)]
    assert ranged and all(float(str(has["data-order"])) > 0 for has in ranged)
    missing = [has for has, words in page.all("td") if words == "–" and "data-order" in has]
    assert missing and all(has["data-order"] == "" for has in missing)


def test_plots_are_elements_with_names_and_ids_of_their_own(page: Page) -> None:
    shown = page.all("svg", role="img")
    assert ["Mine & yours" in str(has["aria-label"]) for has, _ in shown] == [True, False]
    assert all("width" not in has for has, _ in shown)
    ids = [has["id"] for has, _ in page.all("path")]
    assert ids == ["execution_time-0", "speedup-0"]
    assert [has["href"] for has, _ in page.all("use")] == [f"#{name}" for name in ids]


def test_records_are_linked_relative_to_the_page(tmp_path: Path) -> None:
    page = Page(rendered(tmp_path))
    links = [str(has["href"]) for has, _ in page.all("a") if "run.json" in str(has["href"])]
    assert len(links) == 7
    assert all((tmp_path / link).is_file() for link in links)


def test_a_page_of_some_runs_has_the_name_of_its_study(tmp_path: Path) -> None:
    shown = results(study(tmp_path / "runs"))
    ((_, words),) = Page(render(shown, TITLE, COLUMNS, tmp_path / "mine/partial")).all("title")
    assert words.startswith("mine: ")


def test_a_conclusion_without_rows_is_left_out(tmp_path: Path) -> None:
    tables = {**CONCLUDED, "clouds": clouds().head(0)}
    ids = {has.get("id") for has, _ in Page(rendered(tmp_path, conclusions=tables)).all("h2")}
    assert {"comparison", "runs"} <= ids
    assert not {"clouds", "published"} & ids


def test_a_new_conclusion_is_a_section_with_title_caption_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_text(table: pd.DataFrame) -> TextTable:
        return TextTable.from_rows("Another title", ["what"], [[text] for text in table["what"]])

    parts = ConclusionFunctions(["what"], lambda _: pd.DataFrame(), as_text)
    new = Conclusion("Queues & waits", "How long <runs> wait.", lambda: parts)
    monkeypatch.setitem(CONCLUSIONS, "queues", new)
    tables = {**CONCLUDED, "queues": pd.DataFrame({"what": ["an hour"]})}
    page = Page(rendered(tmp_path, conclusions=tables))
    headings = {has.get("id"): words for has, words in page.all("h2")}
    assert headings["queues"] == "Queues & waits"
    assert "How long <runs> wait." in [words for _, words in page.all("p")]
    ((_, words),) = page.all("table", **{"aria-labelledby": "queues"})
    assert "an hour" in words


@pytest.mark.parametrize("goal", ["cost_usd", None])
def test_a_question_has_one_recommendation_and_other_goals_are_folded(
    tmp_path: Path, goal: str | None
) -> None:
    page = Page(rendered(tmp_path, question_goal=goal))
    titles = [words for _, words in page.all("article")]
    folded = [words for _, words in page.all("details") if "Shortest time" in words]
    assert len(titles) == 2
    assert [title.startswith("Lowest cost") for title in titles] == [bool(goal), not goal]
    assert len(folded) == bool(goal) and "Lowest cost" not in "".join(folded)


def test_a_page_of_nothing_can_be_made(tmp_path: Path) -> None:
    made = study(tmp_path / "runs")
    runs = made.runs.assign(status="missing", reason="not run yet", hosts=None, record=None)
    runs = runs.assign(started=None, git_commit=None, tensorflow=None)
    points = made.comparison.assign(runs=0, status="missing")
    nothing = {name: table.head(0) for name, table in CONCLUDED.items()}
    text = rendered(tmp_path, runs=runs, comparison=points, conclusions=nothing, plots=[])
    page = Page(text)
    assert "0 of 10 runs valid" in text and "No plot was drawn." in text
    assert not page.all("article")


def test_the_program_writes_the_page(tmp_path: Path) -> None:
    made = study(tmp_path / "runs")
    shown = results(made)
    plots = (("plots",), dict.fromkeys(PLOTS) | {"speedup": {"title": "My speed-up"}})
    shown_so = (("comparison",), {"title": TITLE, "columns": COLUMNS})
    question = (("question",), {"indifference": 0.1})
    config = valid_config(shown_so, plots, question, (("export",), ["svg"]))
    tables = {"runs": made.runs, "comparison": made.comparison, **shown.conclusions}
    tables["epochs"] = pd.DataFrame(columns=list(columns(EpochRow)))
    study_of_page = study_folder(tmp_path / "results", config, made.planned, **tables)
    data_warnings.write_warnings(study_of_page.details / "warnings.json", shown.warnings)
    (tmp_path / "results/partial").mkdir()
    write_page.write_page(study_of_page)
    output = tmp_path / "results" / "report.html"
    assert sorted(path.name for path in output.parent.iterdir()) == [
        "comparison.csv",
        "details",
        "report.html",
        "runs.csv",
    ]
    assert {path.name for path in (study_of_page.details / "plots").iterdir()} == {"speedup.svg"}
    page = Page(output.read_text())
    assert output.stat().st_size < 1_000_000
    assert ["My speed-up" in str(has["aria-label"]) for has, _ in page.all("svg")] == [True]
    assert len(page.all("table")) == 7
    (folded,) = (words for _, words in page.all("details") if "Lowest cost" in words)
    assert "Shortest time" not in folded, "it is the goal of the question"


@pytest.mark.parametrize(("several", "first"), [(True, "By nodes"), (False, "By quality")])
def test_the_first_plot_shows_what_differs(tmp_path: Path, several: bool, first: str) -> None:
    made = study(tmp_path / "runs", fails=False)
    if not several:
        made = replace(made, comparison=made.comparison.assign(nodes=1))
    plots = [Plot("execution_time", "By nodes", SVG), Plot("quality_time", "By quality", SVG)]
    text = render(results(made, plots=plots), TITLE, COLUMNS, tmp_path)
    assert text.index(first) == min(text.index(plot.title) for plot in plots)
