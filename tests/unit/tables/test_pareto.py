"""Points that nothing beats."""

from __future__ import annotations

import pytest
from tfscaling.tables.significance import pareto_set


@pytest.mark.parametrize(
    ("times", "others", "metric", "best"),
    [
        ([1, 2, 3], [3, 2, 1], "cost_usd", [0, 1, 2]),
        ([1, 2, 3], [1, 2, 3], "cost_usd", [0]),
        ([3, 2, 1], [0.9, 0.8, 0.85], "test_accuracy", [2, 0]),
        ([1, 1, 2], [5, 4, 4], "cost_usd", [1]),
        ([1, 1], [5, 5], "cost_usd", [0, 1]),
        ([], [], "cost_usd", []),
    ],
)
def test_the_pareto_set_is_what_nothing_beats_in_both(
    times: list[float], others: list[float], metric: str, best: list[int]
) -> None:
    rows = [
        {"execution_time_s": time, metric: other} for time, other in zip(times, others, strict=True)
    ]
    assert pareto_set(rows, ["execution_time_s", metric]) == best


def test_a_point_that_is_best_in_one_of_three_metrics_is_in_the_set() -> None:
    names = ["execution_time_s", "cost_usd", "test_accuracy"]
    values = [(10, 3, 0.9), (20, 2, 0.9), (30, 3, 0.95), (30, 3, 0.9)]
    rows = [dict(zip(names, row, strict=True)) for row in values]
    assert pareto_set(rows, names) == [0, 1, 2]
