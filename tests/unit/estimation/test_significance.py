"""Two points differ only if their runs show it."""

from __future__ import annotations

import math
import random
from statistics import median
from typing import Literal

import numpy as np
import pytest
from measured import around, measured
from tfscaling.estimation.intervals import CONFIDENCE, ratio_interval
from tfscaling.estimation.samples import (
    INCONCLUSIVE,
    NOT_MEASURED,
    SUPPORTED,
    TOO_FEW,
    Difference,
    as_costs,
    weakest_support,
)
from tfscaling.page.plot_quality import pareto_set
from tfscaling.record.metrics import Metric
from tfscaling.tables.row_values import point_of
from tfscaling.tables.run_samples import read_samples

TIME = "execution_time_s"


def compared(
    times: dict[tuple[str, int], list[float]],
    accuracies: dict[tuple[str, int], list[float]] | None = None,
    metric: str = "execution_time_s",
    comparisons: int = 1,
) -> Difference | None:
    """How much worse the second of two points is."""
    comparison, runs, _ = measured(times, accuracies)
    one, two = (point_of(row) for row in comparison.to_dict("records"))
    (found,) = read_samples(runs).compare_pairs(metric, [(one, two)], comparisons)
    return found


def test_a_clear_difference_is_supported() -> None:
    found = compared({("east", 1): around(10.0), ("east", 2): around(20.0)})
    assert found is not None and found.interval is not None and found.ratio is not None
    assert found.ratio == pytest.approx(2.0)
    assert found.interval[0] < 2.0 < found.interval[1]
    assert (found.support, found.is_worse) == (SUPPORTED, True)


def test_more_comparisons_have_wider_intervals() -> None:
    times = {("east", 1): around(10.0, 0.015), ("east", 2): around(10.3, 0.015)}
    one, many = compared(times), compared(times, comparisons=100)
    assert one and many and one.interval and many.interval
    assert many.interval[0] < one.interval[0] < one.interval[1] < many.interval[1]
    assert (one.support, many.support) == (SUPPORTED, INCONCLUSIVE)


def test_five_runs_are_too_few_whatever_they_show() -> None:
    found = compared({("east", 1): around(10.0), ("east", 2): around(99.0, runs=5)})
    assert found is not None
    assert (found.support, found.interval) == (TOO_FEW, None)
    assert found.ratio == pytest.approx(9.9)


def test_accuracies_are_compared_by_their_errors() -> None:
    times = {("east", 1): [1.0], ("east", 2): [1.0]}
    found = compared(times, {("east", 1): [0.99], ("east", 2): [0.96]}, "accuracy")
    assert found is not None
    assert found.ratio == pytest.approx(4.0)


def test_where_a_value_is_zero_there_is_a_difference_instead_of_a_ratio() -> None:
    times = {("east", 1): around(1.0), ("east", 2): around(1.0)}
    accuracies = {("east", 1): [1.0] * 6, ("east", 2): around(0.9, 0.001)}
    found = compared(times, accuracies, "accuracy")
    assert found is not None and found.interval is not None
    assert (found.ratio, found.support, found.is_worse) == (None, SUPPORTED, True)
    assert found.gap == pytest.approx(0.1)
    assert 0.09 < found.interval[0] <= found.gap <= found.interval[1] < 0.11


@pytest.mark.parametrize("zeros", range(1, 7))
def test_values_of_which_some_are_zero_have_a_finite_interval(zeros: int) -> None:
    times = {("east", 1): around(1.0), ("east", 2): around(1.0)}
    accuracies = {("east", 1): [1.0] * zeros + [0.9] * (6 - zeros), ("east", 2): around(0.9, 0.01)}
    found = compared(times, accuracies, "accuracy")
    assert found is not None and found.interval is not None
    assert all(math.isfinite(end) for end in found.interval)


def test_a_run_that_diverged_counts_as_one_that_never_ended() -> None:
    comparison, runs, _ = measured({("east", 1): around(10.0), ("east", 2): around(10.0)})
    one, two = (point_of(row) for row in comparison.to_dict("records"))
    gone = (runs["nodes"] == 2) & (runs["repeat"] > 4)
    runs.loc[gone, ["status", "execution_time_s"]] = "diverged", None
    samples = read_samples(runs)
    assert len(samples.cost_values(two, "execution_time_s")) == 4
    assert samples.has_enough_runs("execution_time_s", two)
    found = samples.estimate_configurations("execution_time_s", [one, two])
    assert found.high[1] == math.inf and found.variance[1] > found.variance[0]
    (difference,) = samples.compare_pairs("execution_time_s", [(one, two)], 1)
    assert difference is not None and difference.support == INCONCLUSIVE


def test_what_the_table_shows_as_open_is_not_supported() -> None:
    """The logarithms of these differ with 95 %, the interval of the ratio of medians holds 1."""
    one, two = [16.7, 8.87, 7.51, 7.83, 10.3, 22.1], [18.4, 33.7, 20.0, 28.4, 14.6, 13.3]
    tables = ratio_interval(two, one)
    assert tables is not None and tables[0] < 1
    found = compared({("east", 1): one, ("east", 2): two})
    assert found is not None and found.interval is not None
    assert found.support == INCONCLUSIVE
    assert found.interval[0] <= tables[0] and tables[1] <= found.interval[1]


@pytest.mark.parametrize("comparisons", [1, 3, 20])
def test_an_interval_spans_the_estimates_and_the_resampled_medians(
    comparisons: int, dice: random.Random
) -> None:
    """Page and documents describe it as the union of both intervals and the ratio."""
    own, other = (
        [level * math.exp(dice.gauss(0, dice.uniform(0.01, 0.3))) for _ in range(runs)]
        for level, runs in ((10.0, dice.randint(6, 12)), (dice.uniform(8, 14), 6))
    )
    comparison, runs, _ = measured({("east", 1): own, ("east", 2): other})
    points = [point_of(row) for row in comparison.to_dict("records")]
    samples = read_samples(runs)
    tail = (1 - CONFIDENCE) / 2 / comparisons
    low, high = samples.estimate_configurations(TIME, points).difference_interval(0, 1, tail)
    resampled = ratio_interval(other, own)
    assert resampled is not None
    ends = [math.exp(low), math.exp(high), *resampled, median(other) / median(own)]
    backwards = ratio_interval(own, other)
    assert backwards is not None
    ends += [1 / end for end in backwards]
    (found,) = samples.compare_pairs(TIME, [(points[0], points[1])], comparisons)
    assert found is not None and found.interval == pytest.approx((min(ends), max(ends)))


@pytest.mark.parametrize(
    ("supports", "expected"),
    [
        ([], SUPPORTED),
        ([SUPPORTED, INCONCLUSIVE], INCONCLUSIVE),
        ([INCONCLUSIVE, TOO_FEW, SUPPORTED], TOO_FEW),
        ([NOT_MEASURED, TOO_FEW], NOT_MEASURED),
    ],
)
def test_a_chain_is_as_strong_as_its_weakest_link(supports: list[str], expected: str) -> None:
    assert weakest_support(supports) == expected


@pytest.mark.parametrize(
    ("times", "others", "metric", "best"),
    [
        ([1, 2, 3], [3, 2, 1], "cost_usd", [0, 1, 2]),
        ([1, 2, 3], [1, 2, 3], "cost_usd", [0]),
        ([3, 2, 1], [0.9, 0.8, 0.85], "test_accuracy", [2, 0]),
        ([1, 1, 2], [5, 4, 4], "cost_usd", [1]),
        ([1, 1], [5, 5], "cost_usd", [0, 1]),
        ([], [], "cost_usd", []),
    ],
)
def test_the_pareto_set_is_what_nothing_beats_in_both(
    times: list[float], others: list[float], metric: str, best: list[int]
) -> None:
    rows = [
        {"execution_time_s": time, metric: other} for time, other in zip(times, others, strict=True)
    ]
    assert pareto_set(rows, ["execution_time_s", metric]) == best


def test_a_point_that_is_best_in_one_of_three_metrics_is_in_the_set() -> None:
    names = ["execution_time_s", "cost_usd", "test_accuracy"]
    values = [(10, 3, 0.9), (20, 2, 0.9), (30, 3, 0.95), (30, 3, 0.9)]
    rows = [dict(zip(names, row, strict=True)) for row in values]
    assert pareto_set(rows, names) == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "better", "best", "costs"),
    [
        ([0.75, 0.5], "higher", 1.0, [0.25, 0.5]),
        ([0.75, 0.5], "lower", 0.25, [0.5, 0.25]),
        ([4.0, 0.5], "higher", None, [0.25, 2.0]),
        ([4.0, -0.5], "higher", None, [-4.0, 0.5]),
        ([4.0, 0.5], "lower", None, [4.0, 0.5]),
    ],
)
def test_costs_are_smaller_for_better_values(
    values: list[float], better: Literal["higher", "lower"], best: float | None, costs: list[float]
) -> None:
    metric = Metric("", "", better, 2, best=best)
    assert as_costs(np.array([*values, math.nan]), metric)[:2].tolist() == costs
