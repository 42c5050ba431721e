"""Forecasts of points that were not run: on lines that follow a model, and on published ones."""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import REPOSITORY
from measured import around, measured, resumed_from
from tfscaling.conclusions import forecast
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.forecast import MODELS, RING, ReplicaLine
from tfscaling.study.manifest import Manifest

N = np.array([1.0, 2.0, 4.0, 8.0, 16.0])


def seconds_of(n: np.ndarray, model: str = RING, is_weak: bool = True) -> np.ndarray:
    """10 s of start-up, 90 s of computation, and 50 s of an all-reduce in all steps of one node."""
    exchange = (n - 1) / n if model == RING else np.log2(n)
    return 10 + 90 / n + 50 * exchange / (n if is_weak else 1)


@pytest.mark.parametrize("is_weak", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_a_line_of_the_model_is_forecast_exactly(model: str, is_weak: bool) -> None:
    line = ReplicaLine(N, 3200 / (N if is_weak else N**0), seconds_of(N, model, is_weak), is_weak)
    best, errors = forecast.best_model(line)
    assert best == model and errors == pytest.approx(0, abs=1e-6)
    (far,) = seconds_of(np.array([64.0]), model, is_weak)
    assert line.predict(model, 64) == pytest.approx(far)


def test_a_line_that_bends_after_its_half_is_refused() -> None:
    bent = ReplicaLine(N, 3200 / N, seconds_of(N) * np.array([1, 1, 1, 1, 1.5]))
    assert forecast.rms_error(forecast.best_model(bent)[1]) > forecast.LEFT_OUT_ERROR_MAX


def test_one_odd_point_of_eight_does_not_refuse_a_line() -> None:
    n = np.array([1.0, 2, 3, 4, 6, 8, 12, 16])
    odd = ReplicaLine(n, 1 / n, seconds_of(n) * np.where(n == 3, 1.3, 1))
    _, errors = forecast.best_model(odd)
    assert np.abs(np.expm1(errors)).max() > 0.2
    assert forecast.rms_error(errors) <= forecast.LEFT_OUT_ERROR_MAX


def study(**columns: Any) -> Study:
    times = {("east", int(n)): around(10 + 90 / n) for n in N}
    comparison, runs, planned = measured(times)
    return Study(comparison.assign(**columns), runs, planned, forecast_nodes=(8, 32, 64))


def test_the_table_marks_how_far_outside_the_range_a_forecast_is() -> None:
    found = forecast.table(study())
    assert list(found.columns) == list(forecast.COLUMNS)
    assert set(found["nodes"]) == {32, 64}  # 8 was measured
    assert found.groupby("nodes")["times_beyond"].first().to_dict() == {32: 2.0, 64: 4.0}
    far = found[found["nodes"] == 64].iloc[0]
    assert far["status"] == "forecast" and far["model_of_time"] in MODELS
    assert far["forecast_time_s"] == pytest.approx(10 + 90 / 64, rel=0.01)
    hours = 64 * far["forecast_time_s"] / 3600
    assert far[["node_hours", "cost_usd"]].tolist() == pytest.approx([hours, hours])
    shown = forecast.as_text(found)
    assert "; 4×)" in shown.cells["64 nodes"].iloc[0] and len(shown.cells) == 1
    for _, row in found.iterrows():
        assert row["forecast_time_s_low"] < row["forecast_time_s"] < row["forecast_time_s_high"]


def made_of(seconds: dict[int, float]) -> tuple[pd.DataFrame, pd.DataFrame, Manifest]:
    return measured({("east", nodes): around(each) for nodes, each in seconds.items()})


SIX = {nodes: 10 + 90 / nodes + 0.5 * (nodes - 1) / nodes for nodes in (1, 2, 3, 4, 8, 16)}


def test_a_point_that_tells_no_examples_takes_no_part_beside_others_that_do() -> None:
    """One run of a program that went on tells them of its last attempt only."""
    whole = forecast.table(Study(*made_of(SIX), forecast_nodes=(32,)))
    found = forecast.table(Study(*resumed_from(made_of(SIX), 16, runs=1), forecast_nodes=(32,)))
    assert set(found["nodes_measured_max"]) == {8}
    times_s = whole["forecast_time_s"].tolist()
    assert found["forecast_time_s"].tolist() == pytest.approx(times_s, rel=0.1)
    comparison, runs, planned = made_of(SIX)
    none = comparison.assign(examples_trained=None)
    untold = forecast.table(Study(none, runs, planned, forecast_nodes=(32,)))
    assert set(untold["nodes_measured_max"]) == {16} and set(untold["status"]) == {"forecast"}


def test_a_refused_line_has_rows_with_the_reason() -> None:
    times = {("east", nodes): around(40 / nodes) for nodes in (1, 2, 4)}
    found = forecast.table(Study(*measured(times), forecast_nodes=(16,)))
    assert set(found["status"]) == {"refused"} and found["forecast_time_s"].isna().all()
    assert (found["reason"].str.contains("3 numbers of replicas")).all()
    assert (forecast.as_text(found).cells["16 nodes"] == "refused").all()


def test_a_model_that_misses_points_left_out_is_refused_in_the_table() -> None:
    """A point that stands alone beyond half of the largest shows it."""
    seconds = {1: 100.0, 2: 55.0, 4: 32.5, 8: 21.25, 16: 30.0}
    times = {("east", nodes): around(each) for nodes, each in seconds.items()}
    found = forecast.table(Study(*measured(times), forecast_nodes=(32,)))
    (row,) = found.to_dict("records")
    assert row["left_out_error"] > forecast.LEFT_OUT_ERROR_MAX and row["status"] == "refused"
    assert pd.isna(row["forecast_time_s"]) and row["reason"]


def lines_of(name: str, value: str) -> dict[tuple[str, ...], list[tuple[float, float]]]:
    """Line → (replicas, value) of each point in a file of published results."""
    found: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    with (REPOSITORY / name).open(newline="") as file:
        for row in csv.DictReader(file):
            if "series" in row:
                found[(row["series"],)].append((float(row["gpus"]), float(row[value])))
                continue
            replicas = int(row["nodes"]) * max(1, int(row["gpus_per_node"]))
            line = (row["platform"], row["gpus_per_node"])
            found[line].append((replicas, float(row[value])))
    return found


def line(points: list[tuple[float, float]]) -> ReplicaLine:
    n, seconds = (np.array(values) for values in zip(*sorted(points), strict=True))
    return ReplicaLine(n, 1 / n, seconds)


def test_published_lines_are_refused_where_they_belong() -> None:
    """docs/evidence.md has the errors of each line."""
    judged = {}
    for name, points in lines_of("resources/published_results.csv", "execution_time_s").items():
        own = line(points)
        if not forecast.refusal_reason(own):
            error = forecast.rms_error(forecast.best_model(own)[1])
            judged[name] = error <= forecast.LEFT_OUT_ERROR_MAX
    assert judged == {
        ("gcp-n1-standard-2", "0"): True, ("aws-c4-2xlarge", "0"): True,
        ("aws-m4-large", "0"): True, ("gcp-n1-v100", "1"): False, ("aws-p3-2xlarge", "1"): False,
    }  # fmt: skip


def test_public_series_up_to_32_gpus_are_forecast_for_64_as_the_page_says() -> None:
    """docs/evidence.md: the intervals that miss do not know of a full network."""
    misses: list[float] = []
    held: dict[float, list[bool]] = {64: [], 128: []}
    for points in lines_of("studies/forecast/throughput.csv", "images_per_s").values():
        whole = line([(n, 1 / rate) for n, rate in points])
        known = whole.subset(whole.replicas <= 32)
        if forecast.refusal_reason(known):
            continue
        model, errors = forecast.best_model(known)
        assert forecast.rms_error(errors) <= forecast.LEFT_OUT_ERROR_MAX
        misses.append(abs(known.predict(model, 64) / whole.seconds[whole.replicas == 64][0] - 1))
        for number in held:
            low, high = forecast.forecast_interval(model, known, number, errors)
            held[number] += [
                bool(low <= s <= high) for s in whole.seconds[whole.replicas == number]
            ]
    assert np.median(misses) < 0.1
    assert {n: (sum(each), len(each)) for n, each in held.items()} == {64: (5, 6), 128: (5, 6)}


@pytest.mark.parametrize("beyond", [1.5, 2, 4])
def test_the_interval_holds_where_a_noisy_line_goes_on_as_it_is(beyond: float) -> None:
    numbers, n, held = np.random.default_rng(7), np.array([1.0, 2, 4, 8, 16]), []
    for _ in range(60):
        own = ReplicaLine(n, 1 / n, seconds_of(n) * np.exp(numbers.normal(0, 0.1, len(n))))
        model, errors = forecast.best_model(own)
        if forecast.rms_error(errors) > forecast.LEFT_OUT_ERROR_MAX:
            continue
        low, high = forecast.forecast_interval(model, own, 16 * beyond, errors)
        held.append(low <= seconds_of(np.array([16 * beyond]))[0] <= high)
        assert low < own.predict(model, 16 * beyond) < high
    assert len(held) > 30 and np.mean(held) >= 0.95
