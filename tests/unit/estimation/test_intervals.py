"""Intervals agree with theory, with published tables and with SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, bootstrap, quantile_test
from tfscaling.estimation.intervals import (
    CONFIDENCE,
    RESAMPLES,
    RUNS_FOR_INTERVAL,
    median_interval,
    median_rank,
    ratio_interval,
)


def skewed(*shape: int, seed: int = 1) -> np.ndarray:
    """Values of a distribution with a long tail, as run times have; its median is ln 2."""
    return np.random.default_rng(seed).exponential(size=shape)


#: n: k, coverage in percent. Confidence limits for the median (Nair 1940, cited by Dixon and
#: Massey 1969): from the k-th smallest to the k-th largest of n values.
TABLE = {
    6: (1, 96.9), 8: (1, 99.2), 9: (2, 96.1), 10: (2, 97.9), 11: (2, 98.8), 12: (3, 96.1),
    15: (4, 96.5), 17: (5, 95.1), 20: (6, 95.9), 25: (8, 95.7), 30: (10, 95.7), 40: (14, 96.2),
    50: (18, 96.7), 65: (25, 95.4),
}  # fmt: skip


@pytest.mark.parametrize("runs", TABLE)
def test_ranks_and_coverage_are_those_of_the_published_table(runs: int) -> None:
    rank, coverage = TABLE[runs]
    assert median_rank(runs) == rank
    assert 100 * (1 - 2 * binom.cdf(rank - 1, runs, 0.5)) == pytest.approx(coverage, abs=0.05)
    low, high = median_interval(range(1, runs + 1)) or (math.nan, math.nan)
    assert (low, high) == (rank, runs + 1 - rank)


@pytest.mark.parametrize("runs", range(RUNS_FOR_INTERVAL, 41))
def test_the_interval_of_the_median_is_that_of_scipy(runs: int) -> None:
    values = skewed(runs, seed=runs)
    expected = quantile_test(values, q=0, p=0.5).confidence_interval(CONFIDENCE)
    assert median_interval(values.tolist()) == (expected.low, expected.high)


@pytest.mark.parametrize("runs", range(RUNS_FOR_INTERVAL))
def test_fewer_than_six_values_have_no_interval(runs: int) -> None:
    assert median_interval(skewed(runs).tolist()) is None
    assert 2 * 0.5**5 > 1 - CONFIDENCE >= 2 * 0.5**RUNS_FOR_INTERVAL  # all on one side


BASE = [61.0, 62.5, 60.0, 66.0, 61.5, 64.0]
FASTER = [31.0, 29.5, 30.0, 33.0, 30.5, 28.0, 31.5]


@pytest.mark.parametrize(("above", "below"), [(5, 6), (6, 5), (1, 40), (0, 6)])
def test_too_few_values_on_either_side_have_no_interval(above: int, below: int) -> None:
    assert ratio_interval(skewed(above).tolist(), skewed(below).tolist()) is None
    assert ratio_interval(skewed(6).tolist(), skewed(6).tolist()) is not None


@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_the_interval_of_a_ratio_is_that_of_scipys_bootstrap(confidence: float) -> None:
    expected = bootstrap(
        (sorted(BASE), sorted(FASTER)),
        lambda a, b, axis=-1: np.median(a, axis=axis) / np.median(b, axis=axis),
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert ratio_interval(BASE, FASTER, confidence) == (expected.low, expected.high)


def test_a_denominator_of_zero_has_no_ratio() -> None:
    """Resamples of zeros only would have a ratio that is no number."""
    assert ratio_interval([1.0] * 6, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]) is None
    assert ratio_interval([0.0] * 6, [1.0] * 6) == (0.0, 0.0)
