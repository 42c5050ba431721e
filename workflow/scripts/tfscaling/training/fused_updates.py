"""Keras's SGD and Adam, with one operation of TensorFlow for the update of a variable.

Keras writes an update as several operations, and each reads and writes arrays as large as the
variable. TensorFlow's own do the same arithmetic in one pass over the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def sgd(learning_rate: Any, **settings: Any) -> Any:
    """keras.optimizers.SGD."""
    import keras
    import tensorflow as tf

    class FusedSGD(keras.optimizers.SGD):  # type: ignore[misc]
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            if not _is_dense(gradient):
                super().update_step(gradient, variable, learning_rate)
                return
            number = _of_type(variable.dtype)
            if self.momentum == 0:
                tf.raw_ops.ResourceApplyGradientDescent(
                    var=variable.handle,
                    alpha=number(learning_rate),
                    delta=number(gradient),
                    use_locking=True,
                )
                return
            place = self._get_variable_index(variable)
            tf.raw_ops.ResourceApplyKerasMomentum(
                var=variable.handle,
                accum=self.momentums[place].value.handle,
                lr=number(learning_rate),
                grad=number(gradient),
                momentum=number(self.momentum),
                use_locking=True,
                use_nesterov=self.nesterov,
            )

    return FusedSGD(learning_rate, name="SGD", **settings)


def adam(learning_rate: Any, **settings: Any) -> Any:
    """keras.optimizers.Adam."""
    import keras
    import tensorflow as tf

    class FusedAdam(keras.optimizers.Adam):  # type: ignore[misc]
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            if not _is_dense(gradient):
                super().update_step(gradient, variable, learning_rate)
                return
            number = _of_type(variable.dtype)
            place = self._get_variable_index(variable)
            step = number(self.iterations + 1)
            beta_1, beta_2 = number(self.beta_1), number(self.beta_2)
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=self._momentums[place].value.handle,
                v=self._velocities[place].value.handle,
                beta1_power=beta_1**step,
                beta2_power=beta_2**step,
                lr=number(learning_rate),
                beta1=beta_1,
                beta2=beta_2,
                epsilon=number(self.epsilon),
                grad=number(gradient),
                use_locking=True,
            )

    return FusedAdam(learning_rate, name="Adam", **settings)


def update_together(optimizer: Any) -> None:
    """Let it update variables after all gradients are there, and their sums over the replicas."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    summed = inner._all_reduce_sum_gradients

    def together(gradients_and_variables: Any) -> list[Any]:
        gradients, variables = zip(*summed(gradients_and_variables), strict=True)
        return list(zip(after_all(gradients), variables, strict=True))

    inner._all_reduce_sum_gradients = together


def after_all(gradients: Sequence[Any]) -> list[Any]:
    """The gradients (None: there is none), each of which is there when all of them are.

    As long as the backward pass still reads a variable, its update would have to copy it.
    """
    import tensorflow as tf

    found = [gradient for gradient in gradients if gradient is not None]
    with tf.control_dependencies(tf.nest.flatten(found, expand_composites=True)):
        return [None if gradient is None else tf.identity(gradient) for gradient in gradients]


def _of_type(dtype: Any) -> Callable[[Any], Any]:
    """To a tensor of the variable's type."""
    import tensorflow as tf

    return lambda value: tf.cast(value, dtype)


def _is_dense(gradient: Any) -> bool:
    """Whether it has a value for each of the variable's: not only for rows of an embedding."""
    import tensorflow as tf

    return not isinstance(gradient, tf.IndexedSlices)
