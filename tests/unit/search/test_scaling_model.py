"""The model of times over nodes: disturbed runs, second modes, and what runs say about others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tfscaling.search.scaling_model import (
    SCATTER_FREEDOM,
    SCATTER_SD,
    Runs,
    ScalingModel,
    _estimate_pooled_variance,
    run_variances,
)

#: True standard deviation of a run.
SD = 0.02
#: Configurations of six runs each.
COUNT, REPEATS = 8, 6
OWNERS = np.repeat(np.arange(COUNT), REPEATS)
SEEDS = range(5)


def drawn(seed: int) -> np.ndarray:
    """Logarithms of the runs' times, around a level per configuration."""
    dice = np.random.default_rng(seed)
    return dice.normal(5.0, 1.0, COUNT)[OWNERS] + dice.normal(0, SD, len(OWNERS))


@pytest.mark.parametrize("seed", SEEDS)
def test_one_run_of_six_that_is_far_off_hardly_counts(seed: int) -> None:
    logs, factor = drawn(seed), np.random.default_rng(seed).uniform(2.2, 6.0)
    odd = int(np.random.default_rng(seed).integers(len(logs)))
    logs[odd] += math.log(factor)
    variance, pooled, _ = run_variances(OWNERS, logs)
    assert variance[odd] > (math.log(factor) - 4 * SD) ** 2
    assert np.delete(variance, odd).max() < (4 * SD) ** 2
    assert (SD / 2) ** 2 < pooled < (3 * SD) ** 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("odd_runs", "factor"), [(1, 1.5), (2, 3.0)])
def test_other_odd_runs_are_a_second_mode_of_their_configuration(
    seed: int, odd_runs: int, factor: float
) -> None:
    logs = drawn(seed)
    odd = seed % COUNT
    logs[np.flatnonzero(odd == OWNERS)[:odd_runs]] += math.log(factor)
    variance, pooled, _ = run_variances(OWNERS, logs)
    assert variance[odd == OWNERS].min() >= logs[odd == OWNERS].var(ddof=1) * (1 - 1e-9)
    assert variance[odd != OWNERS].max() < (4 * SD) ** 2
    assert pooled < (3 * SD) ** 2


@pytest.mark.parametrize(("deviations", "is_odd"), [(2.7, False), (3.4, True)])
def test_a_run_beyond_three_deviations_is_odd(deviations: float, is_odd: bool) -> None:
    owners = np.repeat(np.arange(40), REPEATS)
    logs = np.random.default_rng(3).normal(0, SD, len(owners))
    _, pooled, _ = run_variances(owners, logs)
    logs[:REPEATS] = 0
    logs[0] = deviations * math.sqrt(pooled)
    own = logs[:REPEATS].var(ddof=1)
    variance, _, _ = run_variances(owners, logs)
    # of others the runs of all configurations together say more
    assert variance[0] == pytest.approx(own) if is_odd else variance[0] < 0.97 * own


def test_before_there_are_repeats_runs_have_the_usual_scatter() -> None:
    variance, pooled, freedom = run_variances(np.arange(5), drawn(0)[:5])
    assert variance.tolist() == [SCATTER_SD**2] * 5
    assert (pooled, freedom) == (SCATTER_SD**2, SCATTER_FREEDOM)


@pytest.mark.parametrize("sd", [0.02, 0.06, 0.2])
def test_the_pooled_variance_is_that_of_the_runs_with_its_degrees_of_freedom(sd: float) -> None:
    dice = np.random.default_rng(3)
    owners = np.repeat(np.arange(40), REPEATS)
    _, pooled, freedom = run_variances(owners, dice.normal(0, sd, len(owners)))
    assert math.sqrt(pooled) == pytest.approx(sd, rel=0.15)
    assert freedom == SCATTER_FREEDOM + 40 * (REPEATS - 1)


@pytest.mark.parametrize(
    ("variances", "freedoms", "expected"),
    [
        ([0.01], [5], (0.0072 + 5 * 0.01 * 5 / 4.4) / 7),
        ([0.01], [1], (0.0072 + 1 * 0.01 / 0.4) / 3),
        # the middle one, by the degrees of freedom
        ([0.04, 0.01, 0.0025], [3, 3, 3], (0.0072 + 9 * 0.01 * 3 / 2.4) / 11),
        ([0.04, 0.01], [1, 9], (0.0072 + 10 * 0.01 * 9 / 8.4) / 12),
        ([0.01, 0.04, 0.09], [1, 1, 4], (0.0072 + 6 * 0.09 * 4 / 3.4) / 8),
        # of equal variances, the one of fewer runs counts as larger: it is usually too small
        ([0.01, 0.01, 0.011], [1, 1, 2], (0.0072 + 4 * 0.011 * 2 / 1.4) / 6),
    ],
)
def test_the_median_variance_counts_runs_and_has_the_usual_scatter_as_two_more(
    variances: list[float], freedoms: list[int], expected: float
) -> None:
    assert pytest.approx(0.0072) == SCATTER_FREEDOM * SCATTER_SD**2
    found = _estimate_pooled_variance(np.array(variances), np.array(freedoms))
    assert found == pytest.approx(expected)


#: One line that scales well, and the same on another platform; the last of each is not run.
NODES = np.array([1, 2, 4, 8, 16] * 2)
LINES = ["east"] * 5 + ["west"] * 5
RUN = [n for n in range(len(NODES)) if NODES[n] < 16]


def truth(dice: np.random.Generator, is_cost: bool) -> np.ndarray:
    levels = dice.uniform(3, 8) + np.repeat([0.0, dice.uniform(-1, 1)], 5)
    return levels + (is_cost - dice.uniform(0.7, 0.95)) * np.log(NODES)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_cost", [False, True])
def test_a_configuration_is_predicted_from_the_runs_of_others(seed: int, is_cost: bool) -> None:
    dice = np.random.default_rng(seed)
    logs = truth(dice, is_cost)
    owners = np.repeat(RUN, 3)
    rounds = np.tile([0, 1, 2], len(RUN))
    shift = np.array([0.0, 0.0, 0.08])
    runs = Runs(
        owners,
        rounds,
        logs[owners] + shift[rounds] + dice.normal(0, SD, len(owners)),
        np.zeros(len(owners), bool),
    )
    fit = ScalingModel(NODES, LINES, is_cost).fit(runs, np.zeros(3), np.zeros(len(NODES)))
    others = np.setdiff1d(np.arange(len(NODES)), RUN)
    sd = np.sqrt(fit.variance)
    assert (abs(fit.mean - logs - shift.mean()) < 4 * sd + SD).all()
    assert sd[others].min() > 1.5 * sd[RUN].max()
    assert np.isnan(fit.left_out[others]).all() and np.isnan(fit.left_out_errors[others]).all()
    assert (abs(fit.left_out - logs)[RUN] < 4 * fit.error_factor * fit.left_out_sd[RUN] + 0.1).all()
    assert fit.effects[2] - fit.effects[:2].mean() == pytest.approx(shift[2], abs=0.03)
    # measured points are distinguished better than those that are extrapolated, and a point from
    # itself exactly
    apart = fit.difference_sd(0)
    assert apart[0] < 1e-4 < apart[RUN[1:]].min()
    assert apart[RUN[1:]].max() < apart[others].min()


@pytest.mark.parametrize("seed", SEEDS)
def test_short_runs_of_a_configuration_share_the_error_of_their_projection(seed: int) -> None:
    dice = np.random.default_rng(seed)
    owners, short = np.repeat(RUN, 6), RUN[-1]
    logs = truth(dice, False)[owners] + dice.normal(0, SD, len(owners))
    runs = Runs(owners, np.tile(range(6), len(RUN)), logs, owners == short)
    model = ScalingModel(NODES, LINES, False)
    fits = [model.fit(runs, np.zeros(6), np.full(len(NODES), sd)) for sd in (0.0, 0.03, 0.3)]
    none, small, large = (math.sqrt(fit.variance[short]) for fit in fits)
    assert none < 2 * SD
    # six runs do not make the shared error smaller; a large one leaves what the others say
    assert math.sqrt(small**2 - none**2) == pytest.approx(0.03, rel=0.25)
    assert large > 3 * small
    assert [math.sqrt(fit.variance[RUN[0]]) for fit in fits] == pytest.approx([none] * 3, rel=0.5)


@pytest.mark.parametrize(
    ("measured", "other", "factor", "sd"),
    [
        # from one node to several, between several, and on the other line
        *((0, 1, 0.616, 1.215), (0, 4, 0.144, 1.829)),
        *((1, 2, 0.616, 0.494), (1, 4, 0.233, 1.208), (2, 3, 0.616, 0.498)),
        *((0, 5, 1.0, 2.023), (2, 7, 1.0, 1.685)),
    ],
)
def test_runs_of_a_single_configuration_allow_wide_predictions_of_others(
    measured: int, other: int, factor: float, sd: float
) -> None:
    """The numbers follow from what the model assumes before anything else is measured."""
    owners = np.full(3, measured)
    runs = Runs(owners, np.arange(3), np.full(3, 5.0), np.zeros(3, bool))
    fit = ScalingModel(NODES, LINES, False).fit(runs, np.zeros(3), np.zeros(len(NODES)))
    assert math.exp(fit.mean[other] - fit.mean[measured]) == pytest.approx(factor, abs=0.002)
    assert math.sqrt(fit.variance[other]) == pytest.approx(sd, rel=0.01)
    assert fit.difference_sd(measured)[other] == pytest.approx(sd, rel=0.01)


NAN = math.nan
#: Of costs or times, with a jump of one configuration → the fields of the fit.
FITS: dict[tuple[bool, float], dict[str, Any]] = {
    (False, 0.0): {
        "mean": [5.00027, 4.59527, 3.90004, 3.29625, 5.29524, 4.74886, 4.13948, 3.548],
        "sd": [0.04069, 0.20991, 0.05359, 0.39257, 0.06696, 0.03929, 0.39319, 0.68437],
        "left_out": [5.16057, 4.40432, 4.19586, NAN, 5.23817, 4.74771, NAN, NAN],
        "left_out_sd": [0.9574, 0.37946, 0.39882, NAN, 0.92992, 0.81271, NAN, NAN],
        "left_out_errors": [0.16772, 0.75415, 0.75196, NAN, 0.06112, 0.00136, NAN, NAN],
        "effects": [-0.00012493, -0.00026825, 0.00039254],
        "difference": [0.06326, 0.21229, 1e-05, 0.38606, 0.08202, 0.06235, 0.3935, 0.68328],
        "error_factor": 1.0,
    },
    (True, 4.0): {
        "mean": [5.00484, 7.81195, 3.92231, 2.61817, 5.28836, 4.75202, 3.31576, 2.57694],
        "sd": [0.04142, 0.23096, 0.05441, 0.63277, 0.06754, 0.04005, 0.62241, 1.04971],
        "left_out": [9.5213, 4.08049, 8.83192, NAN, 2.76723, 7.06285, NAN, NAN],
        "left_out_sd": [1.14571, 0.58638, 0.71749, NAN, 1.13398, 0.96915, NAN, NAN],
        "left_out_errors": [3.94627, 7.86181, 6.87944, NAN, 2.22911, 2.38769, NAN, NAN],
        "effects": [-0.00031149, -0.00045481, 0.00075398],
        "difference": [0.0635, 0.23464, 1e-05, 0.62899, 0.08211, 0.06261, 0.62284, 1.0495],
        "error_factor": 2.98595,
    },
}


@pytest.mark.parametrize(("is_cost", "jump"), FITS)
def test_the_numbers_of_a_fit(is_cost: bool, jump: float) -> None:
    """They follow from constants that simulations chose: who changes one, means the change.

    Five of eight configurations have runs, one of them a run that is far off, one short runs.
    """
    nodes = np.array([1, 2, 4, 8] * 2)
    owners = np.repeat([0, 1, 2, 4, 5], [3, 4, 2, 2, 3])
    rounds = np.array([0, 1, 2, 0, 1, 2, 2, 0, 1, 0, 1, 0, 1, 2])
    places = np.arange(len(owners))
    logs = 5 - 0.8 * np.log(nodes[owners]) + 0.3 * (owners > 3) + 0.01 * (7 * places % 5 - 2)
    logs[6] += 1.0
    variance, pooled, freedom = run_variances(owners, logs)
    sd = [0.04023, 0.50349, 0.04327, 0.04327, 0.03954]
    assert np.sqrt(variance) == pytest.approx(np.repeat(sd, [3, 4, 2, 2, 3]), rel=1e-3)
    assert (pooled, freedom) == (pytest.approx(0.00222797, rel=1e-4), 11.0)
    runs = Runs(owners, rounds, logs + jump * (owners == 1), np.isin(places, [9, 10]))
    model = ScalingModel(nodes, ["a"] * 4 + ["b"] * 4, is_cost)
    fit = model.fit(runs, np.array([0.0, 0.05]), np.full(8, 0.04))
    assert (fit.scatter, fit.freedom) == (pytest.approx(0.00565978, rel=1e-4), 11.0)
    own = {"sd": np.sqrt(fit.variance), "difference": fit.difference_sd(2)}
    for name, expected in FITS[is_cost, jump].items():
        value = own[name] if name in own else getattr(fit, name)
        assert value == pytest.approx(expected, rel=1e-3, abs=2e-5, nan_ok=True), name
