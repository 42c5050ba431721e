"""The recipe's Keras optimizer, the gradients that it gets, and how it updates variables.

The learning rate is a function of the optimizer's own count of updates, which is part of its state:
a schedule works in compiled loops and with every strategy, and continues from a saved state. An
update that an overflow of the loss scale skips does not count.

SGD and Adam, also of a compiled model, update a variable by one operation of TensorFlow. Keras
writes several, and each reads and writes arrays as large as the variable. CPU time of a step, one
thread, two hidden layers: Adam on 512 units and 64 examples 3.5 ms instead of 5.7 ms, momentum on
2048 units and 32 examples 25 ms instead of 31 ms, plain SGD on 512 units 2.9 ms instead of 3.4 ms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from tfscaling.study.config_types import Recipe
from tfscaling.train import keras_internals


def learning_rate_factor(recipe: Recipe, replicas: int) -> float:
    """Return the factor by which the recipe scales the learning rate on this many replicas."""
    factor = {"none": 1.0, "linear": float(replicas), "sqrt": replicas**0.5}
    return factor[recipe.learning_rate_scaling]


def make_optimizer(
    recipe: Recipe, replicas: int, updates_per_epoch: int | None = None, casts: bool = False
) -> Any:
    """Return the recipe's Keras optimizer for this number of replicas; default: sgd.

    Args:
        recipe: The recipe, with learning rate, schedule and precision.
        replicas: Number of replicas, by which the learning rate may be scaled.
        updates_per_epoch: Updates in an epoch; None if unknown.
        casts: Whether gradients are casts of bfloat16 tensors; see `make_fused_optimizer`.

    Raises:
        ValueError: The recipe has no learning rate, or has a schedule and `updates_per_epoch` is
            unknown.
    """
    import keras

    if recipe.learning_rate is None:
        raise ValueError("the recipe gives no learning_rate, and the model is not compiled")
    full = recipe.learning_rate * learning_rate_factor(recipe, replicas)
    rate = make_learning_rate(recipe, full, updates_per_epoch)
    own = {"momentum": recipe.momentum or 0.0, "nesterov": bool(recipe.nesterov)}
    kind, own = ("adam", {}) if recipe.optimizer == "adam" else ("sgd", own)
    optimizer = make_fused_optimizer(
        kind, rate, casts, weight_decay=recipe.weight_decay or None, **own
    )
    if recipe.precision == "mixed_float16":
        return keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def make_learning_rate(recipe: Recipe, full_rate: float, updates_per_epoch: int | None) -> Any:
    """Return the learning rate for Keras: a number, or the schedule that the recipe requests.

    In a warm-up of w updates, update number u (from 0) has (u + 1) / w of the full rate.

    Args:
        recipe: The recipe.
        full_rate: The learning rate after the warm-up.
        updates_per_epoch: Updates in an epoch; None if unknown.

    Raises:
        ValueError: The recipe has a schedule and `updates_per_epoch` is None.
    """
    if not recipe.has_schedule:
        return full_rate
    if updates_per_epoch is None:
        raise ValueError("a schedule of learning rates needs the recipe's steps_per_epoch")
    import keras

    schedules, ops = keras.optimizers.schedules, keras.ops
    warmup = round(recipe.warmup_epochs * updates_per_epoch)
    rest = max(1, recipe.epochs * updates_per_epoch - warmup)
    if recipe.decay == "cosine":
        after = schedules.CosineDecay(full_rate, rest)
    else:
        end = 0.0 if recipe.decay == "linear" else full_rate
        after = schedules.PolynomialDecay(full_rate, rest, end_learning_rate=end)
    if not warmup:
        return after

    class WarmUp(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        """A schedule that rises linearly during the warm-up and then follows `after`."""

        def __call__(self, step: Any) -> Any:
            """Return the learning rate of update number `step`."""
            update = ops.cast(step, "float32")
            rising = full_rate * (update + 1.0) / warmup
            return ops.where(update < warmup, rising, after(ops.maximum(update - warmup, 0.0)))

    return WarmUp()


#: Size of the smallest variable, in elements, whose cast and update XLA compiles; others are faster
#: without.
COMPILED_ELEMENTS_MIN = 1 << 18


def make_fused_optimizer(
    kind: str, learning_rate: Any, casts: bool = False, **settings: Any
) -> Any:
    """Return Keras's SGD or Adam with one TensorFlow operation for each update of a variable.

    It applies gradients without summing them over the replicas.

    Args:
        kind: `sgd` or `adam`.
        learning_rate: A number or a schedule.
        casts: Whether gradients are casts of bfloat16 tensors, as with the policy mixed_bfloat16.
            XLA then compiles cast and update of a large variable together, which saves a copy of
            the gradient. Allowed only for variables on a CPU and a single replica.
        **settings: Further arguments of the Keras class.
    """
    import keras
    import tensorflow as tf

    base = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam}[kind]
    update = _fused_updates()[base]
    compiled: dict[int, Callable[[Any, Any], None]] = {}
    scalars = StepScalars()

    class Fused(base):  # type: ignore[misc,valid-type]
        """The Keras optimizer, whose updates of a variable are one operation."""

        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            """Apply the gradients as they are, without summing them over the replicas."""
            scalars.clear()
            with apply_without_sum():
                super().apply(grads, trainable_variables)

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            """Update one variable by its gradient.

            Args:
                gradient: The variable's gradient.
                variable: The variable.
                learning_rate: The present learning rate.
            """
            if not _can_be_fused(gradient, variable):
                super().update_step(gradient, variable, learning_rate)
                return
            before = undo_cast(gradient) if casts else None
            if before is None or variable.shape.num_elements() < COMPILED_ELEMENTS_MIN:
                update(self, gradient, variable, learning_rate, scalars)
                return
            # the same in the first step of a call and in the loop of the others: compiled once
            if id(variable) not in compiled:
                compiled[id(variable)] = tf.function(
                    lambda own, rate: update(self, own, variable, rate, StepScalars()),
                    autograph=False,
                    jit_compile=True,
                )
            compiled[id(variable)](before, tf.convert_to_tensor(learning_rate))

    return Fused(learning_rate, name=base.__name__, **settings)


def fuse_updates(optimizer: Any) -> None:
    """Let a model's compiled optimizer update each variable by one operation of TensorFlow.

    It computes the same values, within rounding of the variable's type. Optimizers other than
    Keras's SGD, Adam and AdamW stay as they are, as do Adam with `amsgrad`, updates of an
    embedding's rows, and variables of 16 bits.

    Args:
        optimizer: The Keras optimizer, which is changed.
    """
    update = _fused_updates().get(type(optimizer))
    if update is None or getattr(optimizer, "amsgrad", False):
        return
    keras_update, keras_apply = optimizer.update_step, optimizer.apply
    scalars = StepScalars()

    def apply(grads: Any, trainable_variables: Any = None) -> None:
        """Apply the gradients, as the optimizer's method does."""
        scalars.clear()
        keras_apply(grads, trainable_variables)

    def update_step(gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable by its gradient, as the optimizer's method does."""
        if _can_be_fused(gradient, variable):
            update(optimizer, gradient, variable, learning_rate, scalars)
        else:
            keras_update(gradient, variable, learning_rate)

    optimizer.apply, optimizer.update_step = apply, update_step


def _can_be_fused(gradient: Any, variable: Any) -> bool:
    """Return whether one operation of TensorFlow updates the variable as Keras does.

    Keras updates single rows of an embedding otherwise. In 16 bits, 1 - beta of Adam may be 0.
    """
    import tensorflow as tf

    return not isinstance(gradient, tf.IndexedSlices) and variable.dtype.size >= 4


class StepScalars:
    """Scalars that the updates of all variables need, such as the learning rate in their type.

    They are computed once for the updates of a step, not once for each variable: a graph has fewer
    operations to trace and to run. Call `clear` before each step.
    """

    def __init__(self) -> None:
        self._computed: dict[tuple[Any, str, str], Any] = {}

    def clear(self) -> None:
        """Forget the scalars of the step before."""
        self._computed.clear()

    def get(self, variable: Any, compute: Callable[[Callable[[Any], Any]], Any]) -> Any:
        """Return the scalars for a variable.

        Args:
            variable: The variable. Scalars are shared by variables of equal type and device in a
                graph.
            compute: Returns the scalars. Its argument casts a number to the variable's type.
        """
        import tensorflow as tf

        key = (tf.compat.v1.get_default_graph(), variable.dtype.name, variable.device)
        if key not in self._computed:
            self._computed[key] = compute(functools.partial(tf.cast, dtype=variable.dtype))
        return self._computed[key]


def _fused_updates() -> dict[type, Callable[[Any, Any, Any, Any, StepScalars], None]]:
    """Return Keras optimizer class → function that updates a variable by one operation.

    The function takes the optimizer, the gradient, the variable, the learning rate, and the scalars
    of the step.
    """
    import keras

    return {
        keras.optimizers.SGD: _update_by_sgd,
        keras.optimizers.Adam: _update_by_adam,
        keras.optimizers.AdamW: _update_by_adam,
    }


def _update_by_sgd(
    sgd: Any, gradient: Any, variable: Any, learning_rate: Any, scalars: StepScalars
) -> None:
    """Update a variable by SGD, with momentum if the optimizer has it.

    Args:
        sgd: The Keras optimizer.
        gradient: The variable's gradient.
        variable: The variable.
        learning_rate: The present learning rate.
        scalars: The scalars of the step.
    """
    import tensorflow as tf

    rate, momentum = scalars.get(variable, lambda cast: (cast(learning_rate), cast(sgd.momentum)))
    if sgd.momentum == 0:
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle,
            alpha=rate,
            delta=tf.cast(gradient, variable.dtype),
            use_locking=True,
        )
        return
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=variable.handle,
        accum=sgd.momentums[keras_internals.slot_index(sgd, variable)].value.handle,
        lr=rate,
        grad=tf.cast(gradient, variable.dtype),
        momentum=momentum,
        use_locking=True,
        use_nesterov=sgd.nesterov,
    )


def _update_by_adam(
    adam: Any, gradient: Any, variable: Any, learning_rate: Any, scalars: StepScalars
) -> None:
    """Update a variable and its moments by Adam.

    Args:
        adam: The Keras optimizer.
        gradient: The variable's gradient.
        variable: The variable.
        learning_rate: The present learning rate.
        scalars: The scalars of the step.
    """
    import tensorflow as tf

    first, second = keras_internals.moments(adam, keras_internals.slot_index(adam, variable))

    def compute(cast: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the operation's scalar arguments."""
        step, beta_1, beta_2 = cast(adam.iterations + 1), cast(adam.beta_1), cast(adam.beta_2)
        # The operation computes 1 - beta in the variable's type, Keras in float64: in the first
        # steps the moments are larger by these factors, which rate and epsilon take out again.
        first_factor = (1 - beta_1) / cast(1 - adam.beta_1)
        root_factor = tf.sqrt((1 - beta_2) / cast(1 - adam.beta_2))
        return {
            "beta1_power": beta_1**step,
            "beta2_power": beta_2**step,
            "lr": cast(learning_rate) * root_factor / first_factor,
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": cast(adam.epsilon) * root_factor,
        }

    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=first.handle,
        v=second.handle,
        grad=tf.cast(gradient, variable.dtype),
        use_locking=True,
        **scalars.get(variable, compute),
    )


@contextmanager
def apply_without_sum() -> Iterator[None]:
    """Let Keras, in a replica, apply gradients in the `with` block without summing them again.

    The caller has summed the gradients. Keras updates the variables in a `merge_call`, which joins
    the replicas. TensorFlow allows no `merge_call` inside a condition of the graph. There each
    replica updates its copy of a variable, and all use equal gradients.
    """
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    with nullcontext() if context is None else _replica_view_class()(context):
        yield


@functools.cache
def _replica_view_class() -> Any:
    """Return a subclass of ReplicaContext whose all_reduce returns its value unchanged.

    The class is defined in a cached function, because TensorFlow is imported late.
    """
    import tensorflow as tf

    class ReplicaView(tf.distribute.ReplicaContext):  # type: ignore[misc]
        """A replica context in which values count as already summed.

        Args:
            around: The replica's actual context.
        """

        def __init__(self, around: Any) -> None:
            number = int(tf.get_static_value(around.replica_id_in_sync_group))
            super().__init__(around.strategy, number)
            self._around, self._number = around, number
            self._graph = tf.compat.v1.get_default_graph()
            # without threads, as with one local replica by MPI
            self.meets_anywhere = getattr(
                around, "meets_anywhere", type(around) is tf.distribute.ReplicaContext
            )

        def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
            """Return the value unchanged: it is already summed."""
            return value

        def merge_call(self, merge_fn: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Call `merge_fn(strategy, *args, **kwargs)` once for all replicas, as TensorFlow does.

            Within a branch of `tf.cond`, where TensorFlow cannot do so, it is called for this
            replica alone.

            Args:
                merge_fn: The function.
                args: Its arguments after the strategy.
                kwargs: Its arguments by name.
            """
            in_branch = tf.compat.v1.get_default_graph() is not self._graph
            if in_branch and not self.meets_anywhere:
                own = SimpleNamespace(extended=SimpleNamespace(update=self._update_own))
                return merge_fn(own, *args, **(kwargs or {}))
            self.__exit__(None, None, None)
            try:
                return self._around.merge_call(merge_fn, args, kwargs)
            finally:
                self.__enter__()

        def _update_own(
            self, variable: Any, update: Any, args: Any = (), group: bool = True
        ) -> Any:
            """Update this replica's copy of a variable, as `extended.update` updates all copies."""
            copies = self.strategy.experimental_local_results(variable)
            return update(copies[self._number % len(copies)], *args)

    return ReplicaView


def scale_values(gradient: Any, number: Any, function: Callable[[Any, Any], Any]) -> Any:
    """Return a gradient whose values are multiplied or divided by a number.

    Args:
        gradient: A tensor or `tf.IndexedSlices`.
        number: The number, in any type.
        function: `tf.multiply` or `tf.divide`.
    """
    import tensorflow as tf

    own = tf.cast(number, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            function(gradient.values, own), gradient.indices, gradient.dense_shape
        )
    return function(gradient, own)


def sum_over_replicas(gradients: Sequence[Any]) -> list[Any]:
    """Return the sum of each gradient over all replicas; to be called in a replica.

    The gradient of an embedding table consists of slices. The slices of all replicas are
    concatenated, as if one device had looked up all examples. Exception: if all replicas looked up
    the same indices, such as positions of words, slices of equal index are added.

    Args:
        gradients: The replica's gradients; None for a variable without one stays None.
    """
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    given = [gradient for gradient in gradients if gradient is not None]
    found = context.all_reduce(tf.distribute.ReduceOp.SUM, given)
    totals = map(merge_equal_lookups, given, found, [context.num_replicas_in_sync] * len(given))
    return [None if gradient is None else next(totals) for gradient in gradients]


def merge_equal_lookups(own: Any, total: Any, replicas: int) -> Any:
    """Return an embedding's gradient, with slices added if all replicas looked up equal indices.

    Slices are added only if the lookup is independent of the examples, such as the positions of
    words. A lookup is independent if its number of indices is known when the step is traced,
    because `forget_batch_size` hides the batch size. Otherwise it counts as independent if its
    indices are strictly ascending.

    Args:
        own: This replica's gradient.
        total: The slices of all replicas, one after the other. If `own` is no `tf.IndexedSlices`,
            `total` is returned unchanged.
        replicas: Number of replicas.
    """
    import tensorflow as tf

    if not isinstance(own, tf.IndexedSlices):
        return total
    places = tf.size(total.indices) // replicas
    of_replicas = total.indices[: places * replicas]
    first = of_replicas[:places]
    are_same = tf.reduce_all(tf.reshape(of_replicas, [replicas, places]) == first)
    are_same &= tf.size(of_replicas) == tf.size(total.indices)
    if own.indices.shape.num_elements() is None:
        are_same &= tf.reduce_all(first[1:] > first[:-1])

    def added() -> tuple[Any, Any]:
        """Return (values, indices) of the gradient with each place's slices added up."""
        shape = tf.shape(total.values)[1:]
        parts = tf.reshape(total.values, tf.concat([[replicas, places], shape], 0))
        return tf.reduce_sum(parts, 0), first

    values, indices = tf.cond(are_same, added, lambda: (total.values, total.indices))
    values.set_shape([None, *own.values.shape[1:]])
    return tf.IndexedSlices(values, indices, own.dense_shape)


def forget_batch_size(batch: Any, integers_only: bool = True) -> Any:
    """Return the batch, with the static batch size of its tensors set to unknown.

    So `merge_equal_lookups` recognises lookups that depend on the examples: their number of indices
    is unknown.

    Args:
        batch: The batch.
        integers_only: Whether only tensors of integers are changed: a model's `call` looks up rows
            by these, while a user's `compute_loss` may convert others.
    """
    import tensorflow as tf

    def of_any(part: Any) -> Any:
        """Return the tensor, with an unknown batch size if it may have indices."""
        if integers_only and not part.dtype.is_integer:
            return part
        shape = [None, *part.shape[1:]]
        return tf.raw_ops.PlaceholderWithDefault(input=part, shape=shape)

    return tf.nest.map_structure(of_any, batch)


def wait_for_all(gradients: Sequence[Any]) -> list[Any]:
    """Return the gradients with control dependencies: each is available once all are computed.

    Otherwise an update would copy a variable that the backward pass still reads. Casts from
    bfloat16 are done after the wait. None, for a variable without gradient, stays None.
    """
    import tensorflow as tf

    made = [gradient if (cast := undo_cast(gradient)) is None else cast for gradient in gradients]
    found = [gradient for gradient in made if gradient is not None]
    with tf.control_dependencies(tf.nest.flatten(found, expand_composites=True)):
        after = [None if gradient is None else tf.identity(gradient) for gradient in made]
    return [
        value if gradient is own else tf.cast(value, gradient.dtype)
        for value, gradient, own in zip(after, gradients, made, strict=True)
    ]


def undo_cast(gradient: Any) -> Any:
    """Return the bfloat16 tensor from which a graph casts this gradient; None for any other."""
    import tensorflow as tf

    if tf.executing_eagerly() or not isinstance(gradient, tf.Tensor) or gradient.op.type != "Cast":
        return None
    before = gradient.op.inputs[0]
    return before if before.dtype == tf.bfloat16 else None
