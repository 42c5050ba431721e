"""Which of several points to take for a goal, and how far it may be from the best.

Points that are shown to be within an indifference of the best are as good: of these
the cheapest is taken, never of those whose difference is only not shown.

How often this is right, six runs of each point: benchmarks/race.py, "full grid".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfscaling.records.metrics import QUALITY
from tfscaling.study.run_spec import Point
from tfscaling.tables.intervals import CONFIDENCE
from tfscaling.tables.significance import SUPPORTED, Difference, Samples
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
    is the next best estimate. `against` is how much worse each other point is than the one taken,
    by the same estimates; all its intervals hold together, and `bound` and `is_best` follow them.
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
    against: Mapping[Point, Difference] = field(default_factory=dict)

    @classmethod
    def of(cls, goal: str, rows: Sequence[Row], samples: Samples, indifference: float) -> Contest:
        rivals = len(rows) - 1
        if not rivals:
            return cls(rows[0])
        points = [point_of(row) for row in rows]
        found = samples.estimates(goal, points)

        def against(taken: int) -> dict[int, Difference]:
            others = [n for n in range(len(rows)) if n != taken]
            pairs = [(points[taken], points[n]) for n in others]
            judged = samples.judged(goal, found, points, pairs, rivals)
            return dict(zip(others, judged, strict=True))

        best, tail = found.best, (1 - CONFIDENCE) / 2 / rivals
        of_best = against(best)
        places = [best, *(n for n in found.near(indifference) if n != best)]
        bounds = dict(zip(places, found.may_be_worse(tail, places).tolist(), strict=True))
        bounds[best] = max(bounds[best], _bound(of_best.values()))
        near = [n for n in places if bounds[n] <= indifference]
        taken, how = best, ""
        if near:
            row, how = preferred(goal, [rows[n] for n in near])
            taken = next(n for n in near if rows[n] is row)
        of_taken = of_best if taken == best else against(taken)
        bound = max(bounds[taken], _bound(of_taken.values()))
        order = [int(n) for n in found.location.argsort(kind="stable") if n != best]
        return cls(
            rows[taken],
            how,
            bound if math.isfinite(bound) else None,
            bound <= indifference,
            all(map(_is_worse, of_taken.values())),
            tuple(rows[n] for n in near),
            tuple(rows[n] for n in order if not _is_worse(of_best[n])),
            rows[order[0]],
            rivals,
            {points[n]: each for n, each in of_taken.items()},
        )


def _is_worse(found: Difference) -> bool:
    return found.support == SUPPORTED and found.is_worse


def _bound(found: Iterable[Difference]) -> float:
    """By what fraction the point taken may be worse by the intervals of the ratios."""
    lows = [each.interval[0] for each in found if each.interval and each.ratio is not None]
    return max([0.0, *(1 / low - 1 if low > 0 else math.inf for low in lows)])


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
