"""Comparisons of configurations by the values of their runs, with their support.

Conclusions compare by a `Samples`, and report each comparison as a `Difference`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from tfscaling.estimation.estimates import COSTS_BY_PRICE, Estimates, estimate_locations
from tfscaling.estimation.intervals import (
    CONFIDENCE,
    RUNS_FOR_INTERVAL,
    Array,
    Interval,
    ratio_interval,
)
from tfscaling.record.metrics import Metric
from tfscaling.study.run_spec import Point

#: Metrics of a short run that are projected to the complete training.
PROJECTED_METRICS = (
    *("execution_time_s", "time_with_queue_s", "train_time_s", "evaluation_time_s"),
    *("cost_usd", "node_hours", "core_hours", "gpu_hours"),
)
#: Metrics of the comparison that have the interval of one complete run if they are projected.
COMPLETE_RUN_METRICS = ("execution_time_s", "cost_usd", "node_hours", "core_hours", "gpu_hours")
#: Status of a configuration without a valid run, and support of a statement about it.
NOT_MEASURED = "not measured"
SUPPORTED, INCONCLUSIVE, TOO_FEW = "supported", "inconclusive", "too few runs"
#: Support of a statement about configurations that are excluded from comparisons.
NOT_COMPARED = "not compared"
#: All levels of support, the weakest first. A statement with several comparisons has the weakest
#: level of them.
WEAKEST_FIRST = (NOT_COMPARED, NOT_MEASURED, TOO_FEW, INCONCLUSIVE, SUPPORTED)


@dataclass(frozen=True)
class Difference:
    """The comparison of a configuration `other` with a configuration `better`.

    Attributes:
        ratio: Median of `other` divided by the median of `better`, above 1 if `other` is worse. For
            a metric with a best possible value, the ratio of distances from it, such as 1 -
            accuracy; for other metrics that are better the higher, the inverse ratio. None if a
            value is zero.
        interval: Confidence interval of the ratio, or of the gap without a ratio.
        support: SUPPORTED, INCONCLUSIVE or TOO_FEW.
        gap: Difference of the medians, above 0 if `other` is worse.
    """

    ratio: float | None
    interval: Interval | None
    support: str
    gap: float = 0.0

    @property
    def is_worse(self) -> bool:
        """Whether the measured median of `other` is worse than the median of `better`."""
        return self.gap > 0 if self.ratio is None else self.ratio > 1

    @property
    def shows_worse(self) -> bool:
        """Whether the runs show, at the level *supported*, that `other` is worse than `better`."""
        return self.support == SUPPORTED and self.is_worse

    @property
    def disadvantage_bound(self) -> float:
        """Upper bound of the fraction by which `better` may be worse than `other`.

        It is 0 without a ratio or its interval, although nothing is known then.
        """
        if self.interval is None or self.ratio is None:
            return 0.0
        low = self.interval[0]
        return max(0.0, 1 / low - 1) if low > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Samples:
    """Values of each configuration's runs to compare them; `tables.run_samples` reads them.

    Runs count if they are valid, diverged, or did not fit in memory. Runs that diverged or did not
    fit have infinite costs.

    Attributes:
        measured_values: Metric → its value of each run in the metric's unit; NaN if it is unknown.
        costs: Metric → the same values by `as_costs`; infinite for runs that did not reach their
            end.
        projection_errors: Standard error of each run's projected time, as a fraction of the time.
        is_endless: Whether each run diverged or ran out of memory, and did not reach its end.
        blocks: Block of each run, from 0: repeat k of all configurations is one block.
        positions: Configuration → the positions of its runs in these arrays.
        point_statuses: Configuration → number of its planned runs with each status.
        failed_attempts: Configuration → number of attempts at its runs that failed or were
            cancelled.
    """

    measured_values: Mapping[str, Array]
    costs: Mapping[str, Sequence[float]]
    projection_errors: Array
    is_endless: Array
    blocks: Sequence[int]
    positions: Mapping[Point, Sequence[int]]
    point_statuses: Mapping[Point, Counter[str]]
    failed_attempts: Counter[Point]

    def status_counts(self, point: Point) -> Counter[str]:
        """Return status → number of planned runs of a configuration that have it."""
        return self.point_statuses.get(point, Counter())

    def cost_values(self, point: Point, metric: str) -> list[float]:
        """Return a metric of each finished run of a configuration as costs: smaller is better."""
        return [v for _, v in self._costs_in_blocks(point, metric) if math.isfinite(v)]

    def values_in_unit(self, point: Point, metric: str) -> list[float]:
        """Return a metric of each finished run of a configuration in the metric's unit."""
        values = self.measured_values[metric]
        places = [p for p in self.positions.get(point, ()) if not self.is_endless[p]]
        return [float(values[p]) for p in places if not math.isnan(values[p])]

    def _costs_in_blocks(self, point: Point, metric: str) -> list[tuple[int, float]]:
        """Return (block, cost) of each run of a configuration whose value of the metric is known.

        A block is a repeat of all configurations. A cost is the value, converted by `as_costs` so
        that lower is better; infinite for a run that did not reach its end.
        """
        costs, blocks = self.costs[metric], self.blocks
        places = self.positions.get(point, ())
        return [(blocks[p], costs[p]) for p in places if costs[p] == costs[p]]

    def projection_error(self, point: Point, metric: str) -> float:
        """Return the standard error of a metric that all projected runs of a configuration share.

        It is a fraction of the value: the root mean square of the runs' projection errors. More
        runs do not reduce it, as all train the same few epochs. 0 if the metric was measured.
        """
        errors = self.projection_errors[list(self.positions.get(point, ()))]
        is_projected = metric in PROJECTED_METRICS and len(errors) > 0
        return float(np.sqrt(np.mean(errors**2))) if is_projected else 0.0

    def has_enough_runs(self, metric: str, point: Point) -> bool:
        """Return whether a configuration has enough runs for an interval.

        Runs that did not reach their end count as well, if at least one reached it.
        """
        known = self._costs_in_blocks(point, metric)
        return len(known) >= RUNS_FOR_INTERVAL and any(math.isfinite(v) for _, v in known)

    def estimate_configurations(self, metric: str, points: Sequence[Point]) -> Estimates:
        """Return joint estimates of a metric's mean for several configurations.

        Args:
            metric: Name of the metric.
            points: The configurations; each has enough runs for a comparison.
        """
        known = [self._costs_in_blocks(point, metric) for point in points]
        values = np.full((len(points), max(self.blocks, default=-1) + 1), np.nan)
        for number, own in enumerate(known):
            for block, value in own:
                values[number, block] = value
        zeros_are_exact = metric in COSTS_BY_PRICE
        found = estimate_locations(values[:, ~np.isnan(values).all(axis=0)], zeros_are_exact)
        # what the steps of short runs do not show, no number of such runs shows either
        errors = np.array([self.projection_error(point, metric) for point in points])
        return replace(found, variance=found.variance + errors**2 * found.is_log)

    def compare_pairs(
        self, metric: str, pairs: Sequence[tuple[Point, Point]], comparisons: int
    ) -> list[Difference | None]:
        """Compare configurations in pairs.

        Args:
            metric: The metric to compare.
            pairs: Pairs (better, other).
            comparisons: Number of comparisons for which all intervals hold together with
                CONFIDENCE.

        Returns:
            How much worse the second of each pair is; None if one of the two was not measured.
        """
        plain = [self._compare_medians(metric, *pair) for pair in pairs]
        found = {n: each for n, each in enumerate(plain) if each is not None}
        compared = [n for n, each in found.items() if each.support != TOO_FEW]
        for is_ratio in (True, False):
            # points with a value of zero have no logarithm: they are compared by themselves
            chosen = [n for n in compared if (found[n].ratio is not None) is is_ratio]
            points = {point: None for n in chosen for point in pairs[n]}
            if not points:
                continue
            estimates = self.estimate_configurations(metric, list(points))
            own = [pairs[n] for n in chosen]
            judged = self.compare_by_estimates(metric, estimates, list(points), own, comparisons)
            found.update(zip(chosen, judged, strict=True))
        return [found.get(n) for n in range(len(pairs))]

    def compare_by_estimates(
        self,
        metric: str,
        estimates: Estimates,
        points: Sequence[Point],
        pairs: Sequence[tuple[Point, Point]],
        comparisons: int,
    ) -> list[Difference]:
        """Compare configurations in pairs by their joint estimates, with intervals.

        An interval is widened to include the ratio (or gap) of the medians, and the bootstrap
        interval of this ratio that tables show. So no supported difference contradicts a table. The
        interval is None if a run of one of the two did not reach its end.

        Args:
            metric: The metric to compare.
            estimates: Estimates of `points`.
            points: The configurations that were estimated.
            pairs: Pairs (better, other) of them.
            comparisons: Number of comparisons for which all intervals hold together.
        """
        places = {point: number for number, point in enumerate(points)}
        better, other = (np.array([places[pair[n]] for pair in pairs]) for n in (0, 1))
        low, high = estimates.difference_interval(better, other, tail_probability(comparisons))
        values_of = {point: self.cost_values(point, metric) for pair in pairs for point in pair}
        found = []
        for pair, *ends in zip(pairs, low.tolist(), high.tolist(), strict=True):
            values, others = (values_of[point] for point in pair)
            base, value = median(values), median(others)
            ratio, held, equal = None, [*ends, value - base], 0.0
            if estimates.is_log:
                ratio, equal = value / base, 1.0
                forth, back = ratio_interval(others, values), ratio_interval(values, others)
                held = [*map(math.exp, ends), ratio, *(forth or ())]
                held += [1 / end for end in back or ()]
            else:
                held[:2] = (end * estimates.unit for end in ends)
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
        estimates: Estimates,
        points: Sequence[Point],
        chosen: Point,
        comparisons: int,
    ) -> dict[Point, Difference]:
        """Compare `chosen` with each other configuration, by joint estimates.

        Args:
            metric: The metric to compare.
            estimates: Estimates of `points`.
            points: The configurations that were estimated.
            chosen: One of them.
            comparisons: Number of comparisons for which all intervals hold together.

        Returns:
            Other configuration → how much worse it is than `chosen`.
        """
        others = [point for point in points if point != chosen]
        pairs = [(chosen, other) for other in others]
        found = self.compare_by_estimates(metric, estimates, points, pairs, comparisons)
        return dict(zip(others, found, strict=True))

    def find_shown_worse(
        self, metric: str, chosen: Point, others: Sequence[Point], comparisons: int
    ) -> frozenset[Point]:
        """Return which of the other configurations are shown to be worse than `chosen`.

        Configurations that were not measured, or have too few runs, are not among them.

        Args:
            metric: The metric to compare.
            chosen: A configuration.
            others: The other configurations.
            comparisons: Number of comparisons for which all results hold together.
        """
        found = self.compare_pairs(metric, [(chosen, other) for other in others], comparisons)
        known = zip(others, found, strict=True)
        return frozenset(point for point, each in known if each and each.shows_worse)

    def _compare_medians(self, metric: str, better: Point, other: Point) -> Difference | None:
        """Return the difference of two configurations' medians without an interval.

        None if one of the two was not measured.

        Args:
            metric: The metric to compare.
            better: The configuration that the difference is relative to.
            other: The other configuration.
        """
        values, others = self.cost_values(better, metric), self.cost_values(other, metric)
        if not values or not others:
            return None
        base, value = median(values), median(others)
        ratio = value / base if min(*values, *others) > 0 else None
        is_enough = self.has_enough_runs(metric, better) and self.has_enough_runs(metric, other)
        return Difference(ratio, None, INCONCLUSIVE if is_enough else TOO_FEW, value - base)


def tail_probability(comparisons: int) -> float:
    """Return the error probability of each end of an interval.

    Args:
        comparisons: Number of comparisons for which all intervals hold together with CONFIDENCE.
    """
    return (1 - CONFIDENCE) / 2 / comparisons


def as_costs(values: np.ndarray, metric: Metric) -> np.ndarray:
    """Convert values of a metric to costs: smaller is better.

    A metric with a best possible value becomes the distance from it, such as the error 1 -
    accuracy. Another metric that is better the higher becomes its reciprocal, or its negative if a
    value is not above zero.
    """
    if metric.best is not None:
        return metric.best - values if metric.is_higher_better else values - metric.best
    if not metric.is_higher_better:
        return values
    return 1 / values if (values[~np.isnan(values)] > 0).all() else -values


def weakest_support(supports: Sequence[str]) -> str:
    """Return the weakest of several levels of support; SUPPORTED if there are none."""
    return min(supports, key=WEAKEST_FIRST.index, default=SUPPORTED)
