"""Inputs of bytes: images are scaled to [0, 1], and whole numbers are left as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from strategy_rank import training_spec
from tfscaling.datasets.catalogue import Arrays
from tfscaling.record.events import EventLog
from tfscaling.train import models, user_model
from tfscaling.train.all_reduce import ArrayTrainer

layers = keras.layers
BYTES = np.arange(48, dtype=np.uint8).reshape(4, 12)


def sequential(*between: Any, dtype: str | None = None) -> Any:
    return keras.Sequential([keras.Input((12,), dtype=dtype), *between, layers.Dense(2)])


def of_tokens(dtype: str | None) -> Any:
    return sequential(layers.Embedding(256, 4), layers.Flatten(), dtype=dtype)


def nested() -> Any:
    """A model in a model, as those of keras.applications begin."""
    given = keras.Input((12,))
    inner = keras.Sequential([keras.Input((12,)), layers.Rescaling(1 / 255), layers.Dense(3)])
    return keras.Model(given, layers.Dense(2)(inner(layers.Dropout(0.1)(given))))


def of_two(by_name: bool = True) -> Any:
    """Images and words."""
    images = keras.Input((12,), name="images")
    words = keras.Input((12,), dtype="uint8", name="words")
    embedded = layers.Flatten()(layers.Embedding(256, 2)(words))
    whole = layers.concatenate([images, embedded])
    inputs = {"images": images, "words": words} if by_name else [images, words]
    return keras.Model(inputs, layers.Dense(2)(whole))


class Subclass(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = layers.Embedding(256, 4), layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.last(self.table(x)[:, 0])


def subclass() -> Any:
    model = Subclass()
    model(np.zeros((1, 12)))
    return model


def scaled(model: Any, x: Any) -> Any:
    return tf.nest.map_structure(np.asarray, user_model.scale_bytes(model, x))


RECIPE = training_spec(4).recipe


def warned(model: Any, x: Any) -> list[str]:
    return user_model.warn_of_scaled_bytes(model, RECIPE, x)


@pytest.mark.parametrize("dtype", [None, "float16", "uint8", "int32"])
def test_bytes_are_scaled_for_inputs_of_floating_point(dtype: str | None) -> None:
    is_scaled = dtype in (None, "float16")
    found = scaled(sequential(dtype=dtype), BYTES)
    assert found == pytest.approx(BYTES / 255 if is_scaled else BYTES, rel=1e-6)


def test_each_input_has_its_own_type() -> None:
    for by_name in (True, False):
        found = scaled(of_two(by_name=by_name), {"words": BYTES, "images": BYTES})
        assert [(name, array.dtype.kind) for name, array in found.items()] == [
            ("words", "u"),
            ("images", "f"),
        ]
    as_tuple = scaled(of_two(), (BYTES, BYTES))
    assert [array.dtype.kind for array in as_tuple] == ["f", "u"]


def test_what_a_subclass_takes_is_not_known() -> None:
    np.testing.assert_allclose(scaled(subclass(), BYTES), BYTES / 255, rtol=1e-6)
    np.testing.assert_array_equal(scaled(subclass(), BYTES / 2), BYTES / 2)
    (warning,) = warned(subclass(), BYTES)
    assert "(Embedding)" in warning


@pytest.mark.parametrize(
    ("model", "layer"),
    [
        (lambda: sequential(layers.Reshape((12, 1)), layers.Rescaling(1 / 255)), "(Rescaling)"),
        (lambda: sequential(layers.Normalization(mean=1.0, variance=1.0)), "(Normalization)"),
        (nested, "(Rescaling)"),
        (lambda: of_tokens(None), "(Embedding)"),
    ],
)
def test_layers_for_bytes_after_the_scaling_are_a_warning(
    model: Callable[[], Any], layer: str
) -> None:
    (warning,) = warned(model(), BYTES)
    assert layer in warning
    assert ";" not in warning
    assert warned(model(), BYTES.astype(np.float32)) == []


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (lambda: sequential(layers.Rescaling(1 / 255), dtype="uint8"), BYTES),
        (lambda: of_tokens("uint8"), BYTES),
        (of_two, {"images": BYTES, "words": BYTES}),
        (of_two, {"images": BYTES, "words": BYTES.astype(np.int64)}),
        (models.MODELS["mnist_cnn"].build, np.zeros((1, 2), np.uint8)),
    ],
)
def test_what_is_taken_as_it_is_meant_has_no_warning(model: Callable[[], Any], x: Any) -> None:
    assert warned(model(), x) == []


def test_tokens_of_bytes_are_learned(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 4, (160, 12)).astype(np.uint8)
    y = x[:, 0] // 2
    trainer = ArrayTrainer(
        tf.distribute.OneDeviceStrategy("CPU:0"),
        lambda: of_tokens("uint8"),
        Arrays(x, y, x, y),
        training_spec(16, epochs=8, learning_rate=0.3),
    )
    accuracy = trainer.train(EventLog(tmp_path / "events", 0), print).epochs[-1].accuracy
    assert (accuracy or 0.0) > 0.9


class WithLoss(keras.Model):
    """A custom loss; the recipe's optimizer trains it."""

    def compute_loss(self, x: Any, y: Any, y_pred: Any, *_: Any, **__: Any) -> Any:
        entropy = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
        return keras.ops.mean(entropy)


@pytest.mark.parametrize("kind", ["compiled", "compute_loss", "classifier"])
def test_a_model_with_its_own_loss_gets_bytes_as_fit_gives_them(kind: str) -> None:
    """A model may scale them by operations, which nobody finds."""
    is_classifier = kind == "classifier"

    def model() -> Any:
        made = sequential(layers.Rescaling(1 / 255))
        if kind == "compute_loss":
            return WithLoss(made.inputs, made.outputs)
        if kind == "compiled":
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            made.compile("adam", loss)
        return made

    labels = np.arange(4) % 2
    recipe: dict[str, Any] = {} if is_classifier else {"loss": "model"}
    recipe |= {"optimizer": "model"} if kind == "compiled" else {}
    spec = training_spec(4, **recipe)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    trainer = ArrayTrainer(strategy, model, Arrays(BYTES, labels, BYTES, labels), spec)
    x, _ = trainer.some_examples()
    np.testing.assert_allclose(x, BYTES / 255 if is_classifier else BYTES, rtol=1e-6)
    warnings = user_model.warn_of_scaled_bytes(trainer.model, spec.recipe, BYTES)
    assert bool(warnings) == is_classifier
