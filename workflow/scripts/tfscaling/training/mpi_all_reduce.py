"""Sums over all ranks by MPI, as operations of a graph.

Each bucket of tensors is an operation that waits for these alone, so that the gradients which the
backward pass makes first are summed while it makes the others. All ranks call in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfscaling.training import mpi
from tfscaling.training.mpi_sums import RankSums

#: Tensors up to this size together share a message, for which they are copied; a larger one is a
#: message of its own, without a copy.
BUCKET_BYTES = 1 << 20
#: MPI has no such numbers.
_SUMMED_AS = {"float16": "float32", "bfloat16": "float32"}
#: The collection of a graph with the operation after which the next one may call MPI.
_LAST = "tfscaling_last_call_of_mpi"


class Part(NamedTuple):
    """A tensor as far as buckets ask; `bytes` is infinite if its size is not known."""

    bytes: float
    dtype: str


def buckets(parts: Sequence[Part]) -> list[list[int]]:
    """Places of tensors that share a message, in the order in which a backward pass makes them.

    That is the reverse of the order of a model's variables.
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


class MpiAllReduce:
    """Sums tensors over the ranks of `world`."""

    def __init__(self, world: Any) -> None:
        import tensorflow as tf

        self.tf, self.world = tf, world
        self._sums = RankSums(world, mpi.of_node(world))

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """The sum of each, dense; the ranks' tensors have the same shapes and types."""
        tf = self.tf
        own = [tf.convert_to_tensor(tensor) for tensor in tensors]
        own = [tf.cast(tensor, _SUMMED_AS.get(tensor.dtype.name, tensor.dtype)) for tensor in own]
        sums: list[Any] = [None] * len(own)
        for bucket in buckets([_part(tensor) for tensor in own]):
            summed = self._sums_of_bucket([own[place] for place in bucket])
            for place, total in zip(bucket, summed, strict=True):
                sums[place] = tf.cast(total, tensors[place].dtype)
        return sums

    def broadcast(self, value: np.ndarray) -> np.ndarray:
        """Rank 0's array; the ranks' have the same shape and type."""
        found = np.array(value)
        self.world.Bcast(found.reshape(-1).view(np.uint8))
        return found

    def _sums_of_bucket(self, tensors: list[Any]) -> list[Any]:
        tf = self.tf
        if len(tensors) == 1:
            return [self._sum(tensors[0])]
        sizes = [tensor.shape.num_elements() for tensor in tensors]
        together = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
        parts = tf.split(self._sum(together), sizes)
        return [tf.reshape(p, t.shape) for p, t in zip(parts, tensors, strict=True)]

    def _sum(self, tensor: Any) -> Any:
        """An operation that calls MPI, after the one before it in the graph."""
        tf = self.tf
        before = [] if tf.executing_eagerly() else _collection()
        with tf.device("CPU:0"), tf.control_dependencies(before):
            total = tf.numpy_function(self._summed, [tensor], tensor.dtype)
        if not tf.executing_eagerly():
            before[:] = [total.op]
        total.set_shape(tensor.shape)
        return total

    def _summed(self, own: np.ndarray) -> np.ndarray:
        return self._sums.sum(own.reshape(-1)).reshape(own.shape)


def _collection() -> list[Any]:
    import tensorflow as tf

    found: list[Any] = tf.compat.v1.get_collection_ref(_LAST)
    return found


def _part(tensor: Any) -> Part:
    count = tensor.shape.num_elements()
    return Part(math.inf if count is None else count * tensor.dtype.size, tensor.dtype.name)
