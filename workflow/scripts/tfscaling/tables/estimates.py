"""Robust estimates of several points together, and how far each may be from the best.

A few runs per point say little about each point's own scatter, and one disturbed
run spoils a mean. So the points are estimated together:

- on the logarithm of the values, as run times scatter in proportion; on the values themselves
  where one is zero or below,
- after the effect of each block (repeat k of all points) is taken off, where four or more points
  ran in it: a drift during a sweep affects all points equally,
- by means of the values clipped at CLIP robust standard deviations from their median,
- with moderated variances (Smyth 2004): a point's own, with the pooled one as PRIOR_FREEDOM more
  degrees of freedom.

Two points differ by more than chance where their locations are further apart than `half_width`, a
quantile of Student's t at the given tail. A statement that rests on m comparisons takes the m-th
part of its error (Bonferroni): all of them then hold together.

With one of K points the best, K - 1 comparisons bound how far any point may be from it: the bound
can only be wrong if the best itself looks worse than it is in one of these comparisons (Hsu 1984).
That one certain point is *the* best takes K comparisons, as two may be equal.

No theorem covers the whole; tests/unit/test_claims.py simulates it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

Array = np.ndarray

#: Degrees of freedom of the pooled variance, added to a point's own.
PRIOR_FREEDOM = 4.0
#: Values are clipped at so many robust standard deviations from their point's median.
CLIP = 2.5
#: What clipping leaves of the variance of normal values.
_CLIPPED_VARIANCE = 0.97758
#: What clipping adds to the variance of a mean, and takes from the degrees of freedom.
MEAN_VARIANCE, FREEDOM_LEFT = 1.05, 0.9
#: Runs are never taken to scatter less than this: a fraction of the value.
SCATTER_MIN = 0.005
#: The effect of a block is known where so many points ran in it.
BLOCK_POINTS_MIN = 4
#: A run that did not reach its end counts as this many times the largest value.
UNREACHED = 30.0
#: Of n values, by what the median of their distances from their median is too small (normal).
_DISTANCE = (1, 1, 1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107)


@dataclass(frozen=True)
class Estimates:
    """Locations of points, each with its squared standard error and degrees of freedom: (points,).

    Locations are logarithms if `is_log`, else values over `unit`. The smaller the better.
    """

    location: Array
    variance: Array
    freedom: Array
    freedom_max: float
    is_log: bool
    unit: float

    def half_width(self, first: Array | int, other: Array | int, tail: float | Array) -> Array:
        """By how much two locations differ by chance, but for a probability `tail` on one side."""
        error, freedom = self._error(first, other)
        return np.asarray(-stdtrit(freedom, tail) * error)

    def chance(self, first: Array | int, other: Array | int) -> Array:
        """The probability that chance alone sets two locations as far apart, to either side."""
        error, freedom = self._error(first, other)
        distance = np.abs(self.location[other] - self.location[first])
        return np.asarray(2 * stdtr(freedom, -distance / error))

    def _error(self, first: Array | int, other: Array | int) -> tuple[Array, Array]:
        """(standard error of the difference of two locations, its degrees of freedom)."""
        a, b = self.variance[first], self.variance[other]
        both = a + b
        freedom = both**2 / (a**2 / self.freedom[first] + b**2 / self.freedom[other])
        return np.sqrt(both), np.minimum(freedom, self.freedom_max)

    @property
    def best(self) -> int:
        return int(self.location.argmin())

    def may_be_worse(self, tail: float, points: Sequence[int]) -> Array:
        """By how much each of `points` may be worse than the best of all, 0 if it is the best.

        A fraction (0.05: 5 % worse than the best); infinite where the best may be zero.
        """
        found = []
        everyone = np.arange(len(self.location))
        for point in points:
            others = everyone[everyone != point]
            ahead = self.location[point] - self.location[others]
            ahead += self.half_width(point, others, tail)
            found.append(max(0.0, ahead.max(initial=0.0)))
        return self._as_fraction(np.array(found))

    def _as_fraction(self, distance: Array) -> Array:
        if self.is_log:
            return np.asarray(np.expm1(distance))
        least = self.location.min()
        return np.where(distance <= 0, 0.0, distance / least if least > 0 else math.inf)

    def near(self, limit: float) -> list[int]:
        """The points whose estimate is no worse than the best by the fraction `limit`: no claim."""
        distance = self._as_fraction(self.location - self.location.min())
        return [int(point) for point in np.flatnonzero(distance <= limit)]

    def is_worse(self, than: int, tail: float) -> Array:
        """Which points are shown to be worse than one: (points,)."""
        everyone = np.arange(len(self.location))
        distance = self.location - self.location[than]
        return np.asarray(distance > self.half_width(everyone, than, tail))


def estimate(values: Array) -> Estimates:
    """Estimates of values by point and block: (points, blocks), NaN where there was no run.

    Infinite: a run that did not reach its end. Each point needs two runs or more.
    """
    known = ~np.isnan(values)
    finite = values[np.isfinite(values)]
    is_log, unit = bool((finite > 0).all()), 1.0
    if is_log:
        with np.errstate(invalid="ignore"):
            y = np.log(values)
        largest = math.log(finite.max()) + math.log(UNREACHED) if finite.size else 0.0
    else:
        unit = float(np.median(np.abs(finite[finite != 0]))) if finite.any() else 1.0
        y = values / unit
        largest = UNREACHED * max(1.0, float(finite.max()) / unit)
    y = np.where(known, np.where(np.isfinite(y), y, largest), 0.0)
    y, lost = without_blocks(y, known)
    return _estimate(y, known, lost, is_log, unit)


def without_blocks(y: Array, known: Array) -> tuple[Array, int]:
    """(values without the effects of blocks, degrees of freedom that this takes).

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

    `scatter` is the pooled standard deviation, `freedom` its degrees of freedom.
    """

    location: Array
    variance: Array
    scatter: float
    freedom: float


def clipped(y: Array, known: Array, lost: int) -> Clipped:
    """Clipped means of values by point and block, of which there are `known`: (points, blocks).

    `lost` degrees of freedom were taken before. Each point needs two runs or more.
    """
    runs = known.sum(axis=1)
    own = runs - 1.0
    freedom = max(float(own.sum()) - lost, 1.0)
    middle = _median(y, known, axis=1)
    raw = np.sqrt(_variance(y, y.sum(axis=1, where=known) / runs, known))
    s = float(np.median(raw / np.array([_usual(int(n) - 1) for n in runs])))
    distance = 1.4826 * np.array([_of_distance(int(n)) for n in runs])
    distance *= _median(np.abs(y - middle[:, None]), known, axis=1)
    distance[runs < 3] = 0.0
    for _ in range(4):
        limit = CLIP * np.maximum(s, distance) * np.sqrt(own / runs)
        inside = np.clip(y, (middle - limit)[:, None], (middle + limit)[:, None])
        location = inside.sum(axis=1, where=known) / runs
        variance = _variance(inside, location, known) / _CLIPPED_VARIANCE
        s = max(math.sqrt(float((variance * own).sum()) / freedom), 1e-4)
    return Clipped(location, variance, s, freedom)


def _estimate(y: Array, known: Array, lost: int, is_log: bool, unit: float) -> Estimates:
    runs = known.sum(axis=1)
    own = runs - 1.0
    found = clipped(y, known, lost)
    # residuals without the effects of blocks scatter less than the runs do
    widened = float(own.sum()) / found.freedom
    # the pooled variance is no surer than that of the points that make up most of it
    shares = np.maximum(found.variance, SCATTER_MIN**2)
    freedom = float((shares * own).sum() ** 2 / (shares**2 * own).sum()) / widened
    least, freedom = max(found.scatter, SCATTER_MIN) ** 2, max(1.0, FREEDOM_LEFT * freedom)
    prior = min(PRIOR_FREEDOM, freedom)
    moderated = (prior * least + own * found.variance * widened) / (prior + own)
    return Estimates(
        found.location,
        MEAN_VARIANCE * moderated / runs,
        prior + FREEDOM_LEFT * own,
        freedom,
        is_log,
        unit,
    )


def _median(values: Array, known: Array, axis: int) -> Array:
    """Medians along `axis` of the values that are known; 0 where none is."""
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
    """Median of a standard deviation of normal values over the true one."""
    exact = {1: 0.67449, 2: 0.83255, 3: 0.88796}
    return exact.get(freedom) or math.sqrt((1 - 2 / (9 * freedom)) ** 3)


@functools.cache
def _of_distance(runs: int) -> float:
    """Croux and Rousseeuw's factors (1992)."""
    return _DISTANCE[runs] if runs < len(_DISTANCE) else runs / (runs - 0.8)
