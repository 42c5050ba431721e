"""Estimates at a look, and how far apart candidates must be to leave."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tfscaling.tables import estimates
from tfscaling.tables.estimates import Array, Estimates

#: Runs at a look → the least distance of logarithms by which a candidate leaves.
EARLY_GAPS = {1: math.log(3.5), 2: math.log(1.45), 3: math.log(1.35), 4: math.log(1.2)}


@dataclass(frozen=True)
class Locations(Estimates):
    """Estimates with the least gap that counts, by candidate."""

    gap_min: Array

    def margin(self, first: Array | int, other: Array | int, tail: float) -> Array:
        """By how much the first must be behind the other to leave."""
        return np.maximum(self.half_width(first, other, tail), self.gap_min[first])


def estimate(values: Array) -> Locations:
    """Locations of values by candidate and block, as `tables.estimates.estimate`."""
    found = estimates.estimate(values)
    runs = np.isfinite(values).sum(axis=1)
    gaps = np.array([EARLY_GAPS.get(int(n), 0.0) for n in runs])
    return Locations(**vars(found), gap_min=gaps)
