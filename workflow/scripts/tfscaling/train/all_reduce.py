"""Data-parallel training by all-reduce on arrays: the same numbers on every rank."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from tfscaling.datasets.catalogue import Arrays, Nest
from tfscaling.record.events import EventLog
from tfscaling.record.rank_report import Execution, GradientNorms
from tfscaling.spec.run_spec import RunSpec
from tfscaling.train import byte_inputs, example_order, optimizers, user_model
from tfscaling.train.all_reduce_loop import AllReduceLoop
from tfscaling.train.example_order import ExampleOrder
from tfscaling.train.loop import compiled
from tfscaling.train.measured import Result


class Trainer(AllReduceLoop):
    """One rank's part of the training of a model on arrays, which lie on the devices as a whole.

    `strategy` is a tf.distribute.Strategy, `build_model` makes the Keras model, `arrays` are the
    dataset.
    """

    def __init__(
        self, strategy: Any, build_model: Callable[[], Any], arrays: Arrays, spec: RunSpec
    ) -> None:
        super().__init__(strategy, spec)
        tf = self.tf
        self.order = ExampleOrder(arrays, self.global_batch, self.replicas)
        self.train_examples, self.test_examples = arrays.train_examples, arrays.test_examples
        self._train_layouts, self.train_data = self._resident(arrays.train)
        self._test_layouts, self.test_data = self._resident(arrays.test)
        self.make_model(
            build_model,
            lambda: self._gather(tf.range(self.batch), *arrays.train),
            lambda: user_model.problem_of_labels(arrays),
        )
        byte_inputs.check(self.model, arrays.x_train)
        self._execute = compiled(self._steps)
        self._computation = compiled(self._compute)
        self._evaluate_call = compiled(self._evaluation)
        self._norms_call = compiled(self._norms)

    def _resident(self, arrays: tuple[Nest, ...]) -> tuple[Any, Any]:
        """The same with the layout of each array, and with each as a value of every local device.

        A GPU holds them itself where they fit: on the host each step would gather its examples and
        copy them.
        """
        tf, devices = self.tf, self.strategy.extended.worker_devices
        size = sum(array.nbytes for array in tf.nest.flatten(arrays))
        places = [example_order.device_of(device, size) for device in devices]
        layouts = tf.nest.map_structure(
            lambda array: example_order.Layout.of(array, on_gpu=example_order.is_gpu(places[0])),
            arrays,
        )

        def on_device(array: np.ndarray, layout: example_order.Layout) -> Any:
            stored = layout.stored(array)

            def value(context: Any) -> Any:
                local = context.replica_id_in_sync_group % len(devices)
                with tf.device(places[local]):
                    return tf.identity(tf.constant(stored))

            return self.strategy.experimental_distribute_values_from_function(value)

        return layouts, tf.nest.map_structure(on_device, arrays, layouts)

    def _taken(self, layouts: Any, indices: Any, data: tuple[Any, ...]) -> tuple[Any, ...]:
        """In a replica: the examples at `indices` of its data, as `fit` has them of arrays."""
        found = self.tf.nest.map_structure(
            lambda layout, part: layout.taken(part, indices), layouts, data
        )
        return self._as_fit_has_them(found)

    def _trained(self, indices: Any, data: tuple[Any, ...]) -> tuple[Any, ...]:
        """In a replica: its part of the training examples at the indices of all replicas."""
        return self._taken(self._train_layouts, self._own(indices, self.batch), data)

    def _own(self, indices: Any, size: int) -> Any:
        """This replica's part of the indices of all replicas."""
        replica = self.tf.distribute.get_replica_context().replica_id_in_sync_group
        return self.tf.slice(indices, [replica * size], [size])

    def _weights(self, size: int, examples: Any) -> Any:
        """Weights of this replica's part of a global batch of which the first `examples` count."""
        tf = self.tf
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.cast(replica * size + tf.range(size) < examples, tf.float32)

    def _replica_step(self, indices: Any, examples: Any, *data: Any) -> Any:
        batch = self._trained(indices, data)
        return self.train_on(batch, self._weights(self.batch, examples), examples)

    def _step(self, order: Any, step: Any, *data: Any) -> Any:
        tf = self.tf
        examples = tf.minimum(self.global_batch, self.train_examples - step * self.global_batch)
        return self.strategy.run(self._replica_step, args=(order[step], examples, *data))

    def _steps(self, order: Any, start: Any, end: Any, *data: Any) -> Any:
        """Steps start to end - 1 of `order`; returns a value of the last of each local replica."""
        last = self._step(order, start, *data)
        if self.recipe.steps_per_execution == 1:
            return last  # a loop that never runs would be traced and compiled as well
        _, last = self.tf.while_loop(
            lambda step, _: step < end,
            lambda step, _: (step + 1, self._step(order, step, *data)),
            (start + 1, last),
        )
        return last

    def _evaluation(self, indices: Any, *data: Any) -> None:
        def replica(indices: Any, *data: Any) -> None:
            tf = self.tf
            own = self._own(indices, self.order.evaluation_batch)
            batch = self._taken(self._test_layouts, tf.maximum(own, 0), data)
            self.test_on(batch, tf.cast(own >= 0, tf.float32))

        self.strategy.run(replica, args=(indices, *data))

    def _compute(self, order: Any, *data: Any) -> Any:
        def replica(indices: Any, *data: Any) -> Any:
            batch = self._trained(indices, data)
            return self.compute_on(batch, self._weights(self.batch, self.global_batch))

        return self.strategy.run(replica, args=(order[0], *data))

    def _norms(self, order: Any, *data: Any) -> Any:
        def replica(indices: Any, *data: Any) -> Any:
            batch = self._trained(indices, data)
            return self.norms_on(batch, self._weights(self.batch, self.global_batch))

        return self.strategy.run(replica, args=(order[0], *data))

    def gradient_norms(self, epoch: int) -> GradientNorms:
        # other batches than those of any epoch that is trained
        order = self.order.of_epoch(self.seed, self.recipe.epochs + epoch)
        whole = order[: min(optimizers.STEPS, self.train_examples // self.global_batch)]
        found = [
            self._fetch(self._norms_call(self.tf.constant(rows[None]), *self.train_data))[0]
            for rows in whole
        ]
        found = [norms for norms in found if np.isfinite(norms).all()]
        return GradientNorms(
            epoch=epoch,
            part_examples=self.batch if self.replicas > 1 else self.batch // 2,
            whole_examples=self.global_batch,
            parts=tuple(float(parts) for parts, _ in found),
            whole=tuple(float(together) for _, together in found),
        )

    def _train_epoch(self, epoch: int, result: Result, events: EventLog) -> None:
        self._train_order(epoch, self.order.of_epoch(self.seed, epoch), result, events)

    def _begin_epoch_anew(self) -> None:
        super()._begin_epoch_anew()
        self.tf.constant(self.order.of_epoch(self.seed, self.recipe.epochs))

    def _train_order(self, epoch: int, order: np.ndarray, result: Result, events: EventLog) -> None:
        """Train on `order`, indices of shape (steps, global batch)."""
        tf = self.tf
        steps, chunk = self._steps_of_epoch(len(order)), self.recipe.steps_per_execution
        indices = tf.constant(order)
        begun, duration_s = self._begun.step, 0.0
        for start in range(begun, steps, chunk):
            end = min(start + chunk, steps)
            start_s = time.perf_counter()
            self._fetch(
                self._execute(indices, tf.constant(start), tf.constant(end), *self.train_data)
            )
            is_whole = self._exchanged(end, steps) or not result.steps
            duration_s += time.perf_counter() - start_s
            if is_whole:
                result.steps.append(Execution(epoch, begun, end - begun, duration_s))
                self._note(events, result, epoch, end)
                begun, duration_s = end, 0.0
                if end < steps:
                    self._after_step(result, epoch, end, end * self.global_batch)
            else:
                self._sign_of_life(events, epoch, end)

    def _batches_with_input(self) -> AbstractContextManager[Iterator[Any]]:
        return nullcontext(self._batches_without_input())

    def _batches_without_input(self) -> Iterator[Any]:
        """Indices of global batches, each of shape (1, global batch): the data are there."""
        rows = self.order.of_epoch(self.seed, 0)
        return itertools.cycle(self.tf.constant(row[None]) for row in rows)

    def _train_call(self, batch: Any) -> Any:
        return self._execute(batch, self.tf.constant(0), self.tf.constant(1), *self.train_data)

    def _compute_call(self, batch: Any) -> Any:
        return self._computation(batch, *self.train_data)

    def _evaluate(self) -> None:
        self._average_call()
        for batch in self.order.of_evaluation():
            self._evaluate_call(self.tf.constant(batch), *self.test_data)
