"""Whether the loss of a batch is the mean of its examples' losses, as several replicas need it.

Each replica computes the loss of its part of a batch, and the parts' gradients are averaged. That
is the gradient of the complete batch only if its loss is the mean of the parts' losses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

#: Examples of each part that is compared.
PART_EXAMPLES = 8
#: Relative differences that rounding explains.
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
#: What is added to new weights at random, at least.
_SPREAD = 0.2

_WAY_OUT = (
    "let the loss return one value for each example, as keras.losses.Loss.call does, and "
    "leave the mean to Keras; with compute_loss, return a mean over the examples"
)


class LossOfParts(NamedTuple):
    """Losses of a batch's halves, of the batch, and of its first half twice."""

    first: float
    second: float
    whole: float
    doubled: float
    tolerance: float

    @property
    def problem(self) -> str | None:
        """Why replicas cannot train with this loss, or None."""
        if self._is_close(self.doubled, self.first):
            return None
        return (
            f"the loss of a batch is {self.first:.6g}, and of the same examples twice "
            f"{self.doubled:.6g}: it is no mean over the examples, so that each number of replicas "
            f"would train with another loss. On several replicas {_WAY_OUT}"
        )

    @property
    def warning(self) -> str | None:
        """How this loss depends on the number of replicas, or None."""
        mean = (self.first + self.second) / 2
        if self._is_close(self.whole, mean):
            return None
        return (
            f"the loss of a batch is {self.whole:.6g}, the mean of its halves' losses {mean:.6g}: "
            "examples count differently, as with masks, and replicas train with the mean of their "
            f"own losses. For the same training on all numbers of replicas {_WAY_OUT}"
        )

    def _is_close(self, one: float, other: float) -> bool:
        return bool(np.isclose(one, other, rtol=self.tolerance, atol=1e-6))


def spread_weights(model: Any) -> None:
    """Change the weights of a new model at random, so that its examples have different losses."""
    dice = np.random.default_rng(0)
    for variable in model.trainable_variables:
        values = np.asarray(variable.numpy(), np.float32)
        variable.assign(values + dice.normal(0.0, max(_SPREAD, values.std()), values.shape))


def compare(model: Any, batch: tuple[Any, ...]) -> LossOfParts | None:
    """Compare a compiled model's losses of parts of a batch.

    Args:
        model: A model that trains itself, with built metrics.
        batch: (x, y) or (x, y, weights) as `fit` gives them, of at least two examples.

    Returns:
        None if the loss draws random numbers, or cannot be computed so: nothing is known then.
    """
    import keras

    examples = len(keras.tree.flatten(batch)[0])
    part = min(PART_EXAMPLES, examples // 2)
    if not part:
        return None
    first, second = np.arange(part), np.arange(part, 2 * part)
    both = np.concatenate([first, second])
    try:
        loss = _loss_of(model, batch, both)
        if not np.isclose(loss(first), loss(first), rtol=1e-5):
            return None
        twice = np.concatenate([first, first])
        first_loss, second_loss, whole, doubled = map(loss, (first, second, both, twice))
    except Exception:  # raised by user code, which may want other batches than a part
        return None
    tolerance = TOLERANCE.get(model.compute_dtype, TOLERANCE["float32"])
    found = LossOfParts(first_loss, second_loss, whole, doubled, tolerance)
    return found if np.isfinite(found).all() else None


def _loss_of(model: Any, batch: tuple[Any, ...], rows: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return the function from rows of a batch to their loss, without dropout.

    Random outputs are drawn once, for all `rows`.
    """
    import keras

    def taken(nest: Any, rows: np.ndarray) -> Any:
        return keras.tree.map_structure(lambda each: keras.ops.take(each, rows, axis=0), nest)

    def outputs_of(rows: np.ndarray) -> Any:
        return model(keras.utils.unpack_x_y_sample_weight(taken(batch, rows))[0], training=False)

    outputs = outputs_of(rows)
    again = keras.tree.flatten(outputs_of(rows))
    are_same = all(map(np.array_equal, keras.tree.flatten(outputs), again))
    has_training = "training" in inspect.signature(model.compute_loss).parameters
    settings = {"training": False} if has_training else {}

    def loss(rows: np.ndarray) -> float:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(taken(batch, rows))
        found = outputs_of(rows) if are_same else taken(outputs, rows)
        return float(model.compute_loss(x, y, found, weights, **settings))

    return loss
