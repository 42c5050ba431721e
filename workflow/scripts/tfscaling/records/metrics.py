"""Metrics of a run: name, unit, direction and function of the record."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from tfscaling.records.phases import PHASES
from tfscaling.records.run_record import RunRecord


@dataclass(frozen=True)
class Metric:
    """A column: `direction` says which way is better; `value` reads it from a run record.

    A metric without `value` needs other points, prices or the configuration's target accuracy and
    is computed with the tables.
    """

    title: str
    unit: str
    direction: str  # "lower" or "higher"
    digits: int
    value: Callable[[RunRecord], float | None] | None = None


def _of_phase(name: str) -> Metric:
    phase = PHASES[name]
    value = operator.attrgetter(f"phases.{name}")
    return Metric(phase.title, phase.unit, "lower", phase.digits, value)


def _final(name: str) -> Callable[[RunRecord], float | None]:
    return operator.attrgetter(f"metrics.{name}")


#: Every metric, by column name.
METRICS: dict[str, Metric] = {
    "execution_time_s": _of_phase("execution_time_s"),
    **{name: _of_phase(name) for name in PHASES if name != "execution_time_s"},
    "step_time_s": Metric("step time", "s", "lower", 5, _final("step_time_s")),
    "compute_time_s": Metric("compute time", "s", "lower", 5, _final("compute_time_s")),
    "synchronisation_time_s": Metric(
        "synchronisation time", "s", "lower", 5, _final("synchronisation_time_s")
    ),
    "straggler_ratio": Metric("straggler ratio", "", "lower", 2, _final("straggler_ratio")),
    "throughput_examples_per_s": Metric(
        "throughput", "examples/s", "higher", 0, _final("throughput_examples_per_s")
    ),
    "loss": Metric("loss", "", "lower", 4, _final("loss")),
    "accuracy": Metric("accuracy", "", "higher", 4, _final("accuracy")),
    "test_loss": Metric("test loss", "", "lower", 4, _final("test_loss")),
    "test_accuracy": Metric("test accuracy", "", "higher", 4, _final("test_accuracy")),
    "speedup": Metric("speed-up", "", "higher", 2),
    "scaling_efficiency": Metric("scaling efficiency", "", "higher", 2),
    "steady_state_speedup": Metric("speed-up of the steady state", "", "higher", 2),
    "cost_usd": Metric("cost", "US dollars", "lower", 4),
    "time_to_accuracy_s": Metric("time to target accuracy", "s", "lower", 1),
    "cost_to_accuracy_usd": Metric("cost to target accuracy", "US dollars", "lower", 4),
    "published_execution_time_s": Metric("published execution time", "s", "lower", 3),
    "execution_time_ratio": Metric("execution time, measured over published", "", "lower", 2),
    "published_loss": Metric("published loss", "", "lower", 4),
    "loss_ratio": Metric("loss, measured over published", "", "lower", 2),
    "published_accuracy": Metric("published accuracy", "", "higher", 4),
    "accuracy_ratio": Metric("accuracy, measured over published", "", "higher", 4),
}
