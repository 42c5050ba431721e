"""What lets replicas exchange less often: accumulated gradients, averaged weights.

Keras's own `gradient_accumulation_steps` decides by its count inside of a condition whether the
gradients are exchanged, which no collective of tf.distribute can be in: with several replicas it
fails, or exchanges each part. Here a step computes its parts one after the other in each replica,
and the optimizer is called once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def parts_of(batch: Any, count: int) -> Iterator[Callable[[Any], Any]]:
    """For each of `count` equal parts of a nest of tensors: what gives it after another value.

    A part that is taken `after` a value is there once the value is: parts are computed one after
    the other, in the memory of one.
    """
    import tensorflow as tf

    for number in range(count):

        def part(after: Any, number: int = number) -> Any:
            def rows(whole: Any) -> Any:
                size = whole.shape[0] // count
                return tf.identity(whole[number * size : (number + 1) * size])

            with tf.control_dependencies([] if after is None else [after]):
                return tf.nest.map_structure(rows, batch)

        yield part


def summed(gradients: list[Any] | None, more: list[Any]) -> list[Any]:
    """The sums of gradients of the same variables, dense; None of one without a gradient."""
    import tensorflow as tf

    dense = [None if g is None else tf.convert_to_tensor(g) for g in more]
    if gradients is None:
        return dense
    return [None if h is None else g + h for g, h in zip(gradients, dense, strict=True)]


def update_alone(optimizer: Any) -> None:
    """Let each replica apply its own gradients: nothing is exchanged."""
    optimizer._all_reduce_sum_gradients = list


def average(strategy: Any, variables: list[Any]) -> Any:
    """Give each replica the mean of the replicas' values of these variables.

    To be called in a compiled function outside of replicas. Returns a value of each local replica
    that is there once this is done.
    """
    import tensorflow as tf

    def means() -> list[Any]:
        context = tf.distribute.get_replica_context()
        own = [tf.identity(variable.value) for variable in variables]
        found: list[Any] = context.all_reduce(tf.distribute.ReduceOp.MEAN, own)
        return found

    def assign(variable: Any, value: Any) -> Any:
        return variable.assign(value)

    with strategy.scope():
        values = strategy.run(means)
        for variable, mean in zip(variables, values, strict=True):
            strategy.extended.update(variable.value, assign, args=(mean,), group=False)
    return values[0]
