"""Losses that are no mean over examples: refused, or a warning; all others are neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from tfscaling.train import keras_internals, loss_means

dice = np.random.default_rng(0)
X = dice.standard_normal((20, 6)).astype(np.float32)
Y = dice.standard_normal((20, 3)).astype(np.float32)
WORDS = np.where(np.arange(6) < dice.integers(1, 7, (20, 1)), dice.integers(1, 9, (20, 6)), 0)
layers, ops = keras.layers, keras.ops


def dense(*between: Any, **compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((6,)), *between, layers.Dense(3)])
    model.compile("sgd", **compiled)
    return model


def own(loss: Callable[[Any, Any], Any]) -> Any:
    """A model with a custom compute_loss of labels and outputs."""

    class Own(keras.Model):
        def compute_loss(self, x: Any, y: Any, y_pred: Any, *_: Any, **__: Any) -> Any:
            return loss(y, y_pred) + sum(self.losses)

    given = keras.Input((6,))
    model = Own(given, layers.Dense(3, kernel_regularizer="l2")(given))
    model.compile("sgd")
    return model


def of_words() -> Any:
    """Padding is masked, and Keras takes the mean over the words of a batch."""
    given = keras.Input((6,), dtype="int32")
    vectors = layers.Embedding(9, 4, mask_zero=True)(given)
    model = keras.Model(given, layers.Dense(9)(vectors))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Sampled(layers.Layer):  # type: ignore[name-defined]
    """Noise, and a loss that is a mean over the batch, as in a variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = keras.random.SeedGenerator(1)

    def call(self, inputs: Any) -> Any:
        self.add_loss(ops.mean(ops.sum(ops.square(inputs), axis=-1)))
        return inputs + keras.random.normal(ops.shape(inputs), seed=self.seed)


def huber_of_a_batch_of(count: int) -> Callable[[Any, Any], Any]:
    return lambda y, p: ops.sum(keras.losses.huber(y, p)) / count


def contrastive(y: Any, outputs: Any) -> Any:
    """Each example is told apart from the others of its batch."""
    similar = ops.matmul(y, ops.transpose(outputs))
    own = ops.arange(ops.shape(y)[0])
    return ops.mean(keras.losses.sparse_categorical_crossentropy(own, similar, from_logits=True))


def compared(model: Any, x: Any, y: Any, *weights: Any) -> loss_means.LossOfParts | None:
    keras_internals.build_metrics_and_optimizer(model, (x, y, *weights))
    loss_means.spread_weights(model)
    return loss_means.compare_losses_of_parts(model, (x, y, *weights))


@pytest.mark.parametrize(
    "model",
    [
        lambda: dense(loss="mse"),
        lambda: dense(layers.Dropout(0.5), layers.BatchNormalization(), loss="huber"),
        lambda: dense(Sampled(), loss="mae"),
        lambda: own(lambda y, p: ops.mean(ops.square(y - p))),
    ],
)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_mean_over_examples_is_one(model: Callable[[], Any], is_weighted: bool) -> None:
    weights = [dice.random(20).astype(np.float32)] if is_weighted else []
    found = compared(model(), X, Y, *weights)
    assert found is not None
    assert (found.problem, found.warning) == (None, None)


@pytest.mark.parametrize(
    "loss", [huber_of_a_batch_of(20), huber_of_a_batch_of(1), contrastive, lambda y, p: ops.max(p)]
)
def test_what_depends_on_the_number_of_examples_or_on_pairs_is_no_mean(
    loss: Callable[[Any, Any], Any],
) -> None:
    found = compared(own(loss), X, Y)
    assert found is not None
    if found.problem is None:  # a maximum: twice the same examples have the same
        assert found.warning is not None
    assert (found.problem is None) == (found.doubled == pytest.approx(found.first))


def test_a_mean_over_words_that_are_not_masked_is_a_warning() -> None:
    for seed in range(2):  # one batch in fifty has halves with nearly equal losses
        keras.utils.set_random_seed(seed)
        found = compared(of_words(), WORDS, WORDS)
        assert found is not None
        assert found.problem is None
        assert found.warning is not None
    unmasked = np.maximum(WORDS, 1)
    same = compared(of_words(), unmasked, unmasked)
    assert same is not None
    assert (same.problem, same.warning) == (None, None)


def test_of_a_loss_that_draws_numbers_nothing_is_known() -> None:
    seed = keras.random.SeedGenerator(1)
    drawn = own(lambda y, p: ops.mean(ops.square(y - p) * keras.random.uniform((1,), seed=seed)))
    assert compared(drawn, X, Y) is None
    assert compared(dense(loss="mse"), X[:1], Y[:1]) is None
