"""The table of runs: one row per run.

Nothing is dropped: a run that failed, is missing, or was made with other parameters is a row with
its reason, and takes part in no median and no speed-up.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pandas as pd

from tfscaling.files.program_errors import InputError
from tfscaling.records import (
    earlier,
    failure_report,
    metrics,
    prepared_data,
    quality,
    queue_notes,
    run_record,
    short_runs,
    staleness,
)
from tfscaling.records.metrics import METRICS, QUALITY
from tfscaling.records.rank_report import Epoch
from tfscaling.records.run_record import PreparedData, RunRecord, ShortRun
from tfscaling.records.run_states import RunState
from tfscaling.study import platforms
from tfscaling.study.config import AXES, Quality
from tfscaling.study.manifest import PlannedRun
from tfscaling.tables import environments
from tfscaling.tables.table_rows import (
    QUALITY_COLUMNS,
    QUALITY_TEXTS,
    Row,
    is_known,
    quality_columns,
)

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
    *QUALITY_TEXTS,
    *(name for name in environments.COLUMNS if name not in _NUMBERS),
)
#: Metrics that a run has by itself.
RUN_METRICS = tuple(name for name, metric in METRICS.items() if metric.value is not None)
#: Those of them that say how long something takes, or how fast it is.
TIMES_OF_RUNS = tuple(name for name in RUN_METRICS if name not in metrics.OF_RESULTS)
#: Of short runs: the steps that they trained, and those of the whole training.
PROJECTED = ("projected_from_steps", "projected_to_steps")
RUN_COLUMNS = (
    *AXES,
    "devices",
    "status",
    "reason",
    *SIZES,
    *RUN_METRICS,
    QUALITY,
    *QUALITY_COLUMNS,
    "examples_trained",
    "cost_usd",
    "target_reached",
    "time_to_target_s",
    "cost_to_target_usd",
    "usd_per_node_hour",
    "wall_time_s",
    "attempt",
    "failed_attempts",
    "lost_time_s",
    "lost_cost_usd",
    "failed_too_often",
    "warnings",
    *PROJECTED,
    "projection_error_s",
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
    #: Seconds of earlier attempts whose training the record continues.
    before_s: float = 0.0


class NoRecord(NamedTuple):
    """Status and reason of a job that left no record."""

    status: RunState
    reason: str


def run_tables(
    planned: Sequence[PlannedRun],
    runs_dir: Path,
    targets: Mapping[str, float] = types.MappingProxyType({}),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(runs, epochs): one row per planned run, and one per epoch of each run that has a record.

    Runs have axes, devices (CPU, GPU or logical), status, reason, sizes, metrics, warnings, hosts
    and the record's path. `status` is ok, diverged (the loss is NaN or infinite: a result, but
    without metrics), failed, unfinished (started, left neither a record nor a failure: still
    running, or killed), stale (made with other parameters, by other code or of other data) or
    missing; extra repeats (`repeat_until`) have a row once they were started. A stale run has the
    `record` of its parameters if there is one: it is made again only where that is asked for.
    `quality` is the metric that the run's recipe names, with QUALITY_COLUMNS; a valid run that has
    none says why in `warnings`. `targets`: metric of a quality → value that is to be reached; a
    run that reached it at an unknown time says so there as well.
    Epochs have EPOCH_COLUMNS, with the `status` of their run, ok or diverged; the last epoch of a
    run that diverged has no loss. What is of held-out examples is known where the model was
    evaluated after the epoch. A metric that is a recipe's quality and none of EPOCH_COLUMNS has a
    column of its name, as has the same metric in training.
    """
    runs, epochs = [], []
    own_metrics = _own_metrics(run.spec.recipe.quality for run in planned)
    # of each record only what the tables need is kept: thousands of them would fill the memory
    read = [_read_run(run, runs_dir, targets) for run in planned]
    other_data = prepared_data.other_data(
        [run.data for run in read], prepared_data.folder_beside(runs_dir)
    )
    notes = queue_notes.read(runs_dir)
    for run, (row, of_run, _, before_s), reason in zip(planned, read, other_data, strict=True):
        if row["status"] == RunState.MISSING and (said := notes.of(run.spec)):
            row = {**row, "reason": said}
        if reason:
            kept = {**_planned_row(run), "record": row["record"]}
            row, of_run = {**kept, "status": RunState.STALE, "reason": reason}, ()
        if run.extra_repeat and row["status"] == RunState.MISSING:
            continue  # a repeat that its point did not need, or not yet
        runs.append(_with_failed_attempts(run, row, runs_dir, before_s))
        whose = (*run.spec.axes.values(), row["status"])
        epochs += [(*whose, *_of_epoch(epoch, own_metrics)) for epoch in of_run]
    for row, sharing in zip(runs, environments.shared_with(runs), strict=True):
        row["shared_with"] = sharing
    # "2+1" is a value of this axis too: text here as in the file
    text, truth = {"tasks_per_node": str}, {"target_reached": "boolean"}
    whole = dict.fromkeys(("examples_trained", *PROJECTED), "Int64")
    return (
        pd.DataFrame(runs, columns=list(RUN_COLUMNS)).astype({**text, **truth, **whole}),
        pd.DataFrame(epochs, columns=[*EPOCH_COLUMNS, *own_metrics]).astype(text),
    )


def _with_failed_attempts(run: PlannedRun, row: Row, runs_dir: Path, before_s: float) -> Row:
    """The row with what the failed attempts at the run took, of whatever parameters they were.

    Without the `before_s` seconds of them that the run continues: these are in its own times. The
    cost of a measured run has the attempts with its own parameters that nobody cancelled.
    """
    failed = failure_report.FailedAttempts(0, 0.0)
    if row.get("attempt") != 1:
        folder = runs_dir / run.spec.path
        failed = failure_report.failed_attempts(folder, run.spec.parameters_hash)
    price, nodes = run.usd_per_node_hour, run.spec.point.nodes
    lost_s = max(0.0, failed.wall_time_s - before_s)
    row = {**row, "failed_attempts": failed.number, "lost_time_s": lost_s}
    row["lost_cost_usd"] = platforms.run_cost_usd(price, nodes, lost_s)
    own = platforms.run_cost_usd(price, nodes, max(0.0, failed.own_time_s - before_s))
    if own and is_known(row.get("cost_usd")) and row.get(PROJECTED[0]) is None:
        row["cost_usd"] += own
        if is_known(row.get("cost_to_target_usd")):
            row["cost_to_target_usd"] += own
    return row


def _own_metrics(qualities: Iterable[Quality]) -> list[str]:
    """The metrics that epochs have columns for besides EPOCH_COLUMNS."""
    named = dict.fromkeys(name for q in qualities for name in (q.in_training, q.metric))
    return [name for name in named if name not in EPOCH_COLUMNS]


def _of_epoch(epoch: Epoch, own_metrics: Iterable[str]) -> tuple[float | None, ...]:
    """The values of EPOCH_COLUMNS after the status, and of the metrics."""
    return (
        *(epoch.epoch, epoch.loss, epoch.accuracy, epoch.duration_s),
        *(quality.of_epoch(epoch, "test_loss"), epoch.test_accuracy, epoch.evaluation_time_s),
        *(quality.of_epoch(epoch, name) for name in own_metrics),
    )


def _read_run(run: PlannedRun, runs_dir: Path, targets: Mapping[str, float]) -> _Run:
    path = runs_dir.joinpath(run.spec.path, run_record.RECORD)
    row = _planned_row(run)
    try:
        record = run_record.read(path)
    except run_record.RecordError as error:
        return _Run({**row, "status": RunState.FAILED, "reason": str(error)})
    if record is None:
        return _without_record(run, path, targets)
    if reason := staleness.other_parameters(run.spec, record):
        return _Run({**row, "status": RunState.STALE, "reason": reason})
    if reason := staleness.other_code(run.spec, record):
        return _Run({**row, "status": RunState.STALE, "reason": reason, "record": str(path)})
    return _with_record(run, record, path, targets)


def _without_record(run: PlannedRun, path: Path, targets: Mapping[str, float]) -> _Run:
    """Why there is no record; what of an earlier one counts until the run is made again."""
    row, kept = _planned_row(run), earlier.beside(path)
    why = why_no_record(path.parent, run.spec.parameters_hash)
    try:
        record = run_record.read(kept)
    except run_record.RecordError:
        record = None
    if record is None:
        if why.status == RunState.FAILED:
            row["failed_too_often"] = failure_report.failed_too_often(
                path.parent, run.spec.parameters_hash
            )
        return _Run(row | why._asdict())
    attempts = f"to replace attempt {record.attempt}, kept as {kept.name}: {why.reason}"
    of_other = staleness.other_parameters(run.spec, record)
    if reason := of_other or staleness.other_code(run.spec, record):
        reason = f"{attempts}; attempt {record.attempt} was {reason}"
        return _Run({**row, "status": RunState.STALE, "reason": reason})
    return _with_record(run, record, kept, targets, (f"it was made again, {attempts}",))


def _with_record(
    run: PlannedRun,
    record: RunRecord,
    path: Path,
    targets: Mapping[str, float],
    notes: Sequence[str] = (),
) -> _Run:
    """The row of a run whose record is of what is planned; `notes` are warnings besides its own."""
    row = _planned_row(run)
    row |= {"status": record.validity.status, "reason": record.validity.reason}
    warnings = [*notes, *record.warnings]
    if not (is_timed := _is_timed(run, record)):
        warnings.append("its times take no part in comparisons: see compare_resumed")
    row |= {"attempt": record.attempt, **environments.of(record), "record": str(path)}
    before_s = (record.resumed.trained_before_s or 0.0) if record.resumed and is_timed else 0.0
    row["wall_time_s"] = record.phases.wall_time_s + before_s
    if record.resumed is None or not record.is_of_program:  # which tells of its last attempt
        row["examples_trained"] = record.metrics.examples_trained
    if record.is_valid:  # the time and the loss of half a training are none of the point's
        row |= _measured(run, record)
        if whole := short_runs.projected(record):
            warnings += [whole.trend.warning] * bool(whole.trend.warning)
        compared_by = run.spec.recipe.quality
        # a program that tells nothing of its training was not asked for anything either, and the
        # quality of a whole training is not projected
        is_told = record.short_run is None
        if is_told and row[QUALITY] is None and (record.metrics.epochs or compared_by != Quality()):
            warnings.append(quality.of_run(record, compared_by).reason)
        if is_told and (target := targets.get(compared_by.metric)) is not None:
            reached = quality.reached(_with_training_before(record), compared_by, target)
            row |= _to_target(run, reached, is_timed)
            warnings += [reached.reason] * bool(reached.reason and is_timed)
    row["warnings"] = environments.SEPARATOR.join(warnings)
    of_whole = record.metrics.epochs if record.short_run is None else ()
    return _Run(row, of_whole, record.environment.dataset, before_s)


def _measured(run: PlannedRun, record: RunRecord) -> Row:
    """Metrics and costs of a valid run; of a short run those of the whole, without quality."""
    compared_by = run.spec.recipe.quality
    if record.short_run is not None:
        return _projected(run, record, record.short_run)
    if is_timed := _is_timed(run, record):
        record = _with_training_before(record)
    row: Row = {name: METRICS[name].value(record) for name in RUN_METRICS}  # type: ignore[misc]
    if not is_timed:
        row |= dict.fromkeys(TIMES_OF_RUNS)
        row[QUALITY] = quality.of_run(record, compared_by).value
        return row
    if record.resumed is not None:
        row["time_with_queue_s"] = None  # the earlier attempts' waits are not known
    price, nodes = run.usd_per_node_hour, run.spec.point.nodes
    row["cost_usd"] = platforms.run_cost_usd(price, nodes, row["execution_time_s"])
    row[QUALITY] = quality.of_run(record, compared_by).value
    return row


def _to_target(run: PlannedRun, reached: quality.Reached, is_timed: bool) -> Row:
    """Whether a run reached its target; time and cost to it, if they are known."""
    row: Row = {"target_reached": reached.is_reached}
    if is_timed and reached.time_s is not None:
        price, nodes = run.usd_per_node_hour, run.spec.point.nodes
        row["time_to_target_s"] = reached.time_s
        row["cost_to_target_usd"] = platforms.run_cost_usd(price, nodes, reached.time_s)
    return row


def _projected(run: PlannedRun, record: RunRecord, short: ShortRun) -> Row:
    """Times and costs of the whole training as they are projected from a short run."""
    whole = short_runs.projected(record)
    assert whole is not None
    record = msgspec.structs.replace(record, phases=whole.phases)
    row: Row = {name: METRICS[name].value(record) for name in TIMES_OF_RUNS}  # type: ignore[misc]
    row["examples_trained"] = short.examples_of_whole
    row["time_with_queue_s"] = None  # a short job waits for less time than the whole
    if not whole.trend.is_over:
        return row | dict.fromkeys(TIMES_OF_RUNS) | {QUALITY: None}
    row["cost_usd"] = platforms.run_cost_usd(
        run.usd_per_node_hour, run.spec.point.nodes, row["execution_time_s"]
    )
    row |= dict(zip(PROJECTED, (short.steps, short.steps_of_whole), strict=True))
    row["projection_error_s"] = whole.error_s
    return row | {QUALITY: None}


def _is_timed(run: PlannedRun, record: RunRecord) -> bool:
    """Whether its times take part in comparisons."""
    resumed = record.resumed
    if resumed is None:
        return True
    return run.spec.recipe.compare_resumed and resumed.trained_before_s is not None


def _with_training_before(record: RunRecord) -> RunRecord:
    """The record with the training that earlier attempts did and the last one did not repeat."""
    before_s = record.resumed.trained_before_s if record.resumed else None
    if before_s is None:
        return record
    found = record.phases
    phases = msgspec.structs.replace(
        found,
        train_time_s=(found.train_time_s or 0.0) + before_s,
        execution_time_s=found.execution_time_s + before_s,
    )
    return msgspec.structs.replace(record, phases=phases)


def _planned_row(run: PlannedRun) -> Row:
    """What is known of a planned run before it is made."""
    spec = run.spec
    return {
        **spec.axes,
        "devices": platforms.device_kind(spec.point.gpus_per_node, spec.measured.devices),
        **{size: getattr(spec, size) for size in SIZES},
        **quality_columns(spec.recipe.quality),
        "usd_per_node_hour": run.usd_per_node_hour,
        "failed_too_often": False,
        "parameters_hash": spec.parameters_hash,
        "warnings": "",
    }


def why_no_record(folder: Path, parameters_hash: str) -> NoRecord:
    """Why a job with these parameters left no record in its folder."""
    try:
        failure = failure_report.read(folder)
    except run_record.RecordError as error:
        return NoRecord(RunState.FAILED, str(error))
    if failure is not None and failure.parameters_hash in ("", parameters_hash):
        return NoRecord(RunState.FAILED, failure.cause.sentence)
    if failure is None and any(folder.glob("attempt=*")):
        return NoRecord(RunState.UNFINISHED, "still running, or killed before it could report")
    return NoRecord(RunState.MISSING, "not run yet")


def read_table(path: Path, needed: Collection[str] = ()) -> pd.DataFrame:
    """A table from its CSV: texts stay texts, whatever they look like; empty cells are missing.

    Only a reason and warnings are empty texts; an empty file has no column. Raises InputError with
    the file if it is no table, or lacks a column that is `needed`.
    """
    texts = dict.fromkeys((*_TEXTS, "reason"), "object")
    try:
        table = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    except pd.errors.EmptyDataError:
        table = pd.DataFrame()
    except ValueError as error:  # no table at all, or bytes that are no text
        raise InputError(f"{path}: {error}") from error
    if missing := [name for name in needed if name not in table]:
        raise InputError(f"{path}: columns {', '.join(missing)} are missing")
    return table.fillna({"reason": "", "warnings": ""})
