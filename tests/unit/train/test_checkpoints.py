"""Checkpoints: an interrupted training gives what an uninterrupted one gives, in every bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import interrupted
import numpy as np
import pytest
import tensorflow as tf
from strategy_rank import GLOBAL_BATCH, TINY_TRAINING, lively_model, synthetic_arrays, training_spec
from tfscaling.record.events import EventLog, EventName
from tfscaling.train.all_reduce import ArrayTrainer
from tfscaling.train.loop import TrainingLoop
from tfscaling.train.pipeline import Datasets, PipelineTrainer


def of_arrays(**changes: Any) -> Callable[[], TrainingLoop]:
    def make() -> TrainingLoop:
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        spec = training_spec(GLOBAL_BATCH, **changes)
        return ArrayTrainer(strategy, lively_model, synthetic_arrays(), spec)

    return make


def compiled_model() -> Any:
    import keras

    model = lively_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01, use_ema=True), loss, metrics=["accuracy"])
    return model


def of_task(**changes: Any) -> Callable[[], TrainingLoop]:
    """A user's model with a pipeline that shuffles anew in each epoch, and changes images."""
    changes |= {"loss": "model", "optimizer": "model", "learning_rate": None, "momentum": None}

    def make() -> TrainingLoop:
        import keras

        keras.utils.set_random_seed(7)
        arrays: Any = synthetic_arrays()
        images = arrays.x_train.astype(np.float32) / 255
        data = tf.data.Dataset.from_tensor_slices((images, arrays.y_train)).shuffle(64)
        data = data.map(lambda x, y: (x + tf.random.uniform((8, 8)), y)).batch(GLOBAL_BATCH)
        held_out = arrays.x_test[:50].astype(np.float32) / 255, arrays.y_test[:50]
        test = tf.data.Dataset.from_tensor_slices(held_out).batch(GLOBAL_BATCH)
        spec = training_spec(GLOBAL_BATCH, **changes)
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        return PipelineTrainer(strategy, compiled_model, Datasets(data, test), spec)

    return make


@pytest.mark.parametrize(
    ("training", "changes", "times"),
    [
        (of_arrays, {}, 2),
        (of_task, {}, 2),
        # its data are repeated: an epoch goes on where the one before it ended
        (of_task, {"steps_per_epoch": interrupted.STEPS}, 1),
    ],
    ids=["single", "task", "endless_task"],
)
def test_a_training_interrupted_at_random_moments_equals_the_uninterrupted_one(
    tmp_path: Path,
    training: Callable[..., Callable[[], TrainingLoop]],
    changes: dict[str, Any],
    times: int,
) -> None:
    make = training(**TINY_TRAINING, **changes)
    plain = make()
    events = EventLog(tmp_path / "events", 0)
    result = plain.train(events, lambda _: None)
    plain.evaluate(result, events, EventName.EVALUATED)
    recipe = training_spec(GLOBAL_BATCH, **TINY_TRAINING).recipe
    again = interrupted.train(make, tmp_path / "checkpoints", recipe, times)
    assert len(again.begun) == times + 1 and again.begun == sorted(again.begun)
    assert again.begun[-1] > 0
    since = again.result.resumed_from
    assert since is not None
    # known once the first epoch was done
    assert since.steps_per_epoch == (interrupted.STEPS if since.epoch > 1 else 0)
    assert interrupted.outcome(again.trainer, again.result) == interrupted.outcome(plain, result)


def test_ranks_go_on_from_a_checkpoint_together(two_ranks: list[dict[str, Any]]) -> None:
    """Each has dropout and moments of its own; only the last one is told to end."""
    for rank in two_ranks:
        assert len(rank["begun"]) == 4 and rank["begun"] == sorted(rank["begun"])
        assert rank["interrupted"] == rank["uninterrupted"]
