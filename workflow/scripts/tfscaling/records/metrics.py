"""Metrics of a run: name, unit, direction and function of the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]


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
    value: Callable[[Record], float | None] | None = None


def _phase(name: str) -> Callable[[Record], float | None]:
    return lambda record: record["phases"].get(name)


def _final(name: str) -> Callable[[Record], float | None]:
    return lambda record: record["metrics"][name]


#: Every metric, by column name.
METRICS: dict[str, Metric] = {
    "execution_time_s": Metric("execution time", "s", "lower", 3, _phase("execution_time_s")),
    "queue_time_s": Metric("queue time", "s", "lower", 1, _phase("queue_time_s")),
    "boot_time_s": Metric("boot time", "s", "lower", 1, _phase("boot_time_s")),
    "launch_time_s": Metric("launch time", "s", "lower", 2, _phase("launch_time_s")),
    "import_time_s": Metric("import time", "s", "lower", 2, _phase("import_time_s")),
    "rendezvous_time_s": Metric("rendezvous time", "s", "lower", 2, _phase("rendezvous_time_s")),
    "data_time_s": Metric("data time", "s", "lower", 2, _phase("data_time_s")),
    "build_time_s": Metric("build time", "s", "lower", 2, _phase("build_time_s")),
    "first_step_time_s": Metric("first step time", "s", "lower", 2, _phase("first_step_time_s")),
    "train_time_s": Metric("train time", "s", "lower", 3, _phase("train_time_s")),
    "evaluation_time_s": Metric("evaluation time", "s", "lower", 2, _phase("evaluation_time_s")),
    "probe_time_s": Metric("probe time", "s", "lower", 2, _phase("probe_time_s")),
    "teardown_time_s": Metric("teardown time", "s", "lower", 2, _phase("teardown_time_s")),
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
