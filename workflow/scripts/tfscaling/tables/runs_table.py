"""The table of runs: one row for each planned run.

A run that failed, is missing, or was made with other parameters has a row with its reason. It is
excluded from medians and speed-ups.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from tfscaling.files.outside_text import shorten
from tfscaling.record import (
    attempts,
    metrics,
    prepared_data,
    run_record,
    run_states,
    step_estimates,
)
from tfscaling.record.metrics import number_or_nan
from tfscaling.record.rank_report import Epoch
from tfscaling.record.run_record import DoesNotFit, PreparedData, RunRecord, StepBlock
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.study import platforms
from tfscaling.study.manifest import PlannedRun
from tfscaling.tables import row_values, table_files
from tfscaling.tables.row_types import SEPARATOR, EpochRow, RunRow, columns
from tfscaling.tables.run_environment import count_overlapping_runs, set_environment
from tfscaling.tables.run_measurements import (
    HOURS,
    exclude_times,
    has_compared_times,
    set_measurements,
    set_target_results,
)
from tfscaling.tables.steady_epochs import first_steady_block

SIZES = ("replicas", "per_replica_batch_size", "global_batch_size", "batch_scaling")
#: Configurations with the same values of these axes are a series: speed-up compares within it.
SERIES_AXES = ("platform", "model", "strategy", "recipe")
#: Columns of short runs: trained steps, and steps of the complete training.
PROJECTION_STEPS = ("projected_from_steps", "projected_to_steps")
RUN_COLUMNS = tuple(columns(RunRow))
#: First words of a missing run's reason if a record with other parameters exists.
NEAREST_RECORD = "the nearest record has other parameters"
NOT_RUN = "not run"
#: Reason of a run that no start has made so far.
NOT_RUN_YET = "not run yet"
EPOCH_COLUMNS = tuple(columns(EpochRow))


class _RunResult(NamedTuple):
    """The row of a planned run, and parts of its record if it is valid or diverged.

    Attributes:
        row: The row.
        epochs: The epochs of the record; () for a short run.
        data: The prepared data that it read; None if unknown.
        before_s: Seconds of training in earlier attempts, which the run of the record continued.
        steady: The steps and durations of the epochs after the first, if a longer training is
            projected from them; else ().
    """

    row: RunRow
    epochs: tuple[Epoch, ...] = ()
    data: PreparedData | None = None
    before_s: float = 0.0
    steady: tuple[StepBlock, ...] = ()


class RunRows(NamedTuple):
    """The rows of the tables of runs and of epochs.

    Attributes:
        runs: The rows of the table of runs.
        epochs: The rows of the table of epochs: cells of EPOCH_COLUMNS, then of `own_metrics`.
        own_metrics: Names of the table's additional columns: the recipes' metrics of quality that
            are not in EPOCH_COLUMNS. The metric `test_bleu` adds two columns: `bleu` on training
            data and `test_bleu` on held-out data.
    """

    runs: list[RunRow]
    epochs: list[tuple[Any, ...]]
    own_metrics: list[str]


def run_tables(
    planned: Sequence[PlannedRun],
    runs_dir: Path,
    targets: Mapping[str, float] = types.MappingProxyType({}),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the tables of runs and of epochs from the records of planned runs.

    Args:
        planned: The runs of the manifest.
        runs_dir: The folder of the runs.
        targets: Quality metric → the value to reach.

    Returns:
        The runs, with the columns of `RunRow`; and the epochs, with EPOCH_COLUMNS and the
        additional columns `RunRows.own_metrics`.
    """
    runs, epochs, own_metrics = run_rows(planned, runs_dir, targets)
    # "2+1" is a value of this axis too: text here as in the file
    text = {"tasks_per_node": str}
    return (
        table_files.to_frame(RunRow, runs),
        pd.DataFrame(epochs, columns=[*EPOCH_COLUMNS, *own_metrics]).astype(text),
    )


def run_rows(
    planned: Sequence[PlannedRun],
    runs_dir: Path,
    targets: Mapping[str, float] = types.MappingProxyType({}),
) -> RunRows:
    """Make the rows of the tables of runs and of epochs from the records of planned runs.

    The first table has one row per planned run, the second one row per epoch of each record; epochs
    of short runs are left out. Extra repeats of a search have a row only once they were started. If
    a record was made by older code or from older data, its row has the status `stale`, a reason and
    the path of the record. If a valid run has no quality, or reached a target at an unknown time,
    `warnings` has the reason.

    Args:
        planned: The runs of the manifest.
        runs_dir: The folder of the runs.
        targets: Quality metric → the value to reach.
    """
    runs, epochs, kept = [], [], []
    named = ((q.training_metric, q.metric) for q in (run.spec.recipe.quality for run in planned))
    own_metrics = [*dict.fromkeys(name for both in named for name in both)]
    own_metrics = [name for name in own_metrics if name not in EPOCH_COLUMNS]
    read = _read_runs(planned, runs_dir, targets)
    other_data = run_states.describe_data_changes(
        [run.data for run in read], prepared_data.datasets_folder(runs_dir)
    )
    for run, (row, of_run, _, before_s, _), reason in zip(planned, read, other_data, strict=True):
        if reason:
            row, of_run = row_of_planned_run(run, RunState.STALE, reason, row.record), ()
        if run.extra_repeat and row.status == RunState.MISSING:
            continue  # a repeat that its point did not need, or not yet
        _add_failed_attempts(run, row, runs_dir, before_s)
        runs.append(row)
        kept.append(run)
        whose = (*run.spec.axes.values(), row.status)
        epochs += [(*whose, *_epoch_cells(epoch, own_metrics)) for epoch in of_run]
    _explain_skipped_batches(kept, runs)
    for run, row, sharing in zip(kept, runs, count_overlapping_runs(runs), strict=True):
        row.shared_with = sharing
        if sharing and run.spec.measured.launcher == "local":
            exclude_times(row, sharing)
    return RunRows(runs, epochs, own_metrics)


def _read_runs(
    planned: Sequence[PlannedRun], runs_dir: Path, targets: Mapping[str, float]
) -> list[_RunResult]:
    """Read the records of planned runs and make a row for each run, in their order.

    Times of short runs are projected from their steady epochs, which all short runs of a
    configuration determine together, see `first_steady_block`.

    Args:
        planned: The runs of the manifest.
        runs_dir: The folder of the runs.
        targets: Quality metric → the value to reach.
    """
    # of each record only what the tables need is kept: thousands of them would fill the memory
    read = [_read_run(run, runs_dir, targets) for run in planned]
    numbers_of: dict[tuple[str, int], list[int]] = {}
    for n, each in enumerate(read):
        if each.steady:
            key = planned[n].spec.point.path, len(each.steady)
            numbers_of.setdefault(key, []).append(n)
    for numbers in numbers_of.values():
        if place := first_steady_block([read[n].steady for n in numbers]):
            for n in numbers:
                read[n] = _read_run(planned[n], runs_dir, targets, place)
    return read


def _explain_skipped_batches(planned: Sequence[PlannedRun], rows: Sequence[RunRow]) -> None:
    """Add a reason to missing runs whose batch was skipped because a smaller one did not fit.

    A batch is run only if most runs of the next smaller batch fit in memory.

    Args:
        planned: The planned runs.
        rows: Their rows, in the same order.
    """
    fitting: Counter[str] = Counter()
    unfit: dict[str, list[str]] = {}
    for run, row in zip(planned, rows, strict=True):
        point, size = run.spec.point.path, run.spec.per_replica_batch_size
        fitting[point] += row.status in FINISHED
        if row.status == RunState.DOES_NOT_FIT:
            reason = f"{NOT_RUN}: per_replica_batch_size {size} did not fit: {run.spec.path}"
            unfit.setdefault(point, []).append(reason)
    why = {point: own[0] for point, own in unfit.items() if fitting[point] <= len(own)}
    for run, row in zip(planned, rows, strict=True):  # in the order of the sizes
        if row.status == RunState.MISSING and run.smaller in why:
            point = run.spec.point.path
            if not fitting[point]:
                row.reason = why.setdefault(point, why[run.smaller])


def _add_failed_attempts(run: PlannedRun, row: RunRow, runs_dir: Path, before_s: float) -> None:
    """Add the time and cost of a run's failed attempts to its row.

    Cost and node-hours of a measured run include attempts that failed without being cancelled.

    Args:
        run: The planned run.
        row: Its row.
        runs_dir: The folder of the runs.
        before_s: Seconds of training in these attempts that the run continued, and that its times
            already include.
    """
    failed = attempts.FailedAttempts(0, 0.0)
    if row.attempt != 1 and row.status != RunState.MISSING:
        folder = runs_dir / run.spec.path
        failed = attempts.failed_attempts(folder)
    price, nodes = run.usd_per_node_hour, run.spec.point.nodes
    lost_s = max(0.0, failed.wall_time_s - before_s)
    row.failed_attempts, row.lost_time_s = failed.number, lost_s
    row.lost_cost_usd = number_or_nan(platforms.run_cost_usd(price, nodes, lost_s))
    own_s = max(0.0, failed.uncancelled_time_s - before_s)
    if own_s and row.projected_from_steps is None:
        # what is unknown stays unknown
        own_usd = number_or_nan(platforms.run_cost_usd(price, nodes, own_s))
        row.cost_usd += own_usd
        row.cost_to_target_usd += own_usd
        for name in HOURS:
            setattr(row, name, row[name] + row[name] / row.execution_time_s * own_s)


def _epoch_cells(epoch: Epoch, own_metrics: Iterable[str]) -> tuple[float | None, ...]:
    """Return the cells of an epoch's row in epochs.csv from the column `epoch` on.

    Args:
        epoch: The epoch.
        own_metrics: Names of the metrics in the additional columns, see `RunRows`.
    """
    test_loss, *own = (metrics.quality_of_epoch(epoch, n) for n in ("test_loss", *own_metrics))
    of_training = epoch.epoch, epoch.loss, epoch.accuracy, epoch.duration_s
    return *of_training, test_loss, epoch.test_accuracy, epoch.evaluation_time_s, *own


def _read_run(
    run: PlannedRun, runs_dir: Path, targets: Mapping[str, float], steady_from: int = 0
) -> _RunResult:
    """Read the record of a planned run and make its row.

    Args:
        run: The planned run.
        runs_dir: The folder of the runs.
        targets: Quality metric → the value to reach.
        steady_from: Number of epochs, not counting the first, that a projection to a longer
            training ignores because they are not steady yet.
    """
    folder = runs_dir / run.spec.path
    try:
        found = run_states.find_record(run.spec, folder)
    except run_record.RecordError as error:
        return _RunResult(row_of_planned_run(run, RunState.FAILED, str(error)))
    if found is None:
        return _run_without_record(run, folder, runs_dir)
    path, record = found
    failed = "" if path.parent == folder else _failed_rerun_note(folder, record.attempt)
    if reason := run_states.describe_code_change(run.spec, record):
        reason = f"{failed}; attempt {record.attempt} was {reason}" if failed else reason
        return _RunResult(row_of_planned_run(run, RunState.STALE, reason, str(path)))
    if isinstance(record, DoesNotFit):
        return _RunResult(_out_of_memory_row(run, record, path), data=record.environment.dataset)
    notes = (failed,) if failed else ()
    return _run_with_record(run, record, path, targets, notes, steady_from)


def _out_of_memory_row(run: PlannedRun, record: DoesNotFit, path: Path) -> RunRow:
    """Return the row of a run that ran out of memory.

    Args:
        run: The planned run.
        record: Its record.
        path: The file of the record.
    """
    row = row_of_planned_run(run, RunState.DOES_NOT_FIT, record.reason, str(path))
    row.attempt = record.attempt
    for name in ("wall_time_s", "rank_memory_gb", "gpu_memory_gb", "memory_limit_gb"):
        setattr(row, name, number_or_nan(getattr(record, name)))
    return row


def _run_without_record(run: PlannedRun, folder: Path, runs_dir: Path) -> _RunResult:
    """Return the row of a run that has no record, with the reason.

    Args:
        run: The planned run.
        folder: Its folder.
        runs_dir: The folder of the runs.
    """
    status, why = _status_without_record(folder)
    if status == RunState.MISSING and (
        change := run_states.describe_nearest_change(run.spec, runs_dir)
    ):
        why += f"; {NEAREST_RECORD}: {change}"
    row = row_of_planned_run(run, status, why)
    if status == RunState.FAILED:
        row.failed_too_often = attempts.failed_too_often(folder)
    return _RunResult(row)


def _failed_rerun_note(folder: Path, kept: int) -> str:
    """Return a note if a rerun failed and an earlier record still counts; else "".

    Args:
        folder: The run's folder.
        kept: Number of the attempt whose record counts.
    """
    status, why = _status_without_record(folder)
    return f"it was rerun, to replace attempt {kept}: {why}" if status == RunState.FAILED else ""


def _run_with_record(
    run: PlannedRun,
    record: RunRecord,
    path: Path,
    targets: Mapping[str, float],
    notes: Sequence[str] = (),
    steady_from: int = 0,
) -> _RunResult:
    """Return the row of a run, and what else is read from its record.

    Args:
        run: The planned run.
        record: Its record.
        path: The file of the record.
        targets: Quality metric → the value to reach.
        notes: Warnings that the row has in addition to the record's warnings.
        steady_from: Number of epochs, not counting the first, that are not steady yet.
    """
    row = row_of_planned_run(run, RunState(record.validity.status), record.validity.reason)
    warnings = [*notes, *record.warnings]
    if not (is_timed := has_compared_times(run, record)):
        warnings.append("its times are excluded from comparisons: see compare_resumed")
    row.attempt, row.record = record.attempt, str(path)
    set_environment(row, record)
    before_s = (record.resumed.trained_before_s or 0.0) if record.resumed and is_timed else 0.0
    row.wall_time_s = record.phases.wall_time_s + before_s
    if record.resumed is None or not record.is_of_program:  # the file of its last attempt
        row.examples_trained = record.metrics.examples_trained
    steady: tuple[StepBlock, ...] = ()
    if record.is_valid and run.whole_epochs is not None:
        record = step_estimates.treat_as_short_run(record, run.whole_epochs)
        if record.short_run is None:
            row.untimed_reason = "not reported" if is_timed else "resumed"
            warnings.append(
                "nothing is projected: the ends, steps or examples of epochs are unknown"
            )
        else:
            steady = record.short_run.steady
    is_whole = record.short_run is None and (run.whole_epochs is None or not record.is_valid)
    # the time and the loss of half a training are none of the point's
    if record.is_valid and (is_whole or record.short_run is not None):
        whole = step_estimates.project_training(record, steady_from)
        set_measurements(row, run, record, whole)
        if whole is not None:
            warnings += [whole.trend.warning] * bool(whole.trend.warning)
        if is_whole:
            warnings += set_target_results(row, run, record, targets, is_timed)
    row.warnings = SEPARATOR.join(shorten(warning, path) for warning in warnings)
    of_whole = record.metrics.epochs if is_whole else ()
    return _RunResult(row, of_whole, record.environment.dataset, before_s, steady)


def row_of_planned_run(
    run: PlannedRun, status: RunState, reason: str, record: str | None = None
) -> RunRow:
    """Return a row with the axes, batch sizes, quality metric and price of a planned run.

    All columns that come from a record have their defaults.

    Args:
        run: The run.
        status: Its status.
        reason: Why it does not count; "" if it does.
        record: Path of its record; None without one.
    """
    spec, point = run.spec, run.spec.point
    compared_by = spec.recipe.quality
    return RunRow(
        **row_values.axis_columns(point),  # type: ignore[arg-type]
        repeat=spec.repeat,
        devices=platforms.device_kind(point.gpus_per_node, spec.measured.devices),
        status=status,
        reason=shorten(reason, record or spec.path),
        record=record,
        replicas=spec.replicas,
        per_replica_batch_size=spec.per_replica_batch_size,
        global_batch_size=spec.global_batch_size,
        batch_scaling=spec.recipe.batch_scaling,
        quality_metric=compared_by.metric,
        quality_direction=compared_by.better,
        quality_unit=compared_by.unit,
        quality_best=number_or_nan(compared_by.best_value),
        usd_per_node_hour=number_or_nan(run.usd_per_node_hour),
        parameters_hash=spec.parameters_hash,
    )


def _status_without_record(folder: Path) -> tuple[RunState, str]:
    """Return status and reason of a run that has no record, from the files in its folder."""
    if not folder.exists():  # as of all runs of a new study
        return RunState.MISSING, NOT_RUN_YET
    try:
        failure = attempts.read_failure(folder)
    except run_record.RecordError as error:
        return RunState.FAILED, str(error)
    if failure is not None:
        return RunState.FAILED, failure.cause.sentence
    if any(folder.glob("attempt=*")):
        return RunState.UNFINISHED, "still running, or killed before it could report"
    return RunState.MISSING, NOT_RUN_YET
