"""Medians and ratios with intervals, and limits that runs keep or miss.

Tables, searches and conclusions use them. Intervals of a single sample are nonparametric, as run
times are not normally distributed: rules 5 and 6 of T. Hoefler and R. Belli, "Scientific
Benchmarking of Parallel Computing Systems" (SC15).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import scipy

from tfscaling.study.config_types import Limit

Array = np.ndarray
#: Confidence of every interval in tables, plots and findings.
CONFIDENCE = 0.95
#: Below this number of runs even the whole range of a sample is no 95 % interval of the median.
RUNS_FOR_INTERVAL = 6
RESAMPLES = 1999

Interval = tuple[float, float]


def keeps_limit(
    values: Sequence[float], limit: Limit, error: float, shared_error: float = 0.0
) -> bool:
    """Return whether the runs show that a configuration keeps a limit.

    They do if every run keeps it and the confidence interval of their mean, by Student's t, keeps
    it, too. A false result does not show that the limit is missed: see `count_beyond_limit`.

    Args:
        values: The limited metric of the runs; fewer than RUNS_FOR_INTERVAL show nothing.
        limit: The limit.
        error: Error rate of the interval, one-sided.
        shared_error: Standard error that all values share, as a fraction: more runs do not reduce
            it.
    """
    if len(values) < RUNS_FOR_INTERVAL:
        return False
    found, most = as_costs_with_limit(np.asarray(values), limit)
    runs = len(found)
    total = math.hypot(float(found.std(ddof=1)) / math.sqrt(runs), shared_error)
    half_width = float(scipy.special.stdtrit(runs - 1, 1 - error)) * total
    return bool(found.max() <= most and found.mean() + half_width <= most)


def count_beyond_limit(
    values: Sequence[float], limit: Limit, error: float = 0.5, shared_error: float = 0.0
) -> int:
    """Return how many runs miss a limit.

    Args:
        values: The limited metric of the runs.
        limit: The limit.
        error: One-sided error rate of the margin for `shared_error`: a run is counted only if it is
            beyond the limit by this margin. With 0.5 there is no margin.
        shared_error: Standard error that all values share, as a fraction.
    """
    found, most = as_costs_with_limit(np.asarray(values, float), limit)
    return int((found - scipy.special.ndtri(1 - error) * shared_error > most).sum())


def as_costs_with_limit(values: Array, limit: Limit) -> tuple[Array, float]:
    """Convert values and their limit so that smaller is better.

    Values above zero with an upper limit become logarithms, as times and costs scatter in
    proportion.

    Args:
        values: The values; NaN stays NaN.
        limit: Their limit.

    Returns:
        The converted values, and the largest converted value that keeps the limit.
    """
    sign, most = (-1, -limit.value) if limit.at_most is None else (1, limit.value)
    if sign > 0 and most > 0 and not (values <= 0).any():
        return np.log(values), math.log(most)
    return sign * values, most


@functools.cache
def median_rank(runs: int, confidence: float = CONFIDENCE) -> int | None:
    """Return the rank k of the order statistics that bound a confidence interval of the median.

    The interval goes from the k-th smallest to the k-th largest of `runs` values. It covers the
    median with at least `confidence`, whatever the distribution. None if even the complete range
    does not.
    """
    # of 2**runs equally likely ways to lie below or above the median, those with at most k below;
    # equals the binomial distribution of scipy.stats, which takes most of a second to load
    k = ways = 0
    while (ways := ways + math.comb(runs, k)) / 2**runs <= (1 - confidence) / 2:
        k += 1
    return k or None


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the nonparametric interval of the median with CONFIDENCE.

    None if there are too few values.
    """
    rank = median_rank(len(values)) if len(values) else None
    if rank is None:
        return None
    ordered = sorted(values)
    return float(ordered[rank - 1]), float(ordered[-rank])


@functools.cache
def _resampled_middle_ranks(*sizes: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Draw bootstrap resamples and return the ranks of the values in their middle.

    The result is the same in each call. With an odd number of values both ranks are equal.

    Args:
        *sizes: Number of values of each sample.

    Returns:
        For each sample the lower and the upper middle rank in each resample, (RESAMPLES,).
    """
    random = np.random.default_rng(0)
    draws = (np.sort(random.integers(0, size, (RESAMPLES, size)), axis=1) for size in sizes)
    return tuple((d[:, (d.shape[1] - 1) // 2], d[:, d.shape[1] // 2]) for d in draws)


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the percentile bootstrap interval of the ratio of two medians.

    The resampling is seeded: the same samples, in any order, give the same interval. The result
    equals `scipy.stats.bootstrap` for sorted samples.

    Args:
        numerators: Values of the first sample.
        denominators: Values of the second sample.
        confidence: Confidence of the interval.

    Returns:
        The interval; None if either sample has too few values or a denominator is not above zero.
    """
    if min(len(numerators), len(denominators)) < RUNS_FOR_INTERVAL or min(denominators) <= 0:
        return None
    samples = [np.sort(np.asarray(values, float)) for values in (numerators, denominators)]
    middles = _resampled_middle_ranks(*map(len, samples))
    above, below = ((v[i] + v[j]) / 2 for v, (i, j) in zip(samples, middles, strict=True))
    ratios, tail = np.sort(above / below), (1 - confidence) / 2
    return _quantile_of_sorted(ratios, tail), _quantile_of_sorted(ratios, 1 - tail)


def _quantile_of_sorted(ordered: Array, share: float) -> float:
    """Return the quantile of sorted values exactly as `np.quantile` does; `share` is below 1.

    It is faster: a ratio's interval takes 40 µs of CPU time instead of 90 µs.
    """
    place, part = divmod((len(ordered) - 1) * share, 1)
    low, high = ordered[int(place) : int(place) + 2].tolist()
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part
