"""All-reduces timed alone, as the training does them.

Strategy, devices and calls are the same as in the training: Keras's optimizers sum gradients over
the replicas by `all_reduce` of the replica context. Ranks start each repetition together, so that
none counts the wait for another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from tfscaling.launch.rank_process import RankContext
from tfscaling.record.rank_report import AllReduces, BenchmarkReport
from tfscaling.spec.run_spec import BenchmarkSpec
from tfscaling.spec.user_code import NOTHING, Given
from tfscaling.train import models, rank, strategies
from tfscaling.train.strategies import STRATEGIES

#: Untimed calls: the first traces, the second makes connections and buffers.
WARM_UP = 2
#: Small payloads are reduced so often in one call that its own overhead does not count: as often as
#: these bytes have room for, at most CALL_MAX times.
CALL_BYTES, CALL_MAX = 1 << 24, 10
Payload = Literal["gradient", "sweep"]

#: (shape, name of the dtype) of each tensor.
Shapes = Sequence[tuple[tuple[int, ...], str]]


class WrongSumError(RuntimeError):
    """An all-reduce did not give the sum over all replicas."""


def run(context: RankContext, spec: BenchmarkSpec) -> BenchmarkReport:
    """Time all payloads on this rank and return its report."""
    names = rank.prepare(context, spec)
    strategies.set_precision(spec.precision)
    strategy = STRATEGIES[spec.point.strategy].build(names, spec.communication)
    context.events.add("rendezvous", replicas=strategy.num_replicas_in_sync)
    gradient = gradient_shapes(spec.point.model, spec.model_parameters)
    payloads: list[tuple[Payload, Shapes]] = [("gradient", gradient)]
    payloads += [("sweep", [((size // 4,), "float32")]) for size in spec.sizes_bytes]
    barrier = AllReduce(strategy, [((1,), "float32")]).call
    measured = []
    for payload, shapes in payloads:
        reduction = AllReduce(strategy, shapes)
        durations = reduction.durations(spec.repetitions, barrier)
        context.events.add("timed", payload=payload, bytes=reduction.bytes)
        measured.append(
            AllReduces(
                payload=payload,
                bytes=reduction.bytes,
                tensors=len(shapes),
                all_reduces_per_call=reduction.per_call,
                durations_s=tuple(durations),
            )
        )
        if context.cluster.rank == 0:
            middle = 1000 * float(np.median(durations))
            print(f"{payload}, {reduction.bytes} bytes: {middle:.3f} ms", flush=True)
    STRATEGIES[spec.point.strategy].end()
    place = rank.place_of(context, spec, strategies.in_use(strategy))
    return BenchmarkReport(
        **msgspec.structs.asdict(place),
        replicas=strategy.num_replicas_in_sync,
        all_reduces=tuple(measured),
    )


def gradient_shapes(model: str, parameters: Given = NOTHING) -> Shapes:
    """Shapes and dtypes of the model's gradients: as its variables, none of them sparse."""
    import tensorflow as tf

    with tf.device("CPU:0"):  # only looked at: on a GPU it would take memory
        variables = models.get(model, parameters).build().trainable_variables
    return [(tuple(v.shape), str(v.dtype)) for v in variables]


class AllReduce:
    """Sums a list of tensors over all replicas, `per_call` times in one call.

    Tensors are as from `contribution`. Each further all-reduce takes numbers from what the one
    before gave: it has to wait for it, and the sum stays the same.
    """

    def __init__(self, strategy: Any, shapes: Shapes) -> None:
        import tensorflow as tf

        self.tf, self.strategy, self.shapes = tf, strategy, shapes
        self.replicas = strategy.num_replicas_in_sync
        sizes = [int(np.prod(shape)) * tf.as_dtype(name).size for shape, name in shapes]
        self.bytes = sum(sizes)
        self.per_call = max(1, min(CALL_MAX, CALL_BYTES // self.bytes))
        self.values = [self._resident(*shape) for shape in shapes]
        self._call = tf.function(self._all_reduces)

    def _resident(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A tensor on each local device, as a per-replica value."""
        local_devices = self.strategy.extended.worker_devices

        def value(context: Any) -> Any:
            replica = context.replica_id_in_sync_group
            with self.tf.device(local_devices[replica % len(local_devices)]):
                own = contribution(shape, self.tf.as_dtype(dtype).size, replica, self.replicas)
                return self.tf.identity(self.tf.cast(own, dtype))

        return self.strategy.experimental_distribute_values_from_function(value)

    def _sum(self, values: list[Any]) -> list[Any]:
        # an argument of a tf.function has no device in it, which a sum of one device has to have
        values = [self.tf.identity(value) for value in values]
        context = self.tf.distribute.get_replica_context()
        return list(context.all_reduce(self.tf.distribute.ReduceOp.SUM, values))

    def _sum_again(self, values: list[Any], sums: list[Any]) -> list[Any]:
        return self._sum([self._next(*pair) for pair in zip(values, sums, strict=True)])

    def _next(self, own: Any, total: Any) -> Any:
        """What gives the same sum: the mean, or in 16 bits what this replica alone had in it."""
        if total.dtype.size > 2:
            return total / self.tf.cast(self.replicas, total.dtype)
        return self.tf.where(own == 0, own, total)

    def _witness(self, sums: list[Any]) -> Any:
        """A number that is known once all tensors are summed."""
        tf = self.tf
        return tf.add_n([tf.cast(tf.reshape(total, [-1])[0], tf.float32) for total in sums])

    def _all_reduces(self, values: list[Any]) -> tuple[list[Any], Any]:
        sums = self.strategy.run(self._sum, args=(values,))
        if self.per_call > 1:
            for _ in self.tf.range(self.per_call - 1):
                sums = self.strategy.run(self._sum_again, args=(values, sums))
        return sums, self.strategy.run(self._witness, args=(sums,))

    def call(self) -> list[Any]:
        """One call; returns the sums when all local devices have them."""
        sums, witnesses = self._call(self.values)
        for value in self.strategy.experimental_local_results(witnesses):
            value.numpy()
        return list(sums)

    def durations(self, repetitions: int, barrier: Callable[[], Any]) -> list[float]:
        """Seconds of one all-reduce in each repetition; every sum is checked."""
        found = []
        for _ in range(WARM_UP + repetitions):
            barrier()
            start_s = time.perf_counter()
            sums = self.call()
            found.append((time.perf_counter() - start_s) / self.per_call)
            self.check(sums)
        return found[WARM_UP:]

    def check(self, sums: Sequence[Any]) -> None:
        """Raise WrongSumError unless every element on every local device is the sum."""
        for (shape, name), total in zip(self.shapes, sums, strict=True):
            expected = total_of(shape, self.tf.as_dtype(name).size, self.replicas)
            for value in self.strategy.experimental_local_results(total):
                found = self.tf.cast(value, self.tf.float64).numpy()
                wrong = found != expected
                if wrong.any():
                    place = np.unravel_index(int(wrong.argmax()), wrong.shape)
                    raise WrongSumError(
                        f"the all-reduce of {self.bytes} bytes over {self.replicas} replicas gave "
                        f"{found[place]:g} instead of {expected[place]:g} at {wrong.sum()} of "
                        f"{wrong.size} elements or more"
                    )


def contribution(
    shape: tuple[int, ...], bytes_per_number: int, replica: int, replicas: int
) -> np.ndarray:
    """What a replica adds to a sum: element j is replica + 1 + j % 7.

    Sums of many such numbers are exact in 32 bits, but not in 16. With these replica j % replicas
    alone has 1 + j % 7 in element j, and the others 0.
    """
    numbers = pattern(shape) + 1
    if bytes_per_number > 2:
        return numbers + replica
    owner = np.arange(numbers.size).reshape(shape) % replicas
    return np.where(owner == replica, numbers, 0.0)


def total_of(shape: tuple[int, ...], bytes_per_number: int, replicas: int) -> np.ndarray:
    """The sum of what all replicas contribute."""
    numbers = pattern(shape) + 1
    if bytes_per_number > 2:
        return replicas * numbers + replicas * (replicas - 1) / 2
    return numbers


def pattern(shape: tuple[int, ...]) -> np.ndarray:
    """0 to 6 again and again."""
    return np.asarray(np.arange(int(np.prod(shape))) % 7, np.float64).reshape(shape)
