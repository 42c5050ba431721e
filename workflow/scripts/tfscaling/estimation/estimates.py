"""Robust estimates of several points together.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from tfscaling.estimation.intervals import Array

#: Which of several points.
Places = Array | int | slice
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
