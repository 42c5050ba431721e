"""Least squares and profile intervals agree with SciPy's general methods and with theory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from measured import N
from scipy.optimize import curve_fit, least_squares
from scipy.stats import t as t_distribution
from tfscaling.conclusions.scaling_laws import (
    Estimate,
    Extent,
    Fit,
    Times,
    estimates,
    interval,
    left_out_errors,
    solve,
    terms,
    tolerance,
)


def log_time(n: np.ndarray, log_t1: float, sigma: float, kappa: float = 0.0) -> np.ndarray:
    """The Universal Scalability Law, written independently of the module under test."""
    return log_t1 + np.log((1 + sigma * (n - 1) + kappa * n * (n - 1)) / n)


def times_of(
    sigma: float,
    kappa: float,
    scatter: float = 0.03,
    runs: int = 6,
    seed: int = 0,
    numbers: Sequence[float] = N,
) -> Times:
    n = np.repeat(np.asarray(numbers, float), runs)
    noise = np.random.default_rng(seed).normal(0, scatter, len(n)) if scatter else 0.0
    return Times.of(n.tolist(), np.exp(log_time(n, math.log(100), sigma, kappa) + noise).tolist())


def test_runs_are_collected_by_number_of_replicas() -> None:
    times = Times.of([4, 1, 4, 2], [20.0, 60.0, 30.0, 40.0])
    assert times.n.tolist() == [1, 2, 4]
    assert np.exp(times.log_mean) == pytest.approx([60, 40, math.sqrt(600)])
    assert times.count.tolist() == [1, 1, 2]
    assert times.within == pytest.approx([0, 0, math.log(1.5) ** 2 / 2])
    assert times.extent == Extent(1, 4, 3, 4)
    assert str(times.only(times.n > 1).extent) == "2 to 4"
    assert math.isnan(Times.of([], []).extent.n_min)


TRUTHS = [(0.05, 0.002), (0.6, 0.02), (0.0, 0.005), (0.02, 0.0), (1.0, 0.0), (0.0, 0.0)]


@pytest.mark.parametrize(("sigma", "kappa"), TRUTHS)
@pytest.mark.parametrize("number", [2, 3])
def test_no_general_solver_with_bounds_finds_a_better_fit(
    sigma: float, kappa: float, number: int
) -> None:
    for seed in range(5):
        times = times_of(sigma, kappa, scatter=0.1, seed=seed)

        def residuals(parameters: np.ndarray, times: Times = times) -> np.ndarray:
            return np.sqrt(times.count) * (times.log_mean - log_time(times.n, *parameters))

        start, low, high = [4.0, 0.3, 0.01], [-20.0, 0.0, 0.0], [20.0, 1.0, np.inf]
        found = least_squares(
            residuals,
            start[:number],
            bounds=(low[:number], high[:number]),
            x_scale=[1.0, 0.1, 0.01][:number],
            **dict.fromkeys(("xtol", "ftol", "gtol"), 1e-12),
        )
        solution = solve(times, terms(times.n, number))
        assert solution.misfit <= 2 * found.cost + 1e-9
        parallel, serial, *crosstalk = solution.seconds
        assert math.log(parallel + serial) == pytest.approx(found.x[0], abs=1e-3)
        assert serial / (parallel + serial) == pytest.approx(found.x[1], abs=1e-3)
        if crosstalk:
            assert crosstalk[0] / (parallel + serial) == pytest.approx(found.x[2], abs=1e-4)


def estimated(times: Times, number: int = 3) -> dict[str, Estimate]:
    best = solve(times, terms(times.n, number))
    return estimates(times, best, tolerance(times, best.misfit, number)[0])


@pytest.mark.parametrize(("sigma", "kappa"), [*TRUTHS[:4], (0.3, 0.4)])
def test_without_scatter_the_parameters_are_found_exactly(sigma: float, kappa: float) -> None:
    # near a bound the intervals are as wide as what rounding leaves open
    exact = estimated(times_of(sigma, kappa, scatter=0.0))
    knee = math.sqrt((1 - sigma) / kappa) if kappa else math.inf
    for name, value in {"sigma": sigma, "kappa": kappa}.items():
        assert exact[name].value == pytest.approx(value, abs=1e-9)
        assert (exact[name].low, exact[name].high) == pytest.approx((value, value), abs=1e-6)
    if kappa:
        assert exact["knee"].value == pytest.approx(knee)
        assert (exact["knee"].low, exact["knee"].high) == pytest.approx((knee, knee), rel=1e-4)
    else:
        assert exact["knee"].low > 1e3


def test_the_interval_is_where_the_profile_reaches_the_tolerance() -> None:
    assert interval(lambda x: 5 + (x - 0.4) ** 2, 0.4, 5.0, 0.01) == pytest.approx((0.3, 0.5))
    assert interval(lambda x: 5 + (x - 0.4) ** 2, 0.4, 5.0, 0.2) == (0.0, pytest.approx(0.847214))
    assert interval(lambda x: math.inf if x > 0.5 else 1.0, 0.0, 1.0, 0.1)[1] == pytest.approx(0.5)
    assert interval(lambda x: 1.0, 0.5, 1.0, 0.1) == (0.0, 1.0)
    assert interval(lambda x: 1.0 + x, 1.0, 1.0, 0.0)[1] == 1.0


def test_intervals_at_a_bound_reach_it_and_no_further() -> None:
    at_bound = estimated(times_of(0.02, 0.0, seed=3))
    assert at_bound["sigma"].low >= 0
    assert at_bound["kappa"].low == 0
    assert 0 < at_bound["kappa"].high < 0.01
    assert math.isinf(at_bound["knee"].high) and at_bound["knee"].low > 5
    flat = estimated(times_of(1.0, 0.0, seed=3), number=2)
    assert flat["sigma"].high == 1 and flat["sigma"].low > 0.9


def test_scatter_is_pooled_unless_the_points_lie_off_the_curve() -> None:
    times = Times.of([1, 1, 2, 2, 4, 4, 8, 8], [1.0, 1.1, 1.0, 1.1, 1.0, 1.1, 1.0, 1.1])
    within = float(times.within.sum())
    assert within == pytest.approx(4 * math.log(1.1) ** 2 / 2)
    allowed, lack = tolerance(times, within / 4, 3)
    assert not lack
    assert allowed == pytest.approx(t_distribution.ppf(0.975, 5) ** 2 * (within * 1.25 / 5))
    allowed, lack = tolerance(times, 9 * within, 3)
    assert lack
    assert allowed == pytest.approx(t_distribution.ppf(0.975, 1) ** 2 * 9 * within)
    single = Times.of(N, range(1, 8))
    assert tolerance(single, 0.4, 3) == (
        pytest.approx(t_distribution.ppf(0.975, 4) ** 2 * 0.1),
        False,
    )


@pytest.mark.parametrize("number", [2, 3])
def test_a_left_out_point_is_predicted_by_the_others_alone(number: int) -> None:
    times = times_of(0.1, 0.004, seed=8)
    errors = left_out_errors(times, number)
    assert len(errors) == len(N)
    for index in range(len(N)):
        keep = np.arange(len(N)) != index
        start = [4.6, 0.1, 0.01][:number]
        values, _ = curve_fit(log_time, times.n[keep], times.log_mean[keep], p0=start)
        expected = math.exp(float(log_time(times.n[index], *values)) - times.log_mean[index])
        assert errors[index] == pytest.approx(abs(expected - 1), abs=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "place"),
    [
        (3, 7, "inside"),
        (12, math.inf, "beyond"),
        (0, 1.5, "below"),
        (7, 12, "undecided"),
        (1, 5, "undecided"),
    ],
)
def test_the_place_of_a_knee_is_that_of_its_whole_interval(
    low: float, high: float, place: str
) -> None:
    fit = Fit("usl", Extent(2, 10, 6, 36), 1.0, {}, 0.1, False, 0.1, 0.1, Estimate(5, low, high))
    assert fit.knee_place == place
