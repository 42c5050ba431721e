"""Metrics of runs and configurations: name, unit, direction, and how to read them from a record.

Tables, conclusions and plots take their columns from METRICS.
"""

from __future__ import annotations

import itertools
import operator
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET

from tfscaling.files.descriptions import descriptions
from tfscaling.record import run_record
from tfscaling.record.phases import PHASES, Phases
from tfscaling.record.rank_report import Above0, Amount, Epoch, Share
from tfscaling.record.run_record import RunRecord
from tfscaling.study.config_types import CAMPAIGN_METRICS, CLASSIFIER_METRICS, HELD_OUT, Quality


@dataclass(frozen=True)
class Metric:
    """A metric, which is a column of the tables.

    Attributes:
        title: Name for readers, such as `execution time`.
        unit: Unit, such as `s`; "" without one.
        direction: "lower" or "higher", whichever is better; another text if a recipe defines it.
        digits: Decimals of a value that has an interval.
        value: Function that reads the metric from a run record. It is None for metrics that are
            computed for the tables: from other configurations, prices, the recipe's quality or a
            target.
        best: Best possible value, such as 1 for accuracy; values are then compared by their
            distance from it.
        ends: Endings, such as `min`, of the columns for its spread over a configuration's runs.
        is_of_last_job: Whether a record contains only the last job's part of the metric, such as
            energy. The tables then have no value for a run that resumed in another job. The metric
            is not projected from a short run.
    """

    title: str
    unit: str
    direction: str  # "lower" or "higher"; each recipe has a direction for its quality
    digits: int
    value: Callable[[RunRecord], float | None] | None = None
    best: float | None = None
    ends: tuple[str, ...] = ()
    is_of_last_job: bool = False

    @property
    def is_higher_better(self) -> bool:
        """Whether higher values are better.

        Raises:
            ValueError: The metric has no direction, because each recipe defines it.
        """
        if self.direction not in ("lower", "higher"):
            raise ValueError(f"{self.title}: which value is better is known of a recipe's alone")
        return self.direction == "higher"


JOULES_PER_KWH = 3_600_000
#: Endings of the columns for a metric's minimum, maximum, and the interval of its median over the
#: runs of a configuration.
_RANGE = ("min", "max", "low", "high")
#: Endings of the columns for a bootstrap interval.
_INTERVAL = ("low", "high")


def _time_with_queue_s(record: RunRecord) -> float | None:
    """Return queue time plus boot time plus execution time; None if the first is unknown."""
    phases = record.phases
    if phases.queue_time_s is None:
        return None
    return phases.queue_time_s + (phases.boot_time_s or 0.0) + phases.execution_time_s


def _slurm_energy_kwh(record: RunRecord) -> float | None:
    """Return the energy that Slurm measured for the job, in kWh; None without a measurement."""
    job = record.environment.slurm_job
    energy_j = job.consumed_energy_j if job else None
    return None if energy_j is None else energy_j / JOULES_PER_KWH


#: The column with the metric by which a recipe compares its runs, whichever it is.
QUALITY = "quality"
#: A missing number.
NAN = float("nan")


def number_or_nan(value: float | None) -> float:
    """Return the value, or NaN in place of None, for a column of numbers."""
    return NAN if value is None else value


class RunMetrics(msgspec.Struct):
    """The metrics that are measured in a single run, in the order of the tables; NaN if missing.

    Fields without a description here have it in `Phases`, `run_record.Metrics` or `run_record.Use`.
    """

    execution_time_s: Above0 = NAN
    queue_time_s: Amount = NAN
    boot_time_s: Amount = NAN
    launch_time_s: Amount = NAN
    import_time_s: Amount = NAN
    rendezvous_time_s: Amount = NAN
    data_time_s: Amount = NAN
    build_time_s: Amount = NAN
    preparation_time_s: Amount = NAN
    first_step_time_s: Amount = NAN
    train_time_s: Amount = NAN
    program_time_s: Amount = NAN
    checkpoint_time_s: Amount = NAN
    evaluation_time_s: Amount = NAN
    probe_time_s: Amount = NAN
    teardown_time_s: Amount = NAN
    time_with_queue_s: Annotated[
        Amount,
        Metric(
            *("time with queue", "s", "lower", 1, _time_with_queue_s),
            ends=_RANGE,
            is_of_last_job=True,
        ),
    ] = NAN
    """Sum of queue_time_s, boot_time_s and execution_time_s: the time from the submission, which
    depends on the other jobs in the queue; null without Slurm."""
    step_time_s: Annotated[Amount, Metric("step time", "s", "lower", 5)] = NAN
    compute_time_s: Annotated[Amount, Metric("compute time", "s", "lower", 5)] = NAN
    synchronisation_time_s: Annotated[Amount, Metric("synchronisation time", "s", "lower", 5)] = NAN
    straggler_ratio: Annotated[Amount, Metric("straggler ratio", "", "lower", 2)] = NAN
    input_wait_s: Annotated[Amount, Metric("input wait", "s", "lower", 5)] = NAN
    throughput_examples_per_s: Annotated[
        Amount, Metric("throughput", "examples/s", "higher", 0)
    ] = NAN
    energy_kwh: Annotated[
        Amount, Metric("energy", "kWh", "lower", 5, ends=_RANGE, is_of_last_job=True)
    ] = NAN
    slurm_energy_kwh: Annotated[
        Amount,
        Metric("energy by Slurm", "kWh", "lower", 5, _slurm_energy_kwh, is_of_last_job=True),
    ] = NAN
    """Energy of the run's Slurm steps (ConsumedEnergy). The plugin AcctGatherEnergyType in
    slurm_settings determines whether it is the energy of complete nodes or of their processors;
    null without such a plugin. On shared nodes it includes other jobs."""
    gpu_busy_share: Annotated[Share, Metric("GPU busy", "", "higher", 3)] = NAN
    gpu_memory_gb: Annotated[Amount, Metric("GPU memory", "GB", "lower", 2)] = NAN
    rank_memory_gb: Annotated[Amount, Metric("rank memory", "GB", "lower", 2)] = NAN
    cpu_busy_share: Annotated[Share, Metric("CPU busy", "", "higher", 3)] = NAN
    loss: Annotated[float, Metric("loss", "", "lower", 4, ends=_RANGE)] = NAN
    accuracy: Annotated[Share, Metric("accuracy", "", "higher", 4, best=1.0, ends=_RANGE)] = NAN
    """Training accuracy: mean over the examples of the last epoch, each measured while its batch is
    trained."""
    test_loss: Annotated[float, Metric("test loss", "", "lower", 4)] = NAN
    test_accuracy: Annotated[
        Share, Metric("test accuracy", "", "higher", 4, best=1.0, ends=_RANGE)
    ] = NAN


class PointMetrics(RunMetrics):
    """The metrics of a configuration, from its runs and from comparisons with others."""

    quality: Annotated[float, Metric("quality", "", "as the recipe says", 4, ends=_RANGE)] = NAN
    """The metric by which runs of a recipe are compared: test_accuracy, unless the recipe's key
    quality names a different one. Column quality_metric has its name, unit and direction."""
    speedup: Annotated[Amount, Metric("speed-up", "", "higher", 2, ends=_INTERVAL)] = NAN
    """Median execution_time_s of the baseline divided by the configuration's median; null without
    one of them, or if they did not do the same training."""
    scaling_efficiency: Annotated[
        Amount, Metric("scaling efficiency", "", "higher", 2, ends=_INTERVAL)
    ] = NAN
    """Speed-up divided by (replicas / replicas of the baseline); null without a speed-up."""
    weak_scaling_efficiency: Annotated[
        Amount, Metric("weak scaling efficiency", "", "higher", 2, ends=_INTERVAL)
    ] = NAN
    """Median throughput per replica divided by the baseline's, without start-up. Only for recipes
    whose batch grows with the replicas; null for other recipes. The configurations may train
    different numbers of examples."""
    steady_state_speedup: Annotated[
        Amount, Metric("speed-up of the steady state", "", "higher", 2, ends=_INTERVAL)
    ] = NAN
    """Median throughput divided by the baseline's: the speed-up of the training steps alone,
    without start, compilation and reading of data."""
    share_of_peak: Annotated[Amount, Metric("share of peak", "", "higher", 3)] = NAN
    """FLOPs of training per second and replica (flops_per_example of the record × throughput /
    replicas), divided by the platform's peak_tflops at the precision; null if one is unknown."""
    cost_usd: Annotated[Amount, Metric("cost", "US dollars", "lower", 4, ends=_RANGE)] = NAN
    """nodes × price of a node and hour × (execution_time_s + seconds of the run's failed attempts)
    / 3600: billed by the second, without minimum charges, queue and boot. Cancelled attempts are
    not included."""
    node_hours: Annotated[Amount, Metric("node-hours", "h", "lower", 4, ends=_RANGE)] = NAN
    """nodes × (execution_time_s + seconds of the run's failed attempts) / 3600. Cancelled attempts
    are not included."""
    core_hours: Annotated[Amount, Metric("core-hours", "h", "lower", 4, ends=_RANGE)] = NAN
    """CPUs of the job on all nodes × (execution_time_s + seconds of the run's failed attempts) /
    3600. The number of CPUs is from Slurm, else cpus_per_node of the platform."""
    gpu_hours: Annotated[Amount, Metric("GPU-hours", "h", "lower", 4, ends=_RANGE)] = NAN
    """GPUs of the job on all nodes × (execution_time_s + seconds of the run's failed attempts) /
    3600; 0 without GPUs, also on logical devices."""
    energy_usd: Annotated[Amount, Metric("cost of energy", "US dollars", "lower", 5)] = NAN
    """energy_kwh × usd_per_kwh of the platform."""
    energy_kg_co2: Annotated[Amount, Metric("CO2", "kg", "lower", 5)] = NAN
    """energy_kwh × kg_co2_per_kwh of the platform."""
    time_to_target_s: Annotated[Amount, Metric("time to target", "s", "lower", 1, ends=_RANGE)] = (
        NAN
    )
    """Time from the trainer's start to the end of the first epoch or evaluation that reaches the
    target in `question.limits`, earlier evaluations included; null where a program reports no times
    of epochs."""
    cost_to_target_usd: Annotated[
        Amount, Metric("cost to target", "US dollars", "lower", 4, ends=_RANGE)
    ] = NAN
    """nodes × price of a node and hour × (time_to_target_s + seconds of the run's failed attempts)
    / 3600. Initialisation and evaluations are included. A configuration has a value only if all its
    valid runs reached the target."""
    published_execution_time_s: Annotated[
        Amount, Metric("published execution time", "s", "lower", 3)
    ] = NAN
    """Published execution time of this configuration."""
    execution_time_ratio: Annotated[
        Amount, Metric("execution time, measured over published", "", "lower", 2)
    ] = NAN
    """Measured execution time divided by the published one, if both did the same training."""
    published_loss: Annotated[Amount, Metric("published loss", "", "lower", 4)] = NAN
    """Published loss of this configuration."""
    loss_ratio: Annotated[float, Metric("loss, measured over published", "", "lower", 2)] = NAN
    """Measured loss divided by the published one, if both did the same training."""
    published_accuracy: Annotated[Share, Metric("published accuracy", "", "higher", 4)] = NAN
    """Published accuracy of this configuration."""
    accuracy_ratio: Annotated[
        Amount, Metric("accuracy, measured over published", "", "higher", 4)
    ] = NAN
    """Measured accuracy divided by the published one, if both did the same training."""


def describe_metrics() -> Mapping[str, str]:
    """Return name of each metric → its meaning in a sentence, for the page and the reference."""
    return descriptions(PointMetrics, run_record.Metrics, run_record.Use, Phases)


def _list_metrics() -> Iterator[tuple[str, Metric]]:
    """Yield (name, metric) for each field of PointMetrics, in their order."""
    hints = typing.get_type_hints(PointMetrics, include_extras=True)
    for name in PointMetrics.__struct_fields__:
        if phase := PHASES.get(name):
            ends = _RANGE if name == "execution_time_s" else ()
            value = operator.attrgetter(f"phases.{name}")
            yield name, Metric(phase.title, phase.unit, "lower", phase.digits, value, ends=ends)
            continue
        metric = hints[name].__metadata__[-1]
        for part, kind in (("metrics", run_record.Metrics), ("use", run_record.Use)):
            if metric.value is None and name in kind.__struct_fields__:
                metric = replace(metric, value=operator.attrgetter(f"{part}.{name}"))
        yield name, metric


#: The metrics of a configuration's campaign, which are simulated and no columns of the comparison.
FINISH_TIME, CAMPAIGN_COST = CAMPAIGN_METRICS
#: Column name → metric, for every metric.
METRICS: dict[str, Metric] = {
    **dict(_list_metrics()),
    FINISH_TIME: Metric("time until all trainings are done", "s", "lower", 0, ends=_INTERVAL),
    CAMPAIGN_COST: Metric("cost of all trainings", "US dollars", "lower", 2, ends=_INTERVAL),
}

#: Metrics of a training's result, which do not depend on how long it took.
RESULT_METRICS = ("loss", "accuracy", "test_loss", "test_accuracy")


def metric_by_name(name: str) -> Metric:
    """Return the metric with this name: one of METRICS, or else a quality that a recipe names."""
    return METRICS.get(name) or quality_metric(Quality(metric=name))


def quality_metric(quality: Quality) -> Metric:
    """Convert a recipe's Quality to a Metric.

    Title and digits are from METRICS if it has the metric; unit, direction and best value are the
    recipe's.
    """
    known = METRICS.get(quality.metric)
    return Metric(
        known.title if known else quality.title,
        quality.unit or "",
        quality.better or "",
        known.digits if known else METRICS[QUALITY].digits,
        best=quality.best_value,
    )


#: Why the time to a target is unknown although the run reached it.
_UNKNOWN = "the run's time to the target is not known: "
_NO_TIMES = f"{_UNKNOWN}the program does not report the time of each epoch"
_NO_MOMENTS = f"{_UNKNOWN}its record has no moments of epochs and checkpoints"


class RunQuality(NamedTuple):
    """Quality of a run, by its recipe's metric.

    Attributes:
        value: The value; None if it is missing.
        reason: Why it is missing, as a clause; "" if it is not.
    """

    value: float | None
    reason: str = ""


def quality_of_epoch(epoch: Epoch, metric: str) -> float | None:
    """Return the value of a metric after an epoch; None if it was not measured or is not finite.

    Args:
        epoch: The epoch in a record.
        metric: Name of the metric, such as `test_accuracy`.
    """
    if metric in CLASSIFIER_METRICS:
        value = getattr(epoch, metric)
        return None if value is UNSET else value
    return _reported_value(epoch, metric)


def quality_of_run(record: RunRecord, quality: Quality) -> RunQuality:
    """Return the quality at the end of a run.

    On training data it is from the last epoch, on held-out data from the last evaluation.

    Args:
        record: The record of the run.
        quality: The recipe's metric of quality.
    """
    metric, epochs = quality.metric, record.metrics.epochs
    is_of_record = metric in CLASSIFIER_METRICS
    if is_of_record and (value := getattr(record.metrics, metric)) is not None:
        return RunQuality(value)
    measured = [epoch for epoch in epochs if metric in _measured_names(epoch)]
    if measured and not is_of_record:
        last = measured[-1]
        if not quality.is_held_out and last is not epochs[-1]:
            reason = f"{metric} is of epoch {last.epoch}, not of the last, {epochs[-1].epoch}"
            return RunQuality(None, reason)
        if (value := quality_of_epoch(last, metric)) is not None:
            return RunQuality(value)
    if measured:
        value = _reported_value(measured[-1], metric)
        if value is not None:  # an accuracy in percent: another warning has the way out
            return RunQuality(None, f"{metric} {value:g} is no fraction from 0 to 1")
        return RunQuality(None, f"{metric} is not finite")
    known = dict.fromkeys(name for epoch in epochs for name in _measured_names(epoch))
    only = f", only {', '.join(known)}" if known else ""
    return RunQuality(None, f"the run measured no {metric}{only}")


def _reported_value(epoch: Epoch, metric: str) -> float | None:
    """Return the value that a program reported for a metric after an epoch.

    Args:
        epoch: The epoch in a record.
        metric: Name of the metric; metrics of held-out examples begin with `test_`.

    Returns:
        None if it was not reported or is not finite.
    """
    if metric.startswith(HELD_OUT):
        name = metric.removeprefix(HELD_OUT)
        return epoch.test_metrics.get(name, epoch.metrics.get(metric))
    return epoch.metrics.get(metric)


def _measured_names(epoch: Epoch) -> list[str]:
    """Return the names of the metrics that were measured after an epoch."""
    of_classifiers = [n for n in CLASSIFIER_METRICS if quality_of_epoch(epoch, n) is not None]
    own = [*epoch.metrics, *(HELD_OUT + name for name in epoch.test_metrics)]
    return list(dict.fromkeys([*of_classifiers, *own]))


class TargetTime(NamedTuple):
    """Whether a run reached a target, and after how many seconds.

    Attributes:
        is_reached: Whether an epoch or evaluation reached it.
        time_s: Seconds until then; None if it was not reached, or if the time is unknown.
        reason: Why the time is unknown, as a clause; "" if it is known.
    """

    is_reached: bool
    time_s: float | None = None
    reason: str = ""


def find_target_time(record: RunRecord, quality: Quality, target: float) -> TargetTime:
    """Return whether a run reached a target, and the time until it did.

    The time begins as execution_time_s does, with the trainer's first line, and ends with the first
    epoch or evaluation that reaches the target, as in MLPerf. The time of earlier attempts at a
    resumed run is included.

    Args:
        record: The record of the run.
        quality: The metric that has the target.
        target: The value to reach.
    """
    sign = 1.0 if quality.better == "higher" else -1.0

    def is_reached(value: float | None) -> bool:
        """Return whether a value is as good as the target, or better; False for None."""
        return value is not None and sign * value >= sign * target

    for number, epoch in enumerate(record.metrics.epochs, 1):
        for each in record.metrics.evaluations:
            found = each.metrics.get(quality.metric.removeprefix(HELD_OUT))
            if each.epoch == epoch.epoch and quality.is_held_out and is_reached(found):
                return TargetTime(True, each.ended_s, "" if each.ended_s is not None else _NO_TIMES)
        if is_reached(quality_of_epoch(epoch, quality.metric)):
            return _target_at_epoch(record, number)
    return TargetTime(False)


def _target_at_epoch(record: RunRecord, number: int) -> TargetTime:
    """Return the time at which a target was reached in an epoch.

    The record has no end time of an epoch that an earlier attempt trained. The time is then
    execution_time_s minus the durations of the later epochs, plus the evaluations up to this epoch.
    It is unknown if a later epoch has no duration, or if the run wrote checkpoints and trained
    later epochs.

    Args:
        record: The record of the run.
        number: Number of the epoch, from 1.
    """
    epochs, resumed = record.metrics.epochs, record.resumed
    evaluations_s = [epoch.evaluation_time_s or 0.0 for epoch in epochs[:number]]
    if (ended_s := epochs[number - 1].ended_s) is not None:
        if resumed is None:
            return TargetTime(True, ended_s)
        if resumed.trained_before_s is not None:
            before = [epoch.ended_s is None for epoch in epochs[:number]]
            earlier_s = sum(itertools.compress(evaluations_s, before))
            return TargetTime(True, resumed.trained_before_s + earlier_s + ended_s)
    later_s = [epoch.duration_s for epoch in epochs[number:]]
    known_s = [duration_s for duration_s in later_s if duration_s is not None]
    if len(known_s) < len(later_s):
        return TargetTime(True, None, _NO_TIMES)
    if later_s and record.phases.checkpoint_time_s:
        return TargetTime(True, None, _NO_MOMENTS)
    return TargetTime(True, record.phases.execution_time_s - sum(known_s) + sum(evaluations_s))
