"""One row per run and per epoch; nothing is dropped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import (
    DIVERGENCE,
    changed,
    manifest_of,
    raw_config,
    write_failed_attempt,
    write_failure,
    write_record,
)
from generator import write_dataset_facts
from msgspec.structs import replace
from rows import planned_of, point, rows_of, tables_of, write_all
from tfscaling.record import attempts, metrics
from tfscaling.record.attempts import Cause
from tfscaling.record.metrics import METRICS
from tfscaling.record.run_states import RunState
from tfscaling.study import config_validation
from tfscaling.study.config_types import AXES
from tfscaling.study.manifest import Manifest
from tfscaling.tables import run_measurements, runs_table, table_files
from tfscaling.tables.row_types import RunRow


def runs_of(planned: Manifest, runs_dir: Path) -> pd.DataFrame:
    return tables_of(planned, runs_dir)[0]


def test_a_valid_run_has_its_measurements_hosts_and_record(tmp_path: Path) -> None:
    planned = planned_of({}, usd_per_node_hour=3.6)
    write_all(planned, tmp_path, 40.0, 30.0)
    row = point(runs_of(planned, tmp_path), nodes=2)
    assert (row["status"], row["reason"]) == ("ok", "")
    assert (row["execution_time_s"], row["loss"], row["accuracy"]) == (30.0, 0.25, 0.9)
    assert (row["replicas"], row["global_batch_size"], row["batch_scaling"]) == (2, 128, "weak")
    assert row["cost_usd"] == pytest.approx(3.6 * 2 * 30.0 / 3600)
    assert row["hosts"] == "node0 node1"
    assert row["attempt"] == 1
    assert json.loads(Path(row["record"]).read_text())["axes"]["nodes"] == 2


def with_data(path: Path, sha256: str) -> None:
    with changed(path) as record:
        record["environment"]["dataset"]["sha256"] = sha256


def test_runs_of_other_data_than_most_are_stale(tmp_path: Path) -> None:
    """Results of two clusters that prepared different data under one name, merged."""
    planned = planned_of({"nodes": [1, 2, 3]})
    for run, sha256 in zip(planned.runs, ("a" * 64, "b" * 64, "b" * 64), strict=True):
        with_data(write_record(tmp_path / "runs", run, 10.0), sha256)
    runs, epochs = tables_of(planned, tmp_path / "runs")
    assert runs["status"].tolist() == ["stale", "ok", "ok"]
    row = point(runs, nodes=1)
    assert "aaaaaaaaaaaa" in row["reason"] and "bbb" in row["reason"]
    assert pd.isna(row["execution_time_s"])
    assert (row["replicas"], row["parameters_hash"]) == (1, planned.runs[0].spec.parameters_hash)
    assert set(epochs["nodes"]) == {2, 3}


def test_the_data_that_is_prepared_here_decides(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2, 3]})
    for run, sha256 in zip(planned.runs, ("a" * 64, "b" * 64, "b" * 64), strict=True):
        with_data(write_record(tmp_path / "runs", run, 10.0), sha256)
    write_dataset_facts(tmp_path / "datasets", "mnist", 3, "a" * 64)
    assert runs_of(planned, tmp_path / "runs")["status"].tolist() == ["ok", "stale", "stale"]
    (tmp_path / "datasets/mnist.json").write_text('{"dataset": "mnist"}')  # incomplete
    assert runs_of(planned, tmp_path / "runs")["status"].tolist() == ["stale", "ok", "ok"]


ACCURACIES = (0.5, 0.7, 0.9, 0.88, 0.91, 0.92, 0.93, 0.94)


def to_target(
    folder: Path,
    target: float | None,
    durations_s: Sequence[float | None] = range(1, 9),
    **platform: Any,
) -> dict[str, Any]:
    """The row of a run of 100 s on two nodes, whose epoch k has taken k seconds.

    Evaluations after the epochs are no part of the 100 s, and take half a second each.
    """
    planned = replace(planned_of({"nodes": 2}, **platform), targets={"test_accuracy": target})
    with changed(write_record(folder, planned.runs[0], 100.0)) as record:
        record["metrics"]["epochs"] = [
            {"epoch": number, "loss": 1.0, "accuracy": 0.99, "duration_s": duration_s,
             "test_accuracy": accuracy, "evaluation_time_s": 0.5}
            for number, (accuracy, duration_s) in enumerate(
                zip(ACCURACIES, durations_s, strict=True), 1
            )
        ]  # fmt: skip
    return point(runs_of(planned, folder), nodes=2)


def test_a_target_reached_at_an_unknown_time_is_told_and_has_none(tmp_path: Path) -> None:
    """Of a program that prints its accuracy nobody knows when an epoch ended."""
    row = to_target(tmp_path / "a", 0.9, durations_s=[None] * 8, usd_per_node_hour=3.6)
    assert row["target_reached"] is True
    assert pd.isna(row["time_to_target_s"]) and pd.isna(row["cost_to_target_usd"])
    assert "target" in row["warnings"]
    last = to_target(tmp_path / "b", 0.94, durations_s=[None] * 8, usd_per_node_hour=3.6)
    assert (last["target_reached"], last["time_to_target_s"], last["warnings"]) == (True, 104.0, "")
    assert last["cost_to_target_usd"] == pytest.approx(3.6 * 2 * 104.0 / 3600)
    never = to_target(tmp_path / "c", 0.95, durations_s=[None] * 8)
    assert (never["target_reached"], never["warnings"]) == (False, "")


def test_every_epoch_of_a_valid_run_is_a_row_with_its_axes(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2], "repeats": 2})
    write_all(planned, tmp_path, 40.0, 41.0, 30.0, 31.0)
    epochs = tables_of(planned, tmp_path)[1]
    assert (
        tuple(epochs.columns) == runs_table.EPOCH_COLUMNS == (*AXES, *runs_table.EPOCH_COLUMNS[-8:])
    )
    found = [(row["nodes"], row["repeat"], row["epoch"]) for row in rows_of(epochs)]
    assert found == [(n, r, e) for n in (1, 2) for r in (1, 2) for e in (1, 2)]
    values = epochs[["loss", "accuracy", "duration_s"]].drop_duplicates().to_numpy().tolist()
    assert values == [[0.5, 0.8, 2.3], [0.25, 0.9, 0.3]]


def test_both_tables_survive_their_files(tmp_path: Path) -> None:
    planned = planned_of({"nodes": 2, "tasks_per_node": [1, "2+1"]}, usd_per_node_hour=3.6)
    write_all(planned, tmp_path, 60.0, 40.0)
    for table in tables_of(planned, tmp_path):
        table.to_csv(tmp_path / "table.csv", index=False)
        back = table_files.read_table(tmp_path / "table.csv")
        known = table.dropna(axis="columns", how="all")
        pd.testing.assert_frame_equal(back[known.columns], known, check_dtype=False)
        assert back.drop(columns=known.columns).isna().all(axis=None)


RESUMED = {
    **{"epoch": 2, "step": 3, "steps_repeated": 4, "trained_before_s": 5.0},
    "attempts": [{"attempt": 1, "duration_s": 9.0, "steps": 7, "cause": "cancelled"}],
}


@pytest.mark.parametrize(
    ("allowed", "trained_before_s", "time_s"),
    [(False, 5.0, None), (True, 5.0, 35.0), (True, None, None)],
    ids=["by_default", "allowed", "of_a_program"],
)
def test_the_quality_of_a_run_that_went_on_counts_its_times_only_where_that_is_allowed(
    tmp_path: Path, allowed: bool, trained_before_s: float | None, time_s: float | None
) -> None:
    raw = raw_config((["recipes", "weak", "compare_resumed"], allowed))
    planned = manifest_of(config_validation.convert_to_types(raw))
    path = write_record(tmp_path, planned.runs[0], 30.0)
    with changed(path) as record:
        before = (record["metrics"]["test_accuracy"], record["phases"]["train_time_s"])
        record["resumed"] = {**RESUMED, "trained_before_s": trained_before_s}
    row = rows_of(runs_of(planned, tmp_path))[0]
    assert (row["status"], row["test_accuracy"]) == ("ok", before[0])
    assert row["quality"] == before[0]
    if time_s is None:
        assert pd.isna(row["execution_time_s"]) and pd.isna(row["cost_usd"])
        assert pd.isna(row["step_time_s"]) and "comparisons" in row["warnings"]
        assert row["untimed_reason"] == "resumed"
    else:
        assert row["execution_time_s"] == time_s
        assert row["train_time_s"] == pytest.approx(before[1] + 5.0)
        assert "comparisons" not in row["warnings"]
        assert row["untimed_reason"] is None


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_resumed_run_has_no_energy_or_wait_of_its_last_job_alone(
    tmp_path: Path, is_resumed: bool
) -> None:
    raw = raw_config((["recipes", "weak", "compare_resumed"], True))
    planned = manifest_of(config_validation.convert_to_types(raw))
    with changed(write_record(tmp_path, planned.runs[0], 30.0)) as record:
        job = {"id": "7", "consumed_energy_j": 1.8e6}
        record["environment"]["slurm_job"] = job
        record["phases"]["queue_time_s"] = 12.0
        record["use"] = {"energy_kwh": 0.5, "energy_of": "processors"}
        record |= {"resumed": RESUMED} if is_resumed else {}
    row = rows_of(runs_of(planned, tmp_path))[0]
    of_job = [name for name, metric in METRICS.items() if metric.is_of_last_job]
    assert {"energy_kwh", "slurm_energy_kwh", "time_with_queue_s"} <= set(of_job)
    assert [bool(pd.isna(row[name])) for name in of_job] == [is_resumed] * len(of_job)
    assert row["execution_time_s"] == (35.0 if is_resumed else 30.0)


def test_a_run_that_diverged_is_a_row_without_metrics_but_with_its_machines(tmp_path: Path) -> None:
    planned = planned_of({}, usd_per_node_hour=3.6)
    write_record(tmp_path, planned.runs[0], 40.0)
    write_record(tmp_path, planned.runs[1], 30.0, DIVERGENCE, examples_trained=512)
    row = point(runs_of(planned, tmp_path), nodes=2)
    assert (row["status"], row["reason"]) == ("diverged", DIVERGENCE)
    for name in (*run_measurements.RUN_METRICS, "cost_usd", "time_to_target_s"):
        assert pd.isna(row[name]), name
    assert row["examples_trained"] == 512
    assert (row["hosts"], row["attempt"]) == ("node0 node1", 1)
    assert Path(row["record"]).is_file() and row["wall_time_s"] > 0


def priced_with_attempts(folder: Path, **resumed: Any) -> dict[str, Any]:
    """A run of 36 s at one dollar an hour, in the fourth attempt; the row of its table.

    Two attempts failed, one was cancelled.
    """
    price = {"usd_per_node_hour": 1.0, "price_date": "2026", "price_source": "a list"}
    raw = raw_config((("recipes", "weak", "compare_resumed"), True))
    raw["platforms"]["cluster"] |= price
    run = manifest_of(config_validation.convert_to_types(raw)).runs[0]
    with changed(write_record(folder, run, 36.0)) as record:
        record |= {"attempt": 4, **({"resumed": resumed} if resumed else {})}
    write_failed_attempt(folder, run, 1)
    write_failed_attempt(folder, run, 2)
    write_failed_attempt(folder, run, 3, cause=Cause(kind="cancelled", message="x"))
    return rows_of(runs_table.run_tables([run], folder)[0])[0]


def test_the_cost_of_a_run_has_its_own_failed_attempts(tmp_path: Path) -> None:
    row = priced_with_attempts(tmp_path)
    assert (row["failed_attempts"], row["lost_time_s"], row["lost_cost_usd"]) == (3, 5400.0, 1.5)
    assert row["cost_usd"] == pytest.approx(0.01 + 1.0)
    assert row["node_hours"] == pytest.approx(0.01 + 1.0)


def test_training_that_a_run_resumed_is_not_lost_too(tmp_path: Path) -> None:
    row = priced_with_attempts(tmp_path, **{**RESUMED, "trained_before_s": 900.0})
    assert row["execution_time_s"] == 936.0
    assert row["lost_time_s"] == 4500.0
    assert row["cost_usd"] == row["node_hours"] == pytest.approx((936 + 2700) / 3600)
    assert row["train_time_s"] <= row["wall_time_s"]
    assert pd.isna(row["time_with_queue_s"])


@pytest.mark.parametrize("allocated", [None, "24"])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 0), (2, 4)])
def test_hours_of_cores_and_gpus_are_of_all_nodes_and_attempts(
    tmp_path: Path, nodes: int, gpus: int, allocated: str | None
) -> None:
    """The job has 8 CPUs of each node, or as many as Slurm allocated."""
    planned = planned_of({"nodes": nodes, "gpus_per_node": gpus})
    (run,) = planned.runs
    with changed(write_record(tmp_path, run, 36.0)) as record:
        record |= {"attempt": 2}
        job = {"cpus_allocated": allocated} if allocated else {}
        record["environment"]["slurm_job"] = job
    write_failed_attempt(tmp_path, run, 1)
    (row,) = rows_of(runs_of(planned, tmp_path))
    hours = (36.0 + row["lost_time_s"]) / 3600
    assert row["core_hours"] == pytest.approx(hours * (int(allocated or 0) or 8 * nodes))
    assert row["gpu_hours"] == pytest.approx(hours * nodes * gpus)


#: Words of the formulas in the reference → columns of the table, or numbers.
WORDS = {
    "price of a node and hour": "usd_per_node_hour",
    "seconds of the run's failed attempts": "lost_time_s",
    "CPUs of the job on all nodes": "(8 * nodes)",
    "GPUs of the job on all nodes": "(gpus_per_node * nodes)",
    "×": "*",
}


def by_documented_formula(metric: str, row: pd.DataFrame) -> float:
    """The value of a metric by the formula in its description, which ends with `/ 3600`."""
    formula, is_formula, _ = metrics.describe_metrics()[metric].partition("/ 3600")
    assert is_formula, metric
    for words, column in WORDS.items():
        formula = formula.replace(words, column)
    values: Any = row.eval(f"{formula} / 3600")
    return float(values.iloc[0])


@pytest.mark.parametrize(("nodes", "failed"), [(1, 0), (2, 1), (3, 2)])
def test_costs_and_hours_are_by_their_documented_formulas(
    tmp_path: Path, nodes: int, failed: int
) -> None:
    """All have the failed attempts, the cost to a target as well."""
    planned = planned_of({"nodes": nodes, "gpus_per_node": nodes - 1}, usd_per_node_hour=3.6)
    planned = replace(planned, targets={"test_accuracy": 0.5})
    (run,) = planned.runs
    with changed(write_record(tmp_path, run, 100.0)) as record:
        record["attempt"] = failed + 1
        record["metrics"]["epochs"] = [
            {"epoch": 1, "loss": 1.0, "accuracy": 0.9, "duration_s": 2.0, "test_accuracy": 0.9}
        ]
    for number in range(1, failed + 1):
        write_failed_attempt(tmp_path, run, number)
    table = runs_of(planned, tmp_path)
    (row,) = rows_of(table)
    assert row["lost_time_s"] == 1800.0 * failed and row["time_to_target_s"] > 0
    paid_s = row["time_to_target_s"] + row["lost_time_s"]
    assert row["cost_to_target_usd"] == pytest.approx(nodes * 3.6 * paid_s / 3600)
    for metric in ("cost_usd", "node_hours", "core_hours", "gpu_hours", "cost_to_target_usd"):
        assert row[metric] == pytest.approx(by_documented_formula(metric, table)), metric


@pytest.mark.parametrize("nodes", [1, 2])
def test_node_hours_have_failed_attempts_without_a_price(tmp_path: Path, nodes: int) -> None:
    planned = planned_of({"nodes": nodes})
    (run,) = planned.runs
    with changed(write_record(tmp_path, run, 36.0)) as record:
        record |= {"attempt": 2}
    write_failed_attempt(tmp_path, run, 1)
    (row,) = rows_of(runs_of(planned, tmp_path))
    assert row["node_hours"] == pytest.approx(nodes * (36.0 + row["lost_time_s"]) / 3600)
    assert row["lost_time_s"] > 0 and pd.isna(row["cost_usd"])


@pytest.mark.parametrize(
    ("kept", "last", "is_told"),
    [(1, "time_limit", True), (2, "rank_died", True), (1, "cancelled", True), (1, "none", False)],
)
def test_a_failed_rerun_is_a_warning_of_the_record_that_still_counts(
    tmp_path: Path, kept: int, last: str, is_told: bool
) -> None:
    planned = planned_of({"nodes": 1})
    (run,) = planned.runs
    path = write_record(tmp_path, run, 36.0)
    with changed(path) as record:
        record["attempt"] = kept
    own = attempts.attempt_folder(path.parent, kept)
    own.mkdir()
    path.rename(own / attempts.RECORD)
    if last != "none":
        write_failure(tmp_path, run, kind=last, message="too slow")
    (row,) = rows_of(runs_of(planned, tmp_path))
    assert (row["status"], row["attempt"], row["execution_time_s"]) == ("ok", kept, 36.0)
    assert (f"to replace attempt {kept}" in row["warnings"]) is is_told
    assert bool(row["warnings"]) is is_told


@pytest.mark.parametrize(("status", "expected"), [("ok", "overlapping"), ("failed", None)])
def test_a_valid_run_whose_times_are_removed_has_the_reason(
    status: Any, expected: str | None
) -> None:
    row = RunRow(status=RunState(status), execution_time_s=30.0)
    run_measurements.exclude_times(row, 1)
    assert pd.isna(row.execution_time_s) and row.untimed_reason == expected


@pytest.mark.parametrize(
    ("ends_s", "expected"),
    [
        ([10.0, 20.0, 30.0, 40.0], None), ([30.0, 50.0, 60.0, 62.0], "not steady"),
        ([None] * 4, "not reported"),
    ],
    ids=["steady", "faster and faster", "unknown ends"],
)  # fmt: skip
def test_a_run_without_a_projection_has_the_reason(
    ends_s: Sequence[float | None], expected: str | None, tmp_path: Path
) -> None:
    """Each run trains 4 epochs of a training of 90."""
    raw = raw_config((["recipes", "weak", "epochs"], 4))
    raw["question"] = {"whole_training": {"epochs": 90}}
    raw["grid"][0]["repeats"] = 3
    planned = manifest_of(config_validation.convert_to_types(raw))
    for run in planned.runs:
        path = write_record(tmp_path, run, 40.0)
        with changed(path) as record:
            epoch = record["metrics"]["epochs"][0]
            record["metrics"]["epochs"] = [
                {**epoch, "epoch": number, "ended_s": end_s, "evaluation_time_s": None}
                for number, end_s in enumerate(ends_s, 1)
            ]
    rows = rows_of(runs_of(planned, tmp_path))
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["untimed_reason"] for row in rows} == {expected}
    assert {pd.isna(row["execution_time_s"]) for row in rows} == {expected is not None}
