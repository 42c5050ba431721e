"""Training with parameter servers: a coordinator, servers with the variables, workers.

Layer 3 (training). Two ways over the same cluster: asynchronous (each worker's gradients update the
variables at once) and synchronous (one update from the gradients of all workers). The coordinator
deals out batches by index, in the order that `training_loop.order_of_epoch` gives: each worker gets
batches of its own, none twice, and a synchronous update sees exactly the examples of one global
batch, as in all-reduce training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfscaling import events as rank_events
from tfscaling import heartbeat, rank_files
from tfscaling.cluster import Cluster
from tfscaling.datasets import Arrays
from tfscaling.events import EventLog
from tfscaling.training_loop import Result, TrainingLoop, make_optimizer

_POLL_S = 0.3
#: A coordinator that gives no sign of life for this long is dead.
COORDINATOR_TIMEOUT_S = 600.0


def serve(own: Cluster, folder: Path, events: EventLog) -> bool:
    """Be a parameter server or a worker until the coordinator ends; True if it ended well.

    The coordinator's events, in the folder that all ranks share, tell when that is: TensorFlow's
    servers have no call for it. Raises RuntimeError if it gives no sign of life for
    `COORDINATOR_TIMEOUT_S`.
    """
    import tensorflow as tf

    tf.distribute.Server(
        tf.train.ClusterSpec({job: list(tasks) for job, tasks in own.jobs.items()}),
        job_name=own.job, task_index=own.index, protocol="grpc", start=True,
    )  # fmt: skip
    events.add("rendezvous")
    seen, seen_s = None, time.monotonic()
    while True:
        last = rank_events.last(rank_files.events_path(folder, 0))
        if last is not None and last["event"] in ("end", "failed"):
            return bool(last["event"] == "end")
        if (sign := (last, heartbeat.read_one(folder, 0))) != seen:
            seen, seen_s = sign, time.monotonic()
        elif time.monotonic() - seen_s > COORDINATOR_TIMEOUT_S:
            text = f"the coordinator gave no sign of life for {COORDINATOR_TIMEOUT_S:g} s"
            raise RuntimeError(text)
        time.sleep(_POLL_S)


class ParameterServerTrainer(TrainingLoop):
    """The coordinator's part. `batch` is the number of examples per worker and update.

    `synchronous` makes one update from the gradients of all `workers`; else each worker's gradients
    are an update of their own. The other arguments are those of `trainer.Trainer`.
    """

    def __init__(
        self,
        strategy: Any,
        build_model: Callable[[], Any],
        arrays: Arrays,
        batch: int,
        parameters: Mapping[str, Any],
        workers: int,
        synchronous: bool,
    ) -> None:
        super().__init__(strategy, arrays, batch, workers, parameters)
        import keras

        tf = self.tf
        self.synchronous = synchronous
        self.examples_per_step = self.global_batch if synchronous else batch
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self.train_data = self._resident(arrays.x_train, arrays.y_train)
        self.test_data = self._resident(arrays.x_test, arrays.y_test)
        keras.utils.set_random_seed(parameters["seed"])
        with strategy.scope():
            self.model = build_model()
            variables = self.model.trainable_variables
            self.optimizer = make_optimizer(parameters, workers)
            self.optimizer.build(variables)
            self.totals = tf.Variable([0.0, 0.0], trainable=False)
            if synchronous:
                self.gradients = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
                # the update that gradients are for: those for an earlier one are stale
                self.update = tf.Variable(0, trainable=False, dtype=tf.int64)
                self.contributions = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._worker_step = tf.function(self._contribute if synchronous else self._apply_own)
        self._evaluation_step = tf.function(self._evaluation)
        self._update_step = tf.function(self._apply_all)

    def _resident(self, *arrays: np.ndarray) -> Any:
        """An iterator on each worker that gives the whole arrays, again and again."""
        tf = self.tf

        def dataset() -> Any:
            return tf.data.Dataset.from_tensors(tuple(map(tf.constant, arrays))).repeat()

        return iter(self.coordinator.create_per_worker_dataset(dataset))

    def _gradients_of(self, indices: Any, data: Any, share: int) -> list[Any]:
        tf = self.tf
        batch, answers = self._gather(indices, *next(data))
        with tf.GradientTape() as tape:
            losses, correct = self._forward(batch, answers, training=True)
            loss = self.optimizer.scale_loss(tf.reduce_sum(losses) / share)
        self._count(losses, correct)
        gradients: list[Any] = tape.gradient(loss, self.model.trainable_variables)
        return gradients

    def _apply_own(self, indices: Any, update: Any, data: Any) -> None:
        """Asynchronous: this worker's gradients are an update."""

        def replica() -> None:
            gradients = self._gradients_of(indices, data, self.batch)
            pairs = zip(gradients, self.model.trainable_variables, strict=True)
            self.optimizer.apply_gradients(pairs)

        self.strategy.run(replica)

    def _contribute(self, indices: Any, update: Any, data: Any) -> None:
        """Synchronous: add this worker's gradients to those of `update`, unless it is past."""

        def replica() -> None:
            tf = self.tf
            own = self._gradients_of(indices, data, self.global_batch)
            fresh = tf.equal(update, self.update)
            for total, gradient in zip(self.gradients, own, strict=True):
                total.assign_add(gradient * tf.cast(fresh, gradient.dtype))
            self.contributions.assign_add(tf.cast(fresh, tf.int64))

        self.strategy.run(replica)

    def _apply_all(self) -> Any:
        """One update from the gradients of all workers; returns how many contributed."""

        def replica() -> Any:
            contributions = self.contributions.read_value()
            gradients = [total.read_value() for total in self.gradients]
            self.optimizer.apply_gradients(
                zip(gradients, self.model.trainable_variables, strict=True)
            )
            for total in self.gradients:
                total.assign(self.tf.zeros_like(total))
            self.contributions.assign(0)
            self.update.assign_add(1)
            return contributions

        return self.strategy.run(replica)

    def _evaluation(self, indices: Any, data: Any) -> None:
        def replica() -> None:
            tf = self.tf
            batch, answers = self._gather(tf.maximum(indices, 0), *next(data))
            losses, correct = self._forward(batch, answers, training=False)
            self._count(losses, correct, tf.cast(indices >= 0, tf.float32))

        self.strategy.run(replica)

    def _reset(self) -> None:
        self.totals.assign([0.0, 0.0])

    def _sums(self) -> tuple[float, float]:
        loss, correct = self.totals.numpy().tolist()
        return loss, correct

    def _schedule(self, indices: np.ndarray, update: int) -> None:
        tf = self.tf
        arguments = (tf.constant(indices), tf.constant(update, tf.int64), self.train_data)
        self.coordinator.schedule(self._worker_step, args=arguments)

    def _train_epoch(self, epoch: int, order: np.ndarray, result: Result, events: EventLog) -> None:
        if self.synchronous:
            self._train_synchronously(epoch, order, result, events)
        else:
            self._train_freely(epoch, order.reshape(-1, self.batch), result, events)

    def _train_synchronously(
        self, epoch: int, order: np.ndarray, result: Result, events: EventLog
    ) -> None:
        for step, indices in enumerate(order):
            start_s = time.perf_counter()
            update = int(self.update.numpy())
            for part in indices.reshape(self.replicas, self.batch):
                self._schedule(part, update)
            self.coordinator.join()
            contributions = int(self._update_step().numpy())
            if contributions != self.replicas:
                raise RuntimeError(
                    f"update {update} has {contributions} contributions of {self.replicas} workers"
                )
            result.steps.append((epoch, step, 1, time.perf_counter() - start_s))
            self._note(events, result, epoch, step)

    def _train_freely(
        self, epoch: int, batches: np.ndarray, result: Result, events: EventLog
    ) -> None:
        """No worker waits for another; `schedule` itself waits when the queue is full."""
        # the first batches compile the step on every worker: a row of their own
        first = 0 if result.steps else self.replicas
        for start, end in ((0, first), (first, len(batches))):
            start_s = time.perf_counter()
            for number in range(start, end):
                self._schedule(batches[number], 0)
                self._sign_of_life(events, epoch, number)
            self.coordinator.join()
            if end > start:
                result.steps.append((epoch, start, end - start, time.perf_counter() - start_s))
                self._note(events, result, epoch, end)

    def _evaluate(self, indices: np.ndarray) -> None:
        for batch in indices.reshape(-1, self.evaluation_batch):
            arguments = (self.tf.constant(batch), self.test_data)
            self.coordinator.schedule(self._evaluation_step, args=arguments)
        self.coordinator.join()
