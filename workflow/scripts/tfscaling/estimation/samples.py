"""Values of runs by configuration, how much worse one is than another, and how sure that is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from tfscaling.estimation.estimates import COSTS_BY_PRICE, Estimates, estimate
from tfscaling.estimation.intervals import (
    CONFIDENCE,
    RUNS_FOR_INTERVAL,
    Array,
    Interval,
    ratio_interval,
)
from tfscaling.record.metrics import Metric
from tfscaling.study.run_spec import Point

#: What of short runs is projected to the whole training, besides what is made of these.
OF_WHOLE = (
    *("execution_time_s", "time_with_queue_s", "train_time_s", "evaluation_time_s"),
    *("cost_usd", "node_hours", "core_hours", "gpu_hours"),
)
#: Status of a point, or support of a statement about it, where the point has no valid run.
NOT_MEASURED = "not measured"
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

    @property
    def shows_worse(self) -> bool:
        """Return whether the runs show that `other` is worse."""
        return self.support == SUPPORTED and self.is_worse

    @property
    def bound(self) -> float:
        """Return the fraction by which `better` may be worse than `other`, by the interval."""
        if self.interval is None or self.ratio is None:
            return 0.0
        low = self.interval[0]
        return max(0.0, 1 / low - 1) if low > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Samples:
    """The values of every metric of the runs that count, by point; `tables.run_samples` reads them.

    Attributes:
        measured_values: Metric → its value of each run, as it was measured; NaN if it is unknown.
        costs: Metric → the same values by `as_costs`; infinite for runs that never ended.
        projection_errors: Standard error of each run's projected time, as a fraction of the time.
        is_endless: Whether a run diverged or ran out of memory: it never got to its end.
        blocks: Which block a run belongs to, from 0: repeat k of all points is one block.
        places: Point → the positions of its runs.
        point_statuses: Point → how many of its planned runs have which status.
        failed_attempts: Point → how many attempts at its runs failed or were cancelled.
    """

    measured_values: Mapping[str, Array]
    costs: Mapping[str, Sequence[float]]
    projection_errors: Array
    is_endless: Array
    blocks: Sequence[int]
    places: Mapping[Point, Sequence[int]]
    point_statuses: Mapping[Point, Counter[str]]
    failed_attempts: Counter[Point]

    def statuses(self, point: Point) -> Counter[str]:
        """Return status → how many of the point's runs have it."""
        return self.point_statuses.get(point, Counter())

    def values(self, point: Point, metric: str) -> list[float]:
        """Return the metric's values as costs, smaller ones are better: `as_costs`."""
        return [v for _, v in self._known(point, metric) if math.isfinite(v)]

    def measured(self, point: Point, metric: str) -> list[float]:
        """Return the metric's values of the runs that count, as they were measured."""
        values = self.measured_values[metric]
        places = [p for p in self.places.get(point, ()) if not self.is_endless[p]]
        return [float(values[p]) for p in places if not math.isnan(values[p])]

    def _known(self, point: Point, metric: str) -> list[tuple[int, float]]:
        """Return (block, cost) of each run whose value is known."""
        costs, blocks = self.costs[metric], self.blocks
        places = self.places.get(point, ())
        return [(blocks[p], costs[p]) for p in places if costs[p] == costs[p]]

    def projection_error(self, point: Point, metric: str) -> float:
        """Return the error of a projection that all runs of the point share, as a fraction.

        It is the root mean square of their errors by the steps within each run: the runs have the
        same warm-up, and train the same few epochs.
        """
        errors = self.projection_errors[list(self.places.get(point, ()))]
        is_projected = metric in OF_WHOLE and len(errors) > 0
        return float(np.sqrt(np.mean(errors**2))) if is_projected else 0.0

    def has_enough(self, metric: str, point: Point) -> bool:
        """Return whether the runs suffice for an interval; runs that never ended count."""
        known = self._known(point, metric)
        return len(known) >= RUNS_FOR_INTERVAL and any(math.isfinite(v) for _, v in known)

    def estimates(self, metric: str, points: Sequence[Point]) -> Estimates:
        """Return estimates of these points together; all of them must have enough runs."""
        known = [self._known(point, metric) for point in points]
        values = np.full((len(points), max(self.blocks, default=-1) + 1), np.nan)
        for number, own in enumerate(known):
            for block, value in own:
                values[number, block] = value
        zeros_are_exact = metric in COSTS_BY_PRICE
        found = estimate(values[:, ~np.isnan(values).all(axis=0)], zeros_are_exact)
        # what the steps of short runs do not show, no number of such runs shows either
        errors = np.array([self.projection_error(point, metric) for point in points])
        return replace(found, variance=found.variance + errors**2 * found.is_log)

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
        values_of = {point: self.values(point, metric) for pair in pairs for point in pair}
        found = []
        for pair, *ends in zip(pairs, low.tolist(), high.tolist(), strict=True):
            values, others = (values_of[point] for point in pair)
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

    def compare_with(
        self,
        metric: str,
        together: Estimates,
        points: Sequence[Point],
        taken: Point,
        comparisons: int,
    ) -> dict[Point, Difference]:
        """Return how much worse each other point is than `taken`; see `judged`."""
        others = [point for point in points if point != taken]
        pairs = [(taken, other) for other in others]
        found = self.judged(metric, together, points, pairs, comparisons)
        return dict(zip(others, found, strict=True))

    def find_worse(
        self, metric: str, taken: Point, others: Sequence[Point], comparisons: int
    ) -> frozenset[Point]:
        """Return which of the other points are shown to be worse than `taken`.

        Points that were not measured, or with too few runs, are not.
        """
        found = self.differences(metric, [(taken, other) for other in others], comparisons)
        known = zip(others, found, strict=True)
        return frozenset(point for point, each in known if each and each.shows_worse)

    def _plain(self, metric: str, better: Point, other: Point) -> Difference | None:
        """Return the difference of the medians, without an interval."""
        values, others = self.values(better, metric), self.values(other, metric)
        if not values or not others:
            return None
        base, value = median(values), median(others)
        ratio = value / base if min(*values, *others) > 0 else None
        is_enough = self.has_enough(metric, better) and self.has_enough(metric, other)
        return Difference(ratio, None, INCONCLUSIVE if is_enough else TOO_FEW, value - base)


def as_costs(values: np.ndarray, metric: Metric) -> np.ndarray:
    """Return values of a metric as costs, the smaller the better: (runs,).

    Of a metric with a best possible value how far they are from it, such as the error 1 - accuracy;
    of another metric that is better the higher the reciprocal, or where a value is not above zero
    the negative.
    """
    if metric.best is not None:
        return metric.best - values if metric.is_higher_better else values - metric.best
    if not metric.is_higher_better:
        return values
    return 1 / values if (values[~np.isnan(values)] > 0).all() else -values


def weakest(supports: Sequence[str]) -> str:
    """Return the weakest of several supports; supported if there is nothing to compare with."""
    return min(supports, key=WEAKEST_FIRST.index, default=SUPPORTED)
