"""Models: what they are, and that they can be named without Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tfscaling.datasets.catalogue import DATASETS
from tfscaling.study import user_code
from tfscaling.train import models
from tfscaling.train.models import MODELS


def test_mnist_cnn_is_the_published_network() -> None:
    model = MODELS["mnist_cnn"].build()
    assert [type(layer).__name__ for layer in model.layers] == [
        "Reshape",
        "Conv2D",
        "Flatten",
        "Dense",
        "Dense",
    ]


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters", "normalizations"),
    [
        ("mnist_cnn", (28, 28), 10, 2_770_634, 0),
        ("cifar10_cnn", (32, 32, 3), 10, 122_570, 0),
        ("resnet50", (224, 224, 3), 1000, 25_636_712, 53),
    ],
)
def test_shapes_parameters_and_logits(
    name: str, shape: tuple[int, ...], classes: int, parameters: int, normalizations: int
) -> None:
    model = models.find_model(name).build()
    normalized = [v for v in model.non_trainable_variables if "moving" in v.path]
    assert len(normalized) == 2 * normalizations  # their means and variances
    assert model.input_shape == (None, *shape)
    assert model.output_shape == (None, classes)
    assert model.count_params() == parameters
    images = np.random.default_rng(0).random((2, *shape), np.float32)
    logits = np.asarray(model(images, training=False))
    assert logits.shape == (2, classes)
    assert not np.allclose(logits.sum(axis=1), 1.0)  # no softmax: the loss takes logits


@pytest.mark.parametrize("name", MODELS)
def test_each_model_has_a_description_and_a_dataset_of_its_shape(name: str) -> None:
    assert MODELS[name].description
    dataset = MODELS[name].dataset
    assert dataset in DATASETS or user_code.is_pipeline(dataset)
    if dataset in DATASETS:
        assert MODELS[name].image_shape == DATASETS[dataset].image_shape


CONVOLUTION, DENSE = 2 * 26 * 26 * 9 * 4, 2 * 26 * 26 * 4 * 10
BIASES = 26 * 26 * 4 + 10


def to_count(name: str) -> Any:
    import keras

    image, words = keras.Input((28, 28, 1)), keras.Input((16, 8))
    if name == "convolution":
        hidden = keras.layers.Conv2D(4, 3)(image)
        return keras.Model(image, keras.layers.Dense(10)(keras.layers.Flatten()(hidden)))
    if name == "attention":  # products in an Einsum
        return keras.Model(words, keras.layers.MultiHeadAttention(2, 4)(words, words))
    if name == "loop":
        return keras.Model(words, keras.layers.LSTM(4)(words))
    return keras.layers.Dense(10)  # not built: no inputs


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("convolution", 3.0 * (CONVOLUTION + DENSE + BIASES)),
        *(("attention", None), ("loop", None), ("no inputs", None)),
    ],
)
def test_products_of_a_step_are_counted(name: str, counted: float | None) -> None:
    assert models.training_flops(to_count(name)) == counted
