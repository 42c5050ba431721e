"""Which point is taken, by how much it may be worse; how often that is right: test_claims."""

from __future__ import annotations

from typing import Any

import pytest
from measured import around, measured
from tfscaling.conclusions.decision import Contest, preferred
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


def test_a_contest_has_the_interval_of_each_other_point_and_agrees_with_it() -> None:
    times = {("east", n): around(t) for n, t in ((1, 30.0), (2, 20.0), (4, 10.0))}
    found = contest(times)
    assert {point.nodes for point in found.against} == {1, 2} and found.is_best
    ends = {point.nodes: each.interval for point, each in found.against.items()}
    assert all(each is not None and each[0] > 1 for each in ends.values())
    near = contest({("east", 1): around(10.1, 0.3), ("east", 2): around(10.0, 0.3)})
    ((_, one),) = near.against.items()
    assert one.interval is not None and one.interval[0] < 1 and near.bound is not None
    assert 1 / one.interval[0] - 1 <= near.bound + 1e-12


@pytest.mark.parametrize("diverged", [1, 2])
def test_a_point_of_which_a_run_diverged_is_never_decided_for(diverged: int) -> None:
    times = {("east", n): around(t) for n, t in ((1, 200.0), (2, 100.0), (4, 60.0))}
    comparison, runs, _ = measured(times)
    gone = (runs["nodes"] == 4) & (runs["repeat"] <= diverged)
    runs.loc[gone, ["status", "execution_time_s"]] = "diverged", None
    rows = comparison.to_dict("records")
    found = Contest.of("execution_time_s", rows, Samples(runs), 0.05)
    assert (found.taken["nodes"], found.is_decided, found.is_best) == (4, False, False)
    assert found.bound is None
    # where it is slower it hinders nothing
    runs.loc[runs["nodes"] == 4, "execution_time_s"] *= 5
    found = Contest.of("execution_time_s", rows, Samples(runs), 0.05)
    assert (found.taken["nodes"], found.is_decided, found.is_best) == (2, True, True)


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
