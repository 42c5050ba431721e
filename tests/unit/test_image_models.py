"""The models for CIFAR-10 and for images of ImageNet's shape."""

from __future__ import annotations

import numpy as np
import pytest
from tfscaling.train import models


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters", "normalizations"),
    [
        ("mnist_cnn", (28, 28), 10, 2_770_634, 0),
        ("cifar10_cnn", (32, 32, 3), 10, 122_570, 0),
        ("resnet50", (224, 224, 3), 1000, 25_636_712, 53),
    ],
)
def test_shapes_and_numbers_of_parameters(
    name: str, shape: tuple[int, ...], classes: int, parameters: int, normalizations: int
) -> None:
    model = models.get(name).build()
    normalized = [v for v in model.non_trainable_variables if "moving" in v.path]
    assert len(normalized) == 2 * normalizations  # their means and variances
    assert model.input_shape == (None, *shape)
    assert model.output_shape == (None, classes)
    assert model.count_params() == parameters
    images = np.random.default_rng(0).random((2, *shape), np.float32)
    logits = np.asarray(model(images, training=False))
    assert logits.shape == (2, classes)
    assert not np.allclose(logits.sum(axis=1), 1.0)  # no softmax: the loss takes logits
