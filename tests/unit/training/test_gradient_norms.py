"""Squared norms of gradients of parts of a batch, against gradients by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from strategy_rank import GLOBAL_BATCH, PARAMETERS, small_model, synthetic_arrays, training_spec
from tfscaling.records.events import EventLog
from tfscaling.training.all_reduce import Trainer
from tfscaling.training.example_order import order_of_epoch

PARTS = 2


def by_hand(weights: list[Any], epoch: int) -> tuple[float, float]:
    """(mean over the halves of a batch, of their mean), for the first batch after an epoch."""
    model = small_model()
    model.set_weights([np.array(weight, np.float32) for weight in weights])
    arrays = synthetic_arrays()
    number = PARAMETERS["epochs"] + epoch
    order = order_of_epoch(PARAMETERS["seed"], number, arrays.train_examples, GLOBAL_BATCH)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    halves = []
    for rows in np.split(order[0], PARTS):
        with tf.GradientTape() as tape:
            loss = cross_entropy(
                arrays.y_train[rows], model(arrays.x_train[rows] / np.float32(255))
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        halves.append(np.concatenate([np.ravel(gradient) for gradient in gradients]))
    whole = np.mean(halves, axis=0)
    return float(np.mean([half @ half for half in halves])), float(whole @ whole)


def test_halves_of_a_single_replicas_batch(tmp_path: Path) -> None:
    curves = []
    for is_asked in (False, True):
        spec = training_spec(
            GLOBAL_BATCH, gradient_noise_scale=is_asked, evaluation_interval_epochs=2
        )
        trainer = Trainer(
            tf.distribute.OneDeviceStrategy("CPU:0"), small_model, synthetic_arrays(), spec
        )
        events = EventLog(tmp_path / str(is_asked), 0)
        result = trainer.train(events, print)
        curves.append([epoch.loss for epoch in result.epochs])
        trainer.evaluate(result, events, "evaluated")
    assert curves[0] == curves[1]
    between, last = result.gradient_norms
    assert (between.epoch, last.epoch) == (2, PARAMETERS["epochs"])
    assert (last.part_examples, last.whole_examples) == (GLOBAL_BATCH // PARTS, GLOBAL_BATCH)
    assert len(last.parts) == len(last.whole) == len(synthetic_arrays().y_train) // GLOBAL_BATCH
    parts, whole = by_hand(trainer.model.get_weights(), last.epoch)
    assert (last.parts[0], last.whole[0]) == (pytest.approx(parts), pytest.approx(whole))


@pytest.mark.parametrize("name", ["two_workers", "two_mpi_workers"])
def test_parts_of_two_workers(
    trainings: dict[str, list[dict[str, Any]]],
    mpi_trainings: dict[str, list[dict[str, Any]]],
    name: str,
) -> None:
    for rank in {**trainings, **mpi_trainings}[name]:
        found = rank["gradient_norms"]
        parts, whole = by_hand(rank["weights"], PARAMETERS["epochs"])
        assert found["part_examples"] * PARTS == found["whole_examples"] == GLOBAL_BATCH
        assert found["parts"][0] == pytest.approx(parts, rel=1e-4)
        assert found["whole"][0] == pytest.approx(whole, rel=1e-4)
