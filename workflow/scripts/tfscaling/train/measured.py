"""Values that a rank measures of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tfscaling.record.rank_report import Epoch, Execution, WentOn


class Measured(NamedTuple):
    """Means over the examples of an epoch, or over the held-out ones; over all replicas.

    `accuracy` is None if a custom model measures none; `metrics` are the metrics of such a model,
    by name.
    """

    loss: float
    accuracy: float | None
    examples: float
    metrics: dict[str, float] = {}


def measured_by_sums(loss: float, correct: float, examples: float) -> Measured:
    """From sums over examples of a classifier's loss and of its correct answers."""
    return Measured(loss / examples, correct / examples, examples)


def measured_by_itself(examples: float, results: Mapping[str, float]) -> Measured:
    """From what a model that trains itself found; its accuracy is the metric of that name.

    If none is called accuracy, it is the only one whose name ends so.
    """
    metrics = {name: value for name, value in results.items() if name != "loss"}
    named = [name for name in metrics if name.endswith("accuracy")]
    name = "accuracy" if "accuracy" in metrics else (named[0] if len(named) == 1 else None)
    accuracy = None if name is None or not 0 <= metrics[name] <= 1 else metrics[name]
    return Measured(results["loss"], accuracy, examples, metrics)


@dataclass
class Result:
    """What one rank measured.

    `epochs`: loss and accuracy are means over the epoch's examples while they are trained.
    A loss is the total one, as Keras reports it: with the model's own losses, such as regularisers.
    `examples_trained`: over all epochs and replicas, counted by the steps; padding is not counted.
    `evaluations`: how many were made. `is_short`: `stop_after_steps` ended the training.
    `went_on`: the place in the training from which this attempt resumed; the steps are this
    attempt's. `diverged`: what is not finite, from which epoch on; "" if all is. A loss that is NaN
    or infinite is None everywhere else: no JSON has it.
    """

    epochs: list[Epoch] = field(default_factory=list)
    steps: list[Execution] = field(default_factory=list)
    test_loss: float | None = None
    test_accuracy: float | None = None
    went_on: WentOn | None = None
    examples_trained: int = 0
    diverged: str = ""
    evaluations: int = 0
    is_short: bool = False

    @property
    def input_wait_s(self) -> float | None:
        """Mean wait for input in a step after the first execution; None if there was none."""
        later = self.steps[1:]
        waited_s = sum(execution.input_wait_s for execution in later)
        return waited_s / sum(execution.steps for execution in later) if waited_s else None

    def finite(self, name: str, value: float, epoch: int) -> float | None:
        """The value if it is a number; else None, and the training has diverged."""
        if math.isfinite(value):
            return value
        found = "NaN" if math.isnan(value) else "infinite"
        self.diverged = self.diverged or f"{name} is {found} from epoch {epoch}"
        return None


def described(loss: float | None, found: Measured) -> str:
    """Loss, accuracy and the model's own metrics in words."""
    values = {"accuracy": found.accuracy, **found.metrics}
    texts = [f"{name} {value:.4f}" for name, value in values.items() if value is not None]
    return ", ".join([f"loss {'not finite' if loss is None else f'{loss:.4f}'}", *texts])


def finite_only(metrics: dict[str, float]) -> dict[str, float | None]:
    """Values that are NaN or infinite are None: no JSON has them."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
