"""Data-parallel training by all-reduce on arrays: the same numbers on every rank.

The order of the examples depends on the seed and the global batch only, not on how replicas are
spread over workers and devices: the same replicas give the same model wherever they run.

Each step gathers its examples on the device. TensorFlow has no GPU kernel that gathers bytes, and
keeps int32 of a GPU in the host's memory: a GPU holds such arrays in a type with the same values,
and a batch gets its own type again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tfscaling.datasets.catalogue import Arrays, Nest
from tfscaling.record.events import EventLog
from tfscaling.record.rank_report import Execution
from tfscaling.study.run_spec import RunSpec
from tfscaling.train import user_model
from tfscaling.train.all_reduce_loop import AllReduceLoop
from tfscaling.train.loop import TrainingResult, make_graph_function

#: Highest number of held-out examples per replica in one call.
EVALUATION_BATCH = 500


def order_of_epoch(seed: int, epoch: int, examples: int, batch: int) -> np.ndarray:
    """Return a random order of an epoch's examples: indices, int32 of shape (steps, batch).

    Each index occurs once, but an incomplete last batch is filled with the first indices of the
    epoch. So all steps have the same shape, and batch statistics come from real examples.

    Args:
        seed: Seed of the run.
        epoch: Number of the epoch, which changes the order.
        examples: Number of examples.
        batch: Global batch size, in examples.
    """
    steps = -(-examples // batch)
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return np.resize(order, (steps, batch)).astype(np.int32)


class ExampleOrder:
    """The examples of each training step and of each evaluation step, as indices into arrays.

    Args:
        arrays: The data.
        global_batch: Examples per step over all replicas.
        replicas: Number of replicas.

    Raises:
        ValueError: The data has fewer training examples than a global batch.
    """

    def __init__(self, arrays: Arrays, global_batch: int, replicas: int) -> None:
        self.global_batch, self.replicas = global_batch, replicas
        self.train_examples, self.test_examples = arrays.train_examples, arrays.test_examples
        if self.train_examples < global_batch:
            raise ValueError(
                f"{self.train_examples} training examples are fewer than the global batch of "
                f"{global_batch}"
            )
        # of a replica in a call; padding is computed as well: no more than a small test set needs
        self.evaluation_batch = min(EVALUATION_BATCH, -(-self.test_examples // replicas))

    def epoch_indices(self, seed: int, epoch: int) -> np.ndarray:
        """Return an epoch's indices, int32 of shape (steps, global batch); see `order_of_epoch`.

        Args:
            seed: Seed of the run.
            epoch: Number of the epoch.
        """
        return order_of_epoch(seed, epoch, self.train_examples, self.global_batch)

    def evaluation_indices(self) -> np.ndarray:
        """Return the indices of all held-out examples, each once, padded with -1 at the end.

        Each row has the indices for one step of all replicas. The type is int32.
        """
        width = self.evaluation_batch * self.replicas
        indices = np.full(-(-self.test_examples // width) * width, -1, np.int32)
        indices[: self.test_examples] = np.arange(self.test_examples)
        return indices.reshape(-1, width)


#: Type of an array that no GPU gathers, or that it keeps in the host's memory → a type that holds
#: all its values, and that a GPU gathers.
GPU_TYPES = {
    "uint8": "float16",
    "int8": "float16",
    "uint16": "float32",
    "int16": "float32",
    "int32": "int64",
    "uint32": "int64",
    "uint64": "int64",
}
#: Size of the largest arrays that a GPU stores; the rest of its memory is for the training.
GPU_BYTES_MAX = 1 << 30


def convert_for_gpu(array: np.ndarray) -> np.ndarray:
    """Return the array in the type in which a GPU stores and gathers it; see GPU_TYPES."""
    return array.astype(GPU_TYPES.get(array.dtype.name, array.dtype), copy=False)


def storage_device(device: str, size: int) -> str:
    """Return the name of the device that stores an array for a device that computes with it.

    Args:
        device: Name of the device that computes.
        size: Size of the array in bytes; beyond GPU_BYTES_MAX, the host's CPU stores it.
    """
    import tensorflow as tf

    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type == "CPU" or size <= GPU_BYTES_MAX:
        return device
    host: str = spec.replace(device_type="CPU", device_index=0).to_string()
    return host


def is_gpu(device: str) -> bool:
    """Return whether a TensorFlow device, given by its name, is a GPU."""
    import tensorflow as tf

    return bool(tf.DeviceSpec.from_string(device).device_type == "GPU")


class ArrayTrainer(AllReduceLoop):
    """One rank's part of the training of a model on arrays, which are stored on the devices.

    Args:
        strategy: The `tf.distribute.Strategy`.
        build_model: Returns the Keras model.
        arrays: The complete data, equal on all ranks.
        spec: The run.
    """

    def __init__(
        self, strategy: Any, build_model: Callable[[], Any], arrays: Arrays, spec: RunSpec
    ) -> None:
        super().__init__(strategy, spec)
        tf = self.tf
        self.order = ExampleOrder(arrays, self.global_batch, self.replicas)
        self.train_examples, self.test_examples = arrays.train_examples, arrays.test_examples
        self._has_padding = self.train_examples % self.global_batch > 0
        self.train_data, self.test_data = (
            self._put_on_devices(arrays.train),
            self._put_on_devices(arrays.test),
        )
        self._train_types, self._test_types = (
            tf.nest.map_structure(lambda array: array.dtype, part)
            for part in (arrays.train, arrays.test)
        )
        self.make_model(
            build_model,
            lambda: self._gather_examples(tf.range(self.batch), arrays.train),
            lambda: user_model.label_problem(arrays.train, arrays.test),
        )
        self._execute = make_graph_function(self._train_steps)
        self._computation = self._make_replica_function(self._compute)
        self._evaluate_call = self._make_replica_function(self._evaluate_part)

    def _put_on_devices(self, arrays: tuple[Nest, ...]) -> Any:
        """Return arrays as per-replica values on the local devices; large arrays stay on the host.

        Args:
            arrays: Nested arrays, such as (inputs, labels).
        """
        tf, devices = self.tf, self.strategy.extended.worker_devices
        size = sum(array.nbytes for array in tf.nest.flatten(arrays))
        places = [storage_device(device, size) for device in devices]

        def on_device(array: np.ndarray) -> Any:
            """Return the per-replica value of one array."""
            stored = convert_for_gpu(array) if is_gpu(places[0]) else array

            def value(context: Any) -> Any:
                """Return the array as a tensor on the device of one replica."""
                local = context.replica_id_in_sync_group % len(devices)
                with tf.device(places[local]):
                    return tf.identity(tf.constant(stored))

            return self.strategy.experimental_distribute_values_from_function(value)

        return tf.nest.map_structure(on_device, arrays)

    def _training_part(self, indices: Any, data: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the training examples of this replica's part of a global batch.

        Args:
            indices: Indices of the global batch, int32 (global batch,).
            data: The training data on this replica's device.
        """
        return self._gather_examples(self._own_part(indices, self.batch), data, self._train_types)

    def _own_part(self, indices: Any, size: int) -> Any:
        """Return this replica's part of the indices of all replicas; call it in a replica.

        Args:
            indices: Indices of all replicas, int32 (replicas * size,).
            size: Number of indices of each replica.
        """
        replica = self.tf.distribute.get_replica_context().replica_id_in_sync_group
        return self.tf.slice(indices, [replica * size], [size])

    def _weights(self, examples: Any) -> Any:
        """Return the weights of this replica's part of a batch: 1 for examples, 0 for padding.

        Args:
            examples: Number of examples in the global batch; padding follows them.

        Returns:
            float32 of shape (batch per replica,); None if no batch of an epoch has padding.
        """
        if not self._has_padding:
            return None
        tf = self.tf
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.cast(replica * self.batch + tf.range(self.batch) < examples, tf.float32)

    def _replica_step(self, indices: Any, examples: Any, *data: Any) -> Any:
        """Train one step in a replica; return a value that is available once it is trained.

        Args:
            indices: Indices of the global batch.
            examples: Number of examples in the global batch; the other indices are padding.
            *data: The training data on this replica's device.
        """
        batch = self._training_part(indices, data)
        return self.train_on(batch, self._weights(examples), examples)

    def _train_step(self, order: Any, step: Any, *data: Any) -> Any:
        """Train one step on all replicas.

        Args:
            order: Indices of the epoch, (steps, global batch).
            step: Number of the step in the epoch.
            *data: The training data, per replica.

        Returns:
            A tensor of each replica. Whoever waits for it waits for the end of the step.
        """
        tf = self.tf
        examples = tf.minimum(self.global_batch, self.train_examples - step * self.global_batch)
        return self.strategy.run(self._replica_step, args=(order[step], examples, *data))

    def _train_steps(self, order: Any, start: Any, end: Any, *data: Any) -> Any:
        """Train consecutive steps in one graph; return what the last `_train_step` returned.

        Args:
            order: Indices of the epoch, (steps, global batch).
            start: Number of the first step.
            end: Number of the last step, plus 1.
            *data: The training data, per replica.
        """
        last = self._train_step(order, start, *data)
        if self.recipe.steps_per_execution == 1:
            return last  # a loop that never runs would be traced and compiled as well
        _, last = self.tf.while_loop(
            lambda step, _: step < end,
            lambda step, _: (step + 1, self._train_step(order, step, *data)),
            (start + 1, last),
        )
        return last

    def _evaluate_part(self, indices: Any, *data: Any) -> None:
        """Evaluate the model, in a replica, on the replica's part of one evaluation step.

        `test_on` adds the results to the replica's sums of loss, correct answers and examples. For
        a model with its own loss it adds the examples only and updates the model's metrics.

        Args:
            indices: Indices of the step's held-out examples, int32 (replicas * evaluation batch,):
                first the part of replica 0, then the part of replica 1, and so on; -1 is padding.
            *data: All held-out data, on this replica's device or, if it is large, in the memory of
                the host.
        """
        tf = self.tf
        own = self._own_part(indices, self.order.evaluation_batch)
        batch = self._gather_examples(tf.maximum(own, 0), data, self._test_types)
        self.test_on(batch, tf.cast(own >= 0, tf.float32))

    def _compute(self, order: Any, *data: Any) -> Any:
        """Run forward and backward pass in a replica, without communication and update.

        `compute_steps` measures this. Whoever waits for the returned value waits for all gradients.

        Args:
            order: Indices of one global batch, (1, global batch).
            *data: The training data on this replica's device.
        """
        batch = self._training_part(order[0], data)
        return self.compute_on(batch, self._weights(self.global_batch))

    def _before_first_step(self) -> None:
        """Do what precedes an epoch's first step: reset the sums, and copy indices to the device.

        The indices are the order of an epoch's examples. They are not used: only the time counts.
        """
        super()._before_first_step()
        self.tf.constant(self.order.epoch_indices(self.seed, self.recipe.epochs))

    def _train_epoch(self, epoch: int, result: TrainingResult, events: EventLog) -> None:
        """Train one epoch and append the durations of its steps to `result.steps`.

        A call of the graph trains `steps_per_execution` steps. `result.steps` gets one entry for
        each call, with the duration of all its steps.

        Args:
            epoch: Number of the epoch.
            result: The measurements so far.
            events: The rank's event log.
        """
        tf, order = self.tf, self.order.epoch_indices(self.seed, epoch)
        steps, chunk = self._steps_of_epoch(len(order)), self.recipe.steps_per_execution
        indices = tf.constant(order)
        for start in range(self._begun.step_in_epoch, steps, chunk):
            end = min(start + chunk, steps)
            start_s = time.perf_counter()
            self._wait_for_values(
                self._execute(indices, tf.constant(start), tf.constant(end), *self.train_data)
            )
            duration_s = time.perf_counter() - start_s
            result.steps.append(Execution(epoch, start, end - start, duration_s))
            self._log_step(events, result, epoch, end)
            if end < steps and self._after_step(result, epoch, end, end * self.global_batch):
                break

    def some_examples(self) -> tuple[Any, ...]:
        """Return the first global batch of the training examples, as the model gets them."""
        first = range(min(self.global_batch, self.train_examples))
        data = self.tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], self.train_data
        )
        return self._gather_examples(self.tf.constant([*first]), data, self._train_types)

    def _computations(self) -> Iterator[Callable[[], Any]]:
        """Yield functions that run only forward and backward pass, each on one global batch."""
        for row in itertools.cycle(self.order.epoch_indices(self.seed, 0)):
            yield partial(self._computation, self.tf.constant(row[None]), *self.train_data)

    def _evaluate(self) -> None:
        """Evaluate all held-out examples, and add their losses and correct answers to the sums.

        For a model with its own loss, the model's metrics are updated in their place.
        """
        self._average_call()
        for batch in self.order.evaluation_indices():
            self._evaluate_call(self.tf.constant(batch), *self.test_data)
