"""What the page says around its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import valid_config
from report_inputs import DECISION, decision, findings, study
from tfscaling import expectations, report_sections, truth
from tfscaling.findings import TOPICS
from tfscaling.metrics import METRICS


def test_the_choices_come_first_and_findings_follow_by_topic() -> None:
    answer = report_sections.answer(decision(), findings())
    (work,) = answer["works"]
    assert work["title"] == "", "one work needs no name"
    assert [(c["subject"], c["text"]) for c in work["choices"]] == [
        ("Shortest time", "Too few runs."),
        ("Lowest cost", "Use 1 node."),
    ]
    others = {topic["title"]: [f["text"] for f in topic["findings"]] for topic in answer["others"]}
    assert others == {
        "What it costs in accuracy": ["The fastest errs more."],
        "How far it scales": ["More nodes pay.", "More nodes do not pay."],
    }


def test_the_choices_of_each_work_have_its_name() -> None:
    other = ("resnet50, weak", "cost_usd", "Lowest cost", "Use 2 nodes.", "supported")
    works = report_sections.answer(decision(*DECISION, other), findings())["works"]
    assert [(w["title"], len(w["choices"])) for w in works] == [
        ("mnist_cnn, weak", 2), ("resnet50, weak", 1),
    ]  # fmt: skip


def test_every_topic_of_findings_has_a_heading() -> None:
    assert set(report_sections.TOPICS) == set(TOPICS)


@pytest.mark.parametrize(
    ("support", "is_certain", "tone"),
    [
        ("supported", True, "good"),
        ("inconclusive", False, "doubt"),
        ("too few runs", False, "doubt"),
        ("not measured", False, "doubt"),
        ("something new", False, "doubt"),
    ],
)
def test_only_what_is_supported_is_certain(support: str, is_certain: bool, tone: str) -> None:
    answer = report_sections.answer(decision(("w", "cost_usd", "t", "text", support)), findings())
    found = answer["works"][0]["choices"][0]
    assert (found["support"], found["is_certain"], found["tone"]) == (support, is_certain, tone)


def warnings_of(config: dict[str, Any], **columns: Any) -> list[str]:
    """The warnings about two valid runs of two nodes each; `columns` of the table of runs."""
    expected = expectations.expected_runs(config)
    usual = {"status": "ok", "platform": expected["runs"][0]["axes"]["platform"]}
    usual |= {"hosts": "node1 node2", "machines": "m1 m2", "shared_with": 0}
    return report_sections.warnings(expected, pd.DataFrame([{**usual, **columns}] * 2))


def test_nodes_that_are_one_machine_are_said_loudly() -> None:
    (only,) = warnings_of(valid_config(), machines="m1")
    assert only.startswith("cluster: several nodes of a run were one machine")
    assert warnings_of(valid_config(), machines="m1", status="failed") == []


def test_runs_that_shared_a_machine_are_counted() -> None:
    (only,) = warnings_of(valid_config(), shared_with=3)
    assert only.startswith("2 runs shared a machine with another")


def test_platforms_with_gpus_on_slurm_need_no_warning() -> None:
    assert warnings_of(valid_config()) == []


def test_logical_devices_matter_only_where_they_stand_for_gpus() -> None:
    config = valid_config((("grid", 0, "platform"), "laptop"))
    (only,) = warnings_of(config)
    assert "processes on one machine" in only


def test_runs_are_counted_by_status_and_points_by_the_size_of_their_samples(
    tmp_path: Path,
) -> None:
    made = study(tmp_path)
    validity = report_sections.validity(made.runs, made.comparison)
    counts = {row[0].text: row[1].text for row in validity["statuses"].rows}
    assert counts == {
        "ok": "7", "diverged": "0", "failed": "2", "unfinished": "0", "stale": "0",
        "missing": "1", "excluded": "1",
    }  # fmt: skip
    assert validity["samples"].startswith(
        "0 points with at least 6 valid runs, 4 with fewer, 1 with none"
    )


def test_the_runs_of_a_point_that_share_a_reason_are_one_row(tmp_path: Path) -> None:
    made = study(tmp_path)
    left_out = report_sections.validity(made.runs, made.comparison)["left_out"]
    assert [[cell.text for cell in row[:3]] for row in left_out.rows] == [
        ["4", "2", "missing"],
        ["8", "1, 2", "failed"],
        ["9", "all", "excluded"],
    ]
    assert "platform cluster" in left_out.above


def test_every_check_and_every_metric_is_explained() -> None:
    assert report_sections.CHECKS.keys() == truth.CHECKS.keys()
    rows = report_sections.definitions()["metrics"].rows
    assert [row[0].text for row in rows] == list(METRICS)
    assert all(len(row[-1].text) > 15 and row[3].text in ("lower", "higher") for row in rows)
    by_name = {row[0].text: row[-1].text for row in rows}
    assert by_name["execution_time_s"] == (
        "The trainer's first line to the end of training - without evaluations between epochs."
    )


def test_the_environment_names_versions_hosts_prices_and_records(tmp_path: Path) -> None:
    made = study(tmp_path / "runs")
    found = report_sections.environment(made.expected, made.runs, tmp_path)
    assert found["versions"] == ["2.21.0 (7 runs)"]
    assert found["commits"] == [f"{'0' * 40} (7 runs)"]
    assert found["hosts"] == ["node0", "node1", "node2", "node3"]
    cluster = dict(
        zip(
            [column.name for column in found["platforms"].columns],
            [cell.text for cell in found["platforms"].rows[0]],
            strict=True,
        )
    )
    assert cluster["instance_type"] == "big-8"
    assert cluster["usd_per_node_hour"] == "3.5"
    assert (cluster["price_date"], cluster["price_source"]) == ("2026-01", "a list")
    assert found["example"].startswith("runs/platform=cluster/")


def test_the_summary_counts_the_runs_that_diverged(tmp_path: Path) -> None:
    made = study(tmp_path)
    assert "diverged" not in report_sections.summary(made.expected, made.runs, made.comparison)
    made.runs.loc[made.runs["status"] == "failed", "status"] = "diverged"
    text = report_sections.summary(made.expected, made.runs, made.comparison)
    assert "7 of 10 runs valid, 2 diverged, " in text
