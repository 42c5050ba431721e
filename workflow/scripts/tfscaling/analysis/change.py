"""Whether points became slower or faster between two sweeps, from the times of their runs alone.

The times of both sweeps are estimated together (`tables.estimates`), and each point is compared
with itself in the other sweep. Holm's procedure (1979) shares the error among the m points: the
smallest probability of chance must be below the m-th part of it, the next below the (m-1)-th part,
and so on to the first that is not. The interval of a point is that of the level at which it was
decided, so it leaves out 1 exactly where a difference is shown.

No theorem covers the whole; benchmarks/regressions.py simulates how often it is wrong, and what
other tests would have said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tfscaling.tables.estimates import Array, estimate
from tfscaling.tables.intervals import CONFIDENCE

SLOWER, FASTER, SAME, OPEN = "slower", "faster", "same", "cannot be told"
#: With fewer runs of each sweep, outliers make false alarms (docs/method.md).
RUNS_MIN = 4


@dataclass(frozen=True)
class Change:
    """Time after over time before, above 1 where it is slower after; its interval; a verdict."""

    ratio: float
    low: float
    high: float
    verdict: str


def judge(before: Array, after: Array, indifference: float) -> list[Change]:
    """The change of each point, from seconds by point and repeat: (points, repeats).

    NaN where there is no run; each point has RUNS_MIN or more in both. Slower or faster: the
    interval leaves out 1, and the ratio is beyond the indifference, a fraction. The same: the whole
    interval is within it. So a point that is shown to differ, by less than matters, cannot be told,
    unless its interval shows that, too. All verdicts of a kind hold together with CONFIDENCE.
    """
    points = len(before)
    values = np.full((2 * points, before.shape[1] + after.shape[1]), np.nan)
    # repeats of two sweeps are no blocks of both: they ran at other times
    values[:points, : before.shape[1]], values[points:, before.shape[1] :] = before, after
    found = estimate(values)
    first = np.arange(points)
    middle = found.location[first + points] - found.location[first]
    tails = holm(found.chance(first, first + points)) / 2
    half = found.half_width(first, first + points, tails)
    limit = float(np.log1p(indifference))
    return [
        Change(math.exp(m), math.exp(m - h), math.exp(m + h), _verdict(m, h, limit))
        for m, h in zip(middle.tolist(), half.tolist(), strict=True)
    ]


def _verdict(middle: float, half: float, limit: float) -> str:
    """From the logarithms of the ratio, of its interval's half width and of the indifference."""
    if abs(middle) + half <= limit:
        return SAME
    if abs(middle) > max(half, limit):
        return SLOWER if middle > 0 else FASTER
    return OPEN


def holm(chance: Array) -> Array:
    """The level at which each point is decided, from its probability of chance: (points,)."""
    places = np.arange(len(chance))
    order = np.argsort(chance, kind="stable")
    shares = (1 - CONFIDENCE) / (len(chance) - places)
    refused = np.flatnonzero(chance[order] > shares)
    levels = np.empty(len(chance))
    levels[order] = shares[np.minimum(places, refused.min(initial=len(chance)))]
    return levels
