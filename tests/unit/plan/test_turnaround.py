"""Which run is the shortest, and which would end first with the queue as it is now."""

from __future__ import annotations

import datetime

from tfscaling.plan import plan_rows, preflight
from tfscaling.plan.plan_rows import TIME_LIMIT, PointRow
from tfscaling.plan.preflight import Answer

NOW = datetime.datetime(2026, 1, 1, 12)


def row(nodes: int, duration_s: float, wait_s: float | None, measured: bool = True) -> PointRow:
    """The row of a point after Slurm was asked; None: it would not start it."""
    made = PointRow(
        platform="cluster", model="net", strategy="own", recipe="short", nodes=nodes,
        gpus_per_node=0, tasks_per_node=1, devices="CPU", feasibility="runs", reason="", runs=1,
        duration_s=duration_s, duration_from="measured, 6 runs" if measured else TIME_LIMIT,
    )  # fmt: skip
    start = None if wait_s is None else NOW + datetime.timedelta(seconds=wait_s)
    return preflight.answered(made, Answer(start, refusal="" if start else "too large"), NOW)


def test_the_end_is_the_wait_and_the_run() -> None:
    found = row(4, 600.0, 1800.0)
    assert (found.wait_s, found.ends_in_s, found.starts) == (1800.0, 2400.0, "at 12:30")
    assert row(4, 600.0, -30.0).wait_s == 0.0  # Slurm's clock is a little behind
    assert row(4, 600.0, None).ends_in_s is None


def test_a_larger_geometry_that_waits_longer_does_not_end_first() -> None:
    (text,) = plan_rows.soonest([row(1, 3600.0, 0.0), row(8, 600.0, 7200.0)])
    assert "the shortest run is that of 8 nodes on cluster (10 min)" in text
    assert "1 node on cluster would end first: in 60 min, that one in 130 min" in text


def test_where_the_shortest_run_ends_first_it_says_so() -> None:
    (text,) = plan_rows.soonest([row(1, 3600.0, 0.0), row(8, 600.0, 10.0)])
    assert "8 nodes" in text and "would end first, too" in text


def test_assumed_durations_and_single_points_are_not_compared() -> None:
    assert not list(plan_rows.soonest([row(1, 3600.0, 0.0), row(8, 3600.0, 9.0, False)]))
    assert not list(plan_rows.soonest([row(1, 3600.0, 0.0), row(8, 60.0, None)]))
