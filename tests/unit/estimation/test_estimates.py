"""Estimates of several points together: robust, moderated, free of what drifts."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import special_cases
from tfscaling.estimation import estimates, intervals
from tfscaling.estimation.estimates import estimate_locations
from tfscaling.estimation.run_counts import is_ruled_out
from tfscaling.study.config_types import Limit


def logs(points: int, scatter: float = 0.05, runs: int = 6, seed: int = 1) -> np.ndarray:
    """Logarithms of values about 300, alike in all points: (points, runs)."""
    dice = np.random.default_rng(seed)
    return np.asarray(np.log(300) + scatter * dice.standard_normal((points, runs)))


def test_without_disturbed_runs_the_location_is_about_the_mean_of_the_logarithms() -> None:
    y = logs(3, 0.01)
    found = estimate_locations(np.exp(y))
    assert found.is_log
    assert found.location == pytest.approx(y.mean(axis=1), abs=0.005)


@pytest.mark.parametrize("points", [3, 8])
@pytest.mark.parametrize("disturbed", [3.0, 100.0, math.inf])
def test_one_disturbed_run_moves_a_point_little(points: int, disturbed: float) -> None:
    values = np.exp(logs(points, 0.02))
    before = estimate_locations(values).location
    values[0, 2] *= disturbed
    found = estimate_locations(values)
    assert abs(found.location[0] - before[0]) < 0.05
    assert found.variance[0] > 2 * found.variance[1]


@pytest.mark.parametrize(("scatter", "is_same"), [(0.0005, True), (0.0015, True), (0.05, False)])
def test_scatter_below_half_a_per_cent_counts_alike(scatter: float, is_same: bool) -> None:
    """One configuration that scatters much more than the others makes the pooled scatter unsure."""
    y = logs(4, 0.0002, runs=8)
    alike = estimate_locations(np.exp(y)).freedom_max
    y[0] = y[0].mean() + (y[0] - y[0].mean()) * scatter / 0.0002
    found = estimate_locations(np.exp(y)).freedom_max
    assert (found == pytest.approx(alike)) is is_same


@pytest.mark.parametrize("lost", [1, 3])
def test_a_point_with_a_run_that_did_not_end_is_never_shown_to_be_near(lost: int) -> None:
    values = np.array([[100.0, 101, 99, 100, 102, 98]] * 2) * [[1.0], [0.5]]
    values[1, :lost] = math.inf
    found = estimate_locations(values)
    assert found.best == 1 and found.disadvantage_bounds(0.05, [0, 1])[1] == math.inf
    assert not found.shown_worse_than(1, 0.05)[0]
    # its other runs are slower, and those that did not end are no better
    values[1] *= 4
    assert estimate_locations(values).shown_worse_than(0, 0.05)[1]


def test_what_drifts_falls_on_all_points_alike() -> None:
    """Block k takes longer for all: that is no scatter of the points."""
    y, drift = logs(8, 0.01), 0.3 * np.arange(6)
    still, drifting = estimate_locations(np.exp(y)), estimate_locations(np.exp(y + drift))
    assert np.diff(drifting.location) == pytest.approx(np.diff(still.location), abs=0.003)
    assert drifting.variance == pytest.approx(still.variance, rel=0.3)
    # of three points the effect of a block is not known
    assert estimate_locations(np.exp((y + drift)[:3])).variance.min() > 100 * still.variance.max()


def test_effects_of_blocks_do_not_make_the_scatter_look_small() -> None:
    """Of four points they take a good part of it, which the variance has to make good."""
    ratios = []
    for seed in range(200):
        found = estimate_locations(np.exp(logs(4, 0.1, seed=seed)))
        ratios.append(float(np.mean(found.variance)) / (0.1**2 / 6))
    assert 0.95 < float(np.mean(ratios)) < 1.35


def test_a_point_that_scatters_more_has_a_larger_error() -> None:
    y = logs(8, 0.01)
    y[0] = np.log(300) + (y[0] - np.log(300)) * 20
    found = estimate_locations(np.exp(y))
    assert found.variance[0] > 5 * np.median(found.variance)


def test_missing_runs_are_no_values() -> None:
    values = np.exp(logs(5, 0.02))
    values[0, 1] = math.nan
    found = estimate_locations(values)
    assert np.isfinite(found.location).all() and np.isfinite(found.variance).all()
    assert found.freedom[0] < found.freedom[1]


def test_a_value_of_zero_has_no_logarithm() -> None:
    values = np.array([[0.0] * 6, [0.1] * 6, [0.1, 0.0, 0.1, 0.1, 0.1, 0.1]])
    found = estimate_locations(values)
    assert (found.is_log, found.unit) == (False, pytest.approx(0.1))
    assert found.location == pytest.approx([0, 1, 1], abs=0.2)
    assert found.shown_worse_than(0, 0.05).tolist() == [False, True, True]
    # the best is zero: nothing is a fraction worse than it
    assert found.disadvantage_bounds(0.05, [0, 1]).tolist() == [0, math.inf]


def test_the_bound_of_the_best_is_smaller_than_that_of_others() -> None:
    y = logs(3, 0.02) + np.array([0.0, 0.1, 0.5])[:, None]
    found = estimate_locations(np.exp(y))
    bounds = found.disadvantage_bounds(0.025, [0, 1, 2])
    assert found.best == 0 and bounds[0] == 0
    assert math.expm1(0.1) < bounds[1] < bounds[2]
    assert found.near_best(0.05) == [0] and found.near_best(0.2) == [0, 1]


@pytest.mark.parametrize(
    ("values", "at_most", "at_least", "keeps"),
    [
        ([9.0, 9.1, 8.9, 9.0, 9.1, 8.9], 10.0, None, True),
        ([9.0, 9.1, 8.9, 9.0, 9.1, 8.9], 8.0, None, False),
        ([9.9, 10.2, 9.8, 10.1, 9.9, 10.0], 10.0, None, None),
        ([9.9, 10.2, 9.8, 10.1, 9.9, 10.3], 10.0, None, False),
        ([9.9, 10.2], 10.0, None, None),
        ([10.1, 10.2], 10.0, None, False),
        ([9.0, 9.1, 8.9, 9.0, 9.1, 10.1], 10.0, None, None),
        ([0.98, 0.981, 0.979, 0.98, 0.982, 0.98], None, 0.97, True),
        ([0.96, 0.961, 0.959, 0.96, 0.962, 0.96], None, 0.97, False),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0.0, None, True),
        ([9.0] * 5, 10.0, None, None),
    ],
)
def test_a_limit_is_kept_missed_or_open(
    values: list[float], at_most: float | None, at_least: float | None, keeps: bool | None
) -> None:
    limit = Limit(at_most=at_most, at_least=at_least)
    beyond = intervals.count_beyond_limit(values, limit)
    assert intervals.keeps_limit(values, limit, 0.01) is (keeps is True)
    assert is_ruled_out(beyond, len(values)) is (keeps is False)
    # planned runs that were not made may keep it
    assert not is_ruled_out(beyond, 2 * len(values) + 1)


def test_values_with_a_common_error_are_beyond_a_limit_only_by_more_than_it() -> None:
    dice = random.Random(seed := random.randrange(10**6))
    limit, values = Limit(at_most=100), [dice.uniform(101, 110) for _ in range(6)]
    assert intervals.count_beyond_limit(values, limit) == 6, seed
    assert intervals.count_beyond_limit(values, limit, 0.025, 0.2) == 0, seed
    assert intervals.count_beyond_limit([2 * value for value in values], limit, 0.025, 0.2) == 6


@pytest.mark.parametrize(("free", "priced"), [(1, 1), (1, 4), (3, 2), (5, 5)])
def test_costs_without_a_price_are_exactly_zero(free: int, priced: int) -> None:
    dice = np.random.default_rng(seed := random.randrange(10**6))
    sets = [special_cases.zero_prices(free, priced, 6, 0.05, dice) for _ in range(10)]
    assert [(each.false, each.true) for each in sets] == [(False, True)] * 10, seed


def test_only_where_all_runs_cost_nothing_is_zero_exact() -> None:
    values = np.array([[0.0] * 6, [0.0] * 5 + [1.0], [2.0, 2.1, 1.9, 2.0, 2.1, 1.9], [0.0] * 6])
    found = estimate_locations(values, zeros_are_exact=True)
    assert (found.variance > 0).tolist() == [False, True, True, False]
    assert found.location[[0, 3]].tolist() == [0, 0] and found.location[1] > 0
    assert found.disadvantage_bounds(0.05, [0, 3, 2]).tolist() == [0, 0, math.inf]
    values[0, 1] = math.inf  # a run that diverged
    found = estimate_locations(values, zeros_are_exact=True)
    assert found.disadvantage_bounds(0.05, [0, 3]).tolist() == [math.inf, 0]
    alike = estimate_locations(values[[3, 3]], zeros_are_exact=True)
    assert alike.p_value(0, 1) == 1 and alike.disadvantage_bounds(0.05, [0, 1]).tolist() == [0, 0]


def test_values_of_which_none_is_known_have_no_effect() -> None:
    dice = np.random.default_rng(seed := random.randrange(10**6))
    blocks, drawn = int(dice.integers(3, 9)), dice.normal(0, 0.1, (2, 9))
    y, known = drawn[:, :blocks], np.ones((2, blocks), bool)
    known[:, 0] = False
    found = estimates.compute_clipped_means(np.where(known, y, 1e9), known, 0)
    alone = estimates.compute_clipped_means(y[:, 1:], known[:, 1:], 0)
    assert np.allclose(found.location, alone.location), seed
    assert np.allclose(found.variance, alone.variance), seed


@pytest.mark.parametrize(
    ("runs", "slow", "fast", "has_mode"),
    [(8, 1, 0, False), (8, 2, 0, True), (8, 0, 1, True), (5, 1, 0, False), (4, 1, 0, True)],
)
def test_a_quarter_of_slow_runs_is_a_second_mode_and_so_is_a_fast_one(
    runs: int, slow: int, fast: int, has_mode: bool
) -> None:
    y = logs(3, 0.01, runs)
    y[0, :slow] += math.log(1.5)
    y[0, :fast] -= math.log(1.5)
    clipped = estimates.compute_clipped_means(y, np.ones(y.shape, bool), 0)
    assert clipped.has_mode.tolist() == [has_mode, False, False]
    moved = abs(clipped.location[0] - np.median(y[0]))
    assert moved == pytest.approx(math.log(1.5) * (slow + fast) / runs, abs=0.01) or not has_mode
    assert moved < 0.02 or has_mode
    # a mode in few runs may be the usual one
    found = estimate_locations(np.exp(y))
    assert (found.low < found.high).tolist() == [has_mode and runs <= 4, False, False]


@pytest.mark.parametrize("axis", [0, 1])
def test_medians_are_of_the_known_values(axis: int) -> None:
    dice = np.random.default_rng(seed := random.randrange(10**6))
    values, known = dice.normal(0, 1, (7, 8)), dice.random((7, 8)) < 0.7
    known[:2], known[:, :2] = True, True  # odd and even numbers
    found = estimates._known_median(values, known, axis)
    expected = np.nanmedian(np.where(known, values, np.nan), axis=axis)
    assert found == pytest.approx(expected), seed
    assert estimates._known_median(values, known & False, axis).tolist() == [0.0] * len(found)


def test_the_numbers_of_an_estimate() -> None:
    """They follow from constants that simulations chose: a change of one is meant, and seen."""
    values = np.array([
        [30, 31, 29, 30.5, 80, 30], [20, 20.2, 19.8, 20.1, 20.3, 19.9],
        [10, 10.1, 10.2, 15, 15.2, 9.9], [25, 26, 27, 28, 26, np.nan],
    ])  # fmt: skip
    found = estimate_locations(values)
    assert found.is_log and found.unit == 1.0
    assert found.location == pytest.approx([3.449493, 2.956199, 2.401237, 3.222229], abs=1e-5)
    assert np.sqrt(found.variance) == pytest.approx(
        [0.058943, 0.044306, 0.064885, 0.055415], rel=1e-4
    )
    assert (found.freedom.tolist(), found.freedom_max) == ([8, 8, 8, 7], 15)
    assert (found.low.tolist(), found.high.tolist()) == (found.location.tolist(),) * 2
    half = [float(found.half_width(n, 1, 0.01)) for n in (0, 2, 3)]
    assert half == pytest.approx([0.192126, 0.205967, 0.186453], rel=1e-4)
