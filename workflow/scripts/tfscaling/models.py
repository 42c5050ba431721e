"""Models to train: one entry each. Layer 3 (training); Keras only inside functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Model:
    """A classifier: `build()` returns a Keras model from images to logits.

    `dataset` names the dataset that it trains on unless the recipe says another.
    """

    description: str
    dataset: str
    build: Callable[[], Any]


def _mnist_cnn() -> Any:
    import keras

    return keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


#: Every model of the grid, by name.
MODELS: dict[str, Model] = {
    "mnist_cnn": Model(
        "The convolutional network of TensorFlow's multi-worker tutorial: 2.8 million parameters.",
        "mnist",
        _mnist_cnn,
    ),
}
