"""Training with parameter servers: a coordinator, a server and two workers as real processes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from strategy_rank import GLOBAL_BATCH, PARAMETERS, TRAIN_EXAMPLES, synthetic_arrays

Trainings = dict[str, list[dict[str, Any]]]
STEPS, EPOCHS = -(-TRAIN_EXAMPLES // GLOBAL_BATCH), PARAMETERS["epochs"]
BOTH = ["parameter_server", "synchronous_parameter_server"]


def test_a_synchronous_update_takes_the_examples_of_all_workers(trainings: Trainings) -> None:
    chief = trainings["synchronous_parameter_server"][0]
    assert chief["examples_per_step"] == GLOBAL_BATCH
    assert chief["steps"] == [
        [epoch, step, 1] for epoch in range(1, EPOCHS + 1) for step in range(STEPS)
    ]


def test_an_asynchronous_update_takes_the_examples_of_one_worker(trainings: Trainings) -> None:
    chief = trainings["parameter_server"][0]
    assert chief["examples_per_step"] == GLOBAL_BATCH // 2
    assert chief["examples_trained"] == TRAIN_EXAMPLES * EPOCHS
    counts = [sum(count for epoch, _, count in chief["steps"] if epoch == n) for n in (1, 2, 3)]
    # a batch of padding alone is not trained: of the last global batch one part has examples
    assert (
        counts == [-(-TRAIN_EXAMPLES // (GLOBAL_BATCH // 2))] * EPOCHS == [2 * STEPS - 1] * EPOCHS
    )


def test_the_first_asynchronous_batches_are_a_row_of_their_own(trainings: Trainings) -> None:
    # they compile the step on both workers
    assert trainings["parameter_server"][0]["steps"][0] == [1, 0, 2]


@pytest.mark.parametrize("training", BOTH)
def test_held_out_examples_are_counted_once(trainings: Trainings, training: str) -> None:
    correct = trainings[training][0]["test"][1] * len(synthetic_arrays().y_test)
    assert correct == pytest.approx(round(correct), abs=1e-6)


@pytest.mark.parametrize("training", BOTH)
def test_servers_and_workers_end_when_the_coordinator_has_ended(
    trainings: Trainings, training: str
) -> None:
    chief, *others = trainings[training]
    assert chief["job"] == "chief"
    assert chief["replicas"] == 2
    assert others == [
        {"job": job, "ended_well": True} for job in ("ps", "worker", "worker")
    ]  # fmt: skip


def test_synchronous_updates_give_the_model_of_one_device(trainings: Trainings) -> None:
    (alone,), (chief, *_) = trainings["single"], trainings["synchronous_parameter_server"]
    for name in ("epochs", "test"):
        np.testing.assert_allclose(chief[name], alone[name], rtol=1e-4)
    for own, other in zip(chief["weights"], alone["weights"], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


def test_asynchronous_updates_reduce_the_loss_below_that_of_chance(trainings: Trainings) -> None:
    chance = math.log(10)  # of ten classes
    losses = [loss for loss, _ in trainings["parameter_server"][0]["epochs"]]
    assert losses[-1] < 0.9 * chance and max(losses) < 2 * chance, losses
