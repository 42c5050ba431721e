"""Data-parallel training by all-reduce: the same numbers on every rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tfscaling.datasets.catalogue import Arrays, Nest
from tfscaling.records.events import EventLog
from tfscaling.records.rank_report import Execution
from tfscaling.study.run_spec import RunSpec
from tfscaling.training import replica_state, user_model
from tfscaling.training.loop import (
    Measured,
    Result,
    TrainingLoop,
    make_optimizer,
    measured_by_itself,
    measured_by_sums,
    order_of_epoch,
)
from tfscaling.training.own_step import OwnStep

#: Steps of computation alone that each rank measures after the training.
COMPUTE_STEPS = 20


class Trainer(TrainingLoop):
    """One rank's part of the training of a model: a classifier, or one that trains itself.

    `strategy` is a tf.distribute.Strategy, `build_model` makes the Keras model, `arrays` are the
    dataset.
    """

    def __init__(
        self, strategy: Any, build_model: Callable[[], Any], arrays: Arrays, spec: RunSpec
    ) -> None:
        super().__init__(strategy, arrays, strategy.num_replicas_in_sync, spec)
        import keras

        tf = self.tf
        self.train_data = self._resident(arrays.train)
        self.test_data = self._resident(arrays.test)
        keras.utils.set_random_seed(self.seed)
        with strategy.scope():
            self.model = build_model()
            self.own: OwnStep | None = None
            if user_model.trains_itself(self.model, self.recipe):
                user_model.compile_as_asked(self.model, self.recipe, self.replicas)
                sample = self._gather(tf.range(self.batch), *arrays.train)
                self.own = OwnStep(self.model, sample, self.replicas)
                self.optimizer = self.model.optimizer
            else:
                user_model.check_classifier(self.model, arrays)
                self.optimizer = make_optimizer(self.recipe, self.replicas)
                self.optimizer.build(self.model.trainable_variables)
            # loss, correct answers and examples of this replica since the start of the epoch
            self.totals = tf.Variable(
                [0.0, 0.0, 0.0],
                trainable=False,
                dtype=tf.float64,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )
        tf.function(self._seed_replicas)()
        self._execute = tf.function(self._steps)
        self._compute_call = tf.function(self._compute)
        self._average_call = tf.function(self._average_statistics)
        self._evaluate_call = tf.function(self._evaluation)
        self._sum_call = tf.function(self._sum_totals)
        self._states_call = tf.function(self._own_states)
        self._reset_call = tf.function(self._zero_totals)

    def _resident(self, arrays: tuple[Nest, ...]) -> Any:
        """The same with each array as a value of every local device."""
        devices = self.strategy.extended.worker_devices

        def on_device(array: np.ndarray) -> Any:
            def value(context: Any) -> Any:
                local = context.replica_id_in_sync_group % len(devices)
                with self.tf.device(_data_device(devices[local])):
                    return self.tf.identity(self.tf.constant(array))

            return self.strategy.experimental_distribute_values_from_function(value)

        return self.tf.nest.map_structure(on_device, arrays)

    def _own(self, indices: Any, size: int) -> Any:
        """This replica's part of the indices of all replicas."""
        replica = self.tf.distribute.get_replica_context().replica_id_in_sync_group
        return self.tf.slice(indices, [replica * size], [size])

    def _weights(self, size: int, examples: Any) -> Any:
        """Weights of this replica's part of a global batch of which the first `examples` count."""
        tf = self.tf
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.cast(replica * size + tf.range(size) < examples, tf.float32)

    def _seed_replicas(self) -> None:
        """Give each replica random numbers of its own, by its number: dropout draws other masks."""
        states = replica_state.seeds(self.model)

        def replica() -> None:
            number = self.tf.distribute.get_replica_context().replica_id_in_sync_group
            for state in states:
                state.assign(replica_state.stream(state.value, number))

        if states:
            self.strategy.run(replica)

    def _gradients(self, indices: Any, examples: Any, *data: Any) -> tuple[Any, list[Any]]:
        """This replica's part of the loss, and the gradients of it.

        The first `examples` of the global batch count, the rest is padding.
        """
        batch, answers = self._gather(self._own(indices, self.batch), *data)
        weights = self._weights(self.batch, examples)
        with self.tf.GradientTape() as tape:
            sums = self._forward(batch, answers, weights, training=True)
            # gradients are summed over the replicas by the optimizer: divide by all examples
            loss = sums[0] / self.tf.cast(examples, self.tf.float32)
            scaled = self.optimizer.scale_loss(loss)
        self._count(sums)
        return loss, tape.gradient(scaled, self.model.trainable_variables)

    def _agreed(self, gradients: list[Any]) -> list[Any]:
        """The gradients, made not finite on every replica where they are not on one of them.

        A scaled loss can overflow on one replica alone. Keras's optimizer looks at each replica's
        own gradients to decide whether it skips the update: replicas would train on with
        different weights, or wait for ever for one that skips the all-reduce.
        """
        tf = self.tf
        own = tf.where(self.optimizer.check_finite(gradients), 0.0, 1.0)
        context = tf.distribute.get_replica_context()
        overflows = context.all_reduce(tf.distribute.ReduceOp.SUM, own)
        spoilt = tf.where(overflows > 0.0, float("nan"), 0.0)
        # one gradient is enough: the optimizer skips the whole update
        place = next(place for place, gradient in enumerate(gradients) if gradient is not None)
        first = gradients[place]
        if isinstance(first, tf.IndexedSlices):
            values = first.values + tf.cast(spoilt, first.dtype)
            first = tf.IndexedSlices(values, first.indices, first.dense_shape)
        else:
            first += tf.cast(spoilt, first.dtype)
        return [*gradients[:place], first, *gradients[place + 1 :]]

    def _replica_step(self, indices: Any, examples: Any, *data: Any) -> Any:
        if self.own is not None:
            own = self.tf.cast(self.tf.reduce_sum(self._weights(self.batch, examples)), "int32")
            self.own.train(self._gather(self._own(indices, self.batch), *data), own, examples)
            return self._progress()
        loss, gradients = self._gradients(indices, examples, *data)
        if self.replicas > 1 and self.recipe.precision == "mixed_float16":
            gradients = self._agreed(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss

    def _progress(self) -> Any:
        """A value that is there once the optimizer has updated the weights."""
        tf = self.tf
        first = tf.convert_to_tensor(self.model.trainable_variables[0].value)
        return tf.cast(tf.reshape(first, [-1])[0], tf.float32)

    def _step(self, order: Any, step: Any, *data: Any) -> Any:
        tf = self.tf
        examples = tf.minimum(self.global_batch, self.train_examples - step * self.global_batch)
        return self.strategy.run(self._replica_step, args=(order[step], examples, *data))

    def _steps(self, order: Any, start: Any, end: Any, *data: Any) -> Any:
        """Steps start to end - 1 of `order`; returns a value of the last of each local replica."""
        last = self._step(order, start, *data)
        # a loop that never runs would be traced and compiled as well
        if self.recipe.steps_per_execution > 1:
            for step in self.tf.range(start + 1, end):
                last = self._step(order, step, *data)
        return last

    def _evaluation(self, indices: Any, *data: Any) -> None:
        def replica(indices: Any, *data: Any) -> None:
            tf = self.tf
            own = self._own(indices, self.evaluation_batch)
            examples = self._gather(tf.maximum(own, 0), *data)
            if self.own is not None:
                self.own.test(examples, tf.reduce_sum(tf.cast(own >= 0, tf.int32)))
                return
            batch, answers = examples
            weights = tf.cast(own >= 0, tf.float32)
            self._count(self._forward(batch, answers, weights, training=False))

        self.strategy.run(replica, args=(indices, *data))

    def _average_statistics(self) -> None:
        """Give all replicas the mean of what each gathered, such as batch normalization's moments.

        Keras leaves each replica its own while training; the model that is evaluated must be one.
        """
        tf = self.tf
        own = [v for v in self.model.non_trainable_variables if v.dtype.startswith("float")]

        def replica() -> None:
            context = tf.distribute.get_replica_context()
            values = [tf.identity(variable.value) for variable in own]
            means = context.all_reduce(tf.distribute.ReduceOp.MEAN, values)
            for variable, mean in zip(own, means, strict=True):
                variable.assign(mean)

        if own:
            self.strategy.run(replica)

    def _sum_totals(self) -> Any:
        totals = self.strategy.run(self.totals.read_value)
        return self.strategy.reduce("SUM", totals, axis=None)

    def _own_states(self) -> Any:
        return self.strategy.run(self.own.states) if self.own else []

    def _zero_totals(self) -> None:
        if self.own is not None:
            self.strategy.run(self.own.reset)
        self.strategy.run(lambda: self.totals.assign(self.tf.zeros_like(self.totals)))

    def _reset(self) -> None:
        self._reset_call()

    def _measured(self) -> Measured:
        if self.own is not None:
            states = [self.strategy.experimental_local_results(s)[0] for s in self._states_call()]
            return measured_by_itself(*self.own.results(states))
        return measured_by_sums(*self._sum_call().numpy().tolist())

    def _train_epoch(self, epoch: int, order: np.ndarray, result: Result, events: EventLog) -> None:
        tf = self.tf
        steps, chunk = len(order), self.recipe.steps_per_execution
        indices = tf.constant(order)
        for start in range(0, steps, chunk):
            end = min(start + chunk, steps)
            start_s = time.perf_counter()
            loss = self._execute(indices, tf.constant(start), tf.constant(end), *self.train_data)
            # the value is fetched so that a step that a GPU has not finished is not counted as done
            for value in self.strategy.experimental_local_results(loss):
                value.numpy()
            duration_s = time.perf_counter() - start_s
            result.steps.append(Execution(epoch, start, end - start, duration_s))
            self._note(events, result, epoch, end)

    def compute_steps(self) -> list[float]:
        """Forward and backward pass of this rank without any other: no all-reduce, no update.

        A step of the training less this is communication, waiting for slower ranks, and the update.
        The ranks compute at the same time, as they do when they train; the first is not counted.
        """
        order = order_of_epoch(self.seed, 0, self.train_examples, self.global_batch)
        durations = []
        for number in range(COMPUTE_STEPS + 1):
            if number == 1:
                self._sum_call()  # all ranks have compiled: they go on together
            indices = self.tf.constant(order[number % len(order)])
            start_s = time.perf_counter()
            touched = self._compute_call(indices, *self.train_data)
            for value in self.strategy.experimental_local_results(touched):
                value.numpy()
            durations.append(time.perf_counter() - start_s)
        return durations[1:]

    def _compute(self, indices: Any, *data: Any) -> Any:
        def replica(indices: Any, *data: Any) -> Any:
            tf = self.tf
            if self.own is not None:
                gradients = self.own.gradients(
                    self._gather(self._own(indices, self.batch), *data)
                ) or [self._progress()]
            else:
                _, gradients = self._gradients(indices, self.global_batch, *data)
            # a number of each gradient, so that none is left out as unused
            dense = [tf.convert_to_tensor(g) for g in gradients if g is not None]
            return tf.add_n([tf.cast(tf.reshape(g, [-1])[0], tf.float32) for g in dense])

        return self.strategy.run(replica, args=(indices, *data))

    def _evaluate(self, indices: np.ndarray) -> None:
        self._average_call()
        for batch in indices:
            self._evaluate_call(self.tf.constant(batch), *self.test_data)


def _data_device(device: str) -> str:
    """Where a device's data lies: a CPU device itself, the host's memory for a GPU.

    TensorFlow has no GPU kernel that gathers bytes: data on the GPU would be copied to the host
    whole at each step, data on the host only in batches to the GPU.
    """
    import tensorflow as tf

    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type == "CPU":
        return device
    host: str = spec.replace(device_type="CPU", device_index=0).to_string()
    return host
