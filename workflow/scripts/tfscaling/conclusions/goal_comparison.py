"""The comparison of several configurations by a goal, and the choice that it supports.

Configurations that are shown to be within an indifference of the best are equally good: the
cheapest of them is chosen, never one whose difference is only not significant. How often this is
right, with six runs of each configuration: benchmarks/race.py, "full grid".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.estimation.samples import Difference, Samples
from tfscaling.record.metrics import CAMPAIGN_COST, FINISH_TIME, QUALITY
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, metric_of, point_of

#: Goal metric → the cost that decides between configurations that are equally good by it.
COST_OF_GOAL = {
    "execution_time_s": "cost_usd",
    "time_with_queue_s": "cost_usd",
    FINISH_TIME: CAMPAIGN_COST,
    QUALITY: "cost_usd",
    "time_to_target_s": "cost_to_target_usd",
}
_FEWEST_WORDS = {"nodes": "the fewest nodes", "gpus_per_node": "the fewest devices per node"}


@dataclass(frozen=True)
class GoalComparison:
    """The result of comparing several configurations by a goal.

    Attributes:
        chosen: The chosen configuration.
        choice_reason: Advantage of `chosen` over `near_best_others`, such as `the lowest cost`;
            without them it has no meaning.
        near_best_others: The other configurations that are shown to be within the indifference of
            the best.
        bound: Fraction by which `chosen` may be worse than the best; None if it is unknown, for
            example because the best value may be zero.
        is_best: Whether every other configuration is shown to be worse than `chosen`; a bound of 0
            does not imply it.
        comparisons: Number of comparisons whose error rate is controlled together, so that all
            intervals are right with CONFIDENCE.
        differences: Configuration → how much worse it is than `chosen`; None if no other
            configuration was compared.
        others_by_estimate: The other configurations, sorted by their estimates, the best first.
        shown_worse_rivals: Configurations that are shown to be worse than `chosen`, among the ones
            for which the runs leave open whether they keep the limits.
    """

    chosen: PointRow
    choice_reason: str = ""
    near_best_others: tuple[PointRow, ...] = ()
    bound: float | None = 0.0
    is_best: bool = False
    comparisons: int = 0
    differences: Mapping[Point, Difference] | None = None
    others_by_estimate: tuple[PointRow, ...] = ()
    shown_worse_rivals: frozenset[Point] = frozenset()


def compare_by_goal(
    goal: str,
    rows: Sequence[PointRow],
    samples: Samples,
    indifference: float,
    undecided: Sequence[Point] = (),
) -> GoalComparison:
    """Compare configurations by a goal and choose one; each must have enough runs.

    Args:
        goal: The metric.
        rows: The configurations, one or more.
        samples: The values of their runs.
        indifference: Fraction below which a difference does not matter.
        undecided: Further configurations, whose runs do not show whether they keep the limits. They
            are rivals of the chosen one unless they are shown to be worse.
    """
    points, rivals = [point_of(row) for row in rows], len(rows) - 1 + len(undecided)
    if not rows[1:]:
        worse = samples.find_shown_worse(goal, points[0], undecided, rivals)
        bound = 0.0 if len(worse) == len(undecided) else None
        return GoalComparison(rows[0], bound=bound, comparisons=rivals, shown_worse_rivals=worse)
    found = samples.estimate_configurations(goal, points)
    best, tail_probability = found.best, (1 - CONFIDENCE) / 2 / rivals
    of_best = samples.compare_with(goal, found, points, points[best], rivals)
    places = [best, *(n for n in found.near_best(indifference) if n != best)]
    bounds = dict(
        zip(places, found.disadvantage_bounds(tail_probability, places).tolist(), strict=True)
    )
    bounds[best] = max(bounds[best], *(each.disadvantage_bound for each in of_best.values()))
    near = [n for n in places if bounds[n] <= indifference]
    taken, how = best, ""
    if near:
        row, how = choose_preferred(goal, [rows[n] for n in near])
        taken = next(n for n in near if rows[n] is row)
    of_taken = of_best
    if taken != best:
        of_taken = samples.compare_with(goal, found, points, points[taken], rivals)
    bound = max(bounds[taken], *(each.disadvantage_bound for each in of_taken.values()))
    order = [int(n) for n in found.location.argsort(kind="stable") if n != taken]
    return GoalComparison(
        rows[taken],
        how,
        tuple(rows[n] for n in near if n != taken),
        bound if math.isfinite(bound) else None,
        all(each.shows_worse for each in of_taken.values()),
        rivals,
        of_taken,
        tuple(rows[n] for n in order),
        samples.find_shown_worse(goal, points[taken], undecided, rivals),
    )


def choose_preferred(goal: str, near: Sequence[PointRow]) -> tuple[PointRow, str]:
    """Return the preferred one of equally good configurations, and the reason in words.

    It has the lowest cost, or else the fewest nodes and devices.

    Args:
        goal: The goal by which they are equally good.
        near: The configurations, the best estimate first.
    """
    left, cost = list(near), COST_OF_GOAL.get(goal)
    if cost and all(is_known(row[cost]) for row in near):
        least = min(row[cost] for row in near)
        left = [row for row in near if row[cost] == least]
        if len(left) == 1:
            return left[0], "the lowest cost"
    for axis, words in _FEWEST_WORDS.items():
        fewest = min(row[axis] for row in left)
        left = [row for row in left if row[axis] == fewest]
        if len(left) == 1:
            return left[0], words
    return left[0], "the best estimate, as they have the same nodes and devices"


def rank_by_metric(goal: str, rows: Sequence[PointRow]) -> list[PointRow]:
    """Return the rows that have the metric, the best median first; equal ones by fewest nodes."""
    known = [row for row in rows if is_known(row[goal])]
    sign = -1 if known and metric_of(goal, known[0]).is_higher_better else 1
    return sorted(known, key=lambda row: (sign * row[goal], row.nodes))
