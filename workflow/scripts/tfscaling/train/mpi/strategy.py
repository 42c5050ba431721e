"""The strategy `mpi_all_reduce`: one replica, on one device, in each rank; sums by MPI.

Keras's optimizers, metrics and moments sum by the all-reduce of the replica context, here by MPI.
Each bucket of tensors is an operation that waits for these tensors only: the gradients that the
backward pass makes first are summed while it makes the others.

All ranks must call MPI in the same order, or they wait for each other for ever: each call waits for
the one before it in its graph. Loops, conditions and functions have separate graphs: there a
variable is read before the first call and written after the last. TensorFlow keeps the order in
which a program reads and writes a variable across graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tfscaling.train import keras_internals, optimizers
from tfscaling.train.mpi import library
from tfscaling.train.mpi.sums import RankSums

#: Size of a bucket. Tensors up to this size together share a message, for which they are copied; a
#: larger one is a separate message, without a copy.
BUCKET_BYTES = 1 << 20
#: Type that MPI does not have → type in which its numbers are summed.
_SUM_TYPES = {"float16": "float32", "bfloat16": "float32"}
#: Attribute of a graph that has the graph's `_Calls`.
_CALLS = "tfscaling_calls_of_mpi"


class TensorSize(NamedTuple):
    """Size and data type of a tensor, by which tensors are grouped.

    Attributes:
        bytes: Size; infinite for sparse tensors and unknown shapes, which are sent alone.
        dtype: Name of the data type.
    """

    bytes: float
    dtype: str


def group_into_buckets(parts: Sequence[TensorSize]) -> list[list[int]]:
    """Return groups of tensors to sum in one message, each as a list of indices.

    The order is the order in which a backward pass computes gradients: the last variable first.

    Args:
        parts: Sizes and types of the tensors.
    """
    found: list[list[int]] = []
    room, dtype = 0.0, ""
    for place in reversed(range(len(parts))):
        part = parts[place]
        if part.dtype == dtype and part.bytes <= room:
            found[-1].append(place)
            room -= part.bytes
        else:
            found.append([place])
            dtype, room = part.dtype, BUCKET_BYTES - part.bytes
    return found


@dataclass
class _Calls:
    """The MPI calls in a graph that must run in their order, without calls of other graphs between.

    `MpiAllReduce._turns` is a variable that only serves this order. A graph reads it before its
    first call and writes it after its last call. TensorFlow runs all reads and writes of a variable
    one after the other.

    Attributes:
        own: Names of this graph's operations that read or write the variable for these calls.
        last: The operation after which the next call must run: the last call so far; before the
            first call, the operation that reads the variable.
        end: The operation that writes the variable after the calls; None before the first call.
    """

    own: set[str]
    last: Any
    end: Any = None


class MpiAllReduce:
    """All-reduce, all-gather and broadcast of tensors by MPI, in the same order on all ranks.

    Construct it outside of a strategy's scope.

    Args:
        world: mpi4py's communicator of all ranks.
    """

    def __init__(self, world: Any) -> None:
        import tensorflow as tf

        self.tf, self.world = tf, world
        self._sums = RankSums(world, library.node_communicator(world))
        with tf.device("CPU:0"):
            self._turns = tf.Variable(0, trainable=False, dtype=tf.int64)

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the sum of each tensor over all ranks.

        The sum of tf.IndexedSlices has the slices of all ranks, in the order of the ranks. Their
        number may differ between ranks.

        Args:
            tensors: This rank's tensors; shapes and types are equal on all ranks.
        """
        tf = self.tf
        given = [t if _is_sparse(t) else tf.convert_to_tensor(t) for t in tensors]
        sums: list[Any] = [None] * len(given)
        for bucket in group_into_buckets([_tensor_size(tensor) for tensor in given]):
            found = self._sum_bucket([given[place] for place in bucket])
            for place, total in zip(bucket, found, strict=True):
                sums[place] = total
        return sums

    def all_gather(self, tensors: Sequence[Any]) -> list[Any]:
        """Return each tensor with the rows of all ranks, in the order of the ranks.

        Args:
            tensors: This rank's tensors, with equal numbers of rows; other ranks may have other
                numbers.
        """
        found = self._call_in_order(
            self._gather_arrays, tensors, [tensor.dtype for tensor in tensors]
        )
        for tensor, rows in zip(tensors, found, strict=True):
            rows.set_shape([None, *tensor.shape[1:]])
        return found

    def broadcast(self, value: np.ndarray) -> np.ndarray:
        """Return rank 0's array on all ranks.

        Args:
            value: This rank's array; shape and type are equal on all ranks.
        """
        found = np.array(value)
        self.world.Bcast(found.reshape(-1).view(np.uint8))
        return found

    def _sum_bucket(self, tensors: list[Any]) -> list[Any]:
        """Return the sum over all ranks of each of some tensors, which share a message."""
        tf = self.tf
        if _is_sparse(tensors[0]):
            (own,) = tensors
            values, indices = self.all_gather([own.values, own.indices])
            return [tf.IndexedSlices(values, indices, own.dense_shape)]
        if len(tensors) == 1:
            return [self._sum(tensors[0])]
        sizes = [tensor.shape.num_elements() for tensor in tensors]
        together = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
        parts = tf.split(self._sum(together), sizes)
        return [tf.reshape(p, t.shape) for p, t in zip(parts, tensors, strict=True)]

    def _sum(self, tensor: Any) -> Any:
        """Return the sum over all ranks of a dense tensor, in its type."""
        own = self.tf.cast(tensor, _SUM_TYPES.get(tensor.dtype.name, tensor.dtype))
        (total,) = self._call_in_order(self._sum_array, [own], own.dtype)
        total.set_shape(tensor.shape)
        return self.tf.cast(total, tensor.dtype)

    def _call_in_order(
        self, function: Callable[..., Any], tensors: Sequence[Any], types: Any
    ) -> list[Any]:
        """Apply a function with MPI calls to tensors, after all earlier MPI calls.

        Args:
            function: Takes and returns NumPy arrays.
            tensors: Its arguments.
            types: Data types of its results.
        """
        tf = self.tf
        called = partial(tf.numpy_function, function, tensors, types)
        with tf.device("CPU:0"):
            if tf.executing_eagerly():
                return tf.nest.flatten(called())
            calls = self._calls_of_graph()
            with tf.control_dependencies([calls.last]):
                found = tf.nest.flatten(called())
            calls.last = found[0].op
            if calls.end is None:
                with tf.control_dependencies([calls.last]):
                    calls.end = self._turns.assign_add(1, read_value=False)
                calls.own.add(calls.end.name)
            else:
                keras_internals.run_after(calls.end, calls.last)
        return found

    def _calls_of_graph(self) -> _Calls:
        """Return the MPI calls in the present graph that the next MPI call must follow.

        A new, empty sequence is begun if another graph has made calls since.
        """
        graph = self.tf.compat.v1.get_default_graph()
        users = {op.name for op in graph.capture(self._turns.handle).consumers()}
        calls: _Calls | None = getattr(graph, _CALLS, None)
        if calls is None or users - calls.own:  # another graph has calls after these
            first = self._turns.read_value().op
            users = {op.name for op in graph.capture(self._turns.handle).consumers()}
            calls = _Calls(users, first)
            setattr(graph, _CALLS, calls)
        return calls

    def _sum_array(self, own: np.ndarray) -> np.ndarray:
        """Return the sum of an array over all ranks, with the same shape."""
        return self._sums.sum(own.reshape(-1)).reshape(own.shape)

    def _gather_arrays(self, *own: np.ndarray) -> list[np.ndarray]:
        """Return each array with the rows of all ranks, in the order of the ranks."""
        counts = np.zeros(self.world.size, np.int64)
        counts[self.world.rank] = len(own[0])
        of_all = self._sums.sum(counts)
        first = int(of_all[: self.world.rank].sum())
        found = []
        for part in own:
            # each byte is one rank's, where all others have 0: the sum of bytes is exact
            rows = np.zeros((int(of_all.sum()), *part.shape[1:]), part.dtype)
            rows[first : first + len(part)] = part
            if rows.nbytes:
                whole = self._sums.sum(rows.reshape(-1).view(np.uint8))
                rows = whole.view(part.dtype).reshape(rows.shape)
            found.append(rows)
        return found


def _is_sparse(tensor: Any) -> bool:
    """Return whether a tensor is tf.IndexedSlices."""
    import tensorflow as tf

    return isinstance(tensor, tf.IndexedSlices)


def _tensor_size(tensor: Any) -> TensorSize:
    """Return size and data type of a tensor."""
    count = None if _is_sparse(tensor) else tensor.shape.num_elements()
    return TensorSize(math.inf if count is None else count * tensor.dtype.size, tensor.dtype.name)


def make_strategy_class(device: str, world: Any) -> Any:
    """Return a subclass of `tf.distribute.Strategy` with one replica per rank and sums by MPI.

    Args:
        device: The rank's device, such as `GPU:0`.
        world: mpi4py's communicator of all ranks.
    """
    import tensorflow as tf

    rank, ranks = int(world.rank), int(world.size)  # the library does not answer after its end
    aggregations = {
        tf.VariableAggregation.SUM: tf.distribute.ReduceOp.SUM,
        tf.VariableAggregation.MEAN: tf.distribute.ReduceOp.MEAN,
    }

    class MpiExtended(keras_internals.one_device_extended()):  # type: ignore[misc]
        """TensorFlow's implementation of a strategy with one device, with MPI between the ranks."""

        def __init__(self, strategy: Any) -> None:
            super().__init__(strategy, device)
            self._sums = MpiAllReduce(world)

        @property
        def _num_replicas_in_sync(self) -> int:
            """Number of replicas: one in each rank."""
            return ranks

        def _use_merge_call(self) -> bool:
            """Return False: variables are updated in each replica, by the same values."""
            return False

        def _call_for_each_replica(
            self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
        ) -> Any:
            """Call `fn` with its arguments in this rank's replica, on its device."""
            replica = tf.distribute.ReplicaContext(tf.distribute.get_strategy(), rank)
            with tf.device(self.worker_devices[0]), replica:
                return fn(*args, **kwargs)

        def _experimental_distribute_values_from_function(
            self, value_fn: Callable[..., Any]
        ) -> Any:
            """Return the value that `value_fn` makes for this rank's replica."""
            return value_fn(
                tf.distribute.experimental.ValueContext(
                    replica_id_in_sync_group=rank, num_replicas_in_sync=ranks
                )
            )

        def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
            """Return a variable with rank 0's initial value; assignments aggregate as requested."""
            variable = super()._create_variable(next_creator, **kwargs)
            is_own = kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ
            if tf.executing_eagerly() and not is_own:
                variable.assign(self._sums.broadcast(variable.numpy()))
            reduce_op = aggregations.get(kwargs.get("aggregation"))
            if reduce_op is not None and not is_own:
                _reduce_before_assign(variable, reduce_op)
            return variable

        def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
            """Return nested tensors summed, or averaged, over all ranks."""
            found = self._reduced(reduce_op, tf.nest.flatten(value))
            return tf.nest.pack_sequence_as(value, found)

        def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
            """Return a tensor summed, or averaged, over all ranks."""
            return self._reduced(reduce_op, [value])[0]

        def _gather_to_implementation(
            self, value: Any, destinations: Any, axis: Any, options: Any
        ) -> Any:
            """Return a tensor with the values of all ranks concatenated along an axis."""
            places = list(range(value.shape.rank))
            places.insert(0, places.pop(int(tf.get_static_value(axis))))
            (rows,) = self._sums.all_gather([tf.transpose(value, places)])
            return tf.transpose(rows, tf.argsort(places))

        def _reduced(self, reduce_op: Any, values: Sequence[Any]) -> list[Any]:
            """Return tensors summed, or averaged, over all ranks."""
            sums = self._sums(values)
            if reduce_op == tf.distribute.ReduceOp.MEAN:
                return [optimizers.scale_values(total, ranks, tf.divide) for total in sums]
            return sums

    class MpiStrategy(tf.distribute.Strategy):  # type: ignore[misc]
        """The strategy; it has no arguments."""

        def __init__(self) -> None:
            super().__init__(MpiExtended(self))

    return MpiStrategy


def _reduce_before_assign(variable: Any, reduce_op: Any) -> None:
    """Make `assign` and similar methods of a variable first reduce the value over the replicas.

    Args:
        variable: The variable, which is changed.
        reduce_op: The `tf.distribute.ReduceOp`.
    """
    import tensorflow as tf

    def of_all(change: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method like `change` that reduces its value first."""

        def changed(value: Any, *args: Any, **kwargs: Any) -> Any:
            """Reduce the value over the replicas, if in a replica, and call `change` with it."""
            if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
                own = tf.convert_to_tensor(value, variable.dtype)
                value = tf.distribute.get_replica_context().all_reduce(reduce_op, own)
            return change(value, *args, **kwargs)

        return changed

    for name in ("assign", "assign_add", "assign_sub"):
        setattr(variable, name, of_all(getattr(variable, name)))
