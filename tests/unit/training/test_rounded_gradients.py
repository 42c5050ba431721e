"""Gradients that replicas exchange in 16 bits: which are rounded, and what the optimizer gets."""

from __future__ import annotations

from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tfscaling.training import rounded_gradients
from tfscaling.training.own_step import OwnStep

#: Between two numbers of 16 bits; the nearest is 1.
VALUE = 1.001953125


def given() -> list[Any]:
    """Gradients of all kinds."""
    return [
        tf.constant([VALUE, 3.0]),
        None,
        tf.IndexedSlices(tf.constant([[VALUE]]), tf.constant([2]), tf.constant([4, 1])),
        tf.constant([VALUE], tf.float64),
    ]


def test_only_dense_gradients_of_32_bits_are_rounded() -> None:
    exchanged: list[Any] = []

    def exchange(gradients: list[Any]) -> list[Any]:
        exchanged.extend(gradients)
        return gradients

    dense, none, sparse, double = rounded_gradients.summed(given(), exchange)
    assert [getattr(gradient, "dtype", None) for gradient in exchanged] == [
        *(tf.bfloat16, None, tf.float32, tf.float64)
    ]
    assert dense.dtype == tf.float32
    assert dense.numpy().tolist() == [1.0, 3.0]
    assert none is None
    assert isinstance(sparse, tf.IndexedSlices)
    assert (sparse.values.numpy().item(), double.numpy().item()) == (np.float32(VALUE), VALUE)


def test_a_gradient_that_was_made_in_16_bits_is_exchanged_as_it_was_made() -> None:
    exchanged = []

    @tf.function(autograph=False)
    def step(made: Any) -> Any:
        def exchange(gradients: list[Any]) -> list[Any]:
            exchanged.extend(gradients)
            return gradients

        return rounded_gradients.summed([tf.cast(made, tf.float32)], exchange)[0]

    step(tf.constant([VALUE], tf.bfloat16))
    (found,) = exchanged
    assert found.op.type != "Cast"


def weights_after_an_update(rounds: bool, own: bool) -> np.ndarray:
    """Of a layer that gives its inputs' sum, with a gradient of VALUE for each; a rate of 1."""
    keras.utils.set_random_seed(1)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    x = np.full((2, 3), VALUE, np.float32)
    with strategy.scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((3,)), layer])
        model.compile(keras.optimizers.SGD(1.0), loss=lambda y, found: keras.ops.mean(found))
        model.optimizer.build(model.trainable_variables)
        batch = (tf.constant(x), tf.zeros((2, 1)))
        if own:
            step = OwnStep(model, batch, 2, rounds)

            def update() -> None:
                step.train(batch, tf.constant(2), tf.constant(2))
        else:
            if rounds:
                rounded_gradients.exchange_rounded(model.optimizer)

            def update() -> None:
                model.optimizer.apply([tf.constant(x[:1].T)], model.trainable_variables)

    tf.function(lambda: strategy.run(update), autograph=False)()
    return np.ravel(model.get_weights()[0])


@pytest.mark.parametrize("own", [False, True], ids=["classifier", "own step"])
def test_the_optimizer_gets_what_the_replicas_exchange(own: bool) -> None:
    exact = np.float32(1) - np.float32(VALUE)
    np.testing.assert_allclose(weights_after_an_update(False, own), [exact] * 3, rtol=1e-4)
    rounded = 1.0 - float(np.float32(VALUE).astype(ml_dtypes.bfloat16))
    assert weights_after_an_update(True, own).tolist() == [rounded] * 3
