"""Scaling laws: they find what generated the runs, and are refused where the runs do not tell."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from builders import REPOSITORY
from measured import N, runs_of
from scipy.optimize import curve_fit
from tfscaling.conclusions.scaling_laws import (
    LEFT_OUT_ERROR_MAX,
    MODELS,
    Extent,
    Fit,
    Refusal,
    best,
    fit,
    predict,
    statement,
)


def fitted(model: str, n: Sequence[float], times: Sequence[float], from_n: float = 1) -> Fit:
    found = fit(model, n, times, from_n)
    assert isinstance(found, Fit), found.reason
    return found


def refused(model: str, n: Sequence[float], times: Sequence[float], from_n: float = 1) -> Refusal:
    found = fit(model, n, times, from_n)
    assert isinstance(found, Refusal)
    return found


def published(name: str, gpus_per_node: int = 0) -> tuple[list[float], list[float]]:
    with (REPOSITORY / "resources" / "published_results.csv").open() as file:
        rows = [
            (float(row["nodes"]), float(row["execution_time_s"]))
            for row in csv.DictReader(file)
            if row["platform"] == name and row["gpus_per_node"] == str(gpus_per_node)
        ]
    return [n for n, _ in rows], [time for _, time in rows]


def test_the_laws_are_those_of_the_books() -> None:
    amdahl, usl = MODELS["amdahl"].function, MODELS["usl"].function
    assert amdahl(1, 0.05) == usl(1, 0.05, 0.01) == 1
    assert amdahl(1e12, 0.05) == pytest.approx(20)
    assert usl(8, 0.05, 0) == pytest.approx(amdahl(8, 0.05)) == pytest.approx(8 / 1.35)
    assert usl(10, 0, 0.01) == pytest.approx(10 / 1.9)
    for name, law in MODELS.items():
        assert law.name == name and all(word in law.formula for word in law.parameters)


# SPEC SDM91 on a Sun SPARCcenter 2000, scripts per hour by number of users: Gunther, Guerrilla
# Capacity Planning (2007), as shipped with the R package usl, which prints these coefficients.
SDM91 = {1: 64.9, 18: 995.9, 36: 1652.4, 72: 1853.2, 108: 1828.9, 144: 1775.0, 216: 1702.2}
#: usl 3.0.3, summary(usl(throughput ~ load, specsdm91)): free scale, least squares of throughput.
ALPHA, BETA, GAMMA, PEAK = 0.0277285, 0.0001044, 89.9952330, 96.52
#: usl 1.8.0, the same call: scale fixed at the first point, as in the book.
SIGMA_BOOK, KAPPA_BOOK = 1.705e-02, 7.892e-05
# Ray tracer on an SGI Origin 2000 by number of processors, from the same package.
RAYTRACER = {1: 20, 4: 78, 8: 130, 12: 170, 16: 190, 20: 200, 24: 210, 28: 230, 32: 260, 48: 280,
             64: 310}  # fmt: skip


def test_the_function_gives_the_published_coefficients_with_the_packages_residuals() -> None:
    usl = MODELS["usl"].function
    values, covariance = curve_fit(
        lambda n, sigma, kappa, scale: scale * usl(n, sigma, kappa),
        np.array(list(SDM91), float),
        np.array(list(SDM91.values())),
        p0=[0.1, 1e-3, 60.0],
    )
    assert values == pytest.approx([ALPHA, BETA, GAMMA], rel=1e-3)
    errors = np.sqrt(np.diag(covariance))
    assert errors == pytest.approx([0.0091217, 0.0000199, 14.2134894], rel=5e-3)


def test_a_published_example_is_met_within_the_intervals() -> None:
    """Relative residuals weigh the first point more than the package does, as the book does."""
    found = fitted("usl", list(SDM91), [1e4 / rate for rate in SDM91.values()])
    sigma, kappa = found.parameters["sigma"], found.parameters["kappa"]
    assert sigma.low < SIGMA_BOOK < sigma.high
    assert kappa.low < KAPPA_BOOK < kappa.high and kappa.low < BETA < kappa.high
    assert found.knee.low < PEAK < found.knee.high
    assert found.knee.value == pytest.approx(PEAK, rel=0.05)
    assert found.knee_place == "inside"


def test_a_published_example_without_crosstalk_is_met_by_both_laws() -> None:
    n, times = list(RAYTRACER), [1e4 / rate for rate in RAYTRACER.values()]
    for model in MODELS:
        found = fitted(model, n, times)
        sigma = found.parameters["sigma"]
        assert sigma.low < 0.0578 < sigma.high  # usl 3.0.3: alpha 0.0578 (0.0337 to 0.0819)
        assert sigma.value == pytest.approx(0.0578, rel=0.05)
        assert 1e4 / found.t1_s == pytest.approx(21.8488, rel=0.02)  # its gamma
    kappa = found.parameters["kappa"]
    assert kappa.low == 0 and kappa.value < 1e-5  # its beta: 0


@pytest.mark.parametrize(("sigma", "kappa"), [(0.05, 0.002), (0.1, 0.01), (0.4, 0.03), (0.02, 0)])
def test_without_scatter_both_laws_find_what_made_the_times(sigma: float, kappa: float) -> None:
    found = fitted("usl", *runs_of(sigma, kappa))
    assert found.t1_s == pytest.approx(100)
    assert found.parameters["sigma"].value == pytest.approx(sigma, abs=1e-8)
    assert found.parameters["kappa"].value == pytest.approx(kappa, abs=1e-8)
    assert found.loo_error_max == pytest.approx(0, abs=1e-6)
    assert found.residual_standard_error == pytest.approx(0, abs=1e-8)
    assert not found.lack_of_fit
    assert found.extent == Extent(1, 10, 7, 42)
    times = [predict(found, n) for n in N]
    assert times == pytest.approx(runs_of(sigma, kappa, runs=1)[1])
    amdahl = fitted("amdahl", *runs_of(sigma))
    assert amdahl.parameters["sigma"].value == pytest.approx(sigma, abs=1e-8)


TRIALS = 200


def coverage(
    model: str, sigma: float, kappa: float, scatter: float = 0.03, point_scatter: float = 0.0
) -> dict[str, float]:
    """How often the interval of each parameter holds the truth; a refusal holds nothing."""
    dice = np.random.default_rng(20)
    truth = {"sigma": sigma, "kappa": kappa} if model == "usl" else {"sigma": sigma}
    if kappa:
        truth["knee"] = math.sqrt((1 - sigma) / kappa)
    held = dict.fromkeys(truth, 0)
    for _ in range(TRIALS):
        runs = runs_of(sigma, kappa, scatter=scatter, dice=dice, point_scatter=point_scatter)
        found = fit(model, *runs)
        if isinstance(found, Fit):
            known = {**found.parameters, "knee": found.knee}
            for name, value in truth.items():
                held[name] += known[name].low <= value <= known[name].high
    return {name: count / TRIALS for name, count in held.items()}


@pytest.mark.parametrize(
    ("model", "sigma", "kappa"),
    [
        ("amdahl", 0.0, 0.0),
        ("amdahl", 0.05, 0.0),
        ("amdahl", 0.5, 0.0),
        ("usl", 0.05, 0.002),
        ("usl", 0.1, 0.01),
        ("usl", 0.02, 0.0),
        ("usl", 0.0, 0.005),
        ("usl", 0.5, 0.02),
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_say(
    model: str, sigma: float, kappa: float
) -> None:
    held = coverage(model, sigma, kappa)
    assert min(held.values()) >= 0.92, held  # 95 %, less two standard errors of 200 trials


def test_intervals_hold_the_truth_where_the_runs_of_a_point_err_together() -> None:
    """Nodes that are slow for a whole point: 42 runs then say hardly more than 7 points."""
    held = coverage("usl", 0.1, 0.01, point_scatter=0.02)
    assert min(held.values()) >= 0.90, held


def test_intervals_narrow_with_the_root_of_the_number_of_runs() -> None:
    def width(runs: int) -> float:
        dice = np.random.default_rng(2)
        widths = []
        for _ in range(30):
            n, times = runs_of(0.1, 0.01, runs=runs, scatter=0.03, dice=dice)
            sigma = fitted("usl", n, times).parameters["sigma"]
            widths.append(sigma.high - sigma.low)
        return float(np.median(widths))

    few, many = width(3), width(48)
    assert 2.5 < few / many < 6  # the root of 16 is 4


def test_the_same_runs_give_the_same_fit_in_any_order() -> None:
    n, times = runs_of(0.1, 0.01, scatter=0.03)
    order = np.random.default_rng(1).permutation(len(n))
    first = fitted("usl", n, times)
    assert fitted("usl", n, times) == first
    other = fitted("usl", [n[i] for i in order], [times[i] for i in order])
    assert other.parameters["sigma"].value == pytest.approx(first.parameters["sigma"].value)
    assert other.knee.high == pytest.approx(first.knee.high)


def test_times_scale_t1_and_nothing_else() -> None:
    n, times = runs_of(0.1, 0.01, scatter=0.03)
    first, other = fitted("usl", n, times), fitted("usl", n, [60 * time for time in times])
    assert other.t1_s == pytest.approx(60 * first.t1_s)
    assert other.knee.low == pytest.approx(first.knee.low)
    assert other.loo_error_max == pytest.approx(first.loo_error_max)


@pytest.mark.parametrize(
    ("model", "numbers", "needed"),
    [
        ("amdahl", (1, 2), "3 different numbers of replicas; measured: 1, 2."),
        ("usl", (1, 2, 3), "4 different numbers of replicas; measured: 1, 2, 3."),
        ("usl", (4,), "measured: 4."),
        ("amdahl", (), "measured: none."),
    ],
)
def test_too_few_numbers_of_replicas_are_refused_however_many_runs(
    model: str, numbers: tuple[int, ...], needed: str
) -> None:
    refusal = refused(model, *runs_of(0.1, 0.01, numbers, runs=20, scatter=0.01))
    assert needed in refusal.reason
    assert refusal.extent.points == len(numbers) and refusal.extent.runs == 20 * len(numbers)
    assert refusal.later is None


def outcomes(trials: int = 40, **shape: Any) -> list[Fit | Refusal]:
    dice = np.random.default_rng(0)
    return [fit("usl", *runs_of(**shape, dice=dice)) for _ in range(trials)]


def test_few_numbers_with_large_scatter_do_not_determine_the_parameters() -> None:
    shape = {"sigma": 0.4, "kappa": 0.01, "numbers": (1, 2, 3, 4), "runs": 3}
    noisy = [found for found in outcomes(**shape, scatter=0.2) if isinstance(found, Refusal)]
    assert len(noisy) >= 36
    assert any("do not determine" in found.reason for found in noisy)
    assert all(isinstance(found, Fit) for found in outcomes(**shape, scatter=0.001))


def test_kappa_is_refused_where_no_knee_and_one_well_within_the_range_fit_alike() -> None:
    found = outcomes(sigma=0.4, kappa=0.01, runs=3, scatter=0.1)
    refusals = [f for f in found if isinstance(f, Refusal) and "determine kappa" in f.reason]
    assert len(refusals) >= 4
    assert all("and so does none at all" in refusal.reason for refusal in refusals)
    for fit_ in found:
        if isinstance(fit_, Fit) and math.isinf(fit_.knee.high):
            assert fit_.knee.low >= 5


def test_kappa_without_an_upper_end_is_refused() -> None:
    refusal = refused("usl", [2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0])
    assert "kappa" in refusal.reason


def test_sigma_is_refused_where_nearly_any_fits() -> None:
    n, times = runs_of(0.05, numbers=(20, 21, 22), scatter=0.1)
    assert "do not determine sigma: anything from 0 to" in refused("amdahl", n, times).reason


@pytest.mark.parametrize("model", MODELS)
def test_one_node_without_the_network_is_refused_and_another_start_offered(model: str) -> None:
    n, times = published("aws-m4-large")
    refusal = refused(model, n, times)
    assert "cannot rise and then fall" in refusal.reason
    assert "381.4 s at n = 1, 750.0 s at n = 2, 272.9 s at n = 10" in refusal.reason
    assert "One replica runs without the network." in refusal.reason
    # the two nodes of this study do not follow a law either
    assert "misses n = 2 by 32.3%" in refused(model, n, times, 2).reason
    assert refusal.later is not None and refusal.later.extent.n_min == 3
    assert "From n = 3 on a fit is possible." in refusal.reason
    later = refusal.later
    assert later.extent == Extent(3, 10, 5, 5)
    assert predict(later, 8) == pytest.approx(335.298, rel=0.1)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("name", "gpus_per_node"), [("gcp-n1-standard-2", 0), ("gcp-n1-v100", 1), ("aws-p3-2xlarge", 1)]
)
def test_published_lines_can_be_fitted_from_two_nodes_on(
    model: str, name: str, gpus_per_node: int
) -> None:
    n, times = published(name, gpus_per_node)
    refusal = refused(model, n, times)
    assert refusal.later is not None and refusal.later.extent.n_min == 2
    assert refusal.reason.endswith("From n = 2 on a fit is possible.")
    found = fitted(model, n, times, 2)
    assert found.extent.n_min == 2
    assert found.loo_error_max <= LEFT_OUT_ERROR_MAX


def test_a_law_that_misses_left_out_points_is_refused() -> None:
    """Twice as slow on one node as all others say, but without a hump."""
    n, times = runs_of(0.05, 0.002, scatter=0.01)
    times = [time * (1 if number > 1 else 2) for number, time in zip(n, times, strict=True)]
    refusal = refused("amdahl", n, times)
    assert "misses n = 1 by 5" in refusal.reason and "(limit 25%)" in refusal.reason
    assert refusal.later is not None and refusal.later.extent.n_min == 2


def test_amdahls_law_is_refused_where_times_rise() -> None:
    n, times = runs_of(0.1, 0.05, scatter=0.01)
    assert "has no slowdown, but the time rises" in refused("amdahl", n, times).reason
    fitted("usl", n, times)


def test_scatter_is_no_hump() -> None:
    """Most flat lines of this scatter rise and fall by more than 10 %."""
    dice = np.random.default_rng(6)
    for _ in range(50):
        n, times = runs_of(1.0, numbers=range(1, 11), runs=3, scatter=0.08, dice=dice)
        found = fit("amdahl", n, times)
        assert isinstance(found, Fit), found.reason


def test_points_off_the_curve_widen_the_intervals_and_are_said() -> None:
    n, times = runs_of(0.1, 0.01, scatter=0.01)
    off = [t * {2.0: 1.08, 4.0: 0.94, 8.0: 1.05}.get(m, 1) for m, t in zip(n, times, strict=True)]
    good, bad = fitted("usl", n, times), fitted("usl", n, off)
    assert bad.lack_of_fit and not good.lack_of_fit
    widths = [
        found.parameters["sigma"].high - found.parameters["sigma"].low for found in (good, bad)
    ]
    assert widths[1] > 5 * widths[0]
    assert "further from the curve than their runs scatter" in statement(bad)


def test_nothing_is_said_outside_the_measured_range() -> None:
    found = fitted("usl", *runs_of(0.1, 0.01, scatter=0.01), from_n=2)
    assert predict(found, 2) > predict(found, 7.5) > 0
    for n in (1, 1.999, 10.001, 128, math.nan):
        with pytest.raises(ValueError, match="outside the measured range 2 to 10"):
            predict(found, n)


@pytest.mark.parametrize("kappa", [0.004, 0.008, 0.02, 0.05, 0.2, 2.0])
def test_the_best_number_is_the_least_time_of_the_law(kappa: float) -> None:
    found = fitted("usl", *runs_of(0.05, kappa, scatter=0.01))
    times = {n: predict(found, n) for n in range(1, 11)}
    choice = best(found)
    assert choice.n == min(times, key=times.__getitem__)
    assert choice.time_s == times[choice.n]
    assert choice.at_edge == (choice.n in (1, 10)) == ("at the edge of the range" in choice.text)
    assert 1 <= choice.low <= choice.n <= choice.high <= 10


def test_the_interval_of_the_best_number_holds_it() -> None:
    dice, held = np.random.default_rng(9), 0
    for _ in range(100):
        choice = best(fitted("usl", *runs_of(0.1, 0.02, scatter=0.03, dice=dice)))
        held += choice.low <= 7 <= choice.high  # sqrt(0.9 / 0.02) = 6.7
    assert held >= 95
    assert choice.high - choice.low <= 2


def test_amdahls_best_number_is_the_largest_and_said_to_be_an_edge() -> None:
    choice = best(fitted("amdahl", *runs_of(0.05, scatter=0.01)))
    assert (choice.n, choice.low, choice.high, choice.at_edge) == (10, 10, 10, True)
    assert choice.text == "10, at the edge of the range"
    flat = best(fitted("amdahl", *runs_of(1.0, scatter=0.01)))
    assert (flat.low, flat.high) == (1, 10)


def test_statements_say_what_was_not_measured() -> None:
    amdahl = statement(fitted("amdahl", *runs_of(0.05, scatter=0.01)))
    assert "asymptote beyond the measured range 1 to 10" in amdahl and "1/sigma, 19.8 (" in amdahl
    inside = fitted("usl", *runs_of(0.1, 0.02, scatter=0.01))
    assert "lies inside the measured range 1 to 10." in statement(inside)
    below = fitted("usl", *runs_of(0.1, 2.0, scatter=0.01))
    assert "lies below the measured range 1 to 10." in statement(below)
    beyond = fitted("usl", *runs_of(0.02, 0.001, scatter=0.01))
    assert "beyond the measured range 1 to 10, where nothing was measured" in statement(beyond)
    open_ended = fitted("usl", *published("aws-p3-2xlarge", 1), 2)
    assert "left open by the runs" in statement(open_ended)
