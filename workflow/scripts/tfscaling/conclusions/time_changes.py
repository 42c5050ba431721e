"""Verdicts on changes of time, all of a kind correct together with 95 %.

"Slower" and "faster" are tests by Holm (1979): the smallest p-value must be below the m-th part of
the error rate, the next below the (m-1)-th part, and so on to the first that is not. All intervals
hold together by Bonferroni, and "same" follows from them. An interval excludes 1 if a difference is
shown. No theorem covers all of it; benchmarks/regressions.py simulates how often it is wrong.

`regressions` uses it for configurations of two sweeps, and for two revisions in one sweep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfscaling.estimation.estimates import estimate_locations
from tfscaling.estimation.intervals import CONFIDENCE, Array

SLOWER, FASTER, SAME, OPEN = "slower", "faster", "same", "undecided"


@dataclass(frozen=True)
class TimeChange:
    """The time of a configuration divided by its time in the reference.

    Attributes:
        ratio: The ratio, above 1 if it became slower.
        low: Lower end of its interval.
        high: Upper end of its interval.
        verdict: SLOWER, FASTER, SAME or OPEN.
    """

    ratio: float
    low: float
    high: float
    verdict: str


def judge_changes(before: Array, after: Array, indifference: float) -> list[TimeChange]:
    """Return the change of each configuration's time between two sweeps.

    Args:
        before: Seconds in the earlier sweep, (configurations, repeats); NaN without a run. Each
            configuration has SWEEP_RUNS runs or more.
        after: Seconds in the later sweep, in the same shape.
        indifference: Fraction below which a difference does not matter.
    """
    points = len(before)
    values = np.full((2 * points, before.shape[1] + after.shape[1]), np.nan)
    # repeats of two sweeps are no blocks of both: they ran at other times
    values[:points, : before.shape[1]], values[points:, before.shape[1] :] = before, after
    found = estimate_locations(values)
    first = np.arange(points)
    return _judge(
        found.location[first + points] - found.location[first],
        found.p_value(first, first + points),
        found.difference_interval(first, first + points, _tail_probability(points)),
        indifference,
    )


def judge_paired_changes(before: Array, after: Array, indifference: float) -> list[TimeChange]:
    """Return the change of each configuration's time between two revisions of one sweep.

    The two runs of a repeat ran one after the other: whatever made both of them slower, such as
    other work on the machine, does not change the ratio of their times.

    Args:
        before: Seconds of the reference, (configurations, repeats); NaN without a run.
        after: Seconds of the other revision, in the same shape. SWEEP_RUNS repeats or more of each
            configuration have both times.
        indifference: Fraction below which a difference does not matter.
    """
    found = estimate_locations(after / before)
    return _judge(
        found.location,
        found.p_value_of_zero(),
        found.location_interval(_tail_probability(len(before))),
        indifference,
    )


def _tail_probability(comparisons: int) -> float:
    """Return the error probability per side of an interval, by Bonferroni's correction."""
    return (1 - CONFIDENCE) / 2 / comparisons


def _judge(
    log_ratio: Array, p_values: Array, interval: tuple[Array, Array], indifference: float
) -> list[TimeChange]:
    """Return the verdicts on log ratios of times.

    SLOWER or FASTER: the difference is significant by Holm's correction, and the ratio is beyond
    the indifference. SAME: the complete interval is within the indifference. OPEN: all others. All
    verdicts of a kind hold together with CONFIDENCE.

    Args:
        log_ratio: The logarithm of each ratio.
        p_values: The p-value of each difference.
        interval: Lower and upper ends of the logarithms' intervals, which hold together.
        indifference: Fraction below which a difference does not matter.
    """
    low, high = interval
    is_shown = holm_significant(p_values)
    # a shown difference narrows the interval at 1 (Strassburger and Bretz 2008)
    low = np.where(is_shown & (log_ratio > 0), np.maximum(low, 0), low)
    high = np.where(is_shown & (log_ratio < 0), np.minimum(high, 0), high)
    limit = float(np.log1p(indifference))
    is_same = (low >= -limit) & (high <= limit)
    verdicts = np.select(
        [is_shown & (log_ratio > limit), is_shown & (log_ratio < -limit), is_same],
        [SLOWER, FASTER, SAME],
        OPEN,
    )
    ratios = np.exp([log_ratio, low, high])
    return [TimeChange(*each) for each in zip(*ratios.tolist(), verdicts.tolist(), strict=True)]


def holm_significant(p_values: Array) -> Array:
    """Return which p-values are significant by Holm's correction for all of them."""
    order = np.argsort(p_values, kind="stable")
    refused = p_values[order] > (1 - CONFIDENCE) / (len(p_values) - np.arange(len(p_values)))
    is_shown = np.empty(len(p_values), bool)
    is_shown[order] = ~np.logical_or.accumulate(refused)
    return is_shown
