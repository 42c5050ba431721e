"""Times, metrics, costs and targets in the row of a run, measured or projected from a short run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from tfscaling.record import (
    metrics,
)
from tfscaling.record.metrics import METRICS, NAN, RunMetrics, number_or_nan
from tfscaling.record.run_record import RunRecord, ShortRun
from tfscaling.record.run_states import RunState
from tfscaling.record.step_estimates import ProjectedTraining
from tfscaling.study import platforms
from tfscaling.study.config_types import Quality
from tfscaling.study.manifest import PlannedRun
from tfscaling.tables.row_types import SEPARATOR, RunRow
from tfscaling.tables.row_values import is_known

#: Metrics that are measured in a single run.
RUN_METRICS = RunMetrics.__struct_fields__
#: The times and rates among RUN_METRICS.
TIME_METRICS = tuple(name for name in RUN_METRICS if name not in metrics.RESULT_METRICS)
#: Columns of the time that a run occupies its nodes, cores and GPUs.
HOURS = ("node_hours", "core_hours", "gpu_hours")
#: Columns that are computed from the times of a run.
_TIME_BASED_COLUMNS = (
    *("cost_usd", *HOURS, "energy_usd", "energy_kg_co2", "share_of_peak"),
    *("time_to_target_s", "cost_to_target_usd", "projection_error_s"),
)


def exclude_times(row: RunRow, sharing: int) -> None:
    """Remove the times of a run that shared CPU cores with other runs; its quality still counts.

    Slurm gives each job separate cores. The local launcher does not.

    Args:
        row: The row to change.
        sharing: Number of runs that ran at the same time.
    """
    for name in (*TIME_METRICS, *_TIME_BASED_COLUMNS):
        setattr(row, name, NAN)
    row.projected_from_steps = row.projected_to_steps = None
    if row.status == RunState.OK:
        row.untimed_reason = "overlapping"
    others = "another run" if sharing == 1 else f"{sharing} other runs"
    note = f"it ran at the same time as {others} on this machine: its times are not compared"
    row.warnings = SEPARATOR.join(filter(None, [row.warnings, note]))


def set_target_results(
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


def set_measurements(
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
    is_timed = has_compared_times(run, record)
    row.untimed_reason = None if is_timed else "resumed"
    record = _add_earlier_training(record) if is_timed else record
    _set_metrics(row, record, RUN_METRICS if is_timed else metrics.RESULT_METRICS)
    if run.peak_tflops is not None:
        reached = number_or_nan(record.metrics.flops_per_example) * row.throughput_examples_per_s
        row.share_of_peak = reached / run.spec.replicas / (run.peak_tflops * 1e12)
    row.quality = number_or_nan(metrics.quality_of_run(record, run.spec.recipe.quality).value)
    if record.resumed is not None:
        _remove_metrics_of_last_job(row)
    else:
        row.energy_of = record.use.energy_of or None
        row.energy_usd = row.energy_kwh * number_or_nan(run.usd_per_kwh)
        row.energy_kg_co2 = row.energy_kwh * number_or_nan(run.kg_co2_per_kwh)
    row.cost_usd = _cost_usd(run, row.execution_time_s)
    _set_hours(row, run, record)


def _remove_metrics_of_last_job(row: RunRow) -> None:
    """For a resumed or a short run, set metrics to NaN that are of its last job only.

    Such as energy: earlier jobs are not in it, and the complete training takes more.
    """
    for name in RUN_METRICS:
        if METRICS[name].is_of_last_job:
            setattr(row, name, NAN)


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
        row.untimed_reason = "not steady"
        return
    _set_metrics(row, replace(record, phases=whole.phases), TIME_METRICS)
    _remove_metrics_of_last_job(row)
    row.cost_usd = _cost_usd(run, row.execution_time_s)
    _set_hours(row, run, record)
    row.projected_from_steps, row.projected_to_steps = short.steps, short.steps_of_whole
    row.projection_error_s = number_or_nan(whole.error_s)


def has_compared_times(run: PlannedRun, record: RunRecord) -> bool:
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
