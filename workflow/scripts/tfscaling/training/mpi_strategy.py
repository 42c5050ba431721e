"""The strategy `mpi_all_reduce`: one replica, on one device, in each rank; sums by MPI.

All that a training does by a strategy it does by this one: Keras's optimizers sum gradients by the
all-reduce of the replica context, as metrics and moments are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfscaling.training.mpi_all_reduce import MpiAllReduce


def make(device: str, world: Any, in_16_bits: bool = False) -> Any:
    """The tf.distribute.Strategy over the ranks of this communicator, each with this `device`.

    `in_16_bits`: nodes exchange tensors of bfloat16 as they are, and not as float32.
    """
    import tensorflow as tf
    from tensorflow.python.distribute.one_device_strategy import OneDeviceExtended

    rank, ranks = int(world.rank), int(world.size)  # the library does not tell after its end
    aggregations = {
        tf.VariableAggregation.SUM: tf.distribute.ReduceOp.SUM,
        tf.VariableAggregation.MEAN: tf.distribute.ReduceOp.MEAN,
    }

    class MpiExtended(OneDeviceExtended):  # type: ignore[misc]
        """What a strategy of one device does for itself, done with the other ranks."""

        def __init__(self, strategy: Any) -> None:
            super().__init__(strategy, device)
            self._sums = MpiAllReduce(world, in_16_bits)

        @property
        def _num_replicas_in_sync(self) -> int:
            return ranks

        def _use_merge_call(self) -> bool:
            return False

        def _call_for_each_replica(
            self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
        ) -> Any:
            replica = tf.distribute.ReplicaContext(self._container_strategy(), rank)
            with tf.device(self._device), replica:
                return fn(*args, **kwargs)

        def _experimental_distribute_values_from_function(
            self, value_fn: Callable[..., Any]
        ) -> Any:
            return value_fn(
                tf.distribute.experimental.ValueContext(
                    replica_id_in_sync_group=rank, num_replicas_in_sync=ranks
                )
            )

        def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
            variable = super()._create_variable(next_creator, **kwargs)
            is_own = kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ
            if tf.executing_eagerly() and not is_own:
                variable.assign(self._sums.broadcast(variable.numpy()))
            reduce_op = aggregations.get(kwargs.get("aggregation"))
            if reduce_op is not None and not is_own:
                _aggregate(variable, reduce_op)
            return variable

        def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
            found = self._reduced(reduce_op, tf.nest.flatten(value))
            return tf.nest.pack_sequence_as(value, found)

        def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
            return self._reduced(reduce_op, [value])[0]

        def _gather_to_implementation(
            self, value: Any, destinations: Any, axis: Any, options: Any
        ) -> Any:
            places = list(range(value.shape.rank))
            places.insert(0, places.pop(int(tf.get_static_value(axis))))
            (rows,) = self._sums.gathered([tf.transpose(value, places)])
            return tf.transpose(rows, tf.argsort(places))

        def _reduced(self, reduce_op: Any, values: Sequence[Any]) -> list[Any]:
            sums = self._sums(values)
            if reduce_op == tf.distribute.ReduceOp.MEAN:
                return [_divided(total, ranks) for total in sums]
            return sums

    class MpiStrategy(tf.distribute.Strategy):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(MpiExtended(self))

    return MpiStrategy()


def _aggregate(variable: Any, reduce_op: Any) -> None:
    """Let a replica that changes the variable change it by what the replicas have together."""
    import tensorflow as tf

    def of_all(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(value: Any, *args: Any, **kwargs: Any) -> Any:
            if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
                own = tf.convert_to_tensor(value, variable.dtype)
                value = tf.distribute.get_replica_context().all_reduce(reduce_op, own)
            return change(value, *args, **kwargs)

        return changed

    for name in ("assign", "assign_add", "assign_sub"):
        setattr(variable, name, of_all(getattr(variable, name)))


def _divided(total: Any, count: int) -> Any:
    import tensorflow as tf

    if isinstance(total, tf.IndexedSlices):
        values = total.values / tf.cast(count, total.dtype)
        return tf.IndexedSlices(values, total.indices, total.dense_shape)
    return total / tf.cast(count, total.dtype)
