"""Values that a rank measures of a training, and steps with and without input and synchronisation.

Steps are made after a training, in blocks of steps of one way. A pipeline makes batches ahead,
which would hide how long one takes: before a block with real input these are taken out, and before
a block without input the pipeline gets the time to fill up, after which it takes no more of the
CPU.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tfscaling.record.rank_report import AttributionRound, Epoch, Execution, WentOn


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


#: An interval of the median over twelve rounds leaves out the two least and the two greatest.
ROUNDS = 12
#: Steps of a block that are not counted, after which all ranks are in step.
UNCOUNTED_STEPS = 2
#: Duration of the counted steps, and bounds of their number.
BLOCK_S, COUNTED_MIN, COUNTED_MAX = 0.1, 5, 100
#: At most this many ready batches of a pipeline are looked for.
READY_MAX = 20
#: It is given the time to make this many batches, up to a maximum.
FILLED_BATCHES, FILLED_MAX_S = 6, 1.0


class Steps(NamedTuple):
    """What a rank does with a batch; each returns when it is done."""

    train: Callable[[Any], Any]
    #: Forward and backward pass alone, without the other ranks.
    compute: Callable[[Any], Any]
    #: The mean of the ranks' values; the ranks then continue together.
    mean: Callable[[float], float]


class _Way(NamedTuple):
    prepare: Callable[[], None]
    batches: Iterator[Any]
    step: Callable[[Any], Any]


def measure(
    steps: Steps,
    real: Iterator[Any],
    kept: Iterator[Any],
    seed: int,
    sign_of_life: Callable[[int], None],
) -> list[AttributionRound]:
    """Seconds of a step in each way, ROUNDS times.

    `real` and `kept` are endless: batches of the pipeline, and batches that are on the devices
    already. The order of the ways is random by `seed`, the same on all ranks, as are the numbers of
    steps. `sign_of_life` is told the number of rounds before each block.
    """
    for compiled in (steps.train, steps.compute):
        compiled(next(kept))
    pipeline = _Pipeline(real)
    ways = [
        _Way(prepare, batches, step)
        for step in (steps.train, steps.compute)
        for prepare, batches in ((pipeline.drain, real), (pipeline.fill, kept))
    ]
    lengths = [_counted(steps.mean(_step_time_s(way, COUNTED_MIN, steps.mean))) for way in ways]
    random, found = np.random.default_rng(seed), []
    for number in range(ROUNDS):
        seconds = {}
        for place in random.permutation(len(ways)).tolist():
            seconds[place] = _step_time_s(ways[place], lengths[place], steps.mean)
            sign_of_life(number)
        found.append(AttributionRound(*(seconds[place] for place in range(len(ways)))))
    return found


def _counted(step_time_s: float) -> int:
    """How many steps make a block."""
    return min(max(math.ceil(BLOCK_S / step_time_s), COUNTED_MIN), COUNTED_MAX)


def _step_time_s(way: _Way, counted: int, mean: Callable[[float], float]) -> float:
    """Mean seconds of a step, with the wait for its batch."""
    mean(0.0)  # all ranks begin together
    way.prepare()
    start_s = 0.0
    for number in range(UNCOUNTED_STEPS + counted):
        if number == UNCOUNTED_STEPS:
            start_s = time.perf_counter()
        way.step(next(way.batches))
    return (time.perf_counter() - start_s) / counted


class _Pipeline:
    """A pipeline whose ready batches can be taken out, or let fill up."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        waits_s = [self._wait_s() for _ in range(READY_MAX)]
        #: Seconds that it takes to make a batch; the first were ready.
        self._made_s = statistics.fmean(waits_s[READY_MAX // 2 :])
        self._is_full = False

    def drain(self) -> None:
        """Take what is ready: a batch that is waited for was not."""
        self._is_full = False
        for _ in range(READY_MAX):
            if self._wait_s() >= self._made_s / 2:
                return

    def fill(self) -> None:
        """Wait until all is ready again."""
        if not self._is_full:
            time.sleep(min(FILLED_BATCHES * self._made_s, FILLED_MAX_S))
        self._is_full = True

    def _wait_s(self) -> float:
        start_s = time.perf_counter()
        next(self._batches)
        return time.perf_counter() - start_s
