"""Pipelines of batches whose sizes differ: sequences, and images, of any length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from strategy_rank import training_spec
from tfscaling.records.events import EventLog
from tfscaling.training.pipeline import Datasets, PipelineTrainer

layers = keras.layers
EXAMPLES, BATCH = 40, 8


def sequences(examples: int = EXAMPLES) -> Any:
    """Batches of 10 or 12 to 20 steps of 4 numbers, and which of the numbers is the largest."""
    random = np.random.default_rng(0)
    x = random.normal(size=(examples, 20, 4)).astype(np.float32)
    y = random.integers(0, 4, examples)
    x[np.arange(examples), :, y] += 1
    lengths = 10 + 2 * random.integers(0, 6, examples)
    each = tf.data.Dataset.from_tensor_slices((x, lengths, y)).map(lambda x, n, y: (x[:n], y))
    return each.padded_batch(BATCH, ([None, 4], []))


def images() -> Any:
    given = [(np.ones((BATCH, n, n + 2, 1), np.float32), np.zeros(BATCH, int)) for n in (9, 12)]
    signature = (tf.TensorSpec((None, None, None, 1)), tf.TensorSpec((None,), tf.int64))
    return tf.data.Dataset.from_generator(lambda: iter(given), output_signature=signature)


def convolution(cls: Any = keras.Model) -> Any:
    given = keras.Input((None, 4))
    whole = layers.GlobalMaxPooling1D()(layers.Conv1D(8, 5)(given))
    return compiled(cls(given, layers.Dense(4)(whole)))


def pooling() -> Any:
    given = keras.Input((None, 4))
    whole = layers.GlobalAveragePooling1D()(layers.MaxPooling1D(2)(given))
    return compiled(keras.Model(given, layers.Dense(4)(whole)))


def of_images() -> Any:
    given = keras.Input((None, None, 1))
    whole = layers.GlobalAveragePooling2D()(layers.Conv2D(2, 5)(given))
    return compiled(keras.Model(given, layers.Dense(4)(whole)))


class OwnStep(keras.Model):  # type: ignore[misc]
    """Returns a value that no metric keeps."""

    def train_step(self, batch: Any) -> dict[str, Any]:
        return {**super().train_step(batch), "length": self.length(batch)}

    def test_step(self, batch: Any) -> dict[str, Any]:
        return {**super().test_step(batch), "length": self.length(batch)}

    def length(self, batch: Any) -> Any:
        return tf.cast(tf.shape(batch[0])[1], tf.float32)


def compiled(model: Any) -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def trainer_of(model: Callable[[], Any], data: Datasets) -> PipelineTrainer:
    settings = {"optimizer": "model", "learning_rate": None, "momentum": None, "loss": "model"}
    spec = training_spec(BATCH, epochs=2, steps_per_execution=1, **settings)
    return PipelineTrainer(tf.distribute.OneDeviceStrategy("CPU:0"), model, data, spec)


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (convolution, sequences),
        (pooling, sequences),
        (lambda: convolution(OwnStep), sequences),
        (of_images, images),
    ],
)
def test_sizes_may_differ_between_batches(
    model: Callable[[], Any], data: Callable[[], Any], tmp_path: Path
) -> None:
    trainer, log = trainer_of(model, Datasets(data(), data())), EventLog(tmp_path / "events", 0)
    result = trainer.train(log, print)
    trainer.evaluate(result, log, "evaluated")
    metrics = result.epochs[-1].metrics
    assert metrics["accuracy"] is not None
    if trainer.model.__class__ is OwnStep:
        lengths = [x.shape[1] for x, _ in sequences()]
        assert metrics["length"] == pytest.approx(np.mean(lengths))


def test_a_worker_without_held_out_examples_takes_the_sizes_that_it_has_trained(
    tmp_path: Path,
) -> None:
    """`Conv1D` of 5 steps cannot take a batch of one step."""
    trainer = trainer_of(convolution, Datasets(sequences(), sequences().take(0)))
    trainer.train(EventLog(tmp_path / "events", 0), print)
    with trainer._fed(trainer.data.test) as batches:
        fed = next(batches)
    assert float(fed.examples) == 0
    assert fed.batch[0].shape[1:] == next(iter(sequences()))[0].shape[1:]
    trainer._evaluate_call(fed)
