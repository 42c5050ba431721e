"""Tables as people read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import raw_config, write_failure, write_record
from tfscaling import configuration, expectations, markdown, tables

COLUMNS = ["execution_time_s", "speedup", "loss", "accuracy", "cost_usd"]


def table_of(
    runs_dir: Path, times: dict[int, float], failures: dict[int, str] | None = None, **block: Any
) -> pd.DataFrame:
    """The comparison with an execution time or the message of a failure for numbers of nodes."""
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2, 4]}
    raw = raw_config((("grid",), [{**usual, **block}]))
    expected = expectations.expected_runs(configuration.validate(raw))
    for entry in expected["runs"]:
        nodes, repeat = entry["axes"]["nodes"], entry["axes"]["repeat"]
        if nodes in (failures or {}):
            write_failure(runs_dir, entry, message=(failures or {})[nodes])
        elif nodes in times:
            write_record(runs_dir, entry, times[nodes] + repeat - 1)
    runs = tables.runs_table(expected, runs_dir)
    return tables.comparison_table(runs, expected["excluded"])


def cells(text: str) -> list[list[str]]:
    """The rows of the first table of a Markdown text: header, separator, rows."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        unescaped = line.replace("\\|", "\0").strip("|").split("|")
        rows.append([cell.replace("\0", "|").strip() for cell in unescaped])
    return rows


def comparison(table: pd.DataFrame, title: str = "Title") -> str:
    return markdown.comparison(table, title, COLUMNS)


def comparison_rows(table: pd.DataFrame) -> list[dict[str, str]]:
    header, _, *rows = cells(comparison(table))
    return [dict(zip(header, row, strict=True)) for row in rows]


ALL = {1: 60.0, 2: 40.0, 4: 20.0}


def test_axes_that_are_the_same_everywhere_stand_above_the_table(tmp_path: Path) -> None:
    text = comparison(table_of(tmp_path, ALL), "My comparison")
    assert text.startswith("# My comparison\n\n")
    assert (
        "All points: platform cluster, model mnist_cnn, strategy multi_worker_mirrored, "
        "recipe weak, gpus_per_node 0, tasks_per_node 1."
    ) in text
    header = cells(text)[0]
    assert "platform" not in header
    assert "gpus_per_node" not in header


def test_axes_that_vary_and_the_number_of_nodes_are_columns(tmp_path: Path) -> None:
    table = table_of(tmp_path, ALL, nodes=[2], gpus_per_node=[0, 2])
    rows = comparison_rows(table)
    assert [(row["nodes"], row["gpus_per_node"]) for row in rows] == [("2", "0"), ("2", "2")]


def test_measured_values_with_their_digits(tmp_path: Path) -> None:
    rows = comparison_rows(table_of(tmp_path, ALL))
    assert [row["nodes"] for row in rows] == ["1", "2", "4"]
    assert [float(row["execution_time_s"]) for row in rows] == [60.0, 40.0, 20.0]
    assert [float(row["speedup"]) for row in rows] == [1.0, 1.5, 3.0]
    assert [float(row["loss"]) for row in rows] == [0.25] * 3
    assert [row["runs"] for row in rows] == ["1 of 1"] * 3


def test_a_median_of_several_runs_shows_their_range(tmp_path: Path) -> None:
    (row, *_) = comparison_rows(table_of(tmp_path, ALL, repeats=3))
    assert row["execution_time_s"] == "61.0 (60.0–62.0)"
    assert row["runs"] == "3 of 3"


def test_only_the_metrics_asked_for_are_shown_in_their_order(tmp_path: Path) -> None:
    table = table_of(tmp_path, ALL)
    header = cells(markdown.comparison(table, "Title", ["accuracy", "loss"]))[0]
    assert header[-2:] == ["accuracy", "loss"]
    assert "execution_time_s" not in header


def test_columns_without_any_value_are_left_out(tmp_path: Path) -> None:
    header = cells(comparison(table_of(tmp_path, ALL)))[0]
    assert "cost_usd" not in header  # there is no price
    assert "reason" not in header  # nothing went wrong


def test_failed_missing_and_excluded_points_are_shown_with_their_reasons(tmp_path: Path) -> None:
    table = table_of(tmp_path, {1: 60.0}, {2: "out of memory"}, nodes=[1, 2, 4, 9])
    rows = comparison_rows(table)
    assert [row["status"] for row in rows] == ["ok", "failed", "missing", "excluded"]
    assert rows[1]["reason"] == "repeat 1 failed: rank_died: rank 1 on node1: out of memory"
    assert rows[2]["reason"] == "repeat 1 missing: not run yet"
    assert rows[3]["reason"] == "9 nodes exceed nodes_max 8"
    assert [row["execution_time_s"] for row in rows[1:]] == ["–", "–", "–"]
    assert [row["runs"] for row in rows[1:]] == ["0 of 1", "0 of 1", "0"]


NASTY = "UnavailableError: first line\nsecond | line\n\nAdditional GRPC error"


def test_a_message_of_several_lines_with_bars_stays_one_row(tmp_path: Path) -> None:
    rows = comparison_rows(table_of(tmp_path, {1: 60.0, 4: 20.0}, {2: NASTY}))
    assert len(rows) == 3
    assert "first line second | line" in rows[1]["reason"]


def test_the_baseline_of_the_speedup_is_told(tmp_path: Path) -> None:
    text = comparison(table_of(tmp_path, ALL))
    assert (
        "Speed-up of cluster, recipe weak: relative to "
        "nodes=1 gpus_per_node=0 tasks_per_node=1 (60.0 s)."
    ) in text


def test_a_baseline_that_failed_is_told(tmp_path: Path) -> None:
    table = table_of(tmp_path, {2: 40.0, 4: 20.0}, {1: "killed"})
    table["speedup"] = [None, 1.0, 2.0]  # shown whatever the reason for a value may be
    assert "tasks_per_node=1 (not measured: no speed-up)" in comparison(table)


@pytest.mark.parametrize(("repeats", "is_noted"), [(1, True), (5, True), (6, False)])
def test_too_few_runs_for_an_interval_are_noted(
    tmp_path: Path, repeats: int, is_noted: bool
) -> None:
    text = comparison(table_of(tmp_path, ALL, repeats=repeats))
    assert ("too few for a confidence interval" in text) is is_noted


def test_the_published_form_has_four_columns(tmp_path: Path) -> None:
    text = markdown.platform(table_of(tmp_path, ALL), "cluster", "My cluster")
    assert text.startswith("# My cluster\n\n## mnist_cnn, multi_worker_mirrored, weak: CPU\n")
    header, _, *rows = cells(text)
    assert header == ["Number of nodes", "Code execution time", "Loss", "Accuracy"]
    assert rows == [
        ["1", "60.000 seconds", "0.2500", "0.9000"],
        ["2", "40.000 seconds", "0.2500", "0.9000"],
        ["4", "20.000 seconds", "0.2500", "0.9000"],
    ]


def test_the_published_form_has_one_table_for_each_number_of_gpus(tmp_path: Path) -> None:
    table = table_of(tmp_path, ALL, gpus_per_node=[0, 2, 4], tasks_per_node=[1, 2])
    lines = markdown.platform(table, "cluster", "T").splitlines()
    assert [line.split(": ")[1] for line in lines if line.startswith("## ")] == [
        "CPU",
        "CPU, 2 tasks per node",
        "2 GPUs per node",
        "2 GPUs per node, 2 tasks per node",
        "4 GPUs per node",
        "4 GPUs per node, 2 tasks per node",
    ]


def test_the_published_form_shows_what_failed_or_was_left_out(tmp_path: Path) -> None:
    table = table_of(tmp_path, {1: 60.0}, {2: NASTY}, nodes=[1, 2, 9])
    header, _, *rows = cells(markdown.platform(table, "cluster", "T"))
    assert [row[0] for row in rows] == ["1", "2", "9"]
    assert [len(row) for row in rows] == [len(header)] * 3
    assert rows[1][1].startswith("failed: repeat 1 failed: rank_died: rank 1 on node1: ")
    assert rows[2][1:] == ["excluded: 9 nodes exceed nodes_max 8", "–", "–"]


def test_the_published_form_is_of_one_platform_only(tmp_path: Path) -> None:
    table = table_of(tmp_path, ALL, platform=["cluster", "laptop"])
    rows = cells(markdown.platform(table, "laptop", "T"))[2:]
    assert len(rows) == 3
    assert "cluster" not in markdown.platform(table, "laptop", "T")
