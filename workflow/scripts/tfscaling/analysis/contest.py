"""Which of several points to take for a goal, and how far it may be from the best.

Points that are shown to be within an indifference of the best are as good: of these
the cheapest is taken, never of those whose difference is only not shown.

In simulation, six runs of each of the published points, 500 sweeps of each platform: a contest is
decided for a point more than 5 % from the best in at most 0.2 %, and the bound holds in at least
98.8 %. The point taken, decided or not, is within 5 % of the best in 100 % (runs scatter by 5 %),
99.8 % (10 %), 88 % (20 %) and 99.2 % (5 %, and one run in twenty takes three times as long) on the
worst platform; the cheapest of those without a shown difference was in 100, 76, 32 and 74 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfscaling.records.metrics import QUALITY
from tfscaling.tables.intervals import CONFIDENCE
from tfscaling.tables.significance import Samples
from tfscaling.tables.table_rows import Row, is_known, point_of

#: Metric → the cost that decides between points that are equally good by it.
COSTS = {
    "execution_time_s": "cost_usd",
    "time_with_queue_s": "cost_usd",
    QUALITY: "cost_usd",
    "time_to_target_s": "cost_to_target_usd",
}
_FEWEST = {"nodes": "the fewest nodes", "gpus_per_node": "the fewest devices per node"}


@dataclass(frozen=True)
class Contest:
    """The points of a goal against each other, each with runs enough.

    `taken` is the point to take and `how` it was chosen; `bound` is by what fraction it may be
    worse than the best, None where the best may be zero; the contest is decided if that is no more
    than the indifference. `is_best`: every other point is shown to be worse than it. `near` are all
    points shown to be so near, `alike` those not shown to be worse than the best estimate, `after`
    is the next best estimate.
    """

    taken: Row
    how: str = ""
    bound: float | None = 0.0
    is_decided: bool = True
    is_best: bool = True
    near: tuple[Row, ...] = ()
    alike: tuple[Row, ...] = ()
    after: Row | None = None
    comparisons: int = 0

    @classmethod
    def of(cls, goal: str, rows: Sequence[Row], samples: Samples, indifference: float) -> Contest:
        rivals, error = len(rows) - 1, 1 - CONFIDENCE
        if not rivals:
            return cls(rows[0])
        found = samples.estimates(goal, [point_of(row) for row in rows])
        best = found.best
        places = [best, *(n for n in found.near(indifference) if n != best)]
        bounds = dict(zip(places, found.may_be_worse(error / rivals, places), strict=True))
        near = [n for n in places if bounds[n] <= indifference]
        taken, how = best, ""
        if near:
            row, how = preferred(goal, [rows[n] for n in near])
            taken = next(n for n in near if rows[n] is row)
        worse = found.is_worse(best, error / rivals)
        # that no other is as good takes one comparison more than a bound does
        surely_worse = np.delete(found.is_worse(best, error / len(rows)), best)
        order = [int(n) for n in found.location.argsort(kind="stable") if n != best]
        bound = float(bounds[taken])
        return cls(
            rows[taken],
            how,
            bound if math.isfinite(bound) else None,
            bool(near),
            taken == best and bool(surely_worse.all()),
            tuple(rows[n] for n in near),
            tuple(rows[n] for n in order if not worse[n]),
            rows[order[0]],
            rivals,
        )


def preferred(goal: str, near: Sequence[Row]) -> tuple[Row, str]:
    """(the point to take of those that are all near enough to the best, why)."""
    left, cost = list(near), COSTS.get(goal)
    if cost and all(is_known(row[cost]) for row in near):
        least = min(row[cost] for row in near)
        left = [row for row in near if row[cost] == least]
        if len(left) == 1:
            return left[0], "of these it has the lowest cost"
    for axis, words in _FEWEST.items():
        fewest = min(row[axis] for row in left)
        left = [row for row in left if row[axis] == fewest]
        if len(left) == 1:
            return left[0], f"of these it has {words}"
    return left[0], "of these it has the best estimate, as they have the same nodes and devices"
