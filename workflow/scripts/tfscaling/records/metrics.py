"""Metrics of a run: name, unit, direction and function of the record."""

from __future__ import annotations

import operator
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace

from tfscaling.records import gradient_noise, run_record
from tfscaling.records.phases import PHASES
from tfscaling.records.run_record import RunRecord
from tfscaling.study.config import Quality


@dataclass(frozen=True)
class Metric:
    """A column: `direction` says which way is better; `value` reads it from a run record.

    `meaning` defines it for readers of the report.

    A metric without `value` needs other points, prices, the recipe's quality or a target and is
    computed with the tables. Values of a metric with a `best` possible one are compared by how far
    they are from it: an accuracy by its error, 1 - accuracy.
    """

    title: str
    unit: str
    direction: str  # "lower" or "higher"; of the quality, that of each recipe
    digits: int
    value: Callable[[RunRecord], float | None] | None = None
    meaning: str = ""
    best: float | None = None

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


#: The metric that a recipe says its runs are compared by, whatever that is.
QUALITY = "quality"
#: Every metric, by column name.
METRICS: dict[str, Metric] = {
    "execution_time_s": _of_phase("execution_time_s"),
    **{name: _of_phase(name) for name in PHASES if name != "execution_time_s"},
    "time_with_queue_s": Metric(
        "time with queue",
        "s",
        "lower",
        1,
        _time_with_queue_s,
        "queue_time_s, boot_time_s and execution_time_s together: from the submission, as long as "
        "the run waited behind others then; null without Slurm.",
    ),
    "step_time_s": _measured("step_time_s", "step time", "s", "lower", 5),
    "compute_time_s": _measured("compute_time_s", "compute time", "s", "lower", 5),
    "synchronisation_time_s": _measured(
        "synchronisation_time_s", "synchronisation time", "s", "lower", 5
    ),
    "straggler_ratio": _measured("straggler_ratio", "straggler ratio", "", "lower", 2),
    "input_wait_s": _measured("input_wait_s", "input wait", "s", "lower", 5),
    "gradient_noise_scale": replace(
        _measured("gradient_noise_scale", "gradient noise scale", "examples", "higher", 0),
        # from the norms: records of before have a scale of all evaluations together
        value=lambda record: gradient_noise.scale(record.metrics.gradient_norms),
    ),
    "throughput_examples_per_s": _measured(
        "throughput_examples_per_s", "throughput", "examples/s", "higher", 0
    ),
    "loss": _measured("loss", "loss", "", "lower", 4),
    "accuracy": _measured(
        "accuracy",
        "accuracy",
        "",
        "higher",
        4,
        "Mean over the last epoch's batches while they are trained.",
    ),
    "test_loss": _measured("test_loss", "test loss", "", "lower", 4),
    "test_accuracy": _measured("test_accuracy", "test accuracy", "", "higher", 4),
    QUALITY: _compared(
        "quality",
        "",
        "as the recipe says",
        4,
        "The metric by which runs of a recipe are compared (quality_metric, with its unit and "
        "direction): test_accuracy unless the recipe's key quality names another.",
    ),
    "speedup": _compared(
        "speed-up",
        "",
        "higher",
        2,
        "How many times as fast as the baseline: see the formulae below.",
    ),
    "scaling_efficiency": _compared(
        "scaling efficiency",
        "",
        "higher",
        2,
        "Speed-up per replica, relative to the baseline: see below.",
    ),
    "steady_state_speedup": _compared(
        "speed-up of the steady state",
        "",
        "higher",
        2,
        "Median throughput over that of the baseline: what more nodes bring once training runs,"
        " without start, compilation and data.",
    ),
    "cost_usd": _compared(
        "cost",
        "US dollars",
        "lower",
        4,
        "nodes × price of a node and hour × (execution_time_s + failed attempts at the run) / "
        "3600: prorated by the second, without minimum charges, queue or boot.",
    ),
    "time_to_target_s": _compared(
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
    ),
    "cost_to_target_usd": _compared(
        "cost to target",
        "US dollars",
        "lower",
        4,
        "nodes × price of a node and hour × time_to_target_s / 3600: initialisation and "
        "evaluations are paid for; a point has a value only if all its valid runs reached the "
        "target.",
    ),
    "published_execution_time_s": _compared(
        "published execution time", "s", "lower", 3, "The published value of the same point."
    ),
    "execution_time_ratio": _compared(
        "execution time, measured over published",
        "",
        "lower",
        2,
        "Measured over published, if both did the same training.",
    ),
    "published_loss": _compared(
        "published loss", "", "lower", 4, "The published value of the same point."
    ),
    "loss_ratio": _compared(
        "loss, measured over published",
        "",
        "lower",
        2,
        "Measured over published, if both did the same training.",
    ),
    "published_accuracy": _compared(
        "published accuracy", "", "higher", 4, "The published value of the same point."
    ),
    "accuracy_ratio": _compared(
        "accuracy, measured over published",
        "",
        "higher",
        4,
        "Measured over published, if both did the same training.",
    ),
}


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
