"""The recipe's Keras optimizer: its learning rate over the updates, momentum, weight decay.

The learning rate is a function of the optimizer's own count of updates, which is part of its
state: it changes inside of compiled loops, with every strategy, and goes on where a state that was
saved is loaded. An update that an overflow of the loss scale skips does not count.
"""

from __future__ import annotations

from typing import Any

from tfscaling.study.config import Recipe
from tfscaling.training import fused_updates


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
        optimizer = fused_updates.adam(rate, weight_decay=weight_decay)
    else:
        optimizer = fused_updates.sgd(
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
