"""Models: what they are, and that they can be named without Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import run_python
from tfscaling.datasets.catalogue import DATASETS
from tfscaling.spec import user_code
from tfscaling.train import models
from tfscaling.train.models import MODELS


def test_mnist_cnn_is_the_published_network() -> None:
    model = MODELS["mnist_cnn"].build()
    assert model.count_params() == 2_770_634
    assert [type(layer).__name__ for layer in model.layers] == [
        "Reshape",
        "Conv2D",
        "Flatten",
        "Dense",
        "Dense",
    ]


def test_mnist_cnn_gives_logits_for_ten_classes() -> None:
    model = MODELS["mnist_cnn"].build()
    logits = np.asarray(model(np.random.default_rng(0).random((3, 28, 28), np.float32)))
    assert logits.shape == (3, 10)
    assert not np.allclose(logits.sum(axis=1), 1.0)  # no softmax: the loss takes logits


@pytest.mark.parametrize("name", MODELS)
def test_each_model_is_described_and_its_dataset_is_known(name: str) -> None:
    assert MODELS[name].description
    dataset = MODELS[name].dataset
    assert dataset in DATASETS or user_code.is_pipeline(dataset)


def test_names_of_models_are_known_without_importing_keras() -> None:
    code = (
        "import sys; from tfscaling.train.models import MODELS; "
        "print([n for n in ('keras', 'tensorflow') if n in sys.modules], 'mnist_cnn' in MODELS)"
    )
    assert run_python(code).stdout == "[] True\n"


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
