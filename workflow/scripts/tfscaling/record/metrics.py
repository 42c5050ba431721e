"""Metrics of a run: name, unit, direction and function of the record."""

from __future__ import annotations

import operator
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
from msgspec import Meta

from tfscaling.record import gradient_noise, run_record
from tfscaling.record.phases import PHASES
from tfscaling.record.run_record import RunRecord
from tfscaling.spec.config import Quality


@dataclass(frozen=True)
class Metric:
    """A column: `direction` says which way is better; `value` reads it from a run record.

    `meaning` defines it for readers of the report.

    A metric without `value` needs other points, prices, the recipe's quality or a target and is
    computed with the tables. Values of a metric with a `best` possible one are compared by how far
    they are from it: an accuracy by its error, 1 - accuracy.

    `ends` are the columns of its spread over the runs of a point, without the name of the metric.
    `of_points` describes the column of points where that refers to no formula of the report.
    """

    title: str
    unit: str
    direction: str  # "lower" or "higher"; of the quality, that of each recipe
    digits: int
    value: Callable[[RunRecord], float | None] | None = None
    meaning: str = ""
    best: float | None = None
    ends: tuple[str, ...] = ()
    of_points: str = ""

    @property
    def is_higher_better(self) -> bool:
        if self.direction not in ("lower", "higher"):
            raise ValueError(f"{self.title}: which value is better is known of a recipe's alone")
        return self.direction == "higher"


def _of_phase(name: str) -> Metric:
    phase = PHASES[name]
    value = operator.attrgetter(f"phases.{name}")
    return Metric(phase.title, phase.unit, "lower", phase.digits, value, phase.definition)


def _measured(
    name: str, title: str, unit: str, direction: str, digits: int, meaning: str = ""
) -> Metric:
    """A value of the record's metrics; its meaning is that of the record unless given."""
    hints = typing.get_type_hints(run_record.Metrics, include_extras=True)
    described = hints[name].__metadata__[-1].description
    value = operator.attrgetter(f"metrics.{name}")
    best = 1.0 if name.endswith("accuracy") else None
    return Metric(title, unit, direction, digits, value, meaning or described, best)


def _compared(title: str, unit: str, direction: str, digits: int, meaning: str) -> Metric:
    """A value that needs more than one record."""
    return Metric(title, unit, direction, digits, None, meaning)


def _time_with_queue_s(record: RunRecord) -> float | None:
    """None without Slurm, or where it does not tell."""
    phases = record.phases
    if phases.queue_time_s is None:
        return None
    return phases.queue_time_s + (phases.boot_time_s or 0.0) + phases.execution_time_s


def _gradient_noise_scale(record: RunRecord) -> float | None:
    """The scale from the norms: older records have a scale over all evaluations."""
    return gradient_noise.scale(record.metrics.gradient_norms)


def _with_range(metric: Metric) -> Metric:
    """The metric with minimum, maximum and the interval of the median over a point's runs."""
    return replace(metric, ends=("min", "max", "low", "high"))


def _with_interval(metric: Metric, of_points: str = "") -> Metric:
    """The metric with a bootstrap interval."""
    return replace(metric, ends=("low", "high"), of_points=of_points)


#: The metric that a recipe says its runs are compared by, whatever that is.
QUALITY = "quality"
#: A missing number.
NAN = float("nan")


def number(value: float | None) -> float:
    """The value as a number of a row: NaN for None."""
    return NAN if value is None else value


Amount = Annotated[float, Meta(ge=0)]
Above0 = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


#: Metrics that both runs and points have, but no record.
OF_QUALITY = _with_range(
    _compared(
        "quality",
        "",
        "as the recipe says",
        4,
        "The metric by which runs of a recipe are compared (quality_metric, with its unit and "
        "direction): test_accuracy unless the recipe's key quality names another.",
    )
)
COST = _with_range(
    _compared(
        "cost",
        "US dollars",
        "lower",
        4,
        "nodes × price of a node and hour × (execution_time_s + failed attempts at the run) / "
        "3600: prorated by the second, without minimum charges, queue or boot.",
    )
)
TIME_TO_TARGET = _with_range(
    _compared(
        "time to target",
        "s",
        "lower",
        1,
        "From the trainer's first line to the end of the first evaluation whose quality is as good "
        "as its target in comparison.targets, evaluations so far included; null where a program "
        "tells no times of the epochs after that. "
        "Without evaluation_interval_epochs in the recipe, the only evaluation is that after "
        "the last epoch. MLPerf's clock is the same, but lets initialisation of up to 30 "
        "minutes out.",
    )
)
COST_TO_TARGET = _with_range(
    _compared(
        "cost to target",
        "US dollars",
        "lower",
        4,
        "nodes × price of a node and hour × time_to_target_s / 3600: initialisation and "
        "evaluations are paid for; a point has a value only if all its valid runs reached the "
        "target.",
    )
)
_SPEEDUP = _with_interval(
    _compared(
        "speed-up",
        "",
        "higher",
        2,
        "How many times as fast as the baseline: see the formulae below.",
    ),
    "Median execution_time_s of the baseline over that of the point; null without either, or if "
    "they do not do the same work.",
)
_EFFICIENCY = _with_interval(
    _compared(
        "scaling efficiency",
        "",
        "higher",
        2,
        "Speed-up per replica, relative to the baseline: see below.",
    ),
    "Speed-up over the number of replicas relative to the baseline's; null without a speed-up.",
)
_STEADY_STATE_SPEEDUP = _with_interval(
    _compared(
        "speed-up of the steady state",
        "",
        "higher",
        2,
        "Median throughput over that of the baseline: what more nodes bring once training runs,"
        " without start, compilation and data.",
    )
)
_PUBLISHED = "The published value of the same point."
_OVER_PUBLISHED = "Measured over published, if both did the same training."


class RunMetrics(msgspec.Struct):
    """The metrics that a run has by itself, in the order of the tables; NaN where it has none."""

    execution_time_s: Annotated[Above0, _with_range(_of_phase("execution_time_s"))] = NAN
    queue_time_s: Annotated[Amount, _of_phase("queue_time_s")] = NAN
    boot_time_s: Annotated[Amount, _of_phase("boot_time_s")] = NAN
    launch_time_s: Annotated[Amount, _of_phase("launch_time_s")] = NAN
    import_time_s: Annotated[Amount, _of_phase("import_time_s")] = NAN
    rendezvous_time_s: Annotated[Amount, _of_phase("rendezvous_time_s")] = NAN
    data_time_s: Annotated[Amount, _of_phase("data_time_s")] = NAN
    build_time_s: Annotated[Amount, _of_phase("build_time_s")] = NAN
    first_step_time_s: Annotated[Amount, _of_phase("first_step_time_s")] = NAN
    train_time_s: Annotated[Amount, _of_phase("train_time_s")] = NAN
    program_time_s: Annotated[Amount, _of_phase("program_time_s")] = NAN
    checkpoint_time_s: Annotated[Amount, _of_phase("checkpoint_time_s")] = NAN
    evaluation_time_s: Annotated[Amount, _of_phase("evaluation_time_s")] = NAN
    probe_time_s: Annotated[Amount, _of_phase("probe_time_s")] = NAN
    teardown_time_s: Annotated[Amount, _of_phase("teardown_time_s")] = NAN
    time_with_queue_s: Annotated[
        Amount,
        _with_range(
            Metric(
                "time with queue",
                "s",
                "lower",
                1,
                _time_with_queue_s,
                "queue_time_s, boot_time_s and execution_time_s together: from the submission, as "
                "long as the run waited behind others then; null without Slurm.",
            )
        ),
    ] = NAN
    step_time_s: Annotated[Amount, _measured("step_time_s", "step time", "s", "lower", 5)] = NAN
    compute_time_s: Annotated[
        Amount, _measured("compute_time_s", "compute time", "s", "lower", 5)
    ] = NAN
    synchronisation_time_s: Annotated[
        Amount, _measured("synchronisation_time_s", "synchronisation time", "s", "lower", 5)
    ] = NAN
    straggler_ratio: Annotated[
        Amount, _measured("straggler_ratio", "straggler ratio", "", "lower", 2)
    ] = NAN
    input_wait_s: Annotated[Amount, _measured("input_wait_s", "input wait", "s", "lower", 5)] = NAN
    gradient_noise_scale: Annotated[
        Amount,
        replace(
            _measured("gradient_noise_scale", "gradient noise scale", "examples", "higher", 0),
            value=_gradient_noise_scale,
        ),
    ] = NAN
    throughput_examples_per_s: Annotated[
        Amount, _measured("throughput_examples_per_s", "throughput", "examples/s", "higher", 0)
    ] = NAN
    loss: Annotated[float, _with_range(_measured("loss", "loss", "", "lower", 4))] = NAN
    accuracy: Annotated[
        Share,
        _with_range(
            _measured(
                "accuracy",
                "accuracy",
                "",
                "higher",
                4,
                "Mean over the last epoch's batches while they are trained.",
            )
        ),
    ] = NAN
    test_loss: Annotated[float, _measured("test_loss", "test loss", "", "lower", 4)] = NAN
    test_accuracy: Annotated[
        Share, _with_range(_measured("test_accuracy", "test accuracy", "", "higher", 4))
    ] = NAN


class PointMetrics(RunMetrics):
    """The metrics of a point over its runs: also those that need other points or prices."""

    quality: Annotated[float, OF_QUALITY] = NAN
    speedup: Annotated[Amount, _SPEEDUP] = NAN
    scaling_efficiency: Annotated[Amount, _EFFICIENCY] = NAN
    steady_state_speedup: Annotated[Amount, _STEADY_STATE_SPEEDUP] = NAN
    cost_usd: Annotated[Amount, COST] = NAN
    time_to_target_s: Annotated[Amount, TIME_TO_TARGET] = NAN
    cost_to_target_usd: Annotated[Amount, COST_TO_TARGET] = NAN
    published_execution_time_s: Annotated[
        Amount, _compared("published execution time", "s", "lower", 3, _PUBLISHED)
    ] = NAN
    execution_time_ratio: Annotated[
        Amount,
        _compared("execution time, measured over published", "", "lower", 2, _OVER_PUBLISHED),
    ] = NAN
    published_loss: Annotated[Amount, _compared("published loss", "", "lower", 4, _PUBLISHED)] = NAN
    loss_ratio: Annotated[
        float, _compared("loss, measured over published", "", "lower", 2, _OVER_PUBLISHED)
    ] = NAN
    published_accuracy: Annotated[
        Share, _compared("published accuracy", "", "higher", 4, _PUBLISHED)
    ] = NAN
    accuracy_ratio: Annotated[
        Amount, _compared("accuracy, measured over published", "", "higher", 4, _OVER_PUBLISHED)
    ] = NAN


def _listed() -> dict[str, Metric]:
    hints = typing.get_type_hints(PointMetrics, include_extras=True)
    names = PointMetrics.__struct_fields__
    return {name: hints[name].__metadata__[-1] for name in names}


#: Every metric, by column name.
METRICS: dict[str, Metric] = _listed()

#: Metrics of what a run gives, however long it took.
OF_RESULTS = ("loss", "accuracy", "test_loss", "test_accuracy", "gradient_noise_scale")


def named(name: str) -> Metric:
    """The metric of this name: one of METRICS, or one that a recipe names as its quality."""
    return METRICS.get(name) or of_quality(Quality(metric=name))


def of_quality(quality: Quality) -> Metric:
    """The metric that a recipe names as its quality; one in METRICS has its meaning and digits."""
    known = METRICS.get(quality.metric)
    return Metric(
        known.title if known else quality.title,
        quality.unit or "",
        quality.better or "",
        known.digits if known else METRICS[QUALITY].digits,
        meaning=known.meaning if known else METRICS[QUALITY].meaning,
        best=quality.best_value,
    )
