"""Whether points became slower or faster, or fail more often, from one sweep to another.

The times of both sweeps are estimated together (`tables.estimates`), and each point is compared
with itself in the other sweep. "Slower" and "faster" are Holm's (1979): the smallest probability of
chance must be below the m-th part of the error, the next below the (m-1)-th part, and so on to the
first that is not. All intervals hold together by Bonferroni, and "same" follows them. An interval
leaves out 1 where a difference is shown. No theorem covers all of it; benchmarks/regressions.py
simulates how often it is wrong.

Failures are compared over all points together, because points differ in how often their runs fail
and in their numbers of runs. Given how many runs of a point failed in both sweeps, the failures of
one sweep are hypergeometric if runs fail equally often in both. The sum over the points is the
statistic of the exact test of Cochran and Mantel-Haenszel (M. W. Birch, 1964), for a single point
Fisher's exact test. The test assumes that runs fail independently.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import numpy as np

from tfscaling.tables.estimates import CONFIDENCE, Array, estimate

#: More failures than in the other sweep are shown where chance gives so many more seldom than this:
#: the half of the error of two-sided verdicts, as of "slower".
LEVEL = (1 - CONFIDENCE) / 2


class Ends(NamedTuple):
    """How many runs failed or diverged, of all that ended."""

    bad: int
    runs: int


def chance(points: Iterable[tuple[Ends, Ends]]) -> float:
    """How probable so many failures or more are, if runs fail as often in both sweeps.

    `points` are the ends of each point, (here, there); the failures are those here.
    """
    sums, bad = np.ones(1), 0
    for here, there in points:
        sums, bad = np.convolve(sums, _of_point(here, there)), bad + here.bad
    return min(1.0, float(sums[bad:].sum()))


def _of_point(here: Ends, there: Ends) -> Array:
    """Probability of each number of failures here, from 0 to all of both: (numbers,)."""
    bad = here.bad + there.bad
    ways = comb(here.runs + there.runs, bad)
    return np.array(
        [comb(here.runs, own) * comb(there.runs, bad - own) / ways for own in range(bad + 1)]
    )


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
