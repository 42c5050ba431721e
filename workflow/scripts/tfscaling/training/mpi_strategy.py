"""The strategy `mpi_all_reduce`: one replica, on one device, in each rank; sums by MPI.

All that a training does by a strategy it does by this one: Keras's optimizers sum gradients by the
all-reduce of the replica context, as metrics and moments are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfscaling.training.mpi_all_reduce import MpiAllReduce


def make(device: str, world: Any) -> Any:
    """The tf.distribute.Strategy over the ranks of this communicator, each with this `device`."""
    import tensorflow as tf
    from tensorflow.python.distribute.one_device_strategy import OneDeviceExtended

    class MpiExtended(OneDeviceExtended):  # type: ignore[misc]
        """What a strategy of one device does for itself, done with the other ranks."""

        def __init__(self, strategy: Any) -> None:
            super().__init__(strategy, device)
            self._sums = MpiAllReduce(world)

        @property
        def _num_replicas_in_sync(self) -> int:
            return int(world.size)

        def _use_merge_call(self) -> bool:
            return False

        def _call_for_each_replica(
            self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
        ) -> Any:
            replica = tf.distribute.ReplicaContext(self._container_strategy(), world.rank)
            with tf.device(self._device), replica:
                return fn(*args, **kwargs)

        def _experimental_distribute_values_from_function(
            self, value_fn: Callable[..., Any]
        ) -> Any:
            return value_fn(
                tf.distribute.experimental.ValueContext(
                    replica_id_in_sync_group=world.rank, num_replicas_in_sync=world.size
                )
            )

        def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
            variable = super()._create_variable(next_creator, **kwargs)
            is_own = kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ
            if tf.executing_eagerly() and not is_own:
                variable.assign(self._sums.broadcast(variable.numpy()))
            return variable

        def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
            found = self._reduced(reduce_op, tf.nest.flatten(value))
            return tf.nest.pack_sequence_as(value, found)

        def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
            return self._reduced(reduce_op, [value])[0]

        def _reduced(self, reduce_op: Any, values: Sequence[Any]) -> list[Any]:
            sums = self._sums(values)
            if reduce_op == tf.distribute.ReduceOp.MEAN:
                return [total / tf.cast(world.size, total.dtype) for total in sums]
            return sums

    class MpiStrategy(tf.distribute.Strategy):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(MpiExtended(self))

    return MpiStrategy()
