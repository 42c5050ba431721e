"""Which point is taken, by how much it may be worse; how often that is right: test_claims."""

from __future__ import annotations

from typing import Any

import pytest
from measured import around, measured
from tfscaling.analysis.contest import Contest, preferred
from tfscaling.tables.significance import Samples

Times = dict[tuple[str, int], list[float]]


def contest(times: Times, indifference: float = 0.05, goal: str = "execution_time_s") -> Contest:
    comparison, runs, _ = measured(times)
    return Contest.of(goal, comparison.to_dict("records"), Samples(runs), indifference)


def test_a_point_alone_is_the_best() -> None:
    found = contest({("east", 1): around(10.0)})
    assert (found.is_best, found.bound, found.comparisons) == (True, 0, 0)


def test_the_best_of_points_that_lie_apart() -> None:
    found = contest({("east", 1): around(30.0), ("east", 2): around(20.0), ("east", 4): [10.0] * 6})
    assert (found.taken["nodes"], found.is_best, found.bound) == (4, True, 0)
    assert found.after is not None and found.after["nodes"] == 2
    assert (found.alike, found.comparisons) == ((), 2)


def test_a_larger_indifference_decides_more() -> None:
    times = {("east", 1): around(10.4), ("east", 2): around(10.0)}
    strict, usual = contest(times, 0.01), contest(times, 0.10)
    assert (strict.taken["nodes"], usual.taken["nodes"]) == (2, 1)
    assert [row["nodes"] for row in usual.near] == [2, 1]
    assert usual.bound is not None and 0.04 < usual.bound <= 0.10


def test_what_is_not_shown_to_be_near_is_not_decided() -> None:
    found = contest({("east", 1): around(10.1, 0.3), ("east", 2): around(10.0, 0.3)})
    assert (found.is_decided, found.is_best, found.near) == (False, False, ())
    assert [row["nodes"] for row in found.alike] == [1]
    assert found.bound is not None and found.bound > 0.05


def row(**changes: Any) -> dict[str, Any]:
    return {"nodes": 2, "gpus_per_node": 1, "cost_usd": 1.0} | changes


@pytest.mark.parametrize(
    ("near", "taken"),
    [
        ([row(), row(cost_usd=0.5, nodes=8)], 1),
        ([row(), row(nodes=1)], 1),
        ([row(), row(gpus_per_node=0)], 1),
        ([row(), row()], 0),
        ([row(cost_usd=None, nodes=3), row(cost_usd=0.1, nodes=4)], 0),
    ],
)
def test_of_points_that_are_as_good_the_cheapest_then_the_smallest_is_taken(
    near: list[dict[str, Any]], taken: int
) -> None:
    assert preferred("execution_time_s", near)[0] is near[taken]
