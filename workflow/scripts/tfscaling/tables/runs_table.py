"""The table of runs: one row per run.

Nothing is dropped: a run that failed, is missing, or was made with other parameters is a row with
its reason, and is excluded from medians and speed-ups.
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

from tfscaling.record import (
    attempts,
    metrics,
    prepared_data,
    run_record,
    run_states,
    step_estimates,
)
from tfscaling.record.metrics import METRICS, NAN, RunMetrics, number
from tfscaling.record.rank_report import COMPARED, PROGRAM_PACKAGES, Epoch, HostFacts, Rank
from tfscaling.record.run_record import DoesNotFit, PreparedData, RunRecord, ShortRun, StepBlock
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.record.step_estimates import Projected
from tfscaling.study import platforms
from tfscaling.study.config_types import Quality
from tfscaling.study.manifest import PlannedRun
from tfscaling.tables import row_values, table_files
from tfscaling.tables.row_types import EpochRow, RunRow, columns
from tfscaling.tables.row_values import is_known
from tfscaling.tables.steady_epochs import steady_place

SIZES = ("replicas", "per_replica_batch_size", "global_batch_size", "batch_scaling")
#: Points that share these are compared with each other: the same work on the same platform.
SERIES_AXES = ("platform", "model", "strategy", "recipe")
#: Metrics that a run has by itself.
RUN_METRICS = RunMetrics.__struct_fields__
#: The columns of times and rates among them.
TIMES_OF_RUNS = tuple(name for name in RUN_METRICS if name not in metrics.OF_RESULTS)
#: For short runs: the steps that they trained, and the steps of the whole training.
PROJECTED = ("projected_from_steps", "projected_to_steps")
#: Columns of the time that a run occupies its nodes, cores and GPUs.
HOURS = ("node_hours", "core_hours", "gpu_hours")
#: Columns that follow from the times of a run.
_OF_TIMES = (
    *("cost_usd", *HOURS, "energy_usd", "energy_kg_co2", "share_of_peak"),
    *("time_to_target_s", "cost_to_target_usd", "projection_error_s"),
)
RUN_COLUMNS = tuple(columns(RunRow))
#: How the reason of a missing run begins that a run before it has ruled out.
NEAREST = "the nearest record has other parameters"
NOT_RUN = "not run"
EPOCH_COLUMNS = tuple(columns(EpochRow))


class _Run(NamedTuple):
    """The row of a planned run; if it has a record that counts or diverged, what is in it."""

    row: RunRow
    epochs: tuple[Epoch, ...] = ()
    data: PreparedData | None = None
    #: Seconds of earlier attempts whose training the record continues.
    before_s: float = 0.0
    #: The epochs after the first, if a longer training is projected from them.
    steady: tuple[StepBlock, ...] = ()


def run_tables(
    planned: Sequence[PlannedRun],
    runs_dir: Path,
    targets: Mapping[str, float] = types.MappingProxyType({}),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the tables of runs and of epochs: one row per planned run, one per epoch of each record.

    Extra repeats of a search have a row once they were started. A stale run has a `record`: it is
    rerun only on request. A valid run without quality, or one that
    reached a target at an unknown time, has the reason in `warnings`.

    Args:
        planned: The runs of the manifest.
        runs_dir: The folder of the runs.
        targets: For metrics of a quality, the value to reach.

    Returns:
        The runs, as `RunRow`s; and the epochs, with EPOCH_COLUMNS and columns for other metrics
        that are a recipe's quality, or the same in training.
    """
    runs, epochs, kept = [], [], []
    named = ((q.in_training, q.metric) for q in (run.spec.recipe.quality for run in planned))
    own_metrics = [*dict.fromkeys(name for both in named for name in both)]
    own_metrics = [name for name in own_metrics if name not in EPOCH_COLUMNS]
    # of each record only what the tables need is kept: thousands of them would fill the memory
    read = [_read_run(run, runs_dir, targets) for run in planned]
    numbers_of: dict[tuple[str, int], list[int]] = {}
    for n, each in enumerate(read):
        if each.steady:
            key = planned[n].spec.point.path, len(each.steady)
            numbers_of.setdefault(key, []).append(n)
    for numbers in numbers_of.values():
        if place := steady_place([read[n].steady for n in numbers]):
            for n in numbers:
                read[n] = _read_run(planned[n], runs_dir, targets, place)
    other_data = run_states.other_data(
        [run.data for run in read], prepared_data.folder_beside(runs_dir)
    )
    for run, (row, of_run, _, before_s, _), reason in zip(planned, read, other_data, strict=True):
        if reason:
            row, of_run = planned_row(run, RunState.STALE, reason, row.record), ()
        if run.extra_repeat and row.status == RunState.MISSING:
            continue  # a repeat that its point did not need, or not yet
        _add_failed_attempts(run, row, runs_dir, before_s)
        runs.append(row)
        kept.append(run)
        whose = (*run.spec.axes.values(), row.status)
        epochs += [(*whose, *_of_epoch(epoch, own_metrics)) for epoch in of_run]
    _add_reasons_of_size(kept, runs)
    for run, row, sharing in zip(kept, runs, shared_with(runs), strict=True):
        row.shared_with = sharing
        if sharing and run.spec.measured.launcher == "local":
            _exclude_times(row, sharing)
    # "2+1" is a value of this axis too: text here as in the file
    text = {"tasks_per_node": str}
    return (
        table_files.frame(RunRow, runs),
        pd.DataFrame(epochs, columns=[*EPOCH_COLUMNS, *own_metrics]).astype(text),
    )


def _exclude_times(row: RunRow, sharing: int) -> None:
    """Leave the times of a run out, which took the cores of other runs; its quality counts.

    Slurm gives each job its own cores. The local launcher gives none: runs share all of them.
    """
    for name in (*TIMES_OF_RUNS, *_OF_TIMES):
        setattr(row, name, NAN)
    row.projected_from_steps = row.projected_to_steps = None
    others = "another run" if sharing == 1 else f"{sharing} other runs"
    note = f"it ran at the same time as {others} on this machine: its times are not compared"
    row.warnings = SEPARATOR.join(filter(None, [row.warnings, note]))


def _add_reasons_of_size(planned: Sequence[PlannedRun], rows: Sequence[RunRow]) -> None:
    """Add the reason of missing runs of a batch that was not run because a smaller one did not fit.

    A batch is not run unless most runs of the next smaller one fit in memory. A missing run of a
    batch with a run that fits is only not run yet.
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
    """Add the time and cost of the failed attempts at the run.

    Without the `before_s` seconds of them that the run continues: these are in its own times. Cost
    and node-hours of a measured run include the attempts that nobody cancelled.
    """
    failed = attempts.FailedAttempts(0, 0.0)
    if row.attempt != 1:
        folder = runs_dir / run.spec.path
        failed = attempts.failed_attempts(folder)
    price, nodes = run.usd_per_node_hour, run.spec.point.nodes
    lost_s = max(0.0, failed.wall_time_s - before_s)
    row.failed_attempts, row.lost_time_s = failed.number, lost_s
    row.lost_cost_usd = number(platforms.run_cost_usd(price, nodes, lost_s))
    own_s = max(0.0, failed.own_time_s - before_s)
    if own_s and row.projected_from_steps is None:
        # what is unknown stays unknown
        own_usd = number(platforms.run_cost_usd(price, nodes, own_s))
        row.cost_usd += own_usd
        row.cost_to_target_usd += own_usd
        for name in HOURS:
            setattr(row, name, row[name] + row[name] / row.execution_time_s * own_s)


def _of_epoch(epoch: Epoch, own_metrics: Iterable[str]) -> tuple[float | None, ...]:
    """Return the values of EPOCH_COLUMNS after the status, and of the metrics."""
    test_loss, *own = (metrics.quality_of_epoch(epoch, n) for n in ("test_loss", *own_metrics))
    of_training = epoch.epoch, epoch.loss, epoch.accuracy, epoch.duration_s
    return *of_training, test_loss, epoch.test_accuracy, epoch.evaluation_time_s, *own


def _read_run(
    run: PlannedRun, runs_dir: Path, targets: Mapping[str, float], steady_from: int = 0
) -> _Run:
    """Read the record of a run; a longer training is projected from its blocks `steady_from`."""
    folder = runs_dir / run.spec.path
    try:
        found = run_states.find_record(run.spec, folder)
    except run_record.RecordError as error:
        return _Run(planned_row(run, RunState.FAILED, str(error)))
    if found is None:
        return _run_without_record(run, runs_dir)
    path, record = found
    failed = "" if path.parent == folder else _failed_rerun(folder, record.attempt)
    if reason := run_states.other_code(run.spec, record):
        reason = f"{failed}; attempt {record.attempt} was {reason}" if failed else reason
        return _Run(planned_row(run, RunState.STALE, reason, str(path)))
    if isinstance(record, DoesNotFit):
        return _Run(_without_memory(run, record, path), data=record.environment.dataset)
    notes = (failed,) if failed else ()
    return _with_record(run, record, path, targets, notes, steady_from)


def _without_memory(run: PlannedRun, record: DoesNotFit, path: Path) -> RunRow:
    """Make the row of a run that ran out of memory."""
    row = planned_row(run, RunState.DOES_NOT_FIT, record.reason, str(path))
    row.attempt = record.attempt
    for name in ("wall_time_s", "rank_memory_gb", "gpu_memory_gb", "memory_limit_gb"):
        setattr(row, name, number(getattr(record, name)))
    return row


def _run_without_record(run: PlannedRun, runs_dir: Path) -> _Run:
    """Return the row of a run without a record, with the reason."""
    folder = runs_dir / run.spec.path
    status, why = _why_no_record(folder)
    if status == RunState.MISSING and (change := run_states.nearest_change(run.spec, runs_dir)):
        why += f"; {NEAREST}: {change}"
    row = planned_row(run, status, why)
    if status == RunState.FAILED:
        row.failed_too_often = attempts.failed_too_often(folder)
    return _Run(row)


def _failed_rerun(folder: Path, kept: int) -> str:
    """Return that a repetition failed, so that the record of the attempt `kept` counts; else ""."""
    status, why = _why_no_record(folder)
    return f"it was rerun, to replace attempt {kept}: {why}" if status == RunState.FAILED else ""


def _with_record(
    run: PlannedRun,
    record: RunRecord,
    path: Path,
    targets: Mapping[str, float],
    notes: Sequence[str] = (),
    steady_from: int = 0,
) -> _Run:
    """Make the row of a run with a record of what is planned; `notes` are further warnings."""
    row = planned_row(run, RunState(record.validity.status), record.validity.reason)
    warnings = [*notes, *record.warnings]
    if not (is_timed := _is_timed(run, record)):
        warnings.append("its times are excluded from comparisons: see compare_resumed")
    row.attempt, row.record = record.attempt, str(path)
    add_environment(row, record)
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
        whole = step_estimates.projected(record, steady_from)
        _measure(row, run, record, whole)
        if whole is not None:
            warnings += [whole.trend.warning] * bool(whole.trend.warning)
        compared_by = run.spec.recipe.quality
        # a program that reports nothing of its training did not have to, and the
        # quality of a whole training is not projected
        if (
            is_whole
            and not is_known(row.quality)
            and (record.metrics.epochs or compared_by != Quality())
        ):
            warnings.append(metrics.quality_of_run(record, compared_by).reason)
        if is_whole and (target := targets.get(compared_by.metric)) is not None:
            reached = metrics.reached(_with_training_before(record), compared_by, target)
            row.target_reached = reached.is_reached
            if is_timed and reached.time_s is not None:
                row.time_to_target_s = reached.time_s
                row.cost_to_target_usd = _cost_usd(run, reached.time_s)
            warnings += [reached.reason] * bool(reached.reason and is_timed)
    row.warnings = SEPARATOR.join(warnings)
    of_whole = record.metrics.epochs if is_whole else ()
    return _Run(row, of_whole, record.environment.dataset, before_s, steady)


def _measure(row: RunRow, run: PlannedRun, record: RunRecord, whole: Projected | None) -> None:
    """Set metrics and costs of a valid run.

    A short run gets those projected to the complete training, without quality.
    """
    if whole is not None and record.short_run is not None:
        _project(row, run, record, record.short_run, whole)
        return
    is_timed = _is_timed(run, record)
    record = _with_training_before(record) if is_timed else record
    _set_metrics(row, record, RUN_METRICS if is_timed else metrics.OF_RESULTS)
    if run.peak_tflops is not None:
        reached = number(record.metrics.flops_per_example) * row.throughput_examples_per_s
        row.share_of_peak = reached / run.spec.replicas / (run.peak_tflops * 1e12)
    row.quality = number(metrics.quality_of_run(record, run.spec.recipe.quality).value)
    if record.resumed is not None:  # neither waits nor energy of earlier attempts are known
        row.time_with_queue_s = row.energy_kwh = NAN
    else:
        row.energy_of = record.use.energy_of or None
        row.energy_usd = row.energy_kwh * number(run.usd_per_kwh)
        row.energy_kg_co2 = row.energy_kwh * number(run.kg_co2_per_kwh)
    row.cost_usd = _cost_usd(run, row.execution_time_s)
    _set_hours(row, run, record)


def _set_metrics(row: RunRow, record: RunRecord, names: Iterable[str]) -> None:
    for name in names:
        setattr(row, name, number(METRICS[name].value(record)))  # type: ignore[misc]


def _set_hours(row: RunRow, run: PlannedRun, record: RunRecord) -> None:
    """Set the hours of nodes, cores and GPUs that the execution time of a run takes."""
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
    return number(platforms.run_cost_usd(run.usd_per_node_hour, run.spec.point.nodes, time_s))


def _project(
    row: RunRow, run: PlannedRun, record: RunRecord, short: ShortRun, whole: Projected
) -> None:
    """Set times and costs of the whole training as they are projected from a short run."""
    row.examples_trained = short.examples_of_whole
    if not whole.trend.is_over:
        return
    _set_metrics(row, replace(record, phases=whole.phases), TIMES_OF_RUNS)
    row.time_with_queue_s = NAN  # a short job waits for less time than the whole
    row.energy_kwh = NAN  # it is measured, never projected
    row.cost_usd = _cost_usd(run, row.execution_time_s)
    _set_hours(row, run, record)
    row.projected_from_steps, row.projected_to_steps = short.steps, short.steps_of_whole
    row.projection_error_s = number(whole.error_s)


def _is_timed(run: PlannedRun, record: RunRecord) -> bool:
    """Return whether its times are included in comparisons."""
    resumed = record.resumed
    can_be = run.spec.recipe.compare_resumed
    return resumed is None or (can_be and resumed.trained_before_s is not None)


def _with_training_before(record: RunRecord) -> RunRecord:
    """Add to the record the training of earlier attempts that the last one did not repeat."""
    before_s = record.resumed.trained_before_s if record.resumed else None
    if before_s is None:
        return record
    found = record.phases
    train_s, whole_s = (found.train_time_s or 0.0) + before_s, found.execution_time_s + before_s
    phases = replace(found, train_time_s=train_s, execution_time_s=whole_s)
    return replace(record, phases=phases)


def planned_row(
    run: PlannedRun, status: RunState, reason: str, record: str | None = None
) -> RunRow:
    """Make a row with the facts about a run that need no record."""
    spec, point = run.spec, run.spec.point
    compared_by = spec.recipe.quality
    return RunRow(
        **row_values.columns_of(point),  # type: ignore[arg-type]
        repeat=spec.repeat,
        devices=platforms.device_kind(point.gpus_per_node, spec.measured.devices),
        status=status,
        reason=reason,
        record=record,
        replicas=spec.replicas,
        per_replica_batch_size=spec.per_replica_batch_size,
        global_batch_size=spec.global_batch_size,
        batch_scaling=spec.recipe.batch_scaling,
        quality_metric=compared_by.metric,
        quality_direction=compared_by.better,
        quality_unit=compared_by.unit,
        quality_best=number(compared_by.best_value),
        usd_per_node_hour=number(run.usd_per_node_hour),
        parameters_hash=spec.parameters_hash,
    )


def _why_no_record(folder: Path) -> tuple[RunState, str]:
    """Return (status, reason) of a job that left no record in its folder."""
    try:
        failure = attempts.read_failure(folder)
    except run_record.RecordError as error:
        return RunState.FAILED, str(error)
    if failure is not None:
        return RunState.FAILED, failure.cause.sentence
    if any(folder.glob("attempt=*")):
        return RunState.UNFINISHED, "still running, or killed before it could report"
    return RunState.MISSING, "not run yet"


#: What should be the same in all runs of a platform.
ALIKE = (*COMPARED, "python", *PROGRAM_PACKAGES, "git_commit", "slurm_settings")
SEPARATOR = "; "
#: A host's facts, except facts that differ between any two hosts.
_comparable = operator.attrgetter(
    *(name for name in HostFacts.__struct_fields__ if name not in ("machine", "gpu_uuids"))
)


def add_environment(row: RunRow, record: RunRecord) -> None:
    """Set the environment of a run from its record, except `shared_with`, which needs all runs."""
    environment, ranks = record.environment, record.ranks
    machines = dict.fromkeys(rank.host_facts.machine for rank in ranks)
    facts = _differing(ranks)
    offsets_s = [abs(o) for r in ranks if (o := r.clock.offset_s) is not UNSET]
    uncertainties_s = [u for r in ranks if (u := r.clock.uncertainty_s) is not UNSET]
    for name in (*COMPARED, "python"):
        setattr(row, name, _distinct([getattr(fact, name) for fact in facts]))
    row.packages = {
        name: _distinct([fact.packages.get(name) for fact in facts]) for name in PROGRAM_PACKAGES
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
    row.slurm_settings = _text(environment.slurm_settings)
    row.started = environment.started
    row.slurm_job_id = environment.slurm_job.id if environment.slurm_job else None
    if data := environment.dataset:
        row.dataset, row.dataset_sha256 = data.name, data.sha256
    row.unchecked = SEPARATOR.join(environment.unchecked) or None


def _differing(ranks: Sequence[Rank]) -> list[HostFacts]:
    """Return the facts of the first rank, and of ranks that differ beyond host-specific fields."""
    first, *others = (rank.host_facts for rank in ranks)
    usual = _comparable(first)
    return [first, *(facts for facts in others if _comparable(facts) != usual)]


def _text(value: object) -> str | None:
    """Return a text as it is, other values as JSON; None for none."""
    if value is None or isinstance(value, str) or value in ((), {}):
        return str(value) if value else None
    return json.dumps(value, sort_keys=True)


def _distinct(values: Sequence[object]) -> str | None:
    return SEPARATOR.join(dict.fromkeys(filter(None, map(_text, values)))) or None


def shared_with(rows: Sequence[RunRow]) -> list[int | None]:
    """Return for each run how many others ran at the same time on one of its machines.

    Such runs took each other's time: on a virtual cluster all nodes are one machine. A row needs
    `machines`, `started` and `wall_time_s`; None where a run has none.
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


def differences(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Return the facts that vary within a platform: fact → platforms.

    A fact varies if valid runs of a platform, or the ranks of one run, disagree about it.
    """
    found: dict[str, list[str]] = {}
    for platform, group in runs[runs["status"] == "ok"].groupby("platform", sort=False):
        for fact in ALIKE:
            values = group[fact].dropna().astype(str)
            if values.nunique() > 1 or values.str.contains(SEPARATOR, regex=False).any():
                found.setdefault(fact, []).append(str(platform))
    return found
