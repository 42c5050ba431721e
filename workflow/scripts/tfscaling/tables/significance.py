"""The raw values behind a comparison, and whether two points differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd

from tfscaling.record.metrics import METRICS, QUALITY, Metric
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.spec.run_spec import Point
from tfscaling.tables.estimates import (
    CONFIDENCE,
    RUNS_FOR_INTERVAL,
    Estimates,
    Interval,
    estimate,
    ratio_interval,
)
from tfscaling.tables.rows import Cells
from tfscaling.tables.table_rows import (
    NOT_MEASURED,
    QUALITY_COLUMNS,
    metric_of,
    points_of,
    qualities_of,
)

SUPPORTED, INCONCLUSIVE, TOO_FEW = "supported", "inconclusive", "too few runs"
#: The support of a sentence about points that are excluded from comparisons.
NOT_COMPARED = "not compared"
#: What supports a statement that rests on several comparisons is the weakest of them.
WEAKEST_FIRST = (NOT_COMPARED, NOT_MEASURED, TOO_FEW, INCONCLUSIVE, SUPPORTED)


@dataclass(frozen=True)
class Difference:
    """How much worse `other` is, the interval of that, and what it supports.

    `ratio` is of medians, above 1 where `other` is worse; of metrics with a best possible value, it
    is the ratio of the distances from it, such as 1 - accuracy, of other metrics that are better
    the higher, the median of `better` divided by the median of `other`. Where a value is zero there
    is no ratio: it is None, and `gap` is the difference of the medians, above 0 where `other` is
    worse. `interval` is of the ratio, or else of the gap.
    """

    ratio: float | None
    interval: Interval | None
    support: str
    gap: float = 0.0

    @property
    def is_worse(self) -> bool:
        return self.gap > 0 if self.ratio is None else self.ratio > 1


class Samples:
    """The values of every metric of the runs that count, by point."""

    def __init__(self, runs: pd.DataFrame) -> None:
        counted = runs[runs["status"].isin([*FINISHED])]
        names = [name for name in (*METRICS, *QUALITY_COLUMNS) if name in counted]
        self._counted = counted[names]
        self._costs: dict[str, list[float]] = {}
        self._has_diverged = (counted["status"] == RunState.DIVERGED).to_numpy()
        numbers, self._repeats = pd.factorize(counted["repeat"], sort=True)
        self._blocks = numbers.tolist()
        self._places: dict[Point, list[int]] = {}
        for place, point in enumerate(points_of(counted)):
            self._places.setdefault(point, []).append(place)
        self._statuses: dict[Point, Counter[str]] = {}
        self._failed_attempts: Counter[Point] = Counter()
        failed = runs["failed_attempts"] if "failed_attempts" in runs else pd.Series(0, runs.index)
        counts = failed.fillna(0).astype(int).tolist()
        for point, status, number in zip(
            points_of(runs), runs["status"].tolist(), counts, strict=True
        ):
            self._statuses.setdefault(point, Counter())[status] += 1
            self._failed_attempts[point] += number

    def failed_attempts(self, point: Point) -> int:
        """How many attempts at runs of the configuration failed or were cancelled."""
        return self._failed_attempts[point]

    def statuses(self, point: Point) -> Counter[str]:
        """Status → how many of the point's runs have it."""
        return self._statuses.get(point, Counter())

    def values(self, point: Point, metric: str) -> list[float]:
        """The metric's values as costs, the smaller the better: `as_costs`."""
        return [v for _, v in self._known(point, metric) if math.isfinite(v)]

    def measured(self, point: Point, metric: str) -> list[float]:
        """The metric's values of the runs that count, as they were measured."""
        values = self._counted[metric].to_numpy(float, na_value=math.nan)
        places = [p for p in self._places.get(point, ()) if not self._has_diverged[p]]
        return [float(values[p]) for p in places if not math.isnan(values[p])]

    def _known(self, point: Point, metric: str) -> list[tuple[int, float]]:
        """(block, value) of each run; infinite for a run that diverged: it never got there."""
        if metric not in self._costs:
            values = self._counted[metric].to_numpy(float, na_value=math.nan)
            if metric == QUALITY:
                values = self._costs_of_quality(values)
            else:
                values = as_costs(values, METRICS[metric])
            self._costs[metric] = np.where(self._has_diverged, math.inf, values).tolist()
        costs, blocks = self._costs[metric], self._blocks
        places = self._places.get(point, ())
        return [(blocks[p], costs[p]) for p in places if costs[p] == costs[p]]

    def _costs_of_quality(self, values: np.ndarray) -> np.ndarray:
        """Each value as a cost by its metric."""
        numbers, metrics = pd.factorize(self._counted["quality_metric"])
        costs = np.full(len(values), np.nan)
        for number in range(len(metrics)):
            own = numbers == number
            first = self._counted.iloc[int(own.argmax())]
            metric = metric_of(QUALITY, {name: first[name] for name in QUALITY_COLUMNS})
            costs[own] = as_costs(values[own], metric)
        return costs

    def has_enough(self, metric: str, point: Point) -> bool:
        """Whether there are runs enough for an interval; those that diverged are runs too."""
        known = self._known(point, metric)
        return len(known) >= RUNS_FOR_INTERVAL and any(math.isfinite(v) for _, v in known)

    def estimates(self, metric: str, points: Sequence[Point]) -> Estimates:
        """Estimates of these points together; all of them must have enough runs."""
        known = [self._known(point, metric) for point in points]
        values = np.full((len(points), len(self._repeats)), np.nan)
        for number, own in enumerate(known):
            for block, value in own:
                values[number, block] = value
        return estimate(values[:, ~np.isnan(values).all(axis=0)])

    def differences(
        self, metric: str, pairs: Sequence[tuple[Point, Point]], comparisons: int
    ) -> list[Difference | None]:
        """How much worse the second of each pair is; None where one of the two was not measured.

        The intervals hold together, with CONFIDENCE for as many `comparisons`.
        """
        plain = [self._plain(metric, *pair) for pair in pairs]
        found = {n: each for n, each in enumerate(plain) if each is not None}
        compared = [n for n, each in found.items() if each.support != TOO_FEW]
        for is_ratio in (True, False):
            # points with a value of zero have no logarithm: they are compared by themselves
            chosen = [n for n in compared if (found[n].ratio is not None) is is_ratio]
            points = {point: None for n in chosen for point in pairs[n]}
            if not points:
                continue
            together = self.estimates(metric, list(points))
            own = [pairs[n] for n in chosen]
            judged = self.judged(metric, together, list(points), own, comparisons)
            found.update(zip(chosen, judged, strict=True))
        return [found.get(n) for n in range(len(pairs))]

    def judged(
        self,
        metric: str,
        together: Estimates,
        points: Sequence[Point],
        pairs: Sequence[tuple[Point, Point]],
        comparisons: int,
    ) -> list[Difference]:
        """How much worse the second of each pair is by estimates of `points`, with intervals.

        An interval holds the ratio, or gap, of the medians and the interval of the tables: so no
        table has an interval with 1 in it next to a difference that is supported. It is None where
        a run of one of the two never ended.
        """
        places = {point: number for number, point in enumerate(points)}
        better, other = (np.array([places[pair[n]] for pair in pairs]) for n in (0, 1))
        low, high = together.between(better, other, (1 - CONFIDENCE) / 2 / comparisons)
        found = []
        for pair, *ends in zip(pairs, low.tolist(), high.tolist(), strict=True):
            values, others = (self.values(point, metric) for point in pair)
            base, value = median(values), median(others)
            ratio, held, equal = None, [*ends, value - base], 0.0
            if together.is_log:
                ratio, equal = value / base, 1.0
                forth, back = ratio_interval(others, values), ratio_interval(values, others)
                held = [*map(math.exp, ends), ratio, *(forth or ())]
                held += [1 / end for end in back or ()]
            else:
                held[:2] = (end * together.unit for end in ends)
            low_end, high_end = min(held), max(held)
            support = INCONCLUSIVE if low_end <= equal <= high_end else SUPPORTED
            # where a run never ended, one end is zero or infinite
            has_ends = all(math.isfinite(end) for end in ends)
            interval = (low_end, high_end) if has_ends else None
            found.append(Difference(ratio, interval, support, value - base))
        return found

    def _plain(self, metric: str, better: Point, other: Point) -> Difference | None:
        values, others = self.values(better, metric), self.values(other, metric)
        plain = difference(values, others)
        if plain is None or not all(self.has_enough(metric, point) for point in (better, other)):
            return plain
        return Difference(plain.ratio, None, INCONCLUSIVE, plain.gap)


def as_costs(values: np.ndarray, metric: Metric) -> np.ndarray:
    """Values of a metric as costs, the smaller the better: (runs,).

    Of a metric with a best possible value how far they are from it, such as the error 1 - accuracy;
    of another metric that is better the higher the reciprocal, or where a value is not above zero
    the negative.
    """
    if metric.best is not None:
        return metric.best - values if metric.is_higher_better else values - metric.best
    if not metric.is_higher_better:
        return values
    return 1 / values if (values[~np.isnan(values)] > 0).all() else -values


def difference(better: Sequence[float], other: Sequence[float]) -> Difference | None:
    """The same for two lists of values, the smaller the better, without an interval."""
    if not better or not other:
        return None
    base, value = median(better), median(other)
    ratio = value / base if min(*better, *other) > 0 else None
    return Difference(ratio, None, TOO_FEW, value - base)


def weakest(supports: Sequence[str]) -> str:
    """The weakest of several supports; supported if there is nothing to compare with."""
    return min(supports, key=WEAKEST_FIRST.index, default=SUPPORTED)


def pareto_set(rows: Sequence[Cells], metrics: Sequence[str]) -> list[int]:
    """Positions of the rows that no other row beats, sorted by the first metric, then the next.

    A row is beaten by one that is at least as good in every metric and better in one. So rows with
    equal values beat each other in nothing and are all kept. Every row has a value of every metric.
    Raises ValueError if rows are of different qualities, which nothing compares.
    """
    if QUALITY in metrics and len(qualities_of(rows)) > 1:
        raise ValueError(f"configurations of different qualities: {', '.join(qualities_of(rows))}")
    better = {name: metric_of(name, rows[0]).is_higher_better for name in metrics if rows}
    losses = [
        tuple(-float(row[name]) if better[name] else float(row[name]) for name in metrics)
        for row in rows
    ]
    all_losses = np.array(losses)
    kept = [position for position, loss in enumerate(losses) if not _is_beaten(loss, all_losses)]
    return sorted(kept, key=lambda position: losses[position])


def _is_beaten(loss: tuple[float, ...], all_losses: np.ndarray) -> bool:
    """Whether another row loses no more in any metric, and less in one: (metrics,) of (rows, …)."""
    as_good = (all_losses <= loss).all(axis=1)
    return bool((all_losses[as_good] < loss).any())
