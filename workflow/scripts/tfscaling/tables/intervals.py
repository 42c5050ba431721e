"""Medians and ratios with intervals that small samples justify.

Source: T. Hoefler and R. Belli, "Scientific Benchmarking of Parallel Computing Systems" (SC15),
rules 5 and 6: nonparametric intervals, because run times are not normally distributed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

#: Confidence of every interval in tables, plots and findings.
CONFIDENCE = 0.95
#: Below this number of runs even the whole range of a sample is no 95 % interval of the median.
RUNS_FOR_INTERVAL = 6
RESAMPLES = 1999

Interval = tuple[float, float]


@functools.cache
def median_rank(runs: int, confidence: float = CONFIDENCE) -> int | None:
    """k such that the k-th smallest to the k-th largest of `runs` values is an interval.

    The interval holds the median with at least `confidence`, whatever the distribution; None if
    even the whole range does not.
    """
    # of 2**runs equally likely ways to lie below or above the median, those with at most k below;
    # the binomial distribution of scipy.stats is the same, but takes most of a second to load
    k = ways = 0
    while (ways := ways + math.comb(runs, k)) / 2**runs <= (1 - confidence) / 2:
        k += 1
    return k or None


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Nonparametric interval of the median by order statistics; None if there are too few."""
    rank = median_rank(len(values), confidence) if len(values) else None
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
    """Percentile bootstrap interval of the ratio of two medians; None if either has too few.

    Nor is there one if a denominator is not above zero: a resample's ratio would be no number. The
    resampling is seeded: the same samples, in any order, give the same interval. The result is that
    of `scipy.stats.bootstrap` for ordered samples; the ranks drawn serve thousands of ratios.
    """
    if min(len(numerators), len(denominators)) < RUNS_FOR_INTERVAL or min(denominators) <= 0:
        return None
    samples = [np.sort(np.asarray(values, float)) for values in (numerators, denominators)]
    middles = _middles(*map(len, samples))
    above, below = ((v[i] + v[j]) / 2 for v, (i, j) in zip(samples, middles, strict=True))
    ratios, tail = above / below, (1 - confidence) / 2
    return _quantile(ratios, tail), _quantile(ratios, 1 - tail)


def _quantile(values: np.ndarray, share: float) -> float:
    """As `np.quantile`, which takes ten times as long for a few thousand values."""
    place = share * (len(values) - 1)
    index, between = int(place), place % 1
    low, high = np.partition(values, (index, index + 1))[index : index + 2]
    span = high - low
    return float(low + span * between if between < 0.5 else high - span * (1 - between))
