"""Whether more runs fail in a sweep than in another one, over all points together.

Each point is compared with itself: points differ in how often their runs fail, and in how many
runs they have in the two sweeps. Given how many runs of a point failed in both, those of the one
sweep are hypergeometric if runs fail as often in both; the sum over the points is the statistic of
the exact test of Cochran and Mantel-Haenszel (M. W. Birch, 1964), of a single point that of
Fisher's exact test. The test takes each run to fail by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import comb
from typing import NamedTuple

import numpy as np

from tfscaling.tables.estimates import Array
from tfscaling.tables.intervals import CONFIDENCE

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
