"""The sections of the page besides its tables."""

from __future__ import annotations

import dataclasses
import html
import random
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
import report_inputs
from builders import REPOSITORY
from report_inputs import COLUMNS, decision, findings, study
from tfscaling.conclusions import clouds, published_values
from tfscaling.conclusions.findings import TOPICS
from tfscaling.page import html_page, page_answers, page_tables, study_origin, words
from tfscaling.page.page_answers import ShownHeadline
from tfscaling.page.page_tables import Table
from tfscaling.tables.data_warnings import FEW_RUNS, LIMITED, SERIOUS, DataWarning
from tfscaling.tables.display import FormattedNumber, TextTable


def test_choices_and_findings_are_grouped_by_task_and_topic() -> None:
    (only,) = page_answers.answers_by_question(decision()).items()
    assert only[0] == "", "a single task needs no name"
    assert [(row.title, row.text) for row in only[1]] == [
        ("Shortest time", "Too few runs."),
        ("Lowest cost", "Use 1 node."),
    ]
    found = page_answers.findings_by_topic(findings(), "test accuracy")
    assert [len(rows) for rows in found.values()] == [1, 2]
    assert "test accuracy" in next(iter(found))
    assert set(words.TOPICS) == set(TOPICS)


@pytest.mark.parametrize("column", ["totals", "wide_job", "not_covered"])
def test_a_sentence_of_the_headline_is_on_no_card(column: str) -> None:
    """A sentence that only cards have is on the first card of its question."""
    sentence = f"All {random.randint(2, 99)} trainings: {random.random():.3g} node-hours."
    rows = decision(
        *(
            (question, goal, goal, f"Use {nodes} nodes. {sentence}", "supported")
            for question in ("one", "two")
            for nodes, goal in enumerate(("execution_time_s", "cost_usd", "node_hours"), 2)
        )
    ).assign(**{column: sentence})

    def cards_with_it(*headlines: tuple[str, str]) -> list[list[bool]]:
        shown = [
            ShownHeadline(question, "Use 2.", "supported", "", more) for question, more in headlines
        ]
        found = page_answers.answers_by_question(rows, None, shown)
        assert all(row.text.startswith("Use ") for cards in found.values() for row in cards)
        return [[sentence in row.text for row in cards] for cards in found.values()]

    more = f"It is fast. {sentence} So is another."
    assert cards_with_it() == [[True, False, False]] * 2
    assert cards_with_it(("", more)) == [[False, False, False]] * 2
    # the same sentence about another question is another statement
    assert cards_with_it(("one", more), ("two", "")) == [[False] * 3, [True, False, False]]


def test_a_headline_without_an_explanation_is_shown(tmp_path: Path) -> None:
    """A table that was read from its file has NaN in place of an empty text."""
    made = report_inputs.results(study(tmp_path / "runs"))
    row = report_inputs.headline()
    tables = {**made.conclusions, "headline": pd.concat([row, row.assign(sure=float("nan"))])}
    page = html_page.render(dataclasses.replace(made, conclusions=tables), "T", COLUMNS, tmp_path)
    assert page.count('<p class="headline') == 2 * len(row)


def test_a_record_with_an_odd_host_has_a_page(tmp_path: Path) -> None:
    runs = study(tmp_path / "runs").runs
    runs["hosts"] = ["node[1 a,b node] n1 n2", *runs["hosts"][1:]]
    table = page_tables.make_runs_table(runs, COLUMNS, tmp_path)
    first = " ".join(table.rows[0])
    assert "n[1-2]" in first and all(name in first for name in ("node[1", "a,b", "node]"))


def test_what_was_not_measured_has_no_card() -> None:
    unpriced = decision(("w", "cost_usd", "t", "No point has a price.", "not measured"))
    assert page_answers.answers_by_question(unpriced) == {}
    assert [*page_answers.answers_by_question(unpriced, "cost_usd")] == [""], (
        "the question has an answer"
    )


def test_warnings_are_a_line_for_each_severity() -> None:
    named = [("One", SERIOUS), *((str(number), LIMITED) for number in range(9))]
    found = [DataWarning("a_kind", severity, "", text, (), 1) for text, severity in named]
    serious, limited = html_page.warning_lines(found)
    assert (serious[0], limited[0]) == (SERIOUS, LIMITED)
    assert serious[1].endswith(": One.") and limited[1].endswith("; 8.")


@pytest.mark.parametrize(("usd", "text"), [(2.5, "2.50 US dollars"), (None, "no price")])
def test_failed_attempts_have_a_note_with_their_cost(usd: float | None, text: str) -> None:
    run = {"nodes": 2, "failed_attempts": 1, "lost_time_s": 900.0, "lost_cost_usd": usd}
    (note,) = page_tables.failed_attempts_notes(pd.DataFrame([run]))
    assert "1 attempt failed: 0.500 node-hours" in note and text in note
    assert page_tables.failed_attempts_notes(pd.DataFrame([{**run, "failed_attempts": 0}])) == []


def test_too_few_runs_are_left_to_the_badges() -> None:
    few = DataWarning(FEW_RUNS, LIMITED, "", "fewer than 6 valid runs", (), 1)
    assert html_page.warning_lines([few]) == []
    other = DataWarning("a_kind", LIMITED, "", "One", (), 1)
    assert html_page.warning_lines([few, other]) == [(LIMITED, "Note: One.")]


def test_imported_timings_have_neither_dates_nor_commits(tmp_path: Path) -> None:
    made = study(tmp_path)
    runs = made.runs.assign(git_commit=None, started=None)
    text = study_origin.summary_sentence(made.planned.platforms, runs, made.comparison)
    assert "commit" not in text and "dates" not in text and text.endswith(").")


def test_the_glossary_has_at_most_twelve_terms_of_the_project() -> None:
    own, field = words.GLOSSARY["own"], words.GLOSSARY["field"]
    assert 0 < len(own) <= 12 and not own.keys() & field.keys()


def test_runs_are_counted_by_status(tmp_path: Path) -> None:
    made = study(tmp_path)
    counts = {
        row[0]: row[1] for row in page_tables.make_status_table(made.runs, made.comparison).rows
    }
    assert counts == {
        "ok": "7", "diverged": "0", "does_not_fit": "0", "failed": "2", "unfinished": "0",
        "stale": "0", "missing": "1", "excluded": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("commit", "name", "is_changed"),
    [
        ("0123456789" * 4, "0123456789", False),
        (f"{'0123456789' * 4}-dirty", "0123456789", True),
        ("v1.0-rc1", "v1.0-rc1", False),
        ("v1.0-rc1-dirty", "v1.0-rc1", True),
    ],
)
def test_the_first_sentence_names_commits_and_uncommitted_changes(
    commit: str, name: str, is_changed: bool, tmp_path: Path
) -> None:
    made = study(tmp_path)
    runs = made.runs.assign(git_commit=commit)
    text = study_origin.summary_sentence(made.planned.platforms, runs, made.comparison)
    assert f"commit {name}" in text
    assert ("uncommitted" in text) == is_changed


@pytest.mark.parametrize(
    "page", sorted((REPOSITORY / "studies").rglob("report.html")), ids=lambda path: path.parent.name
)
def test_a_kept_page_names_the_commits_of_its_runs(page: Path) -> None:
    commits = pd.read_csv(page.with_name("runs.csv"))["git_commit"].dropna().unique()
    assert len(commits)
    text = html.unescape(page.read_text())
    assert all(study_origin.describe_commit(commit) in text for commit in commits)


def test_the_environment_names_versions_hosts_prices_and_records(tmp_path: Path) -> None:
    made = study(tmp_path / "runs")
    found = study_origin.provenance_section(made.planned.platforms, made.runs, tmp_path)
    assert found["versions"] == ["2.21.0 (7 runs)"]
    assert found["commits"] == [f"{'0' * 40} (7 runs)"]
    assert found["hosts"] == ["node0", "node1", "node2", "node3"]
    cluster = found["platforms"].shown.cells.iloc[0]
    assert cluster["instance_type"] == "big-8"
    assert cluster["usd_per_node_hour"] == "3.5"
    assert (cluster["price_date"], cluster["price_source"]) == ("2026-01", "a list")
    assert found["example"] is not None and found["example"].startswith("runs/platform=cluster/")


def table_of(**columns: Sequence[str]) -> Table:
    return Table("name", TextTable("Title", pd.DataFrame(columns, dtype=object)))


def orders(table: Table, name: str) -> list[str]:
    (column,) = [column for column in table.columns if column.name == name]
    return [column.order(cell) for cell in table.shown.cells[name]]


def choices(table: Table) -> list[str]:
    return [column.name for column in table.columns if column.is_choice]


def test_a_column_of_numbers_sorts_by_them_and_missing_ones_have_none() -> None:
    numbers = [FormattedNumber("9.5 (9–10)", 9.51), "–", FormattedNumber("10.5", 10.5)]
    alone = ["–", FormattedNumber("0.5", 0.512), FormattedNumber("-2", -2.0)]
    table = table_of(accuracy=numbers, loss=alone, hosts=["1node", "node2", "–"])
    assert [column.is_number for column in table.columns] == [True, True, False]
    assert [column.is_ordered for column in table.columns] == [True, False, False]
    assert orders(table, "accuracy") == ["9.51", "", "10.5"]


def test_rows_are_chosen_by_axes_and_verdicts_with_few_values() -> None:
    table = table_of(
        nodes=["1", "2", "2"], status=["ok", "ok", "failed"], loss=["1", "1", "2"],
        platform=["a", "a", "a"], repeat=["1", "2", "3"],
    )  # fmt: skip
    assert choices(table) == ["nodes", "status"]  # one value or as many as rows: no choice


def test_columns_with_more_than_24_values_are_no_choice() -> None:
    most = page_tables.CHOICES_MAX
    assert most == 24
    for count, expected in ((most, ["nodes"]), (most + 1, [])):
        values = [str(number) for number in range(count)]
        assert choices(table_of(nodes=[*values, values[0]])) == expected


def test_words_are_marked_only_where_they_judge() -> None:
    table = table_of(status=["ok", "failed", "incomplete"], platform=["failed", "b", "c"])
    status, platform = table.columns
    assert [status.tone(row[0]) for row in table.rows] == [None, "bad", "doubt"]
    assert platform.tone("failed") is None


def test_runs_have_status_axes_metrics_host_and_record(tmp_path: Path) -> None:
    made = study(tmp_path / "runs")
    table = page_tables.make_runs_table(made.runs, COLUMNS, tmp_path)
    names = [column.name for column in table.columns]
    assert names == [
        "platform", "nodes", "devices", "repeat", "execution_time_s", "accuracy", "status",
        "replicas", "global_batch_size", "reason", "attempt", "hosts", "started", "record",
    ]  # fmt: skip
    assert "multi_worker_mirrored" in table.shown.above
    assert table.shown.cells["status"].tolist().count("ok") == 7 and len(table.rows) == 10
    first, failed = table.rows[0][-1], table.rows[-4][-1]
    assert first.startswith('<a href="runs/platform=cluster/') and first.endswith(">run.json</a>")
    assert failed == "–"


def sort_values(table: TextTable, name: str) -> list[float | None]:
    return [getattr(text, "value", None) for text in table.cells[name]]


def test_clouds_show_values_with_the_digits_of_their_metric() -> None:
    table = clouds.as_text(report_inputs.clouds())
    assert table.cells["value_a"].tolist() == ["20.000", "0.2000"]
    assert table.cells["margin"].tolist() == ["1.50 (1.40–1.60)", "2.00"]
    assert sort_values(table, "margin") == [1.5, 2.0]
    assert table.cells["winner"].tolist() == ["gcp", "aws"]
    assert "big" in table.above and "small" in table.above


def test_published_values_stand_beside_the_measured_ones_with_verdicts() -> None:
    table = published_values.as_text(report_inputs.published())
    assert table.cells["loss"].tolist() == ["0.3100 (0.3000–0.3200)", "–"]
    assert sort_values(table, "loss") == [0.31, None]
    assert table.cells["execution_time_s"].tolist() == ["20.0", "–"]
    assert table.cells["accuracy_verdict"].tolist() == ["outside", "not measured"]
    assert table.cells["runs"].tolist() == ["2", "0"]
    assert "source a paper" in table.above


@pytest.mark.parametrize(("words", "is_in_badge"), [(5, True), (30, False)])
def test_a_long_explanation_is_a_sentence_below_the_badge(words: int, is_in_badge: bool) -> None:
    sure = f"Because {'so ' * words}few."
    row = {"question": None, "text": "Use 1 node.", "sure": sure, "badge": "supported"}
    (shown,) = page_answers.headlines_to_show(pd.DataFrame([row]))
    assert ("few" in shown.badge) == is_in_badge and (shown.more == sure) != is_in_badge
