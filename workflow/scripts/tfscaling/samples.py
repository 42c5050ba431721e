"""The raw values behind a comparison, and whether two points differ. Layer 4 (view)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from tfscaling.grid import POINT_AXES
from tfscaling.metrics import METRICS
from tfscaling.statistics import RUNS_FOR_INTERVAL, Interval, ratio_interval

SUPPORTED, INCONCLUSIVE, TOO_FEW = "supported", "inconclusive", "too few runs"
NOT_MEASURED = "not measured"
#: What supports a statement that rests on several comparisons is the weakest of them.
WEAKEST_FIRST = (NOT_MEASURED, TOO_FEW, INCONCLUSIVE, SUPPORTED)

Point = tuple[Any, ...]


def point_of(row: Mapping[Any, Any]) -> Point:
    """What identifies a point."""
    return tuple(row[axis] for axis in POINT_AXES)


@dataclass(frozen=True)
class Difference:
    """How much worse `other` is: the ratio of medians, its interval, and what that supports.

    Ratios are above 1 where `other` is worse; of accuracies, they are ratios of the errors
    1 - accuracy.
    """

    ratio: float
    interval: Interval | None
    support: str


class Samples:
    """The values of every metric of the valid runs, by point."""

    def __init__(self, runs: pd.DataFrame) -> None:
        valid = runs[runs["status"] == "ok"]
        self._columns = {name: valid[name].tolist() for name in METRICS if name in valid}
        self._places: dict[Point, list[int]] = {}
        axes = (valid[axis].tolist() for axis in POINT_AXES)
        for place, point in enumerate(zip(*axes, strict=True)):
            self._places.setdefault(point, []).append(place)

    def values(self, point: Point, metric: str) -> list[float]:
        """The metric's values as costs, the smaller the better: errors instead of accuracies."""
        column = self._columns[metric]
        found = [column[place] for place in self._places.get(point, [])]
        higher = METRICS[metric].direction == "higher"
        return [1 - value if higher else value for value in found if pd.notna(value)]

    def difference(self, metric: str, better: Point, other: Point) -> Difference | None:
        """How much worse `other` is than `better`; None if either was not measured."""
        return difference(self.values(better, metric), self.values(other, metric))

    def support(self, metric: str, better: Point, other: Point) -> str:
        """What the runs support of `other` being worse: that of `difference`, sooner found."""
        values, others = self.values(better, metric), self.values(other, metric)
        if not values or not others:
            return NOT_MEASURED
        # no value of the one among those of the other: so is no resampled median
        if min(len(values), len(others)) >= RUNS_FOR_INTERVAL and min(others) > max(values):
            return SUPPORTED
        found = difference(values, others)
        return NOT_MEASURED if found is None else found.support


def difference(better: list[float], other: list[float]) -> Difference | None:
    """The same for two lists of values, the smaller the better."""
    if not better or not other or not (base := median(better)):
        return None
    ratio = median(other) / base
    interval = ratio_interval(other, better)
    if interval is None:
        return Difference(ratio, None, TOO_FEW)
    apart = interval[0] > 1 or interval[1] < 1
    return Difference(ratio, interval, SUPPORTED if apart else INCONCLUSIVE)


def weakest(supports: list[str]) -> str:
    """The weakest of several supports; supported if there is nothing to compare with."""
    return min(supports, key=WEAKEST_FIRST.index, default=SUPPORTED)
