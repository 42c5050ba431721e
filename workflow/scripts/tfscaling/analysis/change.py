"""Whether points became slower or faster between two sweeps, from the times of their runs alone.

The times of both sweeps are estimated together (`tables.estimates`), and each point is compared
with itself in the other sweep. "Slower" and "faster" are Holm's (1979): the smallest probability of
chance must be below the m-th part of the error, the next below the (m-1)-th part, and so on to the
first that is not. All intervals hold together by Bonferroni, and "same" follows them. An interval
leaves out 1 where a difference is shown.

No theorem covers the whole; benchmarks/regressions.py simulates how often it is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfscaling.tables.estimates import Array, estimate
from tfscaling.tables.intervals import CONFIDENCE

SLOWER, FASTER, SAME, OPEN = "slower", "faster", "same", "cannot be told"
#: Fewer runs of a sweep show neither outliers nor a second mode.
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
    is_shown = holm(found.chance(first, first + points))
    low, high = found.between(first, first + points, (1 - CONFIDENCE) / 2 / points)
    # a shown difference narrows the interval at 1 (Strassburger and Bretz 2008)
    low = np.where(is_shown & (middle > 0), np.maximum(low, 0), low)
    high = np.where(is_shown & (middle < 0), np.minimum(high, 0), high)
    limit = float(np.log1p(indifference))
    verdicts = np.select(
        [
            is_shown & (middle > limit),
            is_shown & (middle < -limit),
            (low >= -limit) & (high <= limit),
        ],
        [SLOWER, FASTER, SAME],
        OPEN,
    )
    logs = np.exp([middle, low, high])
    return [Change(*each) for each in zip(*logs.tolist(), verdicts.tolist(), strict=True)]


def holm(chance: Array) -> Array:
    """For which points a difference is shown, by their probabilities of chance: (points,)."""
    order = np.argsort(chance, kind="stable")
    refused = chance[order] > (1 - CONFIDENCE) / (len(chance) - np.arange(len(chance)))
    is_shown = np.empty(len(chance), bool)
    is_shown[order] = ~np.logical_or.accumulate(refused)
    return is_shown
