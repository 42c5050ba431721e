"""Clouds are compared at the points that both have, and win only what their runs support."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from measured import around, measured
from tfscaling.conclusions import clouds
from tfscaling.conclusions.evidence import Study


def rows_of(table: pd.DataFrame, **values: Any) -> list[dict[Any, Any]]:
    return [r for r in table.to_dict("records") if all(r[k] == v for k, v in values.items())]


def test_the_faster_cloud_wins_with_its_margin_and_interval() -> None:
    table = clouds.table(Study(*measured({("east", 2): around(10.0), ("west", 2): around(15.0)})))
    (row,) = rows_of(table, metric="execution_time_s")
    assert (row["winner"], row["verdict"]) == ("gcp", "supported")
    assert row["margin"] == pytest.approx(1.5)
    assert row["low"] < 1.5 < row["high"]
    (cost,) = rows_of(table, metric="cost_usd")
    assert cost["margin"] == pytest.approx(3.0)  # at twice the price


def test_the_more_accurate_cloud_wins_by_its_error() -> None:
    times = {("east", 1): [1.0], ("west", 1): [1.0]}
    table = clouds.table(Study(*measured(times, {("east", 1): [0.96], ("west", 1): [0.99]})))
    (row,) = rows_of(table, metric="test_accuracy")
    assert (row["winner"], row["verdict"]) == ("aws", "too few runs")
    assert row["margin"] == pytest.approx(4.0)


def test_a_value_of_zero_has_a_difference_instead_of_a_ratio() -> None:
    times = {("east", 1): around(10.0), ("west", 1): around(10.0)}
    accuracies = {("east", 1): [1.0] * 6, ("west", 1): around(0.9, 0.001)}
    comparison, runs, planned = measured(times, accuracies)
    table = clouds.table(Study(comparison, runs, planned))
    for metric in ("test_accuracy", "loss"):
        (row,) = rows_of(table, metric=metric)
        assert (row["winner"], row["verdict"]) == ("gcp", "supported")
        assert (row["margin_kind"], row["margin"]) == ("difference", pytest.approx(0.1))
        assert 0.09 < row["low"] < 0.1 < row["high"] < 0.11
    shown = clouds.as_text(table).cells.set_index("metric")
    assert str(shown.loc["test_accuracy", "margin"]).startswith("by 0.1000 (0.")


def test_verdicts_hold_for_all_comparisons_of_the_table() -> None:
    times = {(name, nodes): around(10.0) for name in ("east", "west") for nodes in (1, 2, 4)}
    comparison, runs, planned = measured(times)
    table = clouds.table(Study(comparison, runs, planned))
    assert set(table["comparisons"]) == {12}
    assert any("all 12 comparisons" in note for note in clouds.as_text(table).notes)


def test_points_that_do_other_work_are_not_compared() -> None:
    times = {(name, nodes): around(10.0) for name in ("east", "west") for nodes in (1, 2)}
    comparison, runs, planned = measured(times)
    other = (comparison["platform"] == "west") & (comparison["nodes"] == 2)
    comparison["same_work"] = ~other
    comparison.loc[~comparison["same_work"], "examples_trained"] = 576
    comparison.loc[other, "reason"] = "does not do the same work: trained 5"
    table = clouds.table(Study(comparison, runs, planned))
    assert set(table["nodes"]) == {1}


@pytest.mark.parametrize("cloud", [None, "gcp"])
def test_platforms_of_one_cloud_or_none_are_not_compared(cloud: str | None) -> None:
    times = {("east", 1): [10.0], ("west", 1): [5.0]}
    table = clouds.table(Study(*measured(times, cloud=cloud)))
    assert table.empty
    assert list(table.columns) == list(clouds.COLUMNS)
