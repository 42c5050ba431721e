"""Findings claim no more than the intervals support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from measured import NOTHING_PLANNED, around, measured, resumed_from
from tfscaling.conclusions import findings
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.findings import Finding
from tfscaling.study.config_types import LINE_AXES
from tfscaling.study.manifest import Manifest
from tfscaling.tables.display import axis_text
from tfscaling.tables.table_files import to_rows


def find(*arguments: Any, **settings: Any) -> pd.DataFrame:
    return find_in(measured(*arguments, **settings))


def find_in(made: tuple[pd.DataFrame, pd.DataFrame, Manifest]) -> pd.DataFrame:
    comparison, runs, planned = made
    study = Study(comparison, runs, planned)
    return findings.table(study)


def one(found: pd.DataFrame, kind: str) -> Finding:
    """The only finding of a kind."""
    (row,) = (each for each in to_rows(Finding, found) if each.kind == kind)
    return row


def test_more_nodes_that_are_slower_are_named() -> None:
    found = find({("east", 1): around(10.0), ("east", 2): around(20.0), ("east", 4): around(12.0)})
    slower = one(found, "slower")
    assert (slower.nodes, slower.support) == ("2; 4", "supported")
    assert 1 < slower.low < slower.ratio < slower.high < 3
    assert one(found, "stops paying").nodes == "1"


def test_where_nodes_stop_paying_is_the_last_that_is_shown_to_be_faster() -> None:
    found = find({("east", 1): around(40.0), ("east", 2): around(20.0),
                  ("east", 4): around(19.9), ("east", 8): around(21.0)})  # fmt: skip
    last = one(found, "stops paying")
    assert (last.nodes, last.support) == ("2", "supported")
    assert 1 < last.low < last.ratio < last.high < 3


def test_where_the_largest_number_measured_pays_the_end_is_open() -> None:
    found = find({("east", 1): around(40.0), ("east", 2): around(20.0)})
    assert (one(found, "pays").nodes, one(found, "pays").comparisons) == ("2", 2)
    # all lines that are judged share the error
    lines = {("east", 1): around(40.0), ("east", 2): around(20.0), ("west", 1): around(9.0),
             ("west", 2): around(5.0), ("west", 4): around(2.0)}  # fmt: skip
    assert {each.comparisons for each in to_rows(Finding, find(lines)) if each.kind == "pays"} == {
        5
    }


@pytest.mark.parametrize(("best", "ratio"), [(0.99, 5.0), (1.0, None)])
def test_quality_lost_at_the_fastest_point(best: float, ratio: float | None) -> None:
    """An error of zero has no ratio."""
    times = {("east", 1): around(40.0), ("east", 2): around(20.0)}
    scatter = 0.0001 if ratio else 0.0
    accuracies = {("east", 1): around(best, scatter), ("east", 2): around(0.95, 0.0001)}
    lost = one(find(times, accuracies), "quality lost")
    assert (lost.topic, lost.nodes, lost.support) == ("quality", "2", "supported")
    assert lost.ratio == pytest.approx(ratio, rel=0.05) if ratio else np.isnan(lost.ratio)
    assert lost.low < lost.high


def test_what_looks_slower_is_told_apart_from_what_is_shown_to_be() -> None:
    found = find({("east", 1): around(10.0), ("east", 2): around(20.0),
                  ("east", 4): around(10.1)})  # fmt: skip
    slower = found[found["kind"] == "slower"]
    assert dict(zip(slower["nodes"], slower["support"], strict=True)) == {
        "2": "supported",
        "4": "inconclusive",
    }


def test_a_flat_line_of_scattered_runs_shows_nothing_of_where_nodes_stop_paying() -> None:
    found = find({("east", n): around(time, 0.2) for n, time in ((1, 100.0), (2, 92), (4, 88))})
    assert one(found, "not shown to pay").support == "inconclusive"


def test_with_too_few_runs_the_medians_alone_are_told() -> None:
    found = find({("east", 1): [40.0], ("east", 2): [20.0], ("east", 4): [21.0]})
    fastest = one(found, "medians")
    assert (fastest.nodes, fastest.support, fastest.comparisons) == ("2", "too few runs", 0)


def test_a_point_without_times_is_not_the_fastest() -> None:
    times = {("east", 1): [90.0] * 3, ("east", 2): [100.0] * 3, ("east", 4): [60.0] * 3}
    assert one(find_in(resumed_from(measured(times), 1)), "medians").nodes == "4"
    # 4 nodes were measured, but nobody knows how fast
    assert one(find_in(resumed_from(measured(times), 4)), "medians").nodes == "1"
    assert find_in(resumed_from(measured(times), 1, 2, 4)).empty
    one_known = find_in(resumed_from(measured(times), 1, 2))
    assert "scaling" not in set(one_known["topic"])


def test_points_that_take_no_part_are_named_in_a_finding_of_their_line() -> None:
    comparison, runs, _ = measured({("east", n): around(40.0 / n) for n in (1, 2, 4, 8)})
    comparison["same_work"] = comparison["nodes"] != 8
    comparison.loc[~comparison["same_work"], "examples_trained"] = 576
    runs.loc[(runs["nodes"] == 4) & (runs["repeat"] > 2), "status"] = "diverged"
    found = findings.table(Study(comparison, runs, NOTHING_PLANNED))
    left_out = one(found, "not compared")
    assert "576" in left_out.text and "diverged" in left_out.text
    assert (one(found, "pays").nodes, one(found, "pays").support) == ("2", "supported")


def test_a_point_that_diverged_sometimes_is_no_finding_without_saying_so() -> None:
    comparison, runs, _ = measured({("east", 1): around(40.0), ("east", 2): around(20.0)})
    gone = (runs["nodes"] == 2) & (runs["repeat"] == 1)
    runs.loc[gone, ["status", "execution_time_s"]] = "diverged", None
    (text,) = findings.table(Study(comparison, runs, NOTHING_PLANNED))["text"]
    assert "diverged" in text


TWO_CLOUDS = {("east", 1): around(10.0), ("west", 1): around(12.0), ("east", 2): around(8.0),
              ("west", 2): around(4.0)}  # fmt: skip


def test_clouds_win_points_not_the_match() -> None:
    found = find(TWO_CLOUDS)
    rows = found[(found["topic"] == "clouds") & found["text"].str.contains("execution time")]
    assert list(rows["support"]) == ["supported"]
    text = rows["text"].iloc[0]
    assert "gcp at 1 of 2" in text and "aws at 1 of 2" in text
    assert set(rows["comparisons"]) == {8}  # two points, four metrics


def test_the_page_has_a_list_for_each_topic() -> None:
    study = Study(*measured(TWO_CLOUDS))
    page = findings.page(find(TWO_CLOUDS), study)
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert headings == ["# Findings", "## Scaling", "## Clouds"]
    (row,) = (row for row in page.splitlines() if row.startswith("- **east** (supported): "))
    assert "8.00 (7.92–8.08) s" in row


@pytest.mark.parametrize("axis", LINE_AXES)
def test_a_line_is_named_by_the_axes_that_differ(axis: str) -> None:
    usual: dict[str, Any] = {
        "platform": ("east", "west"), "gpus_per_node": (1, 2), "tasks_per_node": ("1", "2")
    }  # fmt: skip
    first, second = usual.get(axis, ("a", "b"))
    times = {(name, n): around(40.0 / n) for name in ("east", "west") for n in (1, 2)}
    comparison, runs, _ = measured(times)
    for table in (comparison, runs):
        other = table["platform"] == "west"
        table["platform"], table[axis] = "east", first
        table.loc[other, axis] = second
        table["devices"] = "GPU" if axis == "gpus_per_node" else "CPU"
    found = to_rows(Finding, findings.table(Study(comparison, runs, NOTHING_PLANNED)))
    rows = [{"devices": "GPU", axis: value} for value in (first, second)]
    assert {row.subject for row in found if row.topic == "scaling"} == {
        axis_text(axis, row) for row in rows
    }
