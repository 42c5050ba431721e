"""Private attributes of Keras and TensorFlow: which ones, and with which versions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf
from tfscaling.train import keras_internals

VERSIONS = {"keras": keras.__version__, "tensorflow": tf.__version__}


def model() -> Any:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("adam", "mse")
    made.optimizer.build(made.trainable_variables)
    return made


def functional() -> Any:
    given = keras.Input((2,))
    made = keras.Model(given, keras.layers.Dense(1)(given))
    made.compile("sgd", "mse")
    return made


MADE: dict[str, Callable[[], Any]] = {
    "keras.Model": functional,
    "keras.Sequential": model,
    "keras.optimizers.Optimizer": lambda: model().optimizer,
    "keras.optimizers.Adam": lambda: model().optimizer,
}


def owner_of(name: str) -> Any:
    """The object, class or module that a private attribute belongs to."""
    if name in MADE:
        return MADE[name]()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, cls = name.rpartition(".")
        return getattr(importlib.import_module(module), cls)


@pytest.mark.parametrize("name", keras_internals.PRIVATE)
def test_the_attribute_exists(name: str) -> None:
    owner, _, attribute = name.rpartition(".")
    wrong = f"{name} is gone in {VERSIONS}; checked with {keras_internals.CHECKED_VERSIONS}"
    assert hasattr(owner_of(owner), attribute), wrong
