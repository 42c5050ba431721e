"""The recipe's Keras optimizer, the gradients that it gets, and how it updates variables.

The learning rate is a function of the optimizer's own count of updates, which is part of its state:
a schedule works in compiled loops and with every strategy, and continues from a saved state. An
update that an overflow of the loss scale skips does not count.

SGD and Adam update a variable by one operation of TensorFlow. Keras writes several, each of which
reads and writes arrays as large as the variable.

Replicas may exchange gradients in bfloat16, which has the range of float32, accumulate them over
parts of a batch, or average weights. Keras's `gradient_accumulation_steps` decides in a condition
whether gradients are exchanged, where tf.distribute allows no collective: with several replicas it
fails or exchanges each part. Here each replica computes its parts one after the other, and calls
the optimizer once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfscaling.spec.config import Recipe


def learning_rate_factor(recipe: Recipe, replicas: int) -> float:
    """How many times larger the learning rate is than that of one replica."""
    factor = {"none": 1.0, "linear": float(replicas), "sqrt": replicas**0.5}
    return factor[recipe.learning_rate_scaling]


def make_optimizer(recipe: Recipe, replicas: int, updates_per_epoch: int | None = None) -> Any:
    """The recipe's Keras optimizer for this number of replicas; sgd if it names none.

    Raises ValueError if the recipe has no learning rate, or asks for a schedule and
    `updates_per_epoch` is not known (None).
    """
    import keras

    if recipe.learning_rate is None:
        raise ValueError("the recipe gives no learning_rate, and the model is not compiled")
    full = recipe.learning_rate * learning_rate_factor(recipe, replicas)
    rate = scheduled(recipe, full, updates_per_epoch)
    weight_decay = recipe.weight_decay or None
    if recipe.optimizer == "adam":
        optimizer = adam(rate, weight_decay=weight_decay)
    else:
        optimizer = sgd(
            rate,
            momentum=recipe.momentum or 0.0,
            nesterov=bool(recipe.nesterov),
            weight_decay=weight_decay,
        )
    if recipe.precision == "mixed_float16":
        return keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def scheduled(recipe: Recipe, full: float, updates_per_epoch: int | None) -> Any:
    """The learning rate `full` itself, or Keras's schedule from it that the recipe asks for.

    Update number u, from 0 on, of w updates of warm-up has (u + 1) / w of the full rate. Raises
    ValueError if there is a schedule and `updates_per_epoch` is None.
    """
    if not recipe.has_schedule:
        return full
    if updates_per_epoch is None:
        raise ValueError("a schedule of learning rates needs the recipe's steps_per_epoch")
    import keras

    schedules, ops = keras.optimizers.schedules, keras.ops
    warmup = round(recipe.warmup_epochs * updates_per_epoch)
    rest = max(1, recipe.epochs * updates_per_epoch - warmup)
    if recipe.decay == "cosine":
        after = schedules.CosineDecay(full, rest)
    else:
        end = 0.0 if recipe.decay == "linear" else full
        after = schedules.PolynomialDecay(full, rest, end_learning_rate=end)
    if not warmup:
        return after

    class WarmUp(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        def __call__(self, step: Any) -> Any:
            update = ops.cast(step, "float32")
            rising = full * (update + 1.0) / warmup
            return ops.where(update < warmup, rising, after(ops.maximum(update - warmup, 0.0)))

    return WarmUp()


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


def exchange_rounded(optimizer: Any) -> None:
    """Let it round its gradients of float32 before they are summed over the replicas."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    exchange = inner._all_reduce_sum_gradients

    def of_rounded(gradients_and_variables: Any) -> list[Any]:
        gradients, variables = zip(*gradients_and_variables, strict=True)

        def sums(rounded: list[Any]) -> list[Any]:
            return [total for total, _ in exchange(list(zip(rounded, variables, strict=True)))]

        return list(zip(rounded_sum(gradients, sums), variables, strict=True))

    inner._all_reduce_sum_gradients = of_rounded


def rounded_sum(gradients: Sequence[Any], exchange: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """What `exchange` makes of the gradients, rounded, in the type that each had.

    None, sparse gradients and those of other types are exchanged as they are.
    """
    import tensorflow as tf

    def rounded(gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices) or gradient is None:
            return gradient
        if gradient.dtype != tf.float32:
            return gradient
        made = before_cast(gradient)
        return tf.cast(gradient, tf.bfloat16) if made is None else made

    given = [rounded(gradient) for gradient in gradients]
    return [
        total if total is None or total.dtype == gradient.dtype else tf.cast(total, gradient.dtype)
        for total, gradient in zip(exchange(given), gradients, strict=True)
    ]


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


def summed_parts(gradients: list[Any] | None, more: list[Any]) -> list[Any]:
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
