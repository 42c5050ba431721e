"""A user's model trained by its own step, as `fit` trains it, on several replicas.

Each replica calls the model's `train_step` on its part of the global batch, with the real examples
only. Two things make the replicas together do what `fit` does on one device with the whole batch:

- A gradient counts by the replica's share of the batch's examples and is summed over the replicas
  before the optimizer sees it: so clipping, accumulation and the check of a scaled loss apply to
  the complete batch. Keras itself sums after them, and divides its own losses by the number of
  replicas, but not the loss of an overridden `compute_loss`: a step sees one replica
  (`strategies.alone`). An optimizer that a step has and that is not found, as in a variable of the
  module, is an error.
- The state of every metric is combined over the replicas by the variables' own `aggregation`, a
  sum unless the metric says otherwise, and its result is computed once, from the whole.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tfscaling.train import keras_internals, optimizers, strategies
from tfscaling.train.user_model import ModelError, has_own

#: Methods that may return values which no metric keeps.
_RETURNING = ("train_step", "test_step", "compute_metrics", "get_metrics_result")


class _Replica(threading.local):
    """The replica that is traced in this thread."""

    share: Any = None
    #: Gradients, where they are collected and not applied.
    collected: list[Any] | None = None
    updates: int = 0


class OwnStep:
    """The steps of a model on one replica, and what its metrics found on all of them.

    `sample` is a batch as `fit` would have it, of any size: (x, y) or (x, y, weights), or
    TensorSpecs of one.
    `rounds_gradients`: replicas exchange them in 16 bits. To be made in the scope of the strategy;
    all but `reset` and `results` is called by each replica.
    """

    def __init__(
        self, model: Any, sample: tuple[Any, ...], replicas: int, rounds_gradients: bool = False
    ) -> None:
        import tensorflow as tf

        self.tf, self.model, self.replicas = tf, model, replicas
        self._rounds_gradients = rounds_gradients
        self._replica = _Replica()
        keras_internals.build_for(model, sample)
        if replicas > 1:
            check_reductions(model)
        #: Numbers of the replicas whose optimizer has the gradients of all replicas.
        self._updating: set[int | None] = set()
        for optimizer in _optimizers(model):
            self._share(optimizer)
        self.metrics = list(model.metrics_variables)
        self._train_step = tf.autograph.experimental.do_not_convert(model.train_step)
        self._test_step = tf.autograph.experimental.do_not_convert(model.test_step)
        self._returned = self._returned_values(sample)
        # sums of returned values that no metric keeps, and of the examples
        self.sums = tf.Variable(
            [0.0] * (len(self._returned) + 1),
            trainable=False,
            dtype=tf.float64,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def train(self, batch: tuple[Any, ...], own: Any, examples: Any) -> None:
        """A step on the first `own` examples of this replica's `batch`, of `examples` in all."""
        tf, replica = self.tf, self._replica
        replica.share = tf.cast(own, tf.float32) / tf.cast(examples, tf.float32)
        replica.updates = 0
        self._step(self._train_step, batch, own)
        if self.replicas > 1 and replica.updates == 0:
            raise ModelError(
                "the model's own train_step updates no weight by a Keras optimizer: each replica "
                "would train a separate model. Let it call self.optimizer.apply"
            )

    def test(self, batch: tuple[Any, ...], own: Any) -> None:
        """Count the first `own` examples of this replica's `batch` of held-out examples."""
        self._step(self._test_step, batch, own)

    def gradients(self, batch: tuple[Any, ...]) -> list[Any]:
        """Gradients of a step that updates no weight by an optimizer; its metrics change."""
        collected: list[Any] = []
        self._replica.collected = collected
        try:
            self._called(self._train_step, batch)
        finally:
            self._replica.collected = None
        return collected

    def states(self) -> list[Any]:
        """The sums and the states of all metrics, combined over the replicas."""
        tf = self.tf
        context = tf.distribute.get_replica_context()
        # an all-reduce takes its device from the tensor: those read of variables tell none
        own = [tf.identity(self.sums.read_value())]
        for variable in self.metrics:
            value = tf.identity(variable.value)
            if variable.aggregation == "mean":
                value = value / tf.cast(self.replicas, value.dtype)
            elif variable.aggregation == "only_first_replica":
                is_first = tf.equal(context.replica_id_in_sync_group, 0)
                value = tf.where(is_first, value, tf.zeros_like(value))
            own.append(value)
        found: dict[int, Any] = {}
        for dtype in dict.fromkeys(value.dtype for value in own):  # one all-reduce has one type
            places = [place for place, value in enumerate(own) if value.dtype == dtype]
            summed = context.all_reduce(tf.distribute.ReduceOp.SUM, [own[p] for p in places])
            found |= dict(zip(places, summed, strict=True))
        return [found[place] for place in range(len(own))]

    def reset(self) -> None:
        """Forget what metrics have found, on this replica."""
        self.model.reset_metrics()
        self.sums.assign(self.tf.zeros_like(self.sums))

    def results(self, states: Sequence[Any]) -> tuple[float, dict[str, float]]:
        """Number of examples, and every metric by its name, from what `states` gave.

        Values that a step of the model's own returns and that no metric keeps are means over the
        examples.
        """
        *sums, examples = states[0].numpy().tolist()
        found = dict(zip(self._returned, (value / examples for value in sums), strict=True))
        return examples, found | self._results_of(states[1:])

    def _results_of(self, states: Sequence[Any]) -> dict[str, float]:
        import keras

        given = list(zip(self.metrics, states, strict=True))
        with keras.StatelessScope(given):
            found = self.model.get_metrics_result()
            return {name: float(value) for name, value in found.items() if _is_scalar(value)}

    def _returned_values(self, sample: tuple[Any, ...]) -> list[str]:
        """Names of what the model's own steps return and no metric keeps."""
        tf = self.tf
        if not any(has_own(self.model, name) for name in _RETURNING):
            return []
        names: set[str] = set()

        def replica(sample: tuple[Any, ...]) -> None:
            self._replica.collected = []
            try:
                for step in (self._train_step, self._test_step):
                    returned = self._called(step, sample)
                    names.update(k for k, value in returned.items() if _is_scalar(value))
            finally:
                self._replica.collected = None

        # traced only: nothing is computed
        strategy = tf.distribute.get_strategy()
        traced = tf.function(lambda batch: strategy.run(replica, args=(batch,)), autograph=False)
        traced.get_concrete_function(sample)
        kept = self._results_of([tf.zeros(v.shape, v.dtype) for v in self.metrics])
        if "loss" not in {*kept, *names}:
            raise ModelError("the model's own steps return no loss and no metric is called loss")
        return sorted(names - {*kept})

    def _step(self, step: Callable[[Any], Any], batch: tuple[Any, ...], own: Any) -> None:
        tf = self.tf
        # a replica without an example computes one that counts nowhere, with the others
        rows, counts = tf.maximum(own, 1), own > 0
        before = [tf.identity(variable.value) for variable in self.metrics]
        returned = self._called(step, tf.nest.map_structure(lambda array: array[:rows], batch))
        for variable, value in zip(self.metrics, before, strict=True):
            variable.assign(tf.where(counts, tf.convert_to_tensor(variable.value), value))
        weight = tf.cast(own, tf.float64)
        values = [tf.cast(returned.get(name, 0.0), tf.float64) for name in self._returned]
        self.sums.assign_add(tf.stack([*(value * weight for value in values), weight]))

    def finalize(self) -> None:
        """What `fit` does after its last epoch: moving averages become the weights.

        To be called in the scope of the strategy, outside of replicas.
        """
        import keras

        if isinstance(self.model.optimizer, keras.optimizers.Optimizer):
            self.model.optimizer.finalize_variable_values(self.model.trainable_weights)

    def _called(self, step: Callable[[Any], Any], batch: tuple[Any, ...]) -> Any:
        """What the model's step returns for this replica's batch."""
        if self.replicas == 1:
            return step(batch)
        with optimizers.replica_view(watch=_refuse_other_optimizers), strategies.alone():
            return step(batch)

    def _share(self, optimizer: Any) -> None:
        """Let the optimizer apply what the gradients of all replicas are together."""
        apply, replica = optimizer.apply, self._replica

        def updated(grads: Any, trainable_variables: Any) -> None:
            with optimizers.replica_view(is_summed=True):
                apply(grads, trainable_variables)

        def applied(grads: Any, trainable_variables: Any = None) -> None:
            if _replica_number() in self._updating:  # by an optimizer that has this one
                updated(grads, trainable_variables)
                return
            if not optimizer.built:
                raise ModelError(_unbuilt(optimizer))
            gradients = list(grads)
            replica.updates += 1
            if replica.collected is not None:
                replica.collected += [g for g in gradients if g is not None]
                return
            if self.replicas > 1:
                own = [None if g is None else _times(g, replica.share) for g in gradients]
                with optimizers.replica_view():
                    gradients = optimizers.summed(own, self._rounds_gradients)
            with _listed(self._updating):
                updated(optimizers.after_all(gradients), trainable_variables)

        optimizer.apply = applied
        if self.replicas > 1 and getattr(optimizer, "ema_overwrite_frequency", None):
            raise ModelError(
                f"the optimizer {optimizer.name} has an ema_overwrite_frequency, which several "
                "replicas cannot follow: leave it out, and the averages are the weights at the end"
            )


def _optimizers(model: Any) -> list[Any]:
    """All optimizers that a step of the model may have: of layers, other optimizers, in lists."""
    import keras

    own = [v for v in vars(model).values() if isinstance(v, keras.optimizers.Optimizer)]
    for optimizer in own:
        if not optimizer.built:
            raise ModelError(_unbuilt(optimizer))
    found, seen, left = [], {id(model): model}, [model.optimizer, *vars(model).values()]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, keras.optimizers.Optimizer):
            found.append(each)
        if isinstance(each, keras.optimizers.Optimizer | keras.layers.Layer):
            left += vars(each).values()
        elif isinstance(each, Mapping):
            left += each.values()
        elif isinstance(each, list | tuple | set):
            left += each
    return found


def _unbuilt(optimizer: Any) -> str:
    return (
        f"the optimizer {optimizer.name} has no variables yet; call its build(variables) "
        "in the function that makes the model"
    )


def _refuse_other_optimizers() -> None:
    """Raise ModelError if an optimizer that `_optimizers` has not found sums its gradients."""
    import keras

    for frame, _ in traceback.walk_stack(None):
        optimizer = frame.f_locals.get("self")
        if isinstance(optimizer, keras.optimizers.Optimizer):
            raise ModelError(
                f"the model's own train_step uses the optimizer {optimizer.name}, which is no "
                "attribute of the model: replicas would sum its gradients and not take their "
                "mean. Let it be an attribute of the model, or be in a list or dictionary that is"
            )


def _replica_number() -> int | None:
    """Of the replica that is traced or computed; None outside of replicas.

    The thread does not tell: after a meeting with the others a replica may be in a different one.
    """
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None:
        return None
    number = tf.get_static_value(context.replica_id_in_sync_group)
    return None if number is None else int(number)


@contextmanager
def _listed(numbers: set[int | None]) -> Iterator[None]:
    """With this replica's number among them."""
    number = _replica_number()
    numbers.add(number)
    try:
        yield
    finally:
        numbers.discard(number)


def check_reductions(model: Any) -> None:
    """Raise ModelError if a compiled loss is a sum over the batch, or no single number."""
    import keras

    for part in keras.tree.flatten(getattr(model, "loss", None)):
        if getattr(part, "reduction", "mean") in ("sum", "none", None):
            raise ModelError(
                f"the loss {part.name} has the reduction {part.reduction}: on several "
                "replicas it would not be the mean of the batch. Leave the reduction out, which "
                "takes the mean, and set loss_weights instead"
            )


def _times(gradient: Any, factor: Any) -> Any:
    import tensorflow as tf

    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * tf.cast(factor, gradient.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


def _is_scalar(value: Any) -> bool:
    return len(getattr(value, "shape", ())) == 0
