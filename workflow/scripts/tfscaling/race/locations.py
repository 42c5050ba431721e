"""Where the candidates are by the runs of a look, and how far apart they must be to leave."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tfscaling.tables.estimates import (
    FREEDOM_LEFT,
    MEAN_VARIANCE,
    PRIOR_FREEDOM,
    SCATTER_MIN,
    UNREACHED,
    Array,
    Estimates,
    clipped,
    without_blocks,
)

#: Runs at a look → the least distance of logarithms by which a candidate leaves.
EARLY_GAPS = {2: math.log(1.3), 3: math.log(1.2)}
#: Two runs further apart than so many standard deviations of a difference are in doubt.
DOUBT = 3.0


@dataclass(frozen=True)
class Locations(Estimates):
    """Estimates with the range of each location, (candidates,), and the least gap that counts."""

    low: Array
    high: Array
    gap_min: float

    def margin(self, first: Array | int, other: Array | int, tail: float) -> Array:
        """By how much the first must be behind the other to leave."""
        return np.maximum(self.half_width(first, other, tail), self.gap_min)


def estimate(values: Array) -> Locations:
    """Locations of values by candidate and block, (candidates, blocks): NaN where there is no run.

    Infinite: a run that did not reach its end. Each candidate needs two runs, one of them finite.
    """
    known = ~np.isnan(values)
    finite = np.isfinite(values)
    unreached = values[finite].max() * UNREACHED
    y, lost = without_blocks(np.log(np.where(finite, values, np.where(known, unreached, 1))), known)
    found = clipped(y, known, lost)
    runs = known.sum(axis=1)
    own, pooled = runs - 1.0, found.scatter**2
    low = np.where(known, y, np.inf).min(axis=1)
    high = np.where(known, y, -np.inf).max(axis=1)
    is_doubtful = (runs == 2) & (high - low > DOUBT * math.sqrt(2) * found.scatter)
    freedom = FREEDOM_LEFT * found.freedom
    prior = min(PRIOR_FREEDOM, freedom)
    variance = np.where(is_doubtful, pooled, found.variance)
    moderated = (prior * max(pooled, SCATTER_MIN**2) + own * variance) / (prior + own)
    return Locations(
        location=found.location,
        variance=MEAN_VARIANCE * moderated / runs,
        freedom=prior + FREEDOM_LEFT * own,
        freedom_max=freedom,
        is_log=True,
        unit=1.0,
        low=np.where(is_doubtful, low, found.location),
        high=np.where(is_doubtful, high, found.location),
        gap_min=EARLY_GAPS.get(values.shape[1], 0.0),
    )
