"""The table of runs: one row per run.

Nothing is dropped: a run that failed, is missing, or was made with other parameters is a row with
its reason, and takes part in no median and no speed-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from tfscaling.records import failure_report, prepared_data, run_record
from tfscaling.records.metrics import METRICS
from tfscaling.records.rank_report import Epoch
from tfscaling.records.run_record import PreparedData, RunRecord
from tfscaling.records.run_states import RunState
from tfscaling.study import costs, platforms, run_spec
from tfscaling.study.config import AXES
from tfscaling.tables import environments

Entry = Mapping[str, Any]

SIZES = ("replicas", "per_replica_batch_size", "global_batch_size", "batch_scaling")
#: Points that share these are compared with each other: the same work on the same platform.
SERIES_AXES = ("platform", "model", "strategy", "recipe")
_NUMBERS = {
    *("shared_with", "slowest_rank", "clock_offset_max_s", "clock_uncertainty_max_s", "cpu_mhz"),
    "cpus_online",
}
_TEXTS = (
    *SERIES_AXES,
    *("tasks_per_node", "devices", "status", "parameters_hash", "record", "warnings"),
    *(
        "platform_title",
        "cloud",
        "baseline",
        "baseline_point",
        "undefined_ratios",
        "batch_scaling",
        "source",
    ),
    *(name for name in environments.COLUMNS if name not in _NUMBERS),
)
#: Metrics that a run has by itself.
RUN_METRICS = tuple(name for name, metric in METRICS.items() if metric.value is not None)
RUN_COLUMNS = (
    *AXES,
    "devices",
    "status",
    "reason",
    *SIZES,
    *RUN_METRICS,
    "examples_trained",
    "cost_usd",
    "time_to_accuracy_s",
    "cost_to_accuracy_usd",
    "usd_per_node_hour",
    "wall_time_s",
    "attempt",
    "warnings",
    *environments.COLUMNS,
    "parameters_hash",
    "record",
)
EPOCH_COLUMNS = (
    *AXES, "status", "epoch", "loss", "accuracy", "duration_s",
    "test_loss", "test_accuracy", "evaluation_time_s",
)  # fmt: skip


def run_tables(expected: Mapping[str, Any], runs_dir: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(runs, epochs): one row per expected run, and one per epoch of each run that has a record.

    Runs have axes, devices (CPU, GPU or logical), status, reason, sizes, metrics, warnings, hosts
    and the record's path. `status` is ok, diverged (the loss is NaN or infinite: a result, but
    without metrics), failed, unfinished (started, left neither a record nor a failure: still
    running, or killed), stale (made with other parameters or of other data) or missing; further
    repeats (`repeat_until`) have a row once they were started.
    Epochs have EPOCH_COLUMNS, with the `status` of their run, ok or diverged; the last epoch of a
    run that diverged has no loss. What is of held-out examples is known where the model was
    evaluated after the epoch.
    """
    runs, epochs = [], []
    target = expected.get("target_accuracy")
    # of each record only what the tables need is kept: thousands of them would fill the memory
    found = [_run_row(entry, runs_dir, target) for entry in expected["runs"]]
    others = prepared_data.other_data(
        [data for _, _, data in found], prepared_data.folder_beside(runs_dir)
    )
    for entry, (row, of_run, _), reason in zip(expected["runs"], found, others, strict=True):
        if reason:
            row, of_run = {**_asked(entry), "status": RunState.STALE, "reason": reason}, ()
        if entry["further"] and row["status"] == RunState.MISSING:
            continue  # a repeat that its point did not need, or not yet
        runs.append(row)
        axes = {**entry["axes"], "status": row["status"]}
        epochs += [{**axes, **msgspec.to_builtins(epoch)} for epoch in of_run]
    for row, sharing in zip(runs, environments.shared_with(runs), strict=True):
        row["shared_with"] = sharing
    # "2+1" is a value of this axis too: text here as in the file
    text = {"tasks_per_node": str}
    return (
        pd.DataFrame(runs, columns=list(RUN_COLUMNS)).astype({**text, "examples_trained": "Int64"}),
        pd.DataFrame(epochs, columns=list(EPOCH_COLUMNS)).astype(text),
    )


def _run_row(
    entry: Entry, runs_dir: Path, target: float | None
) -> tuple[dict[str, Any], tuple[Epoch, ...], PreparedData | None]:
    """The row of an expected run; if it has a record, its epochs and what it read."""
    row, record = _row_and_record(entry, runs_dir, target)
    if record is None:
        return row, (), None
    return row, record.metrics.epochs, record.environment.dataset


def _row_and_record(
    entry: Entry, runs_dir: Path, target: float | None
) -> tuple[dict[str, Any], RunRecord | None]:
    """The row of an expected run, and its record if it counts or diverged."""
    path = runs_dir / entry["path"] / run_record.RECORD
    row = _asked(entry)
    try:
        record = run_record.read(path)
    except run_record.RecordError as error:
        return {**row, "status": RunState.FAILED, "reason": str(error)}, None
    if record is None:
        return {**row, **why_no_record(path.parent)}, None
    if record.parameters_hash != entry["parameters_hash"]:
        expected = {**entry["axes"], **entry["parameters"]}
        found = {**record.axes.axes, **record.parameters}
        reason = f"made with other parameters: {run_spec.differences(expected, found)}"
        return {**row, "status": RunState.STALE, "reason": reason}, None
    row |= {"status": record.validity.status, "reason": record.validity.reason}
    row["warnings"] = environments.SEPARATOR.join(record.warnings)
    row |= {"attempt": record.attempt, **environments.of(record), "record": str(path)}
    row["wall_time_s"] = record.phases.wall_time_s
    row["examples_trained"] = record.metrics.examples_trained
    if not record.is_valid:
        return row, record  # the time and the loss of half a training are none of the point's
    row |= {name: METRICS[name].value(record) for name in RUN_METRICS}  # type: ignore[misc]
    price, nodes = entry["usd_per_node_hour"], entry["axes"]["nodes"]
    row["cost_usd"] = costs.run_cost_usd(price, nodes, row["execution_time_s"])
    reached_s = None if target is None else time_to_accuracy_s(record, target)
    if reached_s is not None:
        row["time_to_accuracy_s"] = reached_s
        row["cost_to_accuracy_usd"] = costs.run_cost_usd(price, nodes, reached_s)
    return row, record


def _asked(entry: Entry) -> dict[str, Any]:
    """What is known of an expected run before it is made."""
    return {
        **entry["axes"],
        "devices": platforms.device_kind(
            entry["axes"]["gpus_per_node"], entry["parameters"]["devices"]
        ),
        **{size: entry[size] for size in SIZES},
        "usd_per_node_hour": entry["usd_per_node_hour"],
        "parameters_hash": entry["parameters_hash"],
        "warnings": "",
    }


def time_to_accuracy_s(record: RunRecord, target: float) -> float | None:
    """Seconds from the trainer's first line to the end of the first evaluation at `target`.

    None if no evaluation on held-out examples found it. The clock begins with execution_time_s,
    initialisation included; the epochs after the one that reached the target are taken off, and
    the evaluations so far, which are no part of that time, are added, as MLPerf's clock has them.
    """
    evaluations_s, epochs = 0.0, record.metrics.epochs
    for number, epoch in enumerate(epochs, 1):
        evaluations_s += epoch.evaluation_time_s or 0.0
        if (epoch.test_accuracy or 0.0) >= target:
            later_s = sum(after.duration_s for after in epochs[number:])
            return record.phases.execution_time_s - later_s + evaluations_s
    return None


def why_no_record(folder: Path) -> dict[str, str]:
    """Status and reason of a job that left no record in its folder."""
    try:
        failure = failure_report.read(folder)
    except run_record.RecordError as error:
        return {"status": RunState.FAILED, "reason": str(error)}
    if failure is not None:
        cause = failure.cause
        where = "" if cause.rank is None else f"rank {cause.rank} on {cause.host}: "
        return {"status": RunState.FAILED, "reason": f"{cause.kind}: {where}{cause.message}"}
    if any(folder.glob("attempt=*")):
        reason = "still running, or killed before it could report"
        return {"status": RunState.UNFINISHED, "reason": reason}
    return {"status": RunState.MISSING, "reason": "not run yet"}


def read_table(path: Path) -> pd.DataFrame:
    """A table from its CSV: texts stay texts, whatever they look like; empty cells are missing.

    Only a reason and warnings are empty texts.
    """
    texts = dict.fromkeys((*_TEXTS, "reason"), "object")
    table = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    return table.fillna({"reason": "", "warnings": ""})
