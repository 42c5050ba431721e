"""A compiled model, trained on several replicas as `fit` trains it on one device.

Each replica computes the model's loss and metrics on its part of the global batch, with the real
examples only, by the methods that Keras documents: `compute_loss`, `compute_metrics`,
`get_metrics_result`. Two things make the replicas together do what `fit` does:

- A gradient counts by the replica's share of the batch's examples and is summed over the replicas
  before the optimizer sees it: so clipping, accumulation and the check of a scaled loss apply to
  the complete batch. Keras itself sums after them.
- The state of every metric is combined over the replicas by the variables' own `aggregation`, a
  sum unless the metric says otherwise, and its result is computed once, from the whole.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfscaling.train import keras_internals, optimizers, strategies
from tfscaling.train.user_model import ModelError, has_own_method


class CustomTrainStep:
    """The train and test step of a compiled Keras model; metrics are combined over the replicas.

    Make it in the scope of the strategy. Each replica calls all methods but
    `compute_metric_results`.

    Args:
        model: The compiled model.
        sample: A batch as `fit` takes it, of any size: (x, y) or (x, y, weights), or its
            TensorSpecs.
        replicas: Number of replicas.
        wrap: Gets the function of forward and backward pass, and returns a function with the same
            results, such as one with a separate graph. By default it returns the function itself.

    Raises:
        ModelError: Several replicas would train the model differently from one.
    """

    def __init__(
        self,
        model: Any,
        sample: tuple[Any, ...],
        replicas: int,
        wrap: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
    ) -> None:
        import tensorflow as tf

        self.tf, self.model, self.replicas = tf, model, replicas
        keras_internals.build_metrics_and_optimizer(model, sample, _single_output(model, sample))
        if replicas > 1:
            check_reductions(model)
        for optimizer in (model.optimizer, getattr(model.optimizer, "inner_optimizer", None)):
            if optimizer is not None:  # a loss scale calls the inner one in separate threads
                optimizer.apply = optimizers.apply_without_sum()(optimizer.apply)
                optimizers.fuse_updates(optimizer)
        self.metrics = list(model.metrics_variables)
        #: Keras's own mean of the loss; a model with its own `metrics` counts its loss itself.
        self._loss = None if has_own_method(model, "metrics") else model.metrics[0]
        self._has_training = "training" in inspect.signature(model.compute_loss).parameters
        #: As `gradients`.
        self._differentiate = wrap(self._gradients)
        self._measured = tf.autograph.experimental.do_not_convert(self._loss_and_metrics)

    def train(self, batch: tuple[Any, ...], examples: Any, global_examples: Any) -> None:
        """Train one step in a replica, and update the metrics.

        Args:
            batch: This replica's part of the batch.
            examples: Number of examples at its beginning; the rest is padding. None: no replica
                has padding.
            global_examples: Number of examples of all replicas in this step.
        """
        tf = self.tf
        if examples is None:
            share = 1.0 / self.replicas
            gradients = self.gradients(batch, None)
        else:
            share = tf.cast(examples, tf.float32) / tf.cast(global_examples, tf.float32)
            before = [tf.identity(variable.value) for variable in self.metrics]
            gradients = self.gradients(batch, examples)
            self._restore_metrics_unless(examples > 0, before)
        if self.replicas > 1:
            gradients = optimizers.sum_over_replicas(
                [
                    None if each is None else optimizers.scale_values(each, share, tf.multiply)
                    for each in gradients
                ]
            )
        self.model.optimizer.apply(
            optimizers.wait_for_all(gradients), self.model.trainable_variables
        )

    def gradients(self, batch: tuple[Any, ...], examples: Any) -> list[Any]:
        """Return the gradients of the loss on this replica's batch, and update the metrics.

        They are scaled by the optimizer's loss scale; None for a variable that the loss does not
        use.

        Args:
            batch: This replica's part of the batch.
            examples: Number of examples at its beginning; the rest is padding. None: it has no
                padding.
        """
        if examples is not None:
            batch = self._real_examples(batch, examples)
        elif self.replicas > 1:
            batch = optimizers.forget_batch_size(batch, integers_only=False)
        gradients: list[Any] = self._differentiate(batch)
        return gradients

    def _gradients(self, batch: tuple[Any, ...]) -> list[Any]:
        """Return the scaled gradients of the loss on a batch without padding, for `gradients`."""
        with self.tf.GradientTape() as tape:
            loss = self.model.optimizer.scale_loss(self._measured(batch, True))
        gradients: list[Any] = tape.gradient(loss, self.model.trainable_variables)
        return gradients

    def update_test_metrics(self, batch: tuple[Any, ...], examples: Any) -> None:
        """Update the metrics with this replica's part of a held-out batch.

        Args:
            batch: This replica's part of the batch.
            examples: Number of examples at its beginning; the rest is padding.
        """
        before = [self.tf.identity(variable.value) for variable in self.metrics]
        self._measured(self._real_examples(batch, examples), False)
        self._restore_metrics_unless(examples > 0, before)

    def combine_metric_states(self) -> list[Any]:
        """Return the value of each variable of the model's metrics, combined over the replicas.

        The variable's aggregation sets how: their sum, their mean, or the first replica's value.
        """
        tf = self.tf
        context = tf.distribute.get_replica_context()
        own = []
        for variable in self.metrics:
            # an all-reduce takes its device from the tensor; a value read from a variable has none
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

    def compute_metric_results(self, states: Sequence[Any]) -> dict[str, float]:
        """Return name → value of each metric that has a single value.

        Args:
            states: The states from `combine_metric_states`.

        Raises:
            ModelError: The model overrides `metrics`, and none of its metrics is called loss.
        """
        import keras

        with keras.StatelessScope(list(zip(self.metrics, states, strict=True))):
            found = self.model.get_metrics_result()
            if "loss" not in found:
                raise ModelError("the model's own metrics have none called loss")
            return {
                name: float(np.ravel(value)[0])
                for name, value in found.items()
                if math.prod(getattr(value, "shape", ())) == 1
            }

    def _loss_and_metrics(self, batch: tuple[Any, ...], training: bool) -> Any:
        """Return the loss of a batch in a replica, and update the metrics.

        Args:
            batch: (x, y) or (x, y, weights).
            training: Whether layers behave as in training.
        """
        import keras

        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        outputs = self.model(x, training=training)
        given = {"training": training} if self._has_training else {}
        with strategies.single_replica():
            loss = self.model.compute_loss(x, y, outputs, weights, **given)
        if self._loss is not None:
            examples = self.tf.shape(self.tf.nest.flatten(x)[0])[0]
            self._loss.update_state(loss, sample_weight=examples)
        self.model.compute_metrics(x, y, outputs, weights)
        return loss

    def _real_examples(self, batch: tuple[Any, ...], examples: Any) -> tuple[Any, ...]:
        """Return the first `examples` examples of a padded batch, but at least one.

        A replica without examples computes one, because all replicas must run the same operations.
        """
        rows = self.tf.maximum(examples, 1)
        real: tuple[Any, ...] = self.tf.nest.map_structure(lambda array: array[:rows], batch)
        return real

    def _restore_metrics_unless(self, has_examples: Any, before: Sequence[Any]) -> None:
        """Reset the metrics to the values `before`, unless this replica's batch has examples.

        Args:
            has_examples: Boolean tensor; False for a batch of padding alone.
            before: Values of the metrics' variables before the batch.
        """
        tf = self.tf
        for variable, value in zip(self.metrics, before, strict=True):
            variable.assign(tf.where(has_examples, tf.convert_to_tensor(variable.value), value))


#: Methods whose override may need a call of the model to build its metrics.
_METHODS_OF_A_STEP = ("call", "compute_loss", "compute_metrics", "metrics")


def _single_output(model: Any, sample: Sequence[Any]) -> Any | None:
    """Return the symbolic output of a functional model with a loss and a single output, else None.

    Args:
        model: The compiled model.
        sample: A batch as `fit` takes it.
    """
    outputs: Sequence[Any] = getattr(model, "outputs", None) or []
    labels = sample[1] if len(sample) > 1 else None
    # a Sequential model that was not called has no `output`
    parts = labels, getattr(model, "output", None)
    is_nested = any(isinstance(part, dict | list | tuple) for part in parts)
    has_loss = keras_internals.compile_settings(model).get("loss") is not None
    if any(has_own_method(model, name) for name in _METHODS_OF_A_STEP):
        return None
    return outputs[0] if len(outputs) == 1 and has_loss and not is_nested else None


def check_reductions(model: Any) -> None:
    """Check that several replicas would train a compiled model as one replica does.

    Raises:
        ModelError: The reduction of a loss is not the mean over the batch, or the optimizer
            regularly replaces weights by their moving averages.
    """
    import keras

    for part in keras.tree.flatten(getattr(model, "loss", None)):
        if getattr(part, "reduction", "mean") in ("sum", "none", None):
            raise ModelError(
                f"the loss {part.name} has the reduction {part.reduction}: on several "
                "replicas it would not be the mean of the batch. Leave the reduction out, which "
                "takes the mean, and set loss_weights instead"
            )
    if getattr(model.optimizer, "ema_overwrite_frequency", None):
        raise ModelError(
            f"the optimizer {model.optimizer.name} has an ema_overwrite_frequency, which several "
            "replicas cannot follow: leave it out, and the averages are the weights at the end"
        )
