"""Keras's SGD and Adam, with one operation of TensorFlow for the update of a variable.

Keras writes an update as several operations, and each reads and writes arrays as large as the
variable. TensorFlow's own do the same arithmetic in one pass over the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: A smaller variable is cast and updated quicker than XLA compiles an operation for it.
COMPILED_ELEMENTS_MIN = 1 << 18


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

    As long as the backward pass still reads a variable, its update would have to copy it. What the
    backward pass made in bfloat16 is cast after that, where it is used.
    """
    import tensorflow as tf

    made = [gradient if (cast := before_cast(gradient)) is None else cast for gradient in gradients]
    found = [gradient for gradient in made if gradient is not None]
    with tf.control_dependencies(tf.nest.flatten(found, expand_composites=True)):
        after = [None if gradient is None else tf.identity(gradient) for gradient in made]
    return [
        value if gradient is own else tf.cast(value, gradient.dtype)
        for value, gradient, own in zip(after, gradients, made, strict=True)
    ]


def cast_in_update(optimizer: Any) -> None:
    """Let it update large variables from gradients of bfloat16 in one pass over the memory.

    Where a gradient is a cast of bfloat16, as Keras's mixed_bfloat16 makes it, cast and update of a
    variable are compiled together by XLA, and no array has the gradient in the variable's type.
    For variables on a CPU, and an optimizer that exchanges nothing: a sum over replicas is no cast.
    """
    import tensorflow as tf

    inner = getattr(optimizer, "inner_optimizer", optimizer)
    update_step = inner.update_step
    compiled: dict[int, Callable[[Any, Any], None]] = {}

    def of_variable(variable: Any) -> Callable[[Any, Any], None]:
        def together(before: Any, learning_rate: Any) -> None:
            update_step(tf.cast(before, variable.dtype), variable, learning_rate)

        # the same in the first step of a call and in the loop of the others: compiled once
        if id(variable) not in compiled:
            compiled[id(variable)] = tf.function(together, autograph=False, jit_compile=True)
        return compiled[id(variable)]

    def update(gradient: Any, variable: Any, learning_rate: Any) -> None:
        before = before_cast(gradient)
        if before is None or variable.shape.num_elements() < COMPILED_ELEMENTS_MIN:
            update_step(gradient, variable, learning_rate)
        else:
            of_variable(variable)(before, tf.convert_to_tensor(learning_rate))

    inner.update_step = update


def before_cast(gradient: Any) -> Any:
    """The bfloat16 tensor that this one of a graph is a cast of; None if it is not."""
    import tensorflow as tf

    if tf.executing_eagerly() or not isinstance(gradient, tf.Tensor) or gradient.op.type != "Cast":
        return None
    before = gradient.op.inputs[0]
    return before if before.dtype == tf.bfloat16 else None


def _of_type(dtype: Any) -> Callable[[Any], Any]:
    """To a tensor of the variable's type."""
    import tensorflow as tf

    return lambda value: tf.cast(value, dtype)


def _is_dense(gradient: Any) -> bool:
    """Whether it has a value for each of the variable's: not only for rows of an embedding."""
    import tensorflow as tf

    return not isinstance(gradient, tf.IndexedSlices)
