"""The table of runs: one row per run.

Nothing is dropped: a run that failed, is missing, or was made with other parameters is a row with
its reason, and takes part in no median and no speed-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pandas as pd

from tfscaling.records import failure_report, prepared_data, run_record, staleness
from tfscaling.records.metrics import METRICS
from tfscaling.records.rank_report import Epoch
from tfscaling.records.run_record import PreparedData, RunRecord
from tfscaling.records.run_states import RunState
from tfscaling.study import costs, platforms
from tfscaling.study.config import AXES
from tfscaling.study.manifest import PlannedRun
from tfscaling.tables import environments
from tfscaling.tables.table_rows import Row

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


class _Run(NamedTuple):
    """The row of a planned run; if it has a record that counts or diverged, what is in it."""

    row: Row
    epochs: tuple[Epoch, ...] = ()
    data: PreparedData | None = None


class NoRecord(NamedTuple):
    """Status and reason of a job that left no record."""

    status: RunState
    reason: str


def run_tables(
    planned: Sequence[PlannedRun], runs_dir: Path, target_accuracy: float | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(runs, epochs): one row per planned run, and one per epoch of each run that has a record.

    Runs have axes, devices (CPU, GPU or logical), status, reason, sizes, metrics, warnings, hosts
    and the record's path. `status` is ok, diverged (the loss is NaN or infinite: a result, but
    without metrics), failed, unfinished (started, left neither a record nor a failure: still
    running, or killed), stale (made with other parameters, by other code or of other data) or
    missing; extra repeats (`repeat_until`) have a row once they were started. A stale run has the
    `record` of its parameters if there is one: it is made again only where that is asked for.
    Epochs have EPOCH_COLUMNS, with the `status` of their run, ok or diverged; the last epoch of a
    run that diverged has no loss. What is of held-out examples is known where the model was
    evaluated after the epoch.
    """
    runs, epochs = [], []
    # of each record only what the tables need is kept: thousands of them would fill the memory
    read = [_read_run(run, runs_dir, target_accuracy) for run in planned]
    other_data = prepared_data.other_data(
        [run.data for run in read], prepared_data.folder_beside(runs_dir)
    )
    for run, (row, of_run, _), reason in zip(planned, read, other_data, strict=True):
        if reason:
            kept = {**_planned_row(run), "record": row["record"]}
            row, of_run = {**kept, "status": RunState.STALE, "reason": reason}, ()
        if run.extra_repeat and row["status"] == RunState.MISSING:
            continue  # a repeat that its point did not need, or not yet
        runs.append(row)
        axes = {**run.spec.axes, "status": row["status"]}
        epochs += [{**axes, **msgspec.to_builtins(epoch)} for epoch in of_run]
    for row, sharing in zip(runs, environments.shared_with(runs), strict=True):
        row["shared_with"] = sharing
    # "2+1" is a value of this axis too: text here as in the file
    text = {"tasks_per_node": str}
    return (
        pd.DataFrame(runs, columns=list(RUN_COLUMNS)).astype({**text, "examples_trained": "Int64"}),
        pd.DataFrame(epochs, columns=list(EPOCH_COLUMNS)).astype(text),
    )


def _read_run(run: PlannedRun, runs_dir: Path, target_accuracy: float | None) -> _Run:
    path = runs_dir / run.spec.path / run_record.RECORD
    row = _planned_row(run)
    try:
        record = run_record.read(path)
    except run_record.RecordError as error:
        return _Run({**row, "status": RunState.FAILED, "reason": str(error)})
    if record is None:
        return _Run(row | why_no_record(path.parent)._asdict())
    if reason := staleness.other_parameters(run.spec, record):
        return _Run({**row, "status": RunState.STALE, "reason": reason})
    if reason := staleness.other_code(run.spec, record):
        return _Run({**row, "status": RunState.STALE, "reason": reason, "record": str(path)})
    row |= {"status": record.validity.status, "reason": record.validity.reason}
    row["warnings"] = environments.SEPARATOR.join(record.warnings)
    row |= {"attempt": record.attempt, **environments.of(record), "record": str(path)}
    row["wall_time_s"] = record.phases.wall_time_s
    row["examples_trained"] = record.metrics.examples_trained
    if record.is_valid:  # the time and the loss of half a training are none of the point's
        row |= _measured(run, record, target_accuracy)
    return _Run(row, record.metrics.epochs, record.environment.dataset)


def _measured(run: PlannedRun, record: RunRecord, target_accuracy: float | None) -> Row:
    """Metrics and costs of a valid run."""
    row: Row = {name: METRICS[name].value(record) for name in RUN_METRICS}  # type: ignore[misc]
    price, nodes = run.usd_per_node_hour, run.spec.point.nodes
    row["cost_usd"] = costs.run_cost_usd(price, nodes, row["execution_time_s"])
    reached_s = None if target_accuracy is None else time_to_accuracy_s(record, target_accuracy)
    if reached_s is not None:
        row["time_to_accuracy_s"] = reached_s
        row["cost_to_accuracy_usd"] = costs.run_cost_usd(price, nodes, reached_s)
    return row


def _planned_row(run: PlannedRun) -> Row:
    """What is known of a planned run before it is made."""
    spec = run.spec
    return {
        **spec.axes,
        "devices": platforms.device_kind(spec.point.gpus_per_node, spec.measured.devices),
        **{size: getattr(spec, size) for size in SIZES},
        "usd_per_node_hour": run.usd_per_node_hour,
        "parameters_hash": spec.parameters_hash,
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
            later_s = sum(after.duration_s or 0.0 for after in epochs[number:])
            return record.phases.execution_time_s - later_s + evaluations_s
    return None


def why_no_record(folder: Path) -> NoRecord:
    """Why a job left no record in its folder."""
    try:
        failure = failure_report.read(folder)
    except run_record.RecordError as error:
        return NoRecord(RunState.FAILED, str(error))
    if failure is not None:
        cause = failure.cause
        where = "" if cause.rank is None else f"rank {cause.rank} on {cause.host}: "
        return NoRecord(RunState.FAILED, f"{cause.kind}: {where}{cause.message}")
    if any(folder.glob("attempt=*")):
        return NoRecord(RunState.UNFINISHED, "still running, or killed before it could report")
    return NoRecord(RunState.MISSING, "not run yet")


def read_table(path: Path) -> pd.DataFrame:
    """A table from its CSV: texts stay texts, whatever they look like; empty cells are missing.

    Only a reason and warnings are empty texts.
    """
    texts = dict.fromkeys((*_TEXTS, "reason"), "object")
    table = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    return table.fillna({"reason": "", "warnings": ""})
