"""The table of runs: one row for each planned run.

A run that failed, is missing, or was made with other parameters has a row with its reason. It is
excluded from medians and speed-ups.
"""

from __future__ import annotations

import json
import operator
import types
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from msgspec import UNSET
from msgspec.structs import replace

from tfscaling.files.outside_text import shorten
from tfscaling.record import (
    attempts,
    metrics,
    prepared_data,
    run_record,
    run_states,
    step_estimates,
)
from tfscaling.record.metrics import METRICS, NAN, RunMetrics, number_or_nan
from tfscaling.record.rank_report import COMPARED, PROGRAM_PACKAGES, Epoch, HostFacts, Rank
from tfscaling.record.run_record import DoesNotFit, PreparedData, RunRecord, ShortRun, StepBlock
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.record.step_estimates import ProjectedTraining
from tfscaling.study import platforms
from tfscaling.study.config_types import Quality
from tfscaling.study.manifest import PlannedRun
from tfscaling.tables import row_values, table_files
from tfscaling.tables.row_types import EpochRow, RunRow, columns
from tfscaling.tables.row_values import is_known
from tfscaling.tables.steady_epochs import first_steady_block

SIZES = ("replicas", "per_replica_batch_size", "global_batch_size", "batch_scaling")
#: Configurations with the same values of these axes are a series: speed-up compares within it.
SERIES_AXES = ("platform", "model", "strategy", "recipe")
#: Metrics that are measured in a single run.
RUN_METRICS = RunMetrics.__struct_fields__
#: The times and rates among RUN_METRICS.
TIME_METRICS = tuple(name for name in RUN_METRICS if name not in metrics.RESULT_METRICS)
#: Columns of short runs: trained steps, and steps of the complete training.
PROJECTION_STEPS = ("projected_from_steps", "projected_to_steps")
#: Columns of the time that a run occupies its nodes, cores and GPUs.
HOURS = ("node_hours", "core_hours", "gpu_hours")
#: Columns that are computed from the times of a run.
_TIME_BASED_COLUMNS = (
    *("cost_usd", *HOURS, "energy_usd", "energy_kg_co2", "share_of_peak"),
    *("time_to_target_s", "cost_to_target_usd", "projection_error_s"),
)
RUN_COLUMNS = tuple(columns(RunRow))
#: First words of a missing run's reason if a record with other parameters exists.
NEAREST_RECORD = "the nearest record has other parameters"
NOT_RUN = "not run"
EPOCH_COLUMNS = tuple(columns(EpochRow))


class _RunResult(NamedTuple):
    """The row of a planned run, and parts of its record if it is valid or diverged.

    Attributes:
        row: The row.
        epochs: The epochs of the record.
        data: The prepared data that it read; None if unknown.
        before_s: Training time of earlier attempts that the record continues, in seconds.
        steady: The steps and durations of the epochs after the first, if a longer training is
            projected from them; else ().
    """

    row: RunRow
    epochs: tuple[Epoch, ...] = ()
    data: PreparedData | None = None
    before_s: float = 0.0
    steady: tuple[StepBlock, ...] = ()


def run_tables(
    planned: Sequence[PlannedRun],
    runs_dir: Path,
    targets: Mapping[str, float] = types.MappingProxyType({}),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the tables of runs and of epochs from the records of planned runs.

    The first table has one row per planned run, the second one row per epoch of each record. Extra
    repeats of a search have a row once they were started. A stale run has its record's path: it is
    rerun only on request. If a valid run has no quality, or reached a target at an unknown time,
    `warnings` has the reason.

    Args:
        planned: The runs of the manifest.
        runs_dir: The folder of the runs.
        targets: Quality metric → the value to reach.

    Returns:
        The runs, with the columns of `RunRow`; and the epochs, with EPOCH_COLUMNS and a column for
        each further metric of quality, on held-out and on training data.
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
            row, of_run = row_without_record(run, RunState.STALE, reason, row.record), ()
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
            _exclude_times(row, sharing)
    # "2+1" is a value of this axis too: text here as in the file
    text = {"tasks_per_node": str}
    return (
        table_files.to_frame(RunRow, runs),
        pd.DataFrame(epochs, columns=[*EPOCH_COLUMNS, *own_metrics]).astype(text),
    )


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


def _exclude_times(row: RunRow, sharing: int) -> None:
    """Remove the times of a run that shared CPU cores with other runs; its quality still counts.

    Slurm gives each job separate cores. The local launcher does not.

    Args:
        row: The row to change.
        sharing: Number of runs that ran at the same time.
    """
    for name in (*TIME_METRICS, *_TIME_BASED_COLUMNS):
        setattr(row, name, NAN)
    row.projected_from_steps = row.projected_to_steps = None
    others = "another run" if sharing == 1 else f"{sharing} other runs"
    note = f"it ran at the same time as {others} on this machine: its times are not compared"
    row.warnings = SEPARATOR.join(filter(None, [row.warnings, note]))


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
    if row.attempt != 1:
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
        own_metrics: Names of further metrics of quality, one for each column.
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
        return _RunResult(row_without_record(run, RunState.FAILED, str(error)))
    if found is None:
        return _run_without_record(run, runs_dir)
    path, record = found
    failed = "" if path.parent == folder else _failed_rerun_note(folder, record.attempt)
    if reason := run_states.describe_code_change(run.spec, record):
        reason = f"{failed}; attempt {record.attempt} was {reason}" if failed else reason
        return _RunResult(row_without_record(run, RunState.STALE, reason, str(path)))
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
    row = row_without_record(run, RunState.DOES_NOT_FIT, record.reason, str(path))
    row.attempt = record.attempt
    for name in ("wall_time_s", "rank_memory_gb", "gpu_memory_gb", "memory_limit_gb"):
        setattr(row, name, number_or_nan(getattr(record, name)))
    return row


def _run_without_record(run: PlannedRun, runs_dir: Path) -> _RunResult:
    """Return the row of a run that has no record, with the reason."""
    folder = runs_dir / run.spec.path
    status, why = _status_without_record(folder)
    if status == RunState.MISSING and (
        change := run_states.describe_nearest_change(run.spec, runs_dir)
    ):
        why += f"; {NEAREST_RECORD}: {change}"
    row = row_without_record(run, status, why)
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
    """Return the row of a run from its record.

    Args:
        run: The planned run.
        record: Its record.
        path: The file of the record.
        targets: Quality metric → the value to reach.
        notes: Warnings that the row has in addition to the record's warnings.
        steady_from: As in `_read_run`.
    """
    row = row_without_record(run, RunState(record.validity.status), record.validity.reason)
    warnings = [*notes, *record.warnings]
    if not (is_timed := _is_timed(run, record)):
        warnings.append("its times are excluded from comparisons: see compare_resumed")
    row.attempt, row.record = record.attempt, str(path)
    set_environment(row, record)
    before_s = (record.resumed.trained_before_s or 0.0) if record.resumed and is_timed else 0.0
    row.wall_time_s = record.phases.wall_time_s + before_s
    if record.resumed is None or not record.is_of_program:  # the file of its last attempt
        row.examples_trained = record.metrics.examples_trained
    steady: tuple[StepBlock, ...] = ()
    if record.is_valid and run.whole_epochs is not None:
        record = step_estimates.as_short_run(record, run.whole_epochs)
        if record.short_run is None:
            warnings.append(
                "nothing is projected: the ends, steps or examples of epochs are unknown"
            )
        else:
            steady = record.short_run.steady
    is_whole = record.short_run is None and (run.whole_epochs is None or not record.is_valid)
    # the time and the loss of half a training are none of the point's
    if record.is_valid and (is_whole or record.short_run is not None):
        whole = step_estimates.project_training(record, steady_from)
        _set_measurements(row, run, record, whole)
        if whole is not None:
            warnings += [whole.trend.warning] * bool(whole.trend.warning)
        if is_whole:
            warnings += _set_target_results(row, run, record, targets, is_timed)
    row.warnings = SEPARATOR.join(shorten(warning, path) for warning in warnings)
    of_whole = record.metrics.epochs if is_whole else ()
    return _RunResult(row, of_whole, record.environment.dataset, before_s, steady)


def _set_target_results(
    row: RunRow,
    run: PlannedRun,
    record: RunRecord,
    targets: Mapping[str, float],
    is_timed: bool,
) -> list[str]:
    """Set whether and when a complete run reached its target; return warnings about it.

    Args:
        row: The row, with its metrics.
        run: The planned run.
        record: Its record.
        targets: Quality metric → the value to reach.
        is_timed: Whether its times are compared.
    """
    quality, warnings = run.spec.recipe.quality, []
    # a program that reports nothing of its training did not have to
    if not is_known(row.quality) and (record.metrics.epochs or quality != Quality()):
        warnings.append(metrics.quality_of_run(record, quality).reason)
    if (target := targets.get(quality.metric)) is None:
        return warnings
    reached = metrics.find_target_time(_add_earlier_training(record), quality, target)
    if reached.is_reached or is_known(row.quality):
        row.target_reached = reached.is_reached
    if is_timed and reached.time_s is not None:
        row.time_to_target_s = reached.time_s
        row.cost_to_target_usd = _cost_usd(run, reached.time_s)
    return warnings + [reached.reason] * bool(reached.reason and is_timed)


def _set_measurements(
    row: RunRow, run: PlannedRun, record: RunRecord, whole: ProjectedTraining | None
) -> None:
    """Set metrics and costs of a valid run.

    For a short run they are projected to the complete training, without quality.

    Args:
        row: The row to complete.
        run: The planned run.
        record: Its record.
        whole: The projected training; None if the record is of the complete training.
    """
    if whole is not None and record.short_run is not None:
        _set_projections(row, run, record, record.short_run, whole)
        return
    is_timed = _is_timed(run, record)
    record = _add_earlier_training(record) if is_timed else record
    _set_metrics(row, record, RUN_METRICS if is_timed else metrics.RESULT_METRICS)
    if run.peak_tflops is not None:
        reached = number_or_nan(record.metrics.flops_per_example) * row.throughput_examples_per_s
        row.share_of_peak = reached / run.spec.replicas / (run.peak_tflops * 1e12)
    row.quality = number_or_nan(metrics.quality_of_run(record, run.spec.recipe.quality).value)
    if record.resumed is not None:  # neither waits nor energy of earlier attempts are known
        row.time_with_queue_s = row.energy_kwh = NAN
    else:
        row.energy_of = record.use.energy_of or None
        row.energy_usd = row.energy_kwh * number_or_nan(run.usd_per_kwh)
        row.energy_kg_co2 = row.energy_kwh * number_or_nan(run.kg_co2_per_kwh)
    row.cost_usd = _cost_usd(run, row.execution_time_s)
    _set_hours(row, run, record)


def _set_metrics(row: RunRow, record: RunRecord, names: Iterable[str]) -> None:
    """Copy the metrics with these names from a record to a row.

    Args:
        row: The row.
        record: The record.
        names: Names of the metrics.
    """
    for name in names:
        setattr(row, name, number_or_nan(METRICS[name].value(record)))  # type: ignore[misc]


def _set_hours(row: RunRow, run: PlannedRun, record: RunRecord) -> None:
    """Set the hours of nodes, cores and GPUs that the execution time of a run takes.

    Args:
        row: The row, with its execution time.
        run: The planned run.
        record: Its record.
    """
    point, job = run.spec.point, record.environment.slurm_job
    allocated = job.cpus_allocated if job else None
    has_gpus = row.devices != platforms.LOGICAL
    hours = row.execution_time_s / 3600
    row.node_hours = hours * point.nodes
    row.core_hours = hours * (
        int(allocated) if allocated else point.nodes * run.spec.measured.cpus_per_node
    )
    row.gpu_hours = hours * point.nodes * point.gpus_per_node * has_gpus


def _cost_usd(run: PlannedRun, time_s: float) -> float:
    """Return the cost of a run that takes this time; NaN without a price or a time."""
    return number_or_nan(
        platforms.run_cost_usd(run.usd_per_node_hour, run.spec.point.nodes, time_s)
    )


def _set_projections(
    row: RunRow, run: PlannedRun, record: RunRecord, short: ShortRun, whole: ProjectedTraining
) -> None:
    """Set times and costs of a short run's row to their projections to the complete training.

    Args:
        row: The row to complete.
        run: The planned run.
        record: Its record.
        short: The short run in the record.
        whole: The projected training.
    """
    row.examples_trained = short.examples_of_whole
    if not whole.trend.is_over:
        return
    _set_metrics(row, replace(record, phases=whole.phases), TIME_METRICS)
    row.time_with_queue_s = NAN  # a short job waits for less time than the whole
    row.energy_kwh = NAN  # it is measured, never projected
    row.cost_usd = _cost_usd(run, row.execution_time_s)
    _set_hours(row, run, record)
    row.projected_from_steps, row.projected_to_steps = short.steps, short.steps_of_whole
    row.projection_error_s = number_or_nan(whole.error_s)


def _is_timed(run: PlannedRun, record: RunRecord) -> bool:
    """Return whether a run's times are compared.

    A resumed run needs `compare_resumed` in its recipe, and a known time of earlier training.
    """
    resumed = record.resumed
    can_be = run.spec.recipe.compare_resumed
    return resumed is None or (can_be and resumed.trained_before_s is not None)


def _add_earlier_training(record: RunRecord) -> RunRecord:
    """Return the record with times that include the earlier training that it continues."""
    before_s = record.resumed.trained_before_s if record.resumed else None
    if before_s is None:
        return record
    found = record.phases
    train_s, whole_s = (found.train_time_s or 0.0) + before_s, found.execution_time_s + before_s
    phases = replace(found, train_time_s=train_s, execution_time_s=whole_s)
    return replace(record, phases=phases)


def row_without_record(
    run: PlannedRun, status: RunState, reason: str, record: str | None = None
) -> RunRow:
    """Return a row with the facts about a planned run that need no record.

    Args:
        run: The run.
        status: Its status.
        reason: Why it does not count.
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
    try:
        failure = attempts.read_failure(folder)
    except run_record.RecordError as error:
        return RunState.FAILED, str(error)
    if failure is not None:
        return RunState.FAILED, failure.cause.sentence
    if any(folder.glob("attempt=*")):
        return RunState.UNFINISHED, "still running, or killed before it could report"
    return RunState.MISSING, "not run yet"


#: Facts of the environment that all runs of a platform should share.
ENVIRONMENT_FACTS = (*COMPARED, "python", *PROGRAM_PACKAGES, "git_commit", "slurm_settings")
SEPARATOR = "; "
#: Returns the facts of a host, without facts that differ between any two hosts.
_comparable_facts = operator.attrgetter(
    *(name for name in HostFacts.__struct_fields__ if name not in ("machine", "gpu_uuids"))
)


def set_environment(row: RunRow, record: RunRecord) -> None:
    """Set the columns of a row's environment from its record, except `shared_with`."""
    environment, ranks = record.environment, record.ranks
    machines = dict.fromkeys(rank.host_facts.machine for rank in ranks)
    facts = _distinct_hosts(ranks)
    offsets_s = [abs(o) for r in ranks if (o := r.clock.offset_s) is not UNSET]
    uncertainties_s = [u for r in ranks if (u := r.clock.uncertainty_s) is not UNSET]
    for name in (*COMPARED, "python"):
        setattr(row, name, _join_distinct([getattr(fact, name) for fact in facts]))
    row.packages = {
        name: _join_distinct([fact.packages.get(name) for fact in facts])
        for name in PROGRAM_PACKAGES
    }
    row.hosts = " ".join(dict.fromkeys(rank.host for rank in ranks))
    # a rank without a known machine may share one: nothing is claimed about it
    row.machines = None if None in machines else " ".join(filter(None, machines))
    row.slowest_rank = record.metrics.slowest_rank
    row.slowest_host = record.metrics.slowest_host
    row.clock_offset_max_s = max(offsets_s, default=NAN)
    row.clock_uncertainty_max_s = max(uncertainties_s, default=NAN)
    row.cpu_mhz = min(filter(None, (fact.cpu_mhz for fact in facts)), default=NAN)
    row.cpus_online = min(filter(None, (fact.cpus_online for fact in facts)), default=None)
    row.git_commit = environment.git_commit
    row.slurm_settings = _fact_text(environment.slurm_settings)
    row.started = environment.started
    row.slurm_job_id = environment.slurm_job.id if environment.slurm_job else None
    if data := environment.dataset:
        row.dataset, row.dataset_sha256 = data.name, data.sha256
    row.unchecked = SEPARATOR.join(environment.unchecked) or None


def _distinct_hosts(ranks: Sequence[Rank]) -> list[HostFacts]:
    """Return the facts of the first rank's host, and of each rank whose host differs from it."""
    first, *others = (rank.host_facts for rank in ranks)
    usual = _comparable_facts(first)
    return [first, *(facts for facts in others if _comparable_facts(facts) != usual)]


def _fact_text(value: object) -> str | None:
    """Return a fact as the text of a cell: JSON unless it is a text; None for None."""
    if value is None or isinstance(value, str) or value in ((), {}):
        return str(value) if value else None
    return json.dumps(value, sort_keys=True)


def _join_distinct(values: Sequence[object]) -> str | None:
    """Return distinct facts as one text, separated by SEPARATOR; None without a fact."""
    return SEPARATOR.join(dict.fromkeys(filter(None, map(_fact_text, values)))) or None


def count_overlapping_runs(rows: Sequence[RunRow]) -> list[int | None]:
    """Return for each run how many others ran at the same time on one of its machines.

    On a virtual cluster all nodes are one machine. The result is None for a row without `machines`
    or `started`.
    """
    spans: dict[str, list[tuple[float, float, int]]] = {}
    found: list[int | None] = [None] * len(rows)
    for place, row in enumerate(rows):
        if row.machines is not None and row.started is not None:
            start_s = datetime.fromisoformat(row.started).timestamp()
            span = (start_s, start_s + row.wall_time_s, place)
            found[place] = 0
            for machine in row.machines.split():
                spans.setdefault(machine, []).append(span)
    others: list[set[int]] = [set() for _ in rows]
    for machine_spans in spans.values():
        if len(machine_spans) == 1:  # as nearly always
            continue
        running: list[tuple[float, int]] = []
        for start_s, end_s, place in sorted(machine_spans):
            running = [other for other in running if other[0] > start_s]
            for _, other in running:
                others[place].add(other)
                others[other].add(place)
            running.append((end_s, place))
    return [None if own is None else len(others[place]) for place, own in enumerate(found)]


def varying_facts(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Return fact → platforms on which it varies between valid runs, or between ranks of a run."""
    found: dict[str, list[str]] = {}
    for platform, group in runs[runs["status"] == "ok"].groupby("platform", sort=False):
        for fact in ENVIRONMENT_FACTS:
            values = group[fact].dropna().astype(str)
            if values.nunique() > 1 or values.str.contains(SEPARATOR, regex=False).any():
                found.setdefault(fact, []).append(str(platform))
    return found
