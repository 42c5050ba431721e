"""What all ways of training share: order of examples, optimizer, epochs, results.

A loop of our own, because Keras 3's `fit` fails under
MultiWorkerMirroredStrategy (keras-team/keras#20585). The order of the examples depends on the seed
and the global batch only, never on how replicas are spread over workers and devices, so that the
same replicas give the same model wherever they run.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tfscaling.datasets.catalogue import Arrays
from tfscaling.records.events import EventLog
from tfscaling.records.rank_report import Epoch, Execution
from tfscaling.study.config import Recipe
from tfscaling.study.run_spec import RunSpec

#: Held-out examples per replica and call, at most.
EVALUATION_BATCH = 500
_PROGRESS_INTERVAL_S = 5.0


@dataclass
class Result:
    """What one rank measured.

    `epochs`: loss and accuracy are means over the epoch's examples while they are trained.
    A loss is the total one, as Keras reports it: with the model's own losses, such as regularisers.
    `examples_trained`: over all epochs and replicas, counted by the steps; padding is not counted.
    `diverged`: what is not finite, from which epoch on; "" if all is. A loss that is NaN or
    infinite is None everywhere else: no JSON has it.
    """

    epochs: list[Epoch] = field(default_factory=list)
    steps: list[Execution] = field(default_factory=list)
    test_loss: float | None = None
    test_accuracy: float | None = None
    examples_trained: int = 0
    diverged: str = ""

    def finite(self, name: str, value: float, epoch: int) -> float | None:
        """The value if it is a number; else None, and the training has diverged."""
        if math.isfinite(value):
            return value
        found = "NaN" if math.isnan(value) else "infinite"
        self.diverged = self.diverged or f"{name} is {found} from epoch {epoch}"
        return None


def shown(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.4f}"


def scaled_learning_rate(recipe: Recipe, replicas: int) -> float:
    """The learning rate for this number of replicas."""
    factor = {"none": 1.0, "linear": float(replicas), "sqrt": replicas**0.5}
    return recipe.learning_rate * factor[recipe.learning_rate_scaling]


def order_of_epoch(seed: int, epoch: int, examples: int, batch: int) -> np.ndarray:
    """Indices of the examples in random order, shape (steps, batch), int32: each of them once.

    An incomplete last batch is padded with the first examples of the epoch. So all steps have the
    same shape, and the statistics of a batch are those of real images; `real_examples` says how
    many of a step count.
    """
    steps = -(-examples // batch)
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return np.resize(order, (steps, batch)).astype(np.int32)


def make_optimizer(recipe: Recipe, replicas: int) -> Any:
    """The recipe's Keras optimizer for this number of replicas."""
    import keras

    rate = scaled_learning_rate(recipe, replicas)
    if recipe.optimizer == "adam":
        optimizer = keras.optimizers.Adam(rate)
    else:
        optimizer = keras.optimizers.SGD(rate, momentum=recipe.momentum)
    if recipe.precision == "mixed_float16":
        return keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


class TrainingLoop(ABC):
    """One rank's epochs of training a classifier on arrays.

    `batch` is the number of examples per replica and step, `examples_per_step` that of one update
    of the variables; `replicas` is what TensorFlow has, which need not be what was requested.
    """

    def __init__(self, strategy: Any, arrays: Arrays, replicas: int, spec: RunSpec) -> None:
        import keras
        import tensorflow as tf

        self.tf, self.strategy, self.recipe, self.seed = tf, strategy, spec.recipe, spec.seed
        self.batch, self.replicas = spec.per_replica_batch_size, replicas
        self.global_batch = self.examples_per_step = self.batch * replicas
        self.train_examples, self.test_examples = len(arrays.y_train), len(arrays.y_test)
        if self.train_examples < self.global_batch:
            raise ValueError(
                f"{self.train_examples} training examples are fewer than the global batch of "
                f"{self.global_batch}"
            )
        # padding is computed as well: no more than a small test set needs
        self.evaluation_batch = min(EVALUATION_BATCH, -(-self.test_examples // replicas))
        self.scale = arrays.scale
        self.loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        self.model: Any = None
        self.totals: Any = None
        self._reported_s = 0.0

    @abstractmethod
    def _reset(self) -> None:
        """Set the sums of loss and correct answers to zero."""

    @abstractmethod
    def _sums(self) -> tuple[float, float, float]:
        """Loss, correct answers and number of examples since `_reset`, summed over all replicas."""

    @abstractmethod
    def _train_epoch(self, epoch: int, order: np.ndarray, result: Result, events: EventLog) -> None:
        """Train on `order`, indices of shape (steps, global batch); append to result.steps.

        The last step ends with padding if the epoch has no whole number of batches.
        """

    @abstractmethod
    def _evaluate(self, indices: np.ndarray) -> None:
        """Add loss and correct answers of held-out examples; index -1 is padding.

        `indices` has the shape (calls, replicas x evaluation_batch).
        """

    def compute_steps(self) -> list[float]:
        """Durations in seconds of steps of this rank's computation alone; [] if it has none."""
        return []

    def train(self, events: EventLog, report: Callable[[str], None]) -> Result:
        """Train all epochs; `report` gets one line per epoch.

        Between epochs the model is evaluated where the recipe says so; after the last one it is
        the caller's part. A loss that is NaN or infinite ends the training after its epoch: it is
        the sum over all replicas, so all ranks end alike.
        """
        result, start_s = Result(), time.perf_counter()
        epochs = self.recipe.epochs
        interval = self.recipe.evaluation_interval_epochs or epochs
        for epoch in range(1, epochs + 1):
            epoch_start_s = self._reported_s = time.perf_counter()
            order = order_of_epoch(self.seed, epoch, self.train_examples, self.global_batch)
            self._reset()
            self._train_epoch(epoch, order, result, events)
            loss, correct, examples = self._sums()
            result.examples_trained += round(examples)
            end_s = time.perf_counter()
            row = Epoch(
                epoch=epoch,
                loss=result.finite("loss", loss / examples, epoch),
                accuracy=correct / examples,
                duration_s=end_s - epoch_start_s,
            )
            result.epochs.append(row)
            events.add("epoch", **msgspec.to_builtins(row))
            report(
                f"epoch {epoch}/{epochs}: loss {shown(row.loss)}, accuracy {row.accuracy:.4f}, "
                f"{row.duration_s:.1f} s, {end_s - start_s:.1f} s since the first step"
            )
            if epoch % interval == 0 and epoch < epochs and not result.diverged:
                report(self.evaluate(result, events, "epoch_evaluated"))
            if result.diverged:
                result.test_loss = result.test_accuracy = None  # of an epoch before, if of any
                report(f"diverged: {result.diverged}: the training ends here")
                break
        events.add("trained")
        return result

    def evaluate(self, result: Result, events: EventLog, event: str) -> str:
        """Loss and accuracy on the held-out examples, each counted once, summed over replicas.

        They are the result's, and those of its last epoch; `event` tells them. Returns a line.
        """
        start_s = time.perf_counter()
        width = self.evaluation_batch * self.replicas
        count = -(-self.test_examples // width) * width
        indices = np.full(count, -1, np.int32)
        indices[: self.test_examples] = np.arange(self.test_examples)
        self._reset()
        self._evaluate(indices.reshape(-1, width))
        loss, correct, examples = self._sums()
        epoch = result.epochs[-1].epoch
        result.test_loss = result.finite("held-out loss", loss / examples, epoch)
        result.test_accuracy = correct / examples
        found = {
            "test_loss": result.test_loss,
            "test_accuracy": result.test_accuracy,
            "evaluation_time_s": time.perf_counter() - start_s,
        }
        result.epochs[-1] = msgspec.structs.replace(result.epochs[-1], **found)
        events.add(event, epoch=epoch, **found)
        return f"held-out: loss {shown(result.test_loss)}, accuracy {result.test_accuracy:.4f}"

    def _note(self, events: EventLog, result: Result, epoch: int, step: int) -> None:
        """Write the event of the very first step, or else a sign of life."""
        if len(result.steps) == 1:
            events.add("first_step")
        else:
            self._sign_of_life(events, epoch, step)

    def _sign_of_life(self, events: EventLog, epoch: int, step: int) -> None:
        """Write an event every few seconds: the launcher ends runs in which nothing moves."""
        now_s = time.perf_counter()
        if now_s - self._reported_s > _PROGRESS_INTERVAL_S:
            events.add("progress", epoch=epoch, step=step)
            self._reported_s = now_s

    def _gather(self, indices: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        """The examples at `indices`: images as float32 in [0, 1], labels as int32."""
        tf = self.tf
        batch = tf.cast(tf.gather(images, indices), tf.float32) * self.scale
        return batch, tf.cast(tf.gather(labels, indices), tf.int32)

    def _forward(self, batch: Any, answers: Any, weights: Any, training: bool) -> Any:
        """Loss, correct answers and number of examples of this batch, summed by `weights`, float32.

        A weight is 1, or 0 for padding. The model's own losses are of the batch: they count as
        often as the batch has examples, so that they count once in a mean over examples.
        """
        tf = self.tf
        logits = tf.cast(self.model(batch, training=training), tf.float32)
        correct = tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), answers), tf.float32)
        examples = tf.reduce_sum(weights)
        loss = tf.reduce_sum(self.loss(answers, logits) * weights) + self._own_losses() * examples
        return tf.stack([loss, tf.reduce_sum(correct * weights), examples])

    def _own_losses(self) -> Any:
        """Sum of the losses that the model adds itself: regularisers and `add_loss`; float32."""
        tf = self.tf
        losses = [tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in self.model.losses]
        return tf.add_n(losses) if losses else 0.0

    def _count(self, sums: Any) -> None:
        """Add to the sums of loss, correct answers and examples."""
        self.totals.assign_add(self.tf.cast(sums, self.totals.dtype))
