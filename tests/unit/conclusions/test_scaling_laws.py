"""Scaling laws: fitted where they generated the runs, refused where the runs do not tell."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import REPOSITORY
from measured import NOTHING_PLANNED, N, around, measured, runs_of
from tfscaling.conclusions import scaling_laws
from tfscaling.conclusions.evidence import Study
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
from tfscaling.tables import table_rows


def swept(kappa: float = 0.02, **west: float) -> pd.DataFrame:
    """Runs of two platforms: `east` with a knee at 7, `west` where one node is quick."""
    n, times = runs_of(0.1, kappa, runs=1)
    curve = dict(zip(map(int, n), times, strict=True))
    points = {("east", number): around(time) for number, time in curve.items()}
    points |= {("west", number): around(time) for number, time in curve.items() if number > 1}
    return measured({**points, ("west", 1): around(20.0)})[1]


def laws(runs: pd.DataFrame) -> pd.DataFrame:
    """The laws of runs all of whose points take part."""
    return scaling_laws.table(Study(pd.DataFrame(), runs, NOTHING_PLANNED))


def rows_by_line(table: pd.DataFrame) -> dict[tuple[str, str], dict[str, object]]:
    """The first row of each; a refused line can have a later one, from more replicas on."""
    rows = reversed(table.to_dict("records"))
    return {(row["platform"], row["law"]): row for row in rows}  # type: ignore[misc]


def test_the_table_has_a_row_for_each_line_and_law(tmp_path: Path) -> None:
    runs = swept()
    runs.to_csv(tmp_path / "runs.csv", index=False)
    table = laws(table_rows.read_table(tmp_path / "runs.csv"))
    assert list(table.columns) == list(scaling_laws.COLUMNS)
    assert set(scaling_laws.LAW_AXES) == {
        *("platform", "model", "strategy", "recipe", "gpus_per_node", "tasks_per_node"),
        "batch_scaling",
    }
    rows = rows_by_line(table)
    assert set(rows) == {(p, law) for p in ("east", "west") for law in MODELS}
    east = rows["east", "usl"]
    assert (east["status"], east["reason"], east["batch_scaling"]) == ("fitted", "", "weak")
    assert (east["n_min"], east["n_max"], east["points"], east["runs"]) == (1, 10, 7, 42)
    assert east["sigma"] == pytest.approx(0.1, abs=1e-3)
    assert east["kappa"] == pytest.approx(0.02, abs=1e-3)
    assert east["knee_low"] < math.sqrt(45) < east["knee_high"]  # type: ignore[operator]
    assert (east["best_n"], east["best"], east["knee_place"]) == (7, "7", "inside")
    assert east["t1_s"] == pytest.approx(100, rel=1e-2)
    west = rows["west", "usl"]
    assert west["status"] == "refused" and "From n = 2 on" in str(west["reason"])
    assert pd.isna(west["sigma"]) and west["runs"] == 42  # type: ignore[call-overload]
    later = table.iloc[-1]
    assert (later["platform"], later["law"], later["status"]) == ("west", "usl", "fitted")
    assert (later["n_min"], later["n_max"], later["runs"]) == (2, 10, 36)
    amdahl = rows["east", "amdahl"]
    assert (amdahl["model"], amdahl["status"]) == ("mnist_cnn", "fitted")
    assert pd.isna(amdahl["kappa"]) and pd.isna(amdahl["knee"])  # type: ignore[call-overload]


def test_only_valid_runs_take_part() -> None:
    runs = swept()
    failed = runs.copy()
    failed.loc[failed["nodes"] == 10, "status"] = "failed"
    failed.loc[failed["platform"] == "west", "status"] = "stale"
    rows = rows_by_line(laws(failed))
    assert (rows["east", "usl"]["n_max"], rows["east", "usl"]["runs"]) == (8, 36)
    assert str(rows["west", "usl"]["reason"]).endswith("measured: none.")


def test_laws_that_contradict_each_other_say_so() -> None:
    """Amdahl's least time is at the most replicas, that of the other law before."""
    times = {("east", n): around(100 / n + 8 * math.log2(n), 0.002) for n in (1, 2, 4, 8, 12, 16)}
    rows = rows_by_line(laws(measured(times)[1]))
    amdahl, usl = rows["east", "amdahl"], rows["east", "usl"]
    assert (amdahl["status"], usl["status"]) == ("fitted", "fitted")
    assert int(str(usl["best_high"])) < int(str(amdahl["best_low"]))
    assert "contradicts" in str(amdahl["statement"])
    assert "contradicts" in str(usl["statement"])
    alike = rows_by_line(laws(swept(kappa=0.0)))["east", "amdahl"]
    assert alike["status"] == "fitted" and "contradicts" not in str(alike["statement"])


def test_points_that_do_other_work_or_diverge_are_left_out_and_named() -> None:
    comparison, runs, _ = measured({("east", n): around(100 / n + 2) for n in (1, 2, 4, 6, 8, 10)})
    comparison["same_work"] = comparison["nodes"] != 10
    comparison.loc[~comparison["same_work"], "examples_trained"] = 576
    runs.loc[(runs["nodes"] == 8) & (runs["repeat"] > 3), "status"] = "diverged"
    table = scaling_laws.table(Study(comparison, runs, NOTHING_PLANNED))
    row = rows_by_line(table)["east", "amdahl"]
    assert (row["n_max"], row["runs"]) == (6, 24)
    assert "n = 8: 3 of 6" in row["left_out"] and "n = 10" in row["left_out"]


def test_n_is_the_number_of_replicas_and_batch_scaling_tells_lines_apart() -> None:
    runs = swept()
    east = runs[runs["platform"] == "east"]
    double = east.assign(replicas=2 * east["replicas"], batch_scaling="strong")
    table = laws(pd.concat([east, double], ignore_index=True))
    usl = table[table["law"] == "usl"].set_index("batch_scaling")
    assert usl.loc["weak", "n_max"] == 10 and usl.loc["strong", "n_max"] == 20
    assert usl.loc["strong", "knee"] == pytest.approx(2 * usl.loc["weak", "knee"], rel=1e-3)


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


def test_the_same_runs_give_the_same_fit_in_any_order() -> None:
    n, times = runs_of(0.1, 0.01, scatter=0.03)
    order = np.random.default_rng(1).permutation(len(n))
    first = fitted("usl", n, times)
    assert fitted("usl", n, times) == first
    other = fitted("usl", [n[i] for i in order], [times[i] for i in order])
    assert other.parameters["sigma"].value == pytest.approx(first.parameters["sigma"].value)
    assert other.knee.high == pytest.approx(first.knee.high)


@pytest.mark.parametrize(
    ("model", "numbers", "needed"),
    [
        ("amdahl", (1, 2), "measured: 1, 2."),
        ("usl", (1, 2, 3), "measured: 1, 2, 3."),
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


def outcomes(trials: int = 20, **shape: Any) -> list[Fit | Refusal]:
    dice = np.random.default_rng(0)
    return [fit("usl", *runs_of(**shape, dice=dice)) for _ in range(trials)]


def test_few_numbers_with_large_scatter_do_not_determine_the_parameters() -> None:
    shape = {"sigma": 0.4, "kappa": 0.01, "numbers": (1, 2, 3, 4), "runs": 3}
    noisy = [found for found in outcomes(**shape, scatter=0.2) if isinstance(found, Refusal)]
    assert len(noisy) >= 18
    assert any("do not determine" in found.reason for found in noisy)
    assert all(isinstance(found, Fit) for found in outcomes(**shape, scatter=0.001))


def test_kappa_without_an_upper_end_is_refused() -> None:
    refusal = refused("usl", [2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0])
    assert "kappa" in refusal.reason


@pytest.mark.parametrize("model", MODELS)
def test_one_node_without_the_network_is_refused_and_another_start_offered(model: str) -> None:
    n, times = published("aws-m4-large")
    refusal = refused(model, n, times)
    assert refusal.misses and "750.0 s at n = 2" in refusal.reason
    # the two nodes of this study do not follow a law either
    assert "misses n = 2 by 32.3%" in refused(model, n, times, 2).reason
    assert refusal.later is not None and refusal.later.extent.n_min == 3
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
    assert refused("amdahl", n, times).misses
    fitted("usl", n, times)


def test_points_off_the_curve_widen_the_intervals_and_are_said() -> None:
    n, times = runs_of(0.1, 0.01, scatter=0.01)
    off = [t * {2.0: 1.08, 4.0: 0.94, 8.0: 1.05}.get(m, 1) for m, t in zip(n, times, strict=True)]
    good, bad = fitted("usl", n, times), fitted("usl", n, off)
    assert bad.lack_of_fit and not good.lack_of_fit
    widths = [
        found.parameters["sigma"].high - found.parameters["sigma"].low for found in (good, bad)
    ]
    assert widths[1] > 5 * widths[0]
    assert statement(bad) != statement(good)


def test_nothing_is_said_outside_the_measured_range() -> None:
    found = fitted("usl", *runs_of(0.1, 0.01, scatter=0.01), from_n=2)
    assert predict(found, 2) > predict(found, 7.5) > 0
    for n in (1, 1.999, 10.001, 128, math.nan):
        with pytest.raises(ValueError, match="2 to 10"):
            predict(found, n)


@pytest.mark.parametrize("kappa", [0.004, 0.008, 0.02, 0.05, 0.2, 2.0])
def test_the_best_number_is_the_least_time_of_the_law(kappa: float) -> None:
    found = fitted("usl", *runs_of(0.05, kappa, scatter=0.01))
    times = {n: predict(found, n) for n in range(1, 11)}
    choice = best(found)
    assert choice.n == min(times, key=times.__getitem__)
    assert choice.time_s == times[choice.n]
    assert choice.at_edge == (choice.n in (1, 10))
    assert 1 <= choice.low <= choice.n <= choice.high <= 10


def test_the_interval_of_the_best_number_holds_it() -> None:
    dice, held = np.random.default_rng(9), 0
    for _ in range(50):
        choice = best(fitted("usl", *runs_of(0.1, 0.02, scatter=0.03, dice=dice)))
        held += choice.low <= 7 <= choice.high  # sqrt(0.9 / 0.02) = 6.7
    assert held >= 47
    assert choice.high - choice.low <= 2
