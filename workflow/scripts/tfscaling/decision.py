"""Which point to take: for time, cost and accuracy, as far as the runs show it. Layer 4 (view).

A point is compared with those of the same model and recipe only: the others do other work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tfscaling.comparison import OF_ALL_RUNS
from tfscaling.grid import POINT_AXES
from tfscaling.metrics import METRICS
from tfscaling.samples import (
    INCONCLUSIVE,
    NOT_MEASURED,
    SUPPORTED,
    TOO_FEW,
    Point,
    Samples,
    point_of,
    weakest,
)
from tfscaling.sentences import Row, counted, listed, place, value
from tfscaling.statistics import RUNS_FOR_INTERVAL

#: Points that share these do the same work.
WORK_AXES = ("model", "recipe")
COLUMNS = ("work", "goal", "title", "text", "support", *POINT_AXES, "alike")
#: Axes that the name of a point gives only where its rivals differ in them.
_OTHER_AXES = ("strategy", "tasks_per_node")
#: Metric → what the choice is for.
GOALS = {
    "execution_time_s": "Shortest time",
    "cost_usd": "Lowest cost",
    "test_accuracy": "Best accuracy on held-out examples",
    "time_to_accuracy_s": "Shortest time to held-out accuracy",
    "cost_to_accuracy_usd": "Lowest cost to held-out accuracy",
}
#: Metric → the cost that decides between points that it cannot tell apart.
_COST = {
    "execution_time_s": "cost_usd",
    "test_accuracy": "cost_usd",
    "time_to_accuracy_s": "cost_to_accuracy_usd",
}
_FEWEST = {"nodes": "the fewest nodes", "gpus_per_node": "the fewest GPUs per node"}


@dataclass(frozen=True)
class Choice:
    """What to take for a goal, a metric; `point` is None where the runs decide nothing.

    `alike` are the points from which the best cannot be told apart.
    """

    work: str
    goal: str
    title: str
    text: str
    support: str
    point: Point | None = None
    alike: tuple[Point, ...] = ()


def table(choices: Sequence[Choice]) -> pd.DataFrame:
    """COLUMNS: one row for each choice; the axes are those of the point to take, if there is one.

    `alike` is the number of points from which the best cannot be told apart.
    """
    rows = []
    for choice in choices:
        row: dict[str, Any] = {"work": choice.work, "goal": choice.goal, "title": choice.title}
        row |= {"text": choice.text, "support": choice.support, "alike": len(choice.alike)}
        rows.append(row | dict(zip(POINT_AXES, choice.point or (), strict=False)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def decide(comparison: pd.DataFrame, runs: pd.DataFrame) -> list[Choice]:
    """A choice for each goal and each work of which anything was measured."""
    samples = Samples(runs)
    found = []
    for work, rows in works(comparison):
        measured = [row for row in rows if row["runs"] > 0]
        targets = [row["target_accuracy"] for row in measured if pd.notna(row["target_accuracy"])]
        also = varying(rows)
        for goal, title in GOALS.items() if measured else ():
            if goal not in OF_ALL_RUNS or targets:
                named = f"{title} {targets[0]:g}" if goal in OF_ALL_RUNS else title
                found.append(_choice(work, goal, named, measured, samples, also))
    return found


def works(comparison: pd.DataFrame) -> Iterator[tuple[str, list[Row]]]:
    """(model and recipe, points) of each work."""
    found: dict[str, list[Row]] = {}
    for row in comparison.to_dict("records"):
        found.setdefault(", ".join(str(row[axis]) for axis in WORK_AXES), []).append(row)
    yield from found.items()


def varying(rows: Sequence[Row]) -> list[str]:
    """The axes that the name of a point must give, because its rivals differ in them."""
    return [axis for axis in _OTHER_AXES if len({str(row[axis]) for row in rows}) > 1]


def _choice(
    work: str,
    goal: str,
    title: str,
    measured: Sequence[Row],
    samples: Samples,
    also: Sequence[str],
) -> Choice:
    known = [row for row in measured if pd.notna(row[goal])]
    without = _without(goal, [row for row in measured if pd.isna(row[goal])], len(known), also)
    if not known:
        return Choice(work, goal, title, without, NOT_MEASURED)
    sign = -1 if METRICS[goal].direction == "higher" else 1
    known.sort(key=lambda row: (sign * row[goal], row["nodes"]))
    best, rivals = known[0], known[1:]
    if not _has_enough(samples, goal, best):
        made = f"{best['runs']} run{'s' if best['runs'] > 1 else ''}"
        extreme = "greatest" if sign < 0 else "smallest"
        text = (
            f"Too few runs to decide; the {extreme} median has {place(best, also)}: "
            f"{value(goal, best)}, of {made}."
        )
        return Choice(work, goal, title, _joined(text, without), TOO_FEW)
    compared = [row for row in rivals if _has_enough(samples, goal, row)]
    few = [row for row in rivals if not _has_enough(samples, goal, row)]
    # a best median of 0 has no ratios: what is not shown to be worse is not told apart
    alike = [row for row in compared if not _is_worse(samples, goal, best, row)]
    taken, text = best, f"Use {place(best, also)}: {value(goal, best)}."
    if alike:
        taken, how = _preferred(goal, [best, *alike], samples)
        told = dict.fromkeys((goal, _COST.get(goal, goal)))
        text = (
            f"{place(best, also)} cannot be told apart from "
            f"{listed([place(row, also) for row in alike])}. {how}: {place(taken, also)}, "
            f"{', '.join(value(name, taken) for name in told if pd.notna(taken[name]))}."
        )
    elif compared:
        text += (
            f" Every other point{' with enough runs' if few else ''} is worse beyond the "
            f"intervals; the next is {place(compared[0], also)}, {value(goal, compared[0])}."
        )
    else:
        text += " There is no other point with enough runs to compare it with."
    if few:
        text += f" {_points(few, also, 'has', 'have')} too few runs to be compared."
    support = weakest([TOO_FEW] * bool(few) + [INCONCLUSIVE] * bool(alike))
    text, same = _joined(text, without), tuple(point_of(row) for row in alike)
    return Choice(work, goal, title, text, support, point_of(taken), same)


def _without(goal: str, rows: Sequence[Row], known: int, also: Sequence[str]) -> str:
    """Why measured points take no part in the choice; nothing if all do."""
    short = [row for row in rows if goal in OF_ALL_RUNS and row["runs_at_target"] < row["runs"]]
    unpriced = [row for row in rows if not any(row is other for other in short)]
    if not known and not unpriced:
        return "No point reached the target in all its runs."
    if not known and not short:
        return "No point has a price."
    return _joined(
        f"{_points(short, also, 'did', 'did')} not reach the target in all runs." * bool(short),
        f"{_points(unpriced, also, 'has', 'have')} no price." * bool(unpriced),
    )


def _preferred(goal: str, alike: Sequence[Row], samples: Samples) -> tuple[Row, str]:
    """(the point to take of those that the goal cannot tell apart, how it was chosen)."""
    left, how, cost = list(alike), "Take the one with", _COST.get(goal)
    if cost and all(pd.notna(row[cost]) for row in alike):
        cheapest = min(alike, key=lambda row: (row[cost], row["nodes"]))
        left = [r for r in alike if r is cheapest or not _is_worse(samples, cost, cheapest, r)]
        if len(left) == 1:
            return cheapest, f"{how} the lowest cost"
        how = "Of those whose cost cannot be told apart from the lowest, take the one with"
        if len(left) == len(alike):
            how = "Their costs cannot be told apart either. Take the one with"
    elif cost:
        how = "Without prices of all of them, take the one with"
    for axis, words in _FEWEST.items():
        fewest = min(row[axis] for row in left)
        left = [row for row in left if row[axis] == fewest]
        if len(left) == 1:
            return left[0], f"{how} {words}"
    return left[0], f"{how} the best median, as they have the same nodes and GPUs"


def _has_enough(samples: Samples, metric: str, row: Row) -> bool:
    return len(samples.values(point_of(row), metric)) >= RUNS_FOR_INTERVAL


def _is_worse(samples: Samples, metric: str, better: Row, other: Row) -> bool:
    return samples.support(metric, point_of(better), point_of(other)) == SUPPORTED


def _points(rows: Sequence[Row], also: Sequence[str], one: str, several: str) -> str:
    named = f"({listed([place(row, also) for row in rows])})"
    return counted(rows, f"{named} {one}", f"{named} {several}")


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)
