"""The training loop: data parallel over workers and devices, the same numbers on every rank.

Layer 3 (training). A loop of our own, because Keras 3's `fit` fails under
MultiWorkerMirroredStrategy (keras-team/keras#20585). The order of the examples depends on the seed
and the global batch only, never on how replicas are spread over workers and devices, so that the
same replicas give the same model wherever they run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfscaling.datasets import Arrays
from tfscaling.events import EventLog

_EVALUATION_BATCH = 500
_PROGRESS_INTERVAL_S = 5.0


@dataclass
class Result:
    """What one rank measured.

    `epochs`: per epoch loss, accuracy (means over the epoch's batches while they are trained) and
    duration_s. `steps`: one row per execution - epoch, first step, number of steps, duration_s.
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    steps: list[tuple[int, int, int, float]] = field(default_factory=list)
    test_loss: float | None = None
    test_accuracy: float | None = None


def scaled_learning_rate(parameters: Mapping[str, Any], replicas: int) -> float:
    """The learning rate for this number of replicas."""
    factor = {"none": 1.0, "linear": float(replicas), "sqrt": replicas**0.5}
    return parameters["learning_rate"] * factor[parameters["learning_rate_scaling"]]


def order_of_epoch(seed: int, epoch: int, examples: int, batch: int) -> np.ndarray:
    """Indices of the examples, shape (steps, batch), int32; an incomplete batch is dropped."""
    steps = examples // batch
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return order[: steps * batch].reshape(steps, batch).astype(np.int32)


def _optimizer(parameters: Mapping[str, Any], replicas: int) -> Any:
    import keras

    rate = scaled_learning_rate(parameters, replicas)
    if parameters["optimizer"] == "adam":
        return keras.optimizers.Adam(rate)
    return keras.optimizers.SGD(rate, momentum=parameters["momentum"])


class Trainer:
    """One rank's part of the training of a classifier.

    `strategy` is a tf.distribute.Strategy, `build_model` makes the Keras model, `arrays` are the
    dataset, `batch` is the number of examples per replica and step.
    """

    def __init__(
        self,
        strategy: Any,
        build_model: Callable[[], Any],
        arrays: Arrays,
        batch: int,
        parameters: Mapping[str, Any],
    ) -> None:
        import keras
        import tensorflow as tf

        self.tf, self.strategy, self.batch, self.parameters = tf, strategy, batch, parameters
        self.replicas: int = strategy.num_replicas_in_sync
        self.global_batch = batch * self.replicas
        self.train_examples, self.test_examples = len(arrays.y_train), len(arrays.y_test)
        if self.train_examples < self.global_batch:
            raise ValueError(
                f"{self.train_examples} training examples are fewer than the global batch of "
                f"{self.global_batch}"
            )
        self.scale = arrays.scale
        self.train_data = self._resident(arrays.x_train, arrays.y_train)
        self.test_data = self._resident(arrays.x_test, arrays.y_test)
        keras.utils.set_random_seed(parameters["seed"])
        self.loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        with strategy.scope():
            self.model = build_model()
            self.optimizer = _optimizer(parameters, self.replicas)
            self.optimizer.build(self.model.trainable_variables)
            # loss sum and correct answers of this replica since the start of the epoch
            self.totals = tf.Variable(
                [0.0, 0.0],
                trainable=False,
                dtype=tf.float32,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )
        self._execute = tf.function(self._steps)
        self._evaluate_steps = tf.function(self._evaluation)
        self._sum = tf.function(self._sum_totals)
        self._reset = tf.function(
            lambda: strategy.run(lambda: self.totals.assign(tf.zeros([2], tf.float32)))
        )

    def _resident(self, *arrays: np.ndarray) -> list[Any]:
        """Each array once on every local device, as a per-replica value."""
        devices = self.strategy.extended.worker_devices

        def on_device(array: np.ndarray) -> Any:
            def value(context: Any) -> Any:
                local = context.replica_id_in_sync_group % len(devices)
                with self.tf.device(devices[local]):
                    return self.tf.identity(self.tf.constant(array))

            return self.strategy.experimental_distribute_values_from_function(value)

        return [on_device(array) for array in arrays]

    def _add(self, losses: Any, labels: Any, logits: Any, weights: Any) -> None:
        tf = self.tf
        correct = tf.cast(
            tf.equal(tf.argmax(logits, 1, output_type=labels.dtype), labels), "float32"
        )
        self.totals.assign_add(
            tf.stack([tf.reduce_sum(losses * weights), tf.reduce_sum(correct * weights)])
        )

    def _batch_of(self, indices: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        tf = self.tf
        batch = tf.cast(tf.gather(images, indices), tf.float32) * self.scale
        return batch, tf.cast(tf.gather(labels, indices), tf.int32)

    def _replica_step(self, indices: Any, images: Any, labels: Any) -> Any:
        tf = self.tf
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        mine = tf.slice(indices, [replica * self.batch], [self.batch])
        batch, answers = self._batch_of(mine, images, labels)
        with tf.GradientTape() as tape:
            logits = tf.cast(self.model(batch, training=True), tf.float32)
            losses = self.loss(answers, logits)
            # gradients are summed over the replicas by the optimizer: divide by the global batch
            loss = tf.reduce_sum(losses) / self.global_batch
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        self._add(losses, answers, logits, tf.ones_like(losses))
        return loss

    def _steps(self, order: Any, start: Any, end: Any, images: Any, labels: Any) -> Any:
        """Steps start to end - 1 of `order`; returns the last step's loss of each local replica."""
        last = self.strategy.run(self._replica_step, args=(order[start], images, labels))
        for step in self.tf.range(start + 1, end):
            last = self.strategy.run(self._replica_step, args=(order[step], images, labels))
        return last

    def _evaluation(self, indices: Any, images: Any, labels: Any) -> None:
        """One batch of held-out examples; index -1 is padding."""
        tf = self.tf

        def replica(indices: Any, images: Any, labels: Any) -> None:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = tf.slice(indices, [number * _EVALUATION_BATCH], [_EVALUATION_BATCH])
            weights = tf.cast(mine >= 0, tf.float32)
            batch, answers = self._batch_of(tf.maximum(mine, 0), images, labels)
            logits = tf.cast(self.model(batch, training=False), tf.float32)
            self._add(self.loss(answers, logits), answers, logits, weights)

        self.strategy.run(replica, args=(indices, images, labels))

    def _sum_totals(self) -> Any:
        totals = self.strategy.run(self.totals.read_value)
        return self.strategy.reduce("SUM", totals, axis=None)

    def train(self, events: EventLog, report: Callable[[str], None]) -> Result:
        """Train all epochs; `report` gets one line per epoch."""
        result, start_s = Result(), time.perf_counter()
        epochs = self.parameters["epochs"]
        for epoch in range(1, epochs + 1):
            epoch_start_s = time.perf_counter()
            steps = self._train_epoch(epoch, result, events)
            loss, correct = self._sum().numpy().tolist()
            seen = steps * self.global_batch
            end_s = time.perf_counter()
            row = {
                "epoch": epoch,
                "loss": loss / seen,
                "accuracy": correct / seen,
                "duration_s": end_s - epoch_start_s,
            }
            result.epochs.append(row)
            events.add("epoch", **row)
            report(
                f"epoch {epoch}/{epochs}: loss {row['loss']:.4f}, accuracy {row['accuracy']:.4f}, "
                f"{row['duration_s']:.1f} s, {end_s - start_s:.1f} s since the first step"
            )
        events.add("trained")
        return result

    def _train_epoch(self, epoch: int, result: Result, events: EventLog) -> int:
        """One epoch; returns its number of steps."""
        tf = self.tf
        order = order_of_epoch(
            self.parameters["seed"], epoch, self.train_examples, self.global_batch
        )
        steps, chunk = len(order), self.parameters["steps_per_execution"]
        order = tf.constant(order)
        self._reset()
        reported_s = time.perf_counter()
        for start in range(0, steps, chunk):
            end = min(start + chunk, steps)
            start_s = time.perf_counter()
            loss = self._execute(order, tf.constant(start), tf.constant(end), *self.train_data)
            # the value is fetched so that a step that a GPU has not finished is not counted as done
            for value in self.strategy.experimental_local_results(loss):
                value.numpy()
            now_s = time.perf_counter()
            result.steps.append((epoch, start, end - start, now_s - start_s))
            if len(result.steps) == 1:
                events.add("first_step")
            if now_s - reported_s > _PROGRESS_INTERVAL_S:
                events.add("progress", epoch=epoch, step=end)
                reported_s = now_s
        return steps

    def evaluate(self, result: Result) -> None:
        """Loss and accuracy on the held-out examples, each counted once, summed over replicas."""
        width = _EVALUATION_BATCH * self.replicas
        count = -(-self.test_examples // width) * width
        indices = np.full(count, -1, np.int32)
        indices[: self.test_examples] = np.arange(self.test_examples)
        self._reset()
        for batch in indices.reshape(-1, width):
            self._evaluate_steps(self.tf.constant(batch), *self.test_data)
        loss, correct = self._sum().numpy().tolist()
        result.test_loss = loss / self.test_examples
        result.test_accuracy = correct / self.test_examples
