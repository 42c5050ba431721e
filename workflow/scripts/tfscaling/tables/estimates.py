"""Medians and ratios with intervals, robust estimates of several points together, differences.

Intervals of a single sample are nonparametric, as run times are not normally distributed: rules 5
and 6 of T. Hoefler and R. Belli, "Scientific Benchmarking of Parallel Computing Systems" (SC15).

A few runs per point show little of each point's own scatter, and one disturbed
run spoils a mean. So the points are estimated together:

- on the logarithm of the values, as run times scatter in proportion; on the values themselves
  where one is zero or below,
- after the effect of each block (repeat k of all points) is taken off, where four or more points
  ran in it: a drift during a sweep affects all points equally,
- by means, in which an isolated run that is FAR pooled standard deviations from the median counts
  as one at CLIP,
- with moderated variances (Smyth 2004): a point's own, with the pooled one as PRIOR_FREEDOM more
  degrees of freedom.

Clipping is for isolated slow runs. A run that is far on the fast side, or MODE_SHARE of far runs,
is a second mode: the point counts with its plain mean and, where that is larger, its own variance
with its own degrees of freedom. Up to RANGE_RUNS runs such a point counts as their range.

A cost whose price is zero is exactly zero: it has no scatter, no block changes it, and it beats all
other costs.

A run that did not reach its end has no value: it can only be worse than runs that did. A point
with such a run is estimated by its other runs, and is never shown to be as good as another point.

Two points differ by more than chance where their locations are further apart than `half_width`, a
quantile of Student's t at the given tail. A statement that rests on m comparisons takes the m-th
part of its error (Bonferroni): all of them then hold together.

With one of K points the best, K - 1 comparisons bound how far any point may be from it: the bound
can only be wrong if the best itself looks worse than it is in one of these comparisons (Hsu 1984).
That one certain point is *the* best takes K comparisons, as two may be equal.

No theorem covers the whole; benchmarks/race.py and tests/unit/test_claims.py simulate it.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import pandas as pd
import scipy

from tfscaling.record.metrics import METRICS, QUALITY, Metric
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.study.config_types import Limit
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_types import Cells
from tfscaling.tables.row_values import (
    NOT_MEASURED,
    OF_WHOLE,
    QUALITY_COLUMNS,
    grouped,
    metric_of,
    points_of,
    qualities_of,
)

Array = np.ndarray
#: Which of several points.
Places = Array | int | slice
#: Confidence of every interval in tables, plots and findings.
CONFIDENCE = 0.95
#: Below this number of runs even the whole range of a sample is no 95 % interval of the median.
RUNS_FOR_INTERVAL = 6
RESAMPLES = 1999

Interval = tuple[float, float]


def keeps_limit(
    values: Sequence[float], limit: Limit, error: float, shared_error: float = 0.0
) -> bool:
    """Return whether the runs show that a configuration keeps a limit.

    They do if every run keeps it and the interval of their mean, by Student's t, is inside.
    `run_counts.misses_limit` returns whether runs show the opposite; often they show neither.

    Args:
        values: The limited metric of the runs; fewer than RUNS_FOR_INTERVAL show nothing.
        limit: The limit.
        error: Error rate of the interval, one-sided.
        shared_error: Standard error of all values together, as a fraction: more runs do not
            reduce it.
    """
    if len(values) < RUNS_FOR_INTERVAL:
        return False
    found, most = as_costs_with_limit(np.asarray(values), limit)
    runs = len(found)
    total = math.hypot(float(found.std(ddof=1)) / math.sqrt(runs), shared_error)
    half_width = float(scipy.special.stdtrit(runs - 1, 1 - error)) * total
    return bool(found.max() <= most and found.mean() + half_width <= most)


def count_beyond_limit(
    values: Sequence[float], limit: Limit, error: float = 0.5, shared_error: float = 0.0
) -> int:
    """Return how many runs are beyond a limit.

    Args:
        values: The limited metric of the runs.
        limit: The limit.
        error: Error rate, one-sided, with which a value that has a `shared_error` is beyond.
        shared_error: Standard error of all values together, as a fraction.
    """
    found, most = as_costs_with_limit(np.asarray(values, float), limit)
    return int((found - scipy.special.ndtri(1 - error) * shared_error > most).sum())


def as_costs_with_limit(values: Array, limit: Limit) -> tuple[Array, float]:
    """Return (values that are better the lower, the most that keeps the limit); NaN stays NaN.

    Of values above zero with an upper limit they are logarithms, as times and costs scatter in
    proportion.
    """
    sign, most = (-1, -limit.value) if limit.at_most is None else (1, limit.value)
    if sign > 0 and most > 0 and not (values <= 0).any():
        return np.log(values), math.log(most)
    return sign * values, most


@functools.cache
def median_rank(runs: int, confidence: float = CONFIDENCE) -> int | None:
    """Return the rank k whose order statistics bound a confidence interval of the median.

    The interval goes from the k-th smallest to the k-th largest of `runs` values. It holds the
    median with at least `confidence`, whatever the distribution. None if even the whole range does
    not.
    """
    # of 2**runs equally likely ways to lie below or above the median, those with at most k below;
    # equals the binomial distribution of scipy.stats, which takes most of a second to load
    k = ways = 0
    while (ways := ways + math.comb(runs, k)) / 2**runs <= (1 - confidence) / 2:
        k += 1
    return k or None


def median_interval(values: Sequence[float]) -> Interval | None:
    """Nonparametric interval of the median by order statistics; None if there are too few."""
    rank = median_rank(len(values)) if len(values) else None
    if rank is None:
        return None
    ordered = sorted(values)
    return float(ordered[rank - 1]), float(ordered[-rank])


@functools.cache
def _middles(*sizes: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """For each sample the ranks of its resamples' two middle values, each of shape (RESAMPLES,).

    Always the same. With an odd number of values both are the one in the middle.
    """
    random = np.random.default_rng(0)
    draws = (np.sort(random.integers(0, size, (RESAMPLES, size)), axis=1) for size in sizes)
    return tuple((d[:, (d.shape[1] - 1) // 2], d[:, d.shape[1] // 2]) for d in draws)


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the percentile bootstrap interval of the ratio of two medians.

    The resampling is seeded: the same samples, in any order, give the same interval. The result
    equals `scipy.stats.bootstrap` for ordered samples. The ranks drawn serve thousands of ratios.

    Returns:
        The interval; None if either sample has too few values, or if a denominator is not above
        zero: a resample's ratio would be no number.
    """
    if min(len(numerators), len(denominators)) < RUNS_FOR_INTERVAL or min(denominators) <= 0:
        return None
    samples = [np.sort(np.asarray(values, float)) for values in (numerators, denominators)]
    middles = _middles(*map(len, samples))
    above, below = ((v[i] + v[j]) / 2 for v, (i, j) in zip(samples, middles, strict=True))
    ratios, tail = np.sort(above / below), (1 - confidence) / 2
    return _quantile(ratios, tail), _quantile(ratios, 1 - tail)


def _quantile(ordered: Array, share: float) -> float:
    """Return what `np.quantile` returns for sorted values, to the last bit; `share` is below 1.

    With NumPy's function a ratio's interval takes 90 µs of CPU time instead of 40 µs.
    """
    place, part = divmod((len(ordered) - 1) * share, 1)
    low, high = ordered[int(place) : int(place) + 2].tolist()
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


#: Degrees of freedom of the pooled variance, added to a point's own.
PRIOR_FREEDOM = 3.0
#: Runs beyond FAR pooled standard deviations from their point's median are far; isolated ones count
#: as CLIP deviations.
FAR, CLIP = 4.0, 2.5
#: This share of far runs is a second mode.
MODE_SHARE = 0.25
#: Points with a second mode and at most this many runs count as the range of their runs.
RANGE_RUNS = 4
#: Runs are never taken to scatter less than this: a fraction of the value.
SCATTER_MIN = 0.005
#: Metrics with a price or a number of GPUs as a factor, which may be zero.
COSTS_BY_PRICE = {"cost_usd", "cost_to_target_usd", "gpu_hours", "energy_usd", "energy_kg_co2"}
#: The effect of a block is known if at least this many points ran in it.
BLOCK_POINTS_MIN = 4


@dataclass(frozen=True)
class Estimates:
    """Locations of points, each with its squared standard error and degrees of freedom: (points,).

    Locations are logarithms if `is_log`, else values over `unit`. The smaller the better. `low` and
    `high` are the range that each counts as, its location where that is known; `high` is infinite
    where a run did not reach its end. Only costs that are exactly zero have no variance.
    """

    location: Array
    variance: Array
    freedom: Array
    freedom_max: float
    is_log: bool
    unit: float
    low: Array
    high: Array

    def half_width(self, first: Places, other: Places, tail: float | Array) -> Array:
        """By how much two locations differ by chance, but for a probability `tail` on one side."""
        error, freedom = self._error(first, other)
        return np.asarray(-scipy.special.stdtrit(freedom, tail) * error)

    def between(self, first: Places, other: Places, tail: float | Array) -> tuple[Array, Array]:
        """Return the interval by which `other` is behind `first`, with error `tail` per side."""
        half = self.half_width(first, other, tail)
        low, high = self.low[other] - self.high[first], self.high[other] - self.low[first]
        return np.asarray(low - half), np.asarray(high + half)

    def chance(self, first: Places, other: Places) -> Array:
        """Return the chance that two equal locations are estimated as far apart, to either side."""
        error, freedom = self._error(first, other)
        ahead = np.maximum(self.low[other] - self.high[first], self.low[first] - self.high[other])
        distance = np.maximum(ahead, 0.0)
        # two exact values that are equal differ by no more than chance
        ratio = np.where(distance > 0, distance / np.maximum(error, 1e-300), 0.0)
        return np.asarray(2 * scipy.special.stdtr(freedom, -ratio))

    def _error(self, first: Places, other: Places) -> tuple[Array, Array]:
        """Return the standard error of a difference of locations, and its degrees of freedom."""
        a, b = self.variance[first], self.variance[other]
        both = a + b
        parts = a**2 / self.freedom[first] + b**2 / self.freedom[other]
        # two exact values do not differ by chance
        freedom = np.where(parts > 0, both**2 / np.where(parts > 0, parts, 1.0), self.freedom_max)
        return np.sqrt(both), np.minimum(freedom, self.freedom_max)

    @property
    def best(self) -> int:
        return int(self.location.argmin())

    def may_be_worse(self, tail: float, points: Sequence[int]) -> Array:
        """By how much each of `points` may be worse than the best of all, 0 if it is the best.

        A fraction (0.05: 5 % worse than the best); infinite where the best may be zero.
        """
        found = []
        for point in points:
            if self.variance[point] == 0:  # exactly zero: nothing is better
                found.append(self.high[point])
                continue
            others = np.delete(np.arange(len(self.location)), point)
            ahead = self.high[point] - self.low[others] + self.half_width(point, others, tail)
            found.append(ahead.max(initial=0.0))
        return self._as_fraction(np.array(found))

    def _as_fraction(self, distance: Array) -> Array:
        if self.is_log:
            return np.asarray(np.expm1(distance))
        least = self.location.min()
        return np.where(distance <= 0, 0.0, distance / least if least > 0 else math.inf)

    def near(self, limit: float) -> list[int]:
        """Return the points estimated no worse than the best by the fraction `limit`: no claim."""
        distance = self._as_fraction(self.location - self.location.min())
        return [int(point) for point in np.flatnonzero(distance <= limit)]

    def is_worse(self, than: int, tail: float) -> Array:
        """Return which points are shown to be worse than one: (points,)."""
        distance = self.low - self.high[than]
        return np.asarray(distance > self.half_width(slice(None), than, tail))


def estimate(values: Array, zeros_are_exact: bool = False) -> Estimates:
    """Return estimates of values by point and block: (points, blocks), NaN where there was no run.

    Infinite: a run that did not reach its end. Each point needs a run that did. With
    `zeros_are_exact`, a point whose values are all zero has this value without an error.
    """
    is_exact = np.full(len(values), False)
    if zeros_are_exact:
        is_exact = ((values == 0) | ~np.isfinite(values)).all(axis=1)
    if not is_exact.any():
        return _estimate(values, bool((values[np.isfinite(values)] > 0).all()))
    high = np.where(np.isinf(values).any(axis=1), np.inf, 0.0)
    zeros = np.zeros(len(values))
    if is_exact.all():
        return Estimates(zeros, zeros, zeros + 1, 1.0, False, 1.0, zeros, high)
    found = _estimate(values[~is_exact], is_log=False)
    places = np.cumsum(~is_exact) - 1
    return replace(
        found,
        location=np.where(is_exact, 0.0, found.location[places]),
        variance=np.where(is_exact, 0.0, found.variance[places]),
        freedom=np.where(is_exact, 1.0, found.freedom[places]),
        low=np.where(is_exact, 0.0, found.low[places]),
        high=np.where(is_exact, high, found.high[places]),
    )


def _estimate(values: Array, is_log: bool) -> Estimates:
    """Return estimates without exact values, of logarithms if `is_log`."""
    known = np.isfinite(values)
    finite, unit = values[known], 1.0
    if not is_log:
        unit = float(np.median(np.abs(finite[finite != 0]))) if finite.any() else 1.0
    y = np.where(known, values, 1.0)
    y, lost = without_blocks(np.where(known, np.log(y) if is_log else y / unit, 0.0), known)
    found = clipped_means(y, known, lost)
    runs = known.sum(axis=1)
    own = np.maximum(runs - 1.0, 0)
    # residuals without the effects of blocks scatter less than the runs do
    widened = float(own.sum()) / found.freedom
    # the pooled variance is no more certain than the variances that dominate it
    shares = np.maximum(found.variance, SCATTER_MIN**2) * own
    by_chance = float((own * (own + 2)).sum()) / float(own.sum()) ** 2 if own.any() else 1.0
    alike = by_chance * float(shares.sum() ** 2 / max((shares**2).sum(), 1e-300))
    freedom = max(1.0, found.freedom * min(1.0, alike))
    prior, pooled = min(PRIOR_FREEDOM, freedom), max(found.scatter, SCATTER_MIN) ** 2
    variance = (prior * pooled + own * found.variance * widened) / (prior + own)
    of_mode = found.has_mode & (found.plain_variance * widened > variance) & (runs > RANGE_RUNS)
    variance = np.where(of_mode, found.plain_variance * widened, variance)
    is_range = found.has_mode & (runs <= RANGE_RUNS)
    high = np.where(is_range, np.where(known, y, -np.inf).max(axis=1), found.location)
    return Estimates(
        found.location,
        np.where(is_range, pooled, variance) / runs,
        np.where(of_mode, own, prior + own),
        freedom,
        is_log,
        unit,
        np.where(is_range, np.where(known, y, np.inf).min(axis=1), found.location),
        np.where(np.isinf(values).any(axis=1), np.inf, high),
    )


def without_blocks(y: Array, known: Array) -> tuple[Array, int]:
    """Return (values without the effects of blocks, degrees of freedom that this takes).

    Values by point and block, and which of them there are: (points, blocks).
    """
    shared = known.sum(axis=0) >= BLOCK_POINTS_MIN
    if not shared.any():
        return y, 0
    for _ in range(2):
        residuals = y - _median(y, known, axis=1)[:, None]
        effects = np.where(shared, _median(residuals, known, axis=0), 0.0)
        y = y - effects
    return y, max(0, int(shared.sum()) - 1)


@dataclass(frozen=True)
class Clipped:
    """Means of clipped values and their variances, (points,), and what all points share.

    Points with a second mode (`has_mode`) have their plain mean; `plain_variance` is without
    clipping. `scatter` is the pooled standard deviation, `freedom` its degrees of freedom.
    """

    location: Array
    variance: Array
    has_mode: Array
    plain_variance: Array
    scatter: float
    freedom: float


def clipped_means(y: Array, known: Array, lost: int) -> Clipped:
    """Return each point's mean with outliers clipped, and its variance.

    Args:
        y: Values, (points, blocks).
        known: Whether a value exists, (points, blocks); each point needs one.
        lost: Degrees of freedom that block effects have used.
    """
    runs = known.sum(axis=1)
    own = runs - 1.0
    freedom = max(float(own.sum()) - lost, 1.0)
    middle = _median(y, known, axis=1)[:, None]
    plain = y.sum(axis=1, where=known) / runs
    plain_variance = _variance(y, plain, known)
    several = runs > 1
    usual = np.array([_usual(int(n) - 1) for n in runs[several]])
    s = float(np.median(np.sqrt(plain_variance[several]) / usual)) if several.any() else 0.0
    for _ in range(4):
        unit = (max(s, SCATTER_MIN) * np.sqrt(own / runs))[:, None]
        distance = (y - middle) / np.where(unit > 0, unit, 1.0)
        is_far = known & (abs(distance) > FAR)
        inside = np.where(is_far, middle + CLIP * np.sign(distance) * unit, y)
        location = inside.sum(axis=1, where=known) / runs
        variance = _variance(inside, location, known)
        s = math.sqrt(float((variance * own).sum()) / freedom)
    slow = (is_far & (distance > 0)).sum(axis=1)
    has_mode = (slow < is_far.sum(axis=1)) | (slow > 0) & (slow >= MODE_SHARE * runs)
    location = np.where(has_mode, plain, location)
    return Clipped(location, variance, has_mode, plain_variance, s, freedom)


def _median(values: Array, known: Array, axis: int) -> Array:
    """Return medians along `axis` of the values that are known; 0 where none is."""
    ordered = np.sort(np.where(known, values, np.inf), axis=axis)
    count = known.sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((count - 1) // 2, 0), axis)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[axis] - 1), axis)
    return np.asarray(np.where(count > 0, (low + high) / 2, 0.0).squeeze(axis))


def _variance(values: Array, mean: Array, known: Array) -> Array:
    squares = ((values - mean[:, None]) ** 2).sum(axis=1, where=known)
    return np.asarray(squares / np.maximum(known.sum(axis=1) - 1, 1))


@functools.cache
def _usual(freedom: int) -> float:
    """Return median of a standard deviation of normal values over the true one."""
    exact = {1: 0.67449, 2: 0.83255, 3: 0.88796}
    return exact.get(freedom) or math.sqrt((1 - 2 / (9 * freedom)) ** 3)


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


class Samples:
    """The values of every metric of the runs that count, by point."""

    def __init__(self, runs: pd.DataFrame) -> None:
        counted = runs[runs["status"].isin([*RESULTS])]
        names = [name for name in (*METRICS, *QUALITY_COLUMNS) if name in counted]
        self._counted = counted[names]
        self._errors = np.zeros(len(counted))
        if "projection_error_s" in counted:
            errors = counted["projection_error_s"] / counted["execution_time_s"]
            self._errors = np.nan_to_num(errors.to_numpy(float, na_value=math.nan))
        self._costs: dict[str, list[float]] = {}
        #: Runs that diverged or ran out of memory: they never get to their end.
        self._is_endless = (counted["status"] != RunState.OK).to_numpy()
        numbers, self._repeats = pd.factorize(counted["repeat"], sort=True)
        self._blocks = numbers.tolist()
        points = points_of(counted)
        self._places = grouped(range(len(points)), points.__getitem__)
        self._statuses: dict[Point, Counter[str]] = {}
        #: Configuration → how many attempts at its runs failed or were cancelled.
        self.failed_attempts: Counter[Point] = Counter()
        failed = runs["failed_attempts"] if "failed_attempts" in runs else pd.Series(0, runs.index)
        states, counts = runs["status"].tolist(), failed.fillna(0).astype(int).tolist()
        for point, status, number in zip(points_of(runs), states, counts, strict=True):
            self._statuses.setdefault(point, Counter())[status] += 1
            self.failed_attempts[point] += number

    def statuses(self, point: Point) -> Counter[str]:
        """Return status → how many of the point's runs have it."""
        return self._statuses.get(point, Counter())

    def values(self, point: Point, metric: str) -> list[float]:
        """Return the metric's values as costs, smaller ones are better: `as_costs`."""
        return [v for _, v in self._known(point, metric) if math.isfinite(v)]

    def measured(self, point: Point, metric: str) -> list[float]:
        """Return the metric's values of the runs that count, as they were measured."""
        values = self._counted[metric].to_numpy(float, na_value=math.nan)
        places = [p for p in self._places.get(point, ()) if not self._is_endless[p]]
        return [float(values[p]) for p in places if not math.isnan(values[p])]

    def _known(self, point: Point, metric: str) -> list[tuple[int, float]]:
        """(block, value) of each run; infinite for one that diverged or did not fit in memory."""
        if metric not in self._costs:
            values = self._counted[metric].to_numpy(float, na_value=math.nan)
            if metric == QUALITY:  # each by its metric
                measured, values = values, np.full(len(values), np.nan)
                numbers, _ = pd.factorize(self._counted["quality_metric"])
                for own in (numbers == number for number in set(numbers) - {-1}):
                    of_quality = metric_of(QUALITY, self._counted.iloc[int(own.argmax())])
                    values[own] = as_costs(measured[own], of_quality)
            else:
                values = as_costs(values, METRICS[metric])
            self._costs[metric] = np.where(self._is_endless, math.inf, values).tolist()
        costs, blocks = self._costs[metric], self._blocks
        places = self._places.get(point, ())
        return [(blocks[p], costs[p]) for p in places if costs[p] == costs[p]]

    def projection_error(self, point: Point, metric: str) -> float:
        """Return the error of a projection that all runs of the point share, as a fraction.

        It is the root mean square of their errors by the steps within each run: the runs have the
        same warm-up, and train the same few epochs.
        """
        errors = self._errors[self._places.get(point, [])]
        is_projected = metric in OF_WHOLE and len(errors) > 0
        return float(np.sqrt(np.mean(errors**2))) if is_projected else 0.0

    def has_enough(self, metric: str, point: Point) -> bool:
        """Return whether the runs suffice for an interval; runs that never ended count."""
        known = self._known(point, metric)
        return len(known) >= RUNS_FOR_INTERVAL and any(math.isfinite(v) for _, v in known)

    def estimates(self, metric: str, points: Sequence[Point]) -> Estimates:
        """Return estimates of these points together; all of them must have enough runs."""
        known = [self._known(point, metric) for point in points]
        values = np.full((len(points), len(self._repeats)), np.nan)
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


def pareto_set(rows: Sequence[Cells], metrics: Sequence[str]) -> list[int]:
    """Positions of the rows that no other row beats, sorted by the first metric, then the next.

    A row is beaten by one that is at least as good in every metric and better in one. So rows with
    equal values beat each other in nothing and are all kept. Every row has a value of every metric.
    Raises ValueError if rows are of different qualities, which nothing compares.
    """
    if QUALITY in metrics and len(qualities_of(rows)) > 1:
        raise ValueError(f"configurations of different qualities: {', '.join(qualities_of(rows))}")
    better = {name: metric_of(name, rows[0]).is_higher_better for name in metrics if rows}
    losses = np.array([[row[n] * (-1 if better[n] else 1) for n in metrics] for row in rows], float)
    is_beaten = [((losses <= own).all(1) & (losses < own).any(1)).any() for own in losses]
    kept = [position for position, beaten in enumerate(is_beaten) if not beaten]
    return sorted(kept, key=lambda position: tuple(losses[position]))
