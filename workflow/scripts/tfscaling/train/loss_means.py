"""Whether the loss of a batch is the mean of its examples' losses, as several replicas need it.

Each replica computes the loss of its part of a batch, and the parts' gradients are averaged. That
is the gradient of the complete batch only if its loss is the mean of the parts' losses. The check
of a model before the runs and the training's warnings use it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

#: Number of examples in each half of the compared batch.
PART_EXAMPLES = 8
#: Number of examples in the smallest parts, if there are more: a custom loss may need several.
_SMALLEST_PART = 2
#: Type in which a model computes → relative difference that rounding explains.
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
#: Scale of the random numbers that are added to new weights.
_SPREAD = 0.2

#: Advice for a loss that is no mean.
_WAY_OUT = (
    "let the loss return one value for each example, as keras.losses.Loss.call does, and "
    "leave the mean to Keras; with compute_loss, return a mean over the examples"
)


class Halves(NamedTuple):
    """Losses of a batch and of its two halves.

    Attributes:
        whole: Loss of the batch.
        first: Loss of the first half.
        second: Loss of the second half.
    """

    whole: float
    first: float
    second: float

    @property
    def mean(self) -> float:
        """The mean of the two halves' losses."""
        return (self.first + self.second) / 2


class LossOfParts(NamedTuple):
    """Losses of parts of a batch, from `compare_losses_of_parts`.

    Attributes:
        first: Loss of the batch's first half.
        doubled: Loss of a batch that has each example of the first half twice.
        halves: The compared part with the largest difference between its loss and the mean loss
            of its two halves.
        tolerance: Largest relative difference that can be a rounding error.
    """

    first: float
    doubled: float
    halves: Halves
    tolerance: float

    @property
    def problem(self) -> str | None:
        """Why several replicas cannot train with this loss, as a sentence; None if they can."""
        if self._is_close(self.doubled, self.first):
            return None
        return (
            f"the loss of a batch is {self.first:.6g}, and of the same examples twice "
            f"{self.doubled:.6g}: it is no mean over the examples, so that each number of replicas "
            f"would train with another loss. On several replicas {_WAY_OUT}"
        )

    @property
    def warning(self) -> str | None:
        """How the loss depends on the number of replicas, as a sentence; None if it does not."""
        whole, mean = self.halves.whole, self.halves.mean
        if self._is_close(whole, mean):
            return None
        return (
            f"the loss of a batch is {whole:.6g}, the mean of its halves' losses {mean:.6g}: "
            "examples count differently, as with masks, and replicas train with the mean of their "
            f"own losses. For the same training on all numbers of replicas {_WAY_OUT}"
        )

    def _is_close(self, first: float, second: float) -> bool:
        """Return whether two losses are equal within the tolerance."""
        return bool(np.isclose(first, second, rtol=self.tolerance, atol=1e-6))


def spread_weights(model: Any) -> None:
    """Add random numbers to the weights of a new model, so that losses of its examples differ."""
    dice = np.random.default_rng(0)
    for variable in model.trainable_variables:
        values = np.asarray(variable.numpy(), np.float32)
        variable.assign(values + dice.normal(0.0, max(_SPREAD, values.std()), values.shape))


def compare_losses_of_parts(model: Any, batch: tuple[Any, ...]) -> LossOfParts | None:
    """Compute a compiled model's loss on parts of a batch.

    Args:
        model: A compiled model with built metrics.
        batch: (x, y) or (x, y, weights) as `fit` gets it, of at least two examples.

    Returns:
        None if the loss is random or not finite, or cannot be computed on parts of a batch.
    """
    import keras

    examples = min(2 * PART_EXAMPLES, len(keras.tree.flatten(batch)[0]))
    if examples < 2:
        return None
    rows = np.arange(1 << (examples.bit_length() - 1))  # their number is a power of two
    first = rows[: len(rows) // 2]
    try:
        loss = _make_loss_function(model, batch, rows)
        if not np.isclose(loss(first), loss(first), rtol=1e-5):
            return None
        doubled = loss(np.concatenate([first, first]))
        halves = list(_losses_of_halves(loss, rows))
    except Exception:  # raised by user code, which may want other batches than a part
        return None
    if not np.isfinite([doubled, *np.ravel(halves)]).all():
        return None
    tolerance = TOLERANCE.get(model.compute_dtype, TOLERANCE["float32"])
    farthest = max(halves, key=lambda each: abs(each.whole - each.mean))
    return LossOfParts(halves[0].first, doubled, farthest, tolerance)


def _losses_of_halves(loss: Callable[[np.ndarray], float], rows: np.ndarray) -> Iterator[Halves]:
    """Halve a batch repeatedly; yield each part's loss with the losses of its two halves.

    A loss that is a mean over the examples equals the mean of its halves' losses. Several parts are
    compared, because the halves of one batch may have nearly equal losses by chance.

    Args:
        loss: Returns the loss of some rows of the batch.
        rows: The rows to split; their number is a power of two.
    """
    size, losses = len(rows), [loss(rows)]
    while size > 1 and (size > _SMALLEST_PART or size == len(rows)):
        size //= 2
        of_halves = [loss(part) for part in np.split(rows, len(rows) // size)]
        yield from map(Halves, losses, of_halves[::2], of_halves[1::2])
        losses = of_halves


def _make_loss_function(
    model: Any, batch: tuple[Any, ...], rows: np.ndarray
) -> Callable[[np.ndarray], float]:
    """Return a function: indices of rows of a batch → the loss of these rows, in inference mode.

    If a layer is random in inference mode, too, the outputs are computed once for all `rows` and
    reused, so that only the loss differs.

    Args:
        model: The compiled model.
        batch: (x, y) or (x, y, weights).
        rows: Indices of all rows that the function may get.
    """
    import keras

    def taken(nest: Any, rows: np.ndarray) -> Any:
        """Return some rows of nested arrays."""
        return keras.tree.map_structure(lambda each: keras.ops.take(each, rows, axis=0), nest)

    def outputs_of(rows: np.ndarray) -> Any:
        """Return the model's outputs for some rows of the batch."""
        return model(keras.utils.unpack_x_y_sample_weight(taken(batch, rows))[0], training=False)

    outputs = outputs_of(rows)
    again = keras.tree.flatten(outputs_of(rows))
    are_same = all(map(np.array_equal, keras.tree.flatten(outputs), again))
    has_training = "training" in inspect.signature(model.compute_loss).parameters
    settings = {"training": False} if has_training else {}

    def loss(rows: np.ndarray) -> float:
        """Return the loss of some rows of the batch."""
        x, y, weights = keras.utils.unpack_x_y_sample_weight(taken(batch, rows))
        found = outputs_of(rows) if are_same else taken(outputs, rows)
        return float(model.compute_loss(x, y, found, weights, **settings))

    return loss
