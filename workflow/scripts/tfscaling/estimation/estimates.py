"""Robust estimates of several points together.

A few runs per point show little of each point's own scatter, and one disturbed
run spoils a mean. So the points are estimated together:

- on the logarithm of the values, as run times scatter in proportion; on the values themselves
  where one is zero or below,
- after the effect of each block (repeat k of all points) is taken off, where four or more points
  ran in it: a drift during a sweep affects all points equally,
- by means, in which an isolated run beyond OUTLIER_SD pooled standard deviations from the median
  counts as one at CLIPPED_SD,
- with moderated variances (Smyth 2004): a point's own, with the pooled one as PRIOR_FREEDOM more
  degrees of freedom.

Clipping is for isolated slow runs. A run that is far on the fast side, or SECOND_MODE_SHARE of far
runs, is a second mode: the point counts with its plain mean and, where that is larger, its own
variance with its own degrees of freedom. Up to RANGE_RUNS_MAX runs such a point counts as their
range.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from tfscaling.estimation.intervals import Array

#: Indices of some of the estimated configurations.
ConfigurationIndices = Array | int | slice
#: Degrees of freedom of the pooled variance, which are added to each configuration's degrees.
PRIOR_FREEDOM = 3.0
#: Runs beyond OUTLIER_SD pooled standard deviations from their configuration's median are far;
#: isolated ones count as CLIPPED_SD deviations.
OUTLIER_SD, CLIPPED_SD = 4.0, 2.5
#: If this share of a configuration's runs is far from the median, it has a second mode.
SECOND_MODE_SHARE = 0.25
#: A configuration with a second mode counts as the range of its runs if it has at most this many.
RANGE_RUNS_MAX = 4
#: Smallest standard deviation that runs are assumed to have, as a fraction of the value.
SCATTER_MIN = 0.005
#: Metrics that are products with a price or a number of GPUs, which may be zero.
COSTS_BY_PRICE = {"cost_usd", "cost_to_target_usd", "gpu_hours", "energy_usd", "energy_kg_co2"}
#: The effect of a block is estimated if at least this many configurations ran in it.
BLOCK_POINTS_MIN = 4


@dataclass(frozen=True)
class Estimates:
    """Joint estimates of configurations: arrays with one element for each configuration.

    Attributes:
        location: Mean of the runs' costs (smaller is better): of their logarithms if `is_log`, else
            of the costs divided by `unit`.
        variance: Squared standard error of the location; zero only for costs that are exactly zero.
        freedom: Degrees of freedom of the variance.
        freedom_max: Degrees of freedom of the pooled variance, the maximum for any comparison.
        is_log: Whether locations are logarithms.
        unit: Cost that a location of 1 represents, if locations are not logarithms.
        low: Value, in units of `location`, from which an interval extends downwards. It is the
            location. But if a configuration has at most RANGE_RUNS_MAX runs, and one of them is far
            from their median (OUTLIER_SD), it is the lowest run: so few runs do not show which of
            them are usual.
        high: Value from which an interval extends upwards: the location or, in the same case, the
            highest run. Infinite if a run did not reach its end.
    """

    location: Array
    variance: Array
    freedom: Array
    freedom_max: float
    is_log: bool
    unit: float
    low: Array
    high: Array

    def half_width(
        self,
        first: ConfigurationIndices,
        other: ConfigurationIndices,
        tail_probability: float | Array,
    ) -> Array:
        """Return the margin of error of the difference of two locations.

        Chance alone exceeds it with the probability `tail_probability`.

        Args:
            first: Index of a configuration, or several.
            other: Index of another configuration, or several.
            tail_probability: Error probability, one-sided.
        """
        error, freedom = self._standard_error(first, other)
        return np.asarray(-scipy.special.stdtrit(freedom, tail_probability) * error)

    def difference_interval(
        self,
        first: ConfigurationIndices,
        other: ConfigurationIndices,
        tail_probability: float | Array,
    ) -> tuple[Array, Array]:
        """Return the confidence interval of a difference: location of `other` minus `first`.

        Args:
            first: Index of a configuration, or several.
            other: Index of another configuration, or several.
            tail_probability: Error probability on each side.
        """
        half = self.half_width(first, other, tail_probability)
        low, high = self.low[other] - self.high[first], self.high[other] - self.low[first]
        return np.asarray(low - half), np.asarray(high + half)

    def p_value(self, first: ConfigurationIndices, other: ConfigurationIndices) -> Array:
        """Return the two-sided p-value of the hypothesis that two locations are equal.

        Args:
            first: Index of a configuration, or several.
            other: Index of another configuration, or several.
        """
        error, freedom = self._standard_error(first, other)
        ahead = np.maximum(self.low[other] - self.high[first], self.low[first] - self.high[other])
        distance = np.maximum(ahead, 0.0)
        # two exact values that are equal differ by no more than chance
        ratio = np.where(distance > 0, distance / np.maximum(error, 1e-300), 0.0)
        return np.asarray(2 * scipy.special.stdtr(freedom, -ratio))

    def location_interval(self, tail_probability: float) -> tuple[Array, Array]:
        """Return the confidence interval of each location.

        Args:
            tail_probability: Error probability on each side.
        """
        freedom = np.minimum(self.freedom, self.freedom_max)
        half = -scipy.special.stdtrit(freedom, tail_probability) * np.sqrt(self.variance)
        return np.asarray(self.low - half), np.asarray(self.high + half)

    def p_value_of_zero(self) -> Array:
        """Return the two-sided p-value of the hypothesis that each location is zero."""
        distance = np.maximum(np.maximum(self.low, -self.high), 0.0)
        ratio = distance / np.maximum(np.sqrt(self.variance), 1e-300)
        freedom = np.minimum(self.freedom, self.freedom_max)
        return np.asarray(2 * scipy.special.stdtr(freedom, -ratio))

    def _standard_error(
        self, first: ConfigurationIndices, other: ConfigurationIndices
    ) -> tuple[Array, Array]:
        """Return the standard error of the difference of two locations, and its degrees of freedom.

        Args:
            first: Index of a configuration, or several.
            other: Index of another configuration, or several.
        """
        a, b = self.variance[first], self.variance[other]
        both = a + b
        parts = a**2 / self.freedom[first] + b**2 / self.freedom[other]
        # two exact values do not differ by chance
        freedom = np.where(parts > 0, both**2 / np.where(parts > 0, parts, 1.0), self.freedom_max)
        return np.sqrt(both), np.minimum(freedom, self.freedom_max)

    @property
    def best(self) -> int:
        """Index of the best configuration: the one with the lowest mean cost, `location`."""
        return int(self.location.argmin())

    def disadvantage_bounds(self, tail_probability: float, points: Sequence[int]) -> Array:
        """Return upper bounds of how much worse some configurations may be than the best of all.

        A bound is a fraction (0.05: 5 % worse), 0 if the configuration is shown to be the best, and
        infinite if the best cost may be zero.

        Args:
            tail_probability: Error probability of a bound.
            points: Indices of these configurations.
        """
        found = []
        for point in points:
            if self.variance[point] == 0:  # exactly zero: nothing is better
                found.append(self.high[point])
                continue
            others = np.delete(np.arange(len(self.location)), point)
            ahead = (
                self.high[point]
                - self.low[others]
                + self.half_width(point, others, tail_probability)
            )
            found.append(ahead.max(initial=0.0))
        return self._as_fraction(np.array(found))

    def _as_fraction(self, distance: Array) -> Array:
        """Convert differences of locations to relative differences of cost: 0.05 is 5 % more.

        Args:
            distance: Differences of two locations, or upper bounds of differences; 0 or above.

        Returns:
            If locations are logarithms: exp(distance) - 1, a fraction of the lower of the two
            costs. Otherwise: the distance as a fraction of the lowest of all locations; infinite
            if this location is not above zero.
        """
        if self.is_log:
            return np.asarray(np.expm1(distance))
        least = self.location.min()
        return np.where(distance <= 0, 0.0, distance / least if least > 0 else math.inf)

    def near_best(self, limit: float) -> list[int]:
        """Return the indices of configurations whose estimates are near the lowest one.

        This is a selection by estimates, without a bound on its error.

        Args:
            limit: Largest excess over the lowest estimate, as a fraction.
        """
        distance = self._as_fraction(self.location - self.location.min())
        return [int(point) for point in np.flatnonzero(distance <= limit)]

    def shown_worse_than(self, than: int, tail_probability: float) -> Array:
        """Return for each configuration whether it is shown to be worse than another.

        Args:
            than: Index of the other configuration.
            tail_probability: Error probability of each comparison.
        """
        distance = self.low - self.high[than]
        return np.asarray(distance > self.half_width(slice(None), than, tail_probability))


def estimate_locations(values: Array, zeros_are_exact: bool = False) -> Estimates:
    """Estimate the location of each configuration from its runs in each block.

    Args:
        values: Costs, (configurations, blocks): NaN without a run, infinite for a run that did not
            reach its end. Each configuration needs one finite value.
        zeros_are_exact: Whether costs that are all zero are free of error, as with a price of zero.
    """
    is_exact = np.full(len(values), False)
    if zeros_are_exact:
        is_exact = ((values == 0) | ~np.isfinite(values)).all(axis=1)
    if not is_exact.any():
        return _estimate_scattering(values, bool((values[np.isfinite(values)] > 0).all()))
    high = np.where(np.isinf(values).any(axis=1), np.inf, 0.0)
    zeros = np.zeros(len(values))
    if is_exact.all():
        return Estimates(zeros, zeros, zeros + 1, 1.0, False, 1.0, zeros, high)
    found = _estimate_scattering(values[~is_exact], is_log=False)
    places = np.cumsum(~is_exact) - 1
    return replace(
        found,
        location=np.where(is_exact, 0.0, found.location[places]),
        variance=np.where(is_exact, 0.0, found.variance[places]),
        freedom=np.where(is_exact, 1.0, found.freedom[places]),
        low=np.where(is_exact, 0.0, found.low[places]),
        high=np.where(is_exact, high, found.high[places]),
    )


def _estimate_scattering(values: Array, is_log: bool) -> Estimates:
    """Estimate locations of configurations whose values scatter.

    Args:
        values: Costs, (configurations, blocks), as in `estimate_locations`.
        is_log: Whether to estimate logarithms; the values must be above zero.
    """
    known = np.isfinite(values)
    finite, unit = values[known], 1.0
    if not is_log:
        unit = float(np.median(np.abs(finite[finite != 0]))) if finite.any() else 1.0
    y = np.where(known, values, 1.0)
    y, lost = remove_block_effects(np.where(known, np.log(y) if is_log else y / unit, 0.0), known)
    found = compute_clipped_means(y, known, lost)
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
    of_mode = found.has_mode & (found.plain_variance * widened > variance) & (runs > RANGE_RUNS_MAX)
    variance = np.where(of_mode, found.plain_variance * widened, variance)
    is_range = found.has_mode & (runs <= RANGE_RUNS_MAX)
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


def remove_block_effects(y: Array, known: Array) -> tuple[Array, int]:
    """Subtract the effect of each block from values.

    Args:
        y: Values, (configurations, blocks).
        known: Whether a value exists, (configurations, blocks).

    Returns:
        The values without effects of blocks, and the degrees of freedom that this uses.
    """
    shared = known.sum(axis=0) >= BLOCK_POINTS_MIN
    if not shared.any():
        return y, 0
    for _ in range(2):
        residuals = y - _known_median(y, known, axis=1)[:, None]
        effects = np.where(shared, _known_median(residuals, known, axis=0), 0.0)
        y = y - effects
    return y, max(0, int(shared.sum()) - 1)


@dataclass(frozen=True)
class ClippedMeans:
    """Means of each configuration's values, in which isolated outliers are clipped.

    Arrays have the shape (configurations,).

    Attributes:
        location: The mean of each configuration; not clipped where `has_mode`.
        variance: The variance of each configuration's clipped values, not of their mean.
        has_mode: Whether each configuration has a second mode: a value far below the median, or at
            least SECOND_MODE_SHARE of the values far above it. Such values are no outliers.
        plain_variance: The variance of each configuration's values without clipping.
        scatter: The pooled standard deviation.
        freedom: Degrees of freedom of the pooled standard deviation.
    """

    location: Array
    variance: Array
    has_mode: Array
    plain_variance: Array
    scatter: float
    freedom: float


def compute_clipped_means(y: Array, known: Array, lost: int) -> ClippedMeans:
    """Compute each configuration's mean and variance with clipped outliers.

    Args:
        y: Values, (configurations, blocks).
        known: Whether a value exists, (configurations, blocks); each configuration needs one.
        lost: Degrees of freedom that block effects have used.
    """
    runs = known.sum(axis=1)
    own = runs - 1.0
    freedom = max(float(own.sum()) - lost, 1.0)
    middle = _known_median(y, known, axis=1)[:, None]
    plain = y.sum(axis=1, where=known) / runs
    plain_variance = _known_variance(y, plain, known)
    several = runs > 1
    usual = np.array([_median_of_std(int(n) - 1) for n in runs[several]])
    s = float(np.median(np.sqrt(plain_variance[several]) / usual)) if several.any() else 0.0
    for _ in range(4):
        unit = (max(s, SCATTER_MIN) * np.sqrt(own / runs))[:, None]
        distance = (y - middle) / np.where(unit > 0, unit, 1.0)
        is_far = known & (abs(distance) > OUTLIER_SD)
        inside = np.where(is_far, middle + CLIPPED_SD * np.sign(distance) * unit, y)
        location = inside.sum(axis=1, where=known) / runs
        variance = _known_variance(inside, location, known)
        s = math.sqrt(float((variance * own).sum()) / freedom)
    slow = (is_far & (distance > 0)).sum(axis=1)
    has_mode = (slow < is_far.sum(axis=1)) | (slow > 0) & (slow >= SECOND_MODE_SHARE * runs)
    location = np.where(has_mode, plain, location)
    return ClippedMeans(location, variance, has_mode, plain_variance, s, freedom)


def _known_median(values: Array, known: Array, axis: int) -> Array:
    """Return medians of the values that are known; 0 if none is known.

    Args:
        values: Values, (configurations, blocks).
        known: Whether a value exists, in the same shape.
        axis: The axis over which medians are taken.
    """
    ordered = np.sort(np.where(known, values, np.inf), axis=axis)
    count = known.sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((count - 1) // 2, 0), axis)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[axis] - 1), axis)
    return np.asarray(np.where(count > 0, (low + high) / 2, 0.0).squeeze(axis))


def _known_variance(values: Array, mean: Array, known: Array) -> Array:
    """Return the variance of each configuration's known values around its mean.

    Args:
        values: Values, (configurations, blocks).
        mean: Mean of each configuration, (configurations,).
        known: Whether a value exists, (configurations, blocks).
    """
    squares = ((values - mean[:, None]) ** 2).sum(axis=1, where=known)
    return np.asarray(squares / np.maximum(known.sum(axis=1) - 1, 1))


@functools.cache
def _median_of_std(freedom: int) -> float:
    """Return the median of the sample standard deviation of normal values with deviation 1.

    Args:
        freedom: Degrees of freedom of the standard deviation.
    """
    exact = {1: 0.67449, 2: 0.83255, 3: 0.88796}
    return exact.get(freedom) or math.sqrt((1 - 2 / (9 * freedom)) ** 3)
