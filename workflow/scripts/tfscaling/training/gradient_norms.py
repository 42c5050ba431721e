"""Squared norms of gradients of parts of a batch and of the whole, for the gradient noise scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Steps after an epoch, or as many as there are whole batches.
STEPS = 32


def squared_norm(gradients: list[Any]) -> Any:
    """The squared norm of all gradients together, float32."""
    import tensorflow as tf

    dense = [tf.cast(tf.convert_to_tensor(g), tf.float32) for g in gradients if g is not None]
    return tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in dense])


def norms_of_replicas(gradients: list[Any]) -> Any:
    """In a replica with the gradients of its part: (mean over the parts, of the mean), float32."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    own = [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]
    *means, parts = context.all_reduce(tf.distribute.ReduceOp.MEAN, [*own, squared_norm(own)])
    return tf.stack([parts, squared_norm(means)])


def norms_of_halves(first: list[Any], second: list[Any]) -> Any:
    """The same with the gradients of two halves of one replica's batch."""
    import tensorflow as tf

    halves = [[tf.convert_to_tensor(g) for g in half if g is not None] for half in (first, second)]
    means = [(one + other) / 2.0 for one, other in zip(*halves, strict=True)]
    parts = (squared_norm(halves[0]) + squared_norm(halves[1])) / 2.0
    return tf.stack([parts, squared_norm(means)])


def leaving(variables: list[Any], measure: Callable[[], Any]) -> Any:
    """In a replica: what `measure` returns; the variables have their values of before again."""
    import tensorflow as tf

    before = [tf.identity(variable.value) for variable in variables]
    found = measure()
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return found
