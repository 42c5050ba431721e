"""The sections of the page besides its tables."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from report_inputs import DECISION, decision, findings, study
from tfscaling.conclusions.findings import TOPICS
from tfscaling.page import sections
from tfscaling.record import checks
from tfscaling.record.metrics import METRICS
from tfscaling.spec.config import Quality
from tfscaling.tables.data_warnings import LIMITED, SERIOUS, DataWarning


def test_the_choices_come_first_and_findings_follow_by_topic() -> None:
    answer = sections.answer(decision(), findings(), "test accuracy")
    (work,) = answer.works
    assert work.title == "", "one work needs no name"
    assert [(c.subject, c.text) for c in work.choices] == [
        ("Shortest time", "Too few runs."),
        ("Lowest cost", "Use 1 node."),
    ]
    others = {topic.title: [f.text for f in topic.findings] for topic in answer.others}
    assert others == {
        "What it costs in test accuracy": ["The fastest errs more."],
        "How far it scales": ["More nodes pay.", "More nodes do not pay."],
    }


def test_the_choices_of_each_work_have_its_name() -> None:
    other = ("resnet50, weak", "cost_usd", "Lowest cost", "Use 2 nodes.", "supported")
    works = sections.answer(decision(*DECISION, other), findings(), "test accuracy").works
    assert [(w.title, len(w.choices)) for w in works] == [
        ("mnist_cnn, weak", 2), ("resnet50, weak", 1),
    ]  # fmt: skip


def test_every_topic_of_findings_has_a_heading() -> None:
    assert set(sections.TOPICS) == set(TOPICS)


@pytest.mark.parametrize(
    ("support", "is_supported", "tone"),
    [
        ("supported", True, "good"),
        ("inconclusive", False, "doubt"),
        ("too few runs", False, "doubt"),
        ("something new", False, "doubt"),
    ],
)
def test_only_what_is_supported_looks_so(support: str, is_supported: bool, tone: str) -> None:
    answer = sections.answer(decision(("w", "cost_usd", "t", "text", support)), findings(), "loss")
    found = answer.works[0].choices[0]
    assert (found.support, found.is_supported, found.tone) == (support, is_supported, tone)


def test_what_was_not_measured_has_no_card() -> None:
    unpriced = decision(("w", "cost_usd", "t", "No point has a price.", "not measured"))
    assert sections.answer(unpriced, findings(), "loss").works == []


def warning(text: str, severity: str) -> DataWarning:
    return DataWarning("a_kind", severity, text, f"in short {text[:-1]}", (), 1)


def test_warnings_are_a_line_for_each_severity_and_all_are_listed() -> None:
    found = [warning("One.", SERIOUS), *(warning(f"{n}.", LIMITED) for n in range(9))]
    shown = sections.warnings(found)
    assert [severity for severity, _ in shown.first] == [SERIOUS, LIMITED]
    assert shown.first[0][1].endswith(": in short One.")
    assert [row.text for row in shown.all] == [each.text for each in found]
    assert [row.tone for row in shown.all] == ["bad"] + ["doubt"] * 9


def test_the_headline_of_an_only_work_has_no_subject() -> None:
    shown = shown_headline("", "supported")
    assert (shown.subject, shown.text, shown.tone) == ("", "Fastest.", "good")


@pytest.mark.parametrize(
    ("sure", "support", "badge"),
    [
        (None, "supported", "supported"),
        ("No other is.", "supported", "supported: no other is"),
        ("2 runs each: too few to be sure.", "too few runs", "2 runs each: too few to be sure"),
    ],
)
def test_how_sure_a_headline_is_stands_in_its_badge_once(
    sure: str | None, support: str, badge: str
) -> None:
    assert shown_headline(sure, support).badge == badge


def shown_headline(sure: str | None, support: str) -> sections.Statement:
    table = pd.DataFrame({"work": [math.nan], "text": "Fastest.", "sure": sure, "badge": support})
    (shown,) = sections.headlines(table)
    return shown


def test_runs_are_counted_by_status_and_points_by_the_size_of_their_samples(
    tmp_path: Path,
) -> None:
    made = study(tmp_path)
    validity = sections.validity(made.runs, made.comparison)
    counts = {row[0].text: row[1].text for row in validity.statuses.rows}
    assert counts == {
        "ok": "7", "diverged": "0", "failed": "2", "unfinished": "0", "stale": "0",
        "missing": "1", "excluded": "1",
    }  # fmt: skip
    assert validity.samples.startswith(
        "0 points with at least 6 valid runs, 4 with fewer, 1 with none"
    )


def test_points_are_counted_by_their_runs_with_times(tmp_path: Path) -> None:
    made = study(tmp_path)
    comparison = made.comparison.assign(runs=6, runs_timed=[6, 2, 0, 6, 6, 0])
    comparison = comparison[comparison["status"] != "excluded"]
    assert sections.validity(made.runs, comparison).samples.startswith(
        "3 points with at least 6 valid runs with times, 1 with fewer, 1 with none"
    )


def test_the_runs_of_a_point_that_share_a_reason_are_one_row(tmp_path: Path) -> None:
    made = study(tmp_path)
    left_out = sections.validity(made.runs, made.comparison).left_out
    assert left_out is not None
    assert [[cell.text for cell in row[:3]] for row in left_out.rows] == [
        ["4", "2", "missing"],
        ["8", "1, 2", "failed"],
        ["9", "all", "excluded"],
    ]
    assert left_out.above.endswith("recipe weak, CPU, 1 task per node.")


def test_every_check_and_every_metric_is_explained() -> None:
    assert all(len(check.description) > 15 for check in checks.CHECKS.values())
    rows = sections.definitions({"test_accuracy": Quality()}).metrics.rows
    assert [row[0].text for row in rows] == list(METRICS)
    assert all(len(row[-1].text) > 15 and row[3].text in ("lower", "higher") for row in rows)


def test_the_environment_names_versions_hosts_prices_and_records(tmp_path: Path) -> None:
    made = study(tmp_path / "runs")
    found = sections.environment(made.planned.platforms, made.runs, tmp_path)
    assert found.versions == ["2.21.0 (7 runs)"]
    assert found.commits == [f"{'0' * 40} (7 runs)"]
    assert found.hosts == ["node0", "node1", "node2", "node3"]
    cluster = dict(
        zip(
            [column.name for column in found.platforms.columns],
            [cell.text for cell in found.platforms.rows[0]],
            strict=True,
        )
    )
    assert cluster["instance_type"] == "big-8"
    assert cluster["usd_per_node_hour"] == "3.5"
    assert (cluster["price_date"], cluster["price_source"]) == ("2026-01", "a list")
    assert found.example is not None and found.example.startswith("runs/platform=cluster/")


def test_the_summary_counts_the_runs_that_diverged(tmp_path: Path) -> None:
    made = study(tmp_path)
    assert "diverged" not in sections.summary(made.planned.platforms, made.runs, made.comparison)
    made.runs.loc[made.runs["status"] == "failed", "status"] = "diverged"
    text = sections.summary(made.planned.platforms, made.runs, made.comparison)
    assert "7 of 10 runs valid, 2 diverged, " in text
