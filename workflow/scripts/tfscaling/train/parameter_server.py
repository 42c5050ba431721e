"""Training with parameter servers: a coordinator, servers with the variables, workers.

Two ways over the same cluster: asynchronous (each worker's gradients update the variables at once)
and synchronous (one update from the gradients of all workers). The coordinator deals out batches by
index, in the order that `all_reduce` gives: each worker gets different batches, none twice, and a
synchronous update sees exactly the examples of one global batch, as in all-reduce training.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfscaling.datasets.catalogue import Arrays, Nest
from tfscaling.launch.rank_process import RankContext
from tfscaling.record.events import EventLog, EventName
from tfscaling.record.rank_report import Execution
from tfscaling.study.config_types import Recipe
from tfscaling.study.run_spec import RunSpec
from tfscaling.train import user_model
from tfscaling.train.all_reduce import ExampleOrder
from tfscaling.train.loop import (
    Means,
    TrainingLoop,
    TrainingResult,
    is_seed,
    means_from_sums,
    replica_random_state,
)
from tfscaling.train.optimizers import make_optimizer


def run_server(context: RankContext) -> bool:
    """Run TensorFlow's server of a parameter server or worker until the coordinator ends.

    Returns:
        Whether the coordinator succeeded, as the launcher reports.
    """
    import tensorflow as tf

    own = context.cluster
    config = tf.compat.v1.ConfigProto()
    # TensorFlow takes a thread for each CPU. With too few, workers wait for each other for ever
    # (https://www.tensorflow.org/tutorials/distribute/parameter_server_training)
    threads = len(own.jobs["worker"]) + 1
    if len(os.sched_getaffinity(0)) < threads:
        config.inter_op_parallelism_threads = threads
    tf.distribute.Server(
        tf.train.ClusterSpec({job: list(tasks) for job, tasks in own.jobs.items()}),
        job_name=own.job, task_index=own.index, protocol="grpc", config=config, start=True,
    )  # fmt: skip
    context.events.add(EventName.RENDEZVOUS, serves=True)
    return context.wait_for_coordinator()


class Batch(NamedTuple):
    """A worker's part of a batch, as tensors.

    Attributes:
        indices: Indices of the examples, integers (batch,).
        weights: 1 for each example, 0 for padding; float32, (batch,).
        examples: Number of examples that contribute to the update, of all workers if it is
            synchronous; float32.
        replica: Number of the replica in a synchronous update; else 0.
    """

    indices: Any
    weights: Any
    examples: Any
    replica: Any


def check_model(model: Any, arrays: Arrays, recipe: Recipe) -> None:
    """Check that parameter servers can train the model: they train classifiers only.

    Args:
        model: The Keras model.
        arrays: The data.
        recipe: The recipe.

    Raises:
        ModelError: The model is not a classifier, or is compiled, or overrides a method of the
            training.
    """
    if user_model.uses_own_loss(model, recipe):
        # workers share one model: metrics of a custom step would overwrite each other
        raise user_model.ModelError(
            "the model is compiled or has a custom step, which strategies with parameter servers "
            "cannot train: take a strategy that trains by all-reduce, or let the recipe's `loss` "
            "be sparse_categorical_crossentropy"
        )
    user_model.check_classifier(model, user_model.label_problem(arrays.train, arrays.test))


def find_changing_variables(model: Any, example_shape: Sequence[int]) -> list[Any]:
    """Return the non-trainable variables that a forward pass changes, such as moving means.

    The pass is traced, not computed.

    Args:
        model: The Keras model.
        example_shape: Shape of one input example, without the dimension of the batch.
    """
    import keras
    import tensorflow as tf

    changed: list[Any] = []

    def trace(images: Any) -> None:
        """Call the model as in training."""
        with keras.StatelessScope(initialize_variables=False) as scope:
            model(images, training=True)
        values = ((v, scope.get_current_value(v)) for v in model.non_trainable_variables)
        changed.extend(variable for variable, value in values if value is not None)

    if model.non_trainable_variables:
        spec = tf.TensorSpec((None, *example_shape), tf.float32)
        tf.function(trace, autograph=False).get_concrete_function(spec)
    return changed


class ReplicaStates:
    """Separate moving statistics and random states for each replica of a synchronous training.

    They are stored on the parameter servers, one row per replica, because any worker may compute
    any replica's part of a batch. The initial statistics of all replicas are those in the model;
    their random states differ.

    Args:
        model: The Keras model.
        example_shape: Shape of one input example of the model, without the dimension of the batch.
        replicas: Number of replicas.
    """

    def __init__(self, model: Any, example_shape: Sequence[int], replicas: int) -> None:
        import tensorflow as tf

        self._changed, self._rows = find_changing_variables(model, example_shape), []
        # in a scope Keras finds only those weights that were put into it
        self._regularized = [v for v in model.trainable_variables if v.regularizer is not None]
        for variable in self._changed:
            value = variable.numpy()
            values = [
                replica_random_state(value, n) if is_seed(variable) else value
                for n in range(replicas)
            ]
            self._rows.append(tf.Variable(np.stack(values), trainable=False))

    def forward(self, number: Any, call: Callable[[], Any]) -> Any:
        """Call a function with the states of one replica in the model, and return its result.

        The states that the function changes are stored for the replica.

        Args:
            number: Number of the replica.
            call: The function, which calls the model.
        """
        import keras
        import tensorflow as tf

        if not self._rows:
            return call()
        own = [tf.gather(rows, number) for rows in self._rows]
        given = [*zip(self._changed, own, strict=True)]
        given += [(variable, variable.value) for variable in self._regularized]
        with keras.StatelessScope(given, collect_losses=True, initialize_variables=False) as scope:
            found = call()
        for variable, rows in zip(self._changed, self._rows, strict=True):
            rows.scatter_nd_update([[number]], [scope.get_current_value(variable)])
        return found

    def average(self) -> None:
        """Assign the mean of the replicas' statistics to the model and to all replicas."""
        import tensorflow as tf

        for variable, rows in zip(self._changed, self._rows, strict=True):
            if rows.dtype.is_floating:
                mean = tf.reduce_mean(rows, axis=0)
                variable.assign(mean)
                rows.assign(tf.broadcast_to(mean, rows.shape))


class ParameterServerTrainer(TrainingLoop):
    """Training of a classifier with parameter servers, as the coordinator runs it.

    Each worker is a replica.

    Args:
        strategy: The `tf.distribute.ParameterServerStrategy`.
        build_model: Returns the Keras model.
        arrays: The complete data.
        spec: The run.
        synchronous: Whether the gradients of all workers make one update; otherwise each worker's
            gradients are a separate update.
    """

    def __init__(
        self,
        strategy: Any,
        build_model: Callable[[], Any],
        arrays: Arrays,
        spec: RunSpec,
        synchronous: bool,
    ) -> None:
        super().__init__(strategy, spec.replicas, spec)
        import keras

        tf = self.tf
        self.synchronous = synchronous
        self.examples_per_step = self.global_batch if synchronous else self.batch
        self.order = ExampleOrder(arrays, self.global_batch, self.replicas)
        self.train_examples, self.test_examples = arrays.train_examples, arrays.test_examples
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self.train_data = self._send_to_workers(arrays.train)
        self.test_data = self._send_to_workers(arrays.test)
        keras.utils.set_random_seed(self.seed)
        with strategy.scope():
            self.model = build_model()
            check_model(self.model, arrays, self.recipe)
            variables = self.model.trainable_variables
            self.optimizer = make_optimizer(self.recipe, self.replicas, self.updates_per_epoch)
            self.optimizer.build(variables)
            self.totals = tf.Variable([0.0, 0.0, 0.0], trainable=False, dtype=tf.float64)
            self.states: ReplicaStates | None = None
            if synchronous:
                images = tf.nest.flatten(arrays.x_train)[0]
                self.states = ReplicaStates(self.model, images.shape[1:], self.replicas)
                self.gradients = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
                self.contributions = tf.Variable(0, trainable=False, dtype=tf.int64)
        step = self._add_gradients if synchronous else self._apply_asynchronously
        self._worker_step = self._make_replica_function(step)
        self._evaluation_step = self._make_replica_function(self._evaluate_part)
        self._update_step = self._make_replica_function(self._apply_gradient_sums)

    def _send_to_workers(self, arrays: tuple[Nest, ...]) -> Any:
        """Copy arrays to all workers; return an iterator whose every item is the complete arrays.

        The iterator is a per-worker value: each worker gets an iterator over its copy.

        Args:
            arrays: Nested arrays, such as (inputs, labels).
        """
        tf = self.tf

        def dataset() -> Any:
            """Return a dataset of a worker: the arrays, again and again."""
            return tf.data.Dataset.from_tensors(tf.nest.map_structure(tf.constant, arrays)).repeat()

        return iter(self.coordinator.create_per_worker_dataset(dataset))

    def _gradients_of(self, batch: Batch, data: Any) -> list[Any]:
        """Return the gradients of this batch's part of the loss, multiplied by the loss scale.

        Args:
            batch: The worker's part of a batch.
            data: The worker's iterator over the training data.

        Returns:
            A gradient for each trainable variable; None if the loss does not depend on it.
        """
        images, answers = self._gather_examples(batch.indices, next(data))

        def forward() -> Any:
            """Return [loss, correct answers, examples] of the batch."""
            return self._sum_losses(images, answers, batch.weights, training=True)

        with self.tf.GradientTape() as tape:
            sums = forward() if self.states is None else self.states.forward(batch.replica, forward)
            loss = self.optimizer.scale_loss(sums[0] / batch.examples)
        self._add_to_sums(sums)
        gradients: list[Any] = tape.gradient(loss, self.model.trainable_variables)
        return gradients

    def _apply_asynchronously(self, batch: Batch, data: Any) -> None:
        """Apply a worker's gradients at once, as an asynchronous update.

        Args:
            batch: The worker's part of a batch.
            data: The worker's iterator over the training data.
        """
        own, variables = self._gradients_of(batch, data), self.model.trainable_variables
        self.optimizer.apply_gradients(zip(own, variables, strict=True))

    def _add_gradients(self, batch: Batch, data: Any) -> None:
        """Add a worker's gradients to the sums for the synchronous update.

        Args:
            batch: The worker's part of a batch.
            data: The worker's iterator over the training data.
        """
        own = self._gradients_of(batch, data)
        for total, gradient in zip(self.gradients, own, strict=True):
            # a variable that the loss does not depend on has no gradient: it stays 0
            if gradient is not None:
                total.assign_add(self.tf.convert_to_tensor(gradient))
        self.contributions.assign_add(1)

    def _apply_gradient_sums(self) -> Any:
        """Apply the summed gradients as one update; return how many workers' gradients they have.

        The sums are then reset to zero.
        """
        contributions = self.contributions.read_value()
        gradients = [total.read_value() for total in self.gradients]
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        for total in self.gradients:
            total.assign(self.tf.zeros_like(total))
        self.contributions.assign(0)
        return contributions

    def _evaluate_part(self, indices: Any, data: Any) -> None:
        """Evaluate held-out examples on a worker; add losses and correct answers to the sums.

        Args:
            indices: Indices of the examples; -1 is padding.
            data: The worker's iterator over the held-out data.
        """
        tf = self.tf
        batch, answers = self._gather_examples(tf.maximum(indices, 0), next(data))
        weights = tf.cast(indices >= 0, tf.float32)
        self._add_to_sums(self._sum_losses(batch, answers, weights, training=False))

    def _reset_sums(self) -> None:
        """Reset the sums of loss, correct answers and examples to zero."""
        self.totals.assign([0.0, 0.0, 0.0])

    def _compute_means(self) -> Means:
        """Return the means since the last `_reset_sums`, over all workers."""
        return means_from_sums(*self.totals.numpy().tolist())

    def _schedule(self, indices: np.ndarray, count: int, examples: int, replica: int = 0) -> None:
        """Schedule a training step of a batch on any worker.

        Args:
            indices: Indices of the examples, of shape (batch,).
            count: Number of examples at the beginning of the batch; the other indices are padding.
                It may be larger than the batch, or negative if the batch is padding only.
            examples: Number of examples that contribute to the update, in all its batches.
            replica: Number of the replica in a synchronous update.
        """
        tf = self.tf
        batch = Batch(
            tf.constant(indices),
            tf.constant(np.arange(len(indices)) < count, tf.float32),
            tf.constant(examples, tf.float32),
            tf.constant(replica),
        )
        self.coordinator.schedule(self._worker_step, args=(batch, self.train_data))

    def _train_epoch(self, epoch: int, result: TrainingResult, events: EventLog) -> None:
        """Train one epoch and append the durations of its steps to `result.steps`.

        Args:
            epoch: Number of the epoch.
            result: The measurements so far.
            events: The rank's event log.
        """
        order = self.order.epoch_indices(self.seed, epoch)
        if self.synchronous:
            self._train_synchronously(epoch, order, result, events)
        else:
            # batches of padding alone are not trained
            batches = order.reshape(-1, self.batch)[: -(-self.train_examples // self.batch)]
            self._train_asynchronously(epoch, batches, result, events)

    def _train_synchronously(
        self, epoch: int, order: np.ndarray, result: TrainingResult, events: EventLog
    ) -> None:
        """Train an epoch with one update per global batch.

        Args:
            epoch: Number of the epoch.
            order: Indices of the epoch, (steps, global batch).
            result: The measurements so far.
            events: The rank's event log.
        """
        for step, indices in enumerate(order):
            start_s = time.perf_counter()
            examples = min(self.global_batch, self.train_examples - step * self.global_batch)
            for replica, part in enumerate(indices.reshape(self.replicas, self.batch)):
                self._schedule(part, examples - replica * self.batch, examples, replica)
            self.coordinator.join()
            contributions = int(self._update_step().numpy())
            if contributions != self.replicas:
                raise RuntimeError(
                    f"step {step} of epoch {epoch} has {contributions} contributions of "
                    f"{self.replicas} workers"
                )
            result.steps.append(Execution(epoch, step, 1, time.perf_counter() - start_s))
            self._log_step(events, result, epoch, step)

    def _train_asynchronously(
        self, epoch: int, batches: np.ndarray, result: TrainingResult, events: EventLog
    ) -> None:
        """Train an epoch with a separate update for each worker's batch.

        Args:
            epoch: Number of the epoch.
            batches: Indices of the epoch, (batches, batch per worker).
            result: The measurements so far.
            events: The rank's event log.
        """
        # the first batches compile the step on every worker: a separate row
        first = 0 if result.steps else min(self.replicas, len(batches))
        for start, end in ((0, first), (first, len(batches))):
            start_s = time.perf_counter()
            for place in range(start, end):
                examples = min(self.batch, self.train_examples - place * self.batch)
                self._schedule(batches[place], examples, examples)
                self._log_progress(events, epoch, place)
            self.coordinator.join()
            if end > start:
                duration_s = time.perf_counter() - start_s
                result.steps.append(Execution(epoch, start, end - start, duration_s))
                self._log_step(events, result, epoch, end)

    def _evaluate(self) -> None:
        """Add loss and correct answers of all held-out examples to the sums."""
        if self.states is not None:
            self.states.average()
        for batch in self.order.evaluation_indices().reshape(-1, self.order.evaluation_batch):
            arguments = (self.tf.constant(batch), self.test_data)
            self.coordinator.schedule(self._evaluation_step, args=arguments)
        self.coordinator.join()
