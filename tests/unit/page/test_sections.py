"""The sections of the page besides its tables."""

from __future__ import annotations

import re
from pathlib import Path

from report_inputs import decision, findings, study
from tfscaling.conclusions.findings import TOPICS
from tfscaling.page import sections
from tfscaling.tables.data_warnings import LIMITED, SERIOUS, DataWarning


def test_choices_and_findings_are_grouped_by_task_and_topic() -> None:
    (work,) = sections.choices(decision())
    assert work.title == "", "a single task needs no name"
    assert [(c.subject, c.text) for c in work.statements] == [
        ("Shortest time", "Too few runs."),
        ("Lowest cost", "Use 1 node."),
    ]
    found = sections.topics(findings(), "test accuracy")
    assert {topic.title: len(topic.statements) for topic in found} == {
        "What it costs in test accuracy": 1, "How far it scales": 2,
    }  # fmt: skip
    assert set(sections.TOPICS) == set(TOPICS)


def test_what_was_not_measured_has_no_card() -> None:
    unpriced = decision(("w", "cost_usd", "t", "No point has a price.", "not measured"))
    assert sections.choices(unpriced) == []


def test_warnings_are_a_line_for_each_severity() -> None:
    named = [("One", SERIOUS), *((str(number), LIMITED) for number in range(9))]
    found = [DataWarning("a_kind", severity, "", text, (), 1) for text, severity in named]
    serious, limited = sections.warning_lines(found)
    assert (serious[0], limited[0]) == (SERIOUS, LIMITED)
    assert serious[1].endswith(": One.") and limited[1].endswith("; 8.")


def test_runs_are_counted_by_status_and_points_by_the_size_of_their_samples(
    tmp_path: Path,
) -> None:
    made = study(tmp_path)
    counts = {row[0]: row[1] for row in sections.statuses(made.runs, made.comparison).rows}
    assert counts == {
        "ok": "7", "diverged": "0", "failed": "2", "unfinished": "0", "stale": "0",
        "missing": "1", "excluded": "1",
    }  # fmt: skip
    assert re.findall(r"\d+", sections.samples(made.comparison)) == ["0", "6", "4", "1"]
    comparison = made.comparison.assign(runs=6, runs_timed=[6, 2, 0, 6, 6, 0])
    comparison = comparison[comparison["status"] != "excluded"]
    assert re.findall(r"\d+", sections.samples(comparison)) == ["3", "6", "1", "1"]


def test_the_runs_of_a_point_that_share_a_reason_are_one_row(tmp_path: Path) -> None:
    made = study(tmp_path)
    left_out = sections.left_out(made.runs, made.comparison)
    assert left_out is not None
    assert [row[:3] for row in left_out.rows] == [
        ("4", "2", "missing"), ("8", "1, 2", "failed"), ("9", "all", "excluded"),
    ]  # fmt: skip


def test_the_environment_names_versions_hosts_prices_and_records(tmp_path: Path) -> None:
    made = study(tmp_path / "runs")
    found = sections.environment(made.planned.platforms, made.runs, tmp_path)
    assert found.versions == ["2.21.0 (7 runs)"]
    assert found.commits == [f"{'0' * 40} (7 runs)"]
    assert found.hosts == ["node0", "node1", "node2", "node3"]
    cluster = found.platforms.shown.cells.iloc[0]
    assert cluster["instance_type"] == "big-8"
    assert cluster["usd_per_node_hour"] == "3.5"
    assert (cluster["price_date"], cluster["price_source"]) == ("2026-01", "a list")
    assert found.example is not None and found.example.startswith("runs/platform=cluster/")
