"""Accumulated and rounded gradients, averaged weights on two workers, and trainings by hand."""

from __future__ import annotations

from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from strategy_rank import (
    GLOBAL_BATCH,
    LOCAL_STEPS,
    PARAMETERS,
    TRAIN_EXAMPLES,
    small_model,
    synthetic_arrays,
)
from tfscaling.training.example_order import order_of_epoch

Trainings = dict[str, list[dict[str, Any]]]
REPLICAS = 2


@pytest.fixture(scope="module")
def rounded_by_hand() -> list[np.ndarray]:
    """Weights of a model whose gradients are sums of the rounded ones of parts."""
    keras.utils.set_random_seed(PARAMETERS["seed"])
    model, arrays = small_model(), synthetic_arrays()
    optimizer = keras.optimizers.SGD(PARAMETERS["learning_rate"], PARAMETERS["momentum"])
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def rounded(value: np.ndarray) -> np.ndarray:
        return value.astype(ml_dtypes.bfloat16).astype(np.float32)

    for epoch in range(1, PARAMETERS["epochs"] + 1):
        order = order_of_epoch(PARAMETERS["seed"], epoch, TRAIN_EXAMPLES, GLOBAL_BATCH)
        for step, rows in enumerate(order):
            real = min(GLOBAL_BATCH, TRAIN_EXAMPLES - step * GLOBAL_BATCH)
            parts = np.split(np.where(np.arange(GLOBAL_BATCH) < real, rows, -1), REPLICAS)
            total = [np.zeros(weight.shape, np.float32) for weight in model.get_weights()]
            for part in parts:
                own = part[part >= 0]
                with tf.GradientTape() as tape:
                    logits = model(arrays.x_train[own] / np.float32(255), training=True)
                    loss = entropy(arrays.y_train[own], logits) / real
                for place, gradient in enumerate(tape.gradient(loss, model.trainable_variables)):
                    total[place] += rounded(gradient.numpy())
            optimizer.apply([rounded(gradient) for gradient in total], model.trainable_variables)
    weights: list[np.ndarray] = model.get_weights()
    return weights


@pytest.fixture(scope="module")
def by_hand() -> list[np.ndarray]:
    """Weights of two copies of a model, each with an optimizer, after averages of their weights."""
    keras.utils.set_random_seed(PARAMETERS["seed"])
    first = small_model()
    copies = [first, keras.models.clone_model(first)]
    copies[1].set_weights(first.get_weights())
    rate, momentum = PARAMETERS["learning_rate"], PARAMETERS["momentum"]
    optimizers = [keras.optimizers.SGD(rate, momentum) for _ in copies]
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    arrays = synthetic_arrays()
    for epoch in range(1, PARAMETERS["epochs"] + 1):
        order = order_of_epoch(PARAMETERS["seed"], epoch, TRAIN_EXAMPLES, GLOBAL_BATCH)
        for step, rows in enumerate(order):
            real = min(GLOBAL_BATCH, TRAIN_EXAMPLES - step * GLOBAL_BATCH)
            parts = np.split(np.where(np.arange(GLOBAL_BATCH) < real, rows, -1), REPLICAS)
            for copy, optimizer, part in zip(copies, optimizers, parts, strict=True):
                own = part[part >= 0]
                with tf.GradientTape() as tape:
                    logits = copy(arrays.x_train[own] / np.float32(255), training=True)
                    # an equal share of the step's examples for each replica
                    loss = entropy(arrays.y_train[own], logits) / (real / REPLICAS)
                gradients = tape.gradient(loss, copy.trainable_variables)
                optimizer.apply(gradients, copy.trainable_variables)
            if (step + 1) % LOCAL_STEPS == 0 or step + 1 == len(order):
                both = zip(*(copy.get_weights() for copy in copies), strict=True)
                means = [np.mean(weights, axis=0) for weights in both]
                for copy in copies:
                    copy.set_weights(means)
    weights: list[np.ndarray] = first.get_weights()
    return weights


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.fixture(params=["two_workers", "two_mpi_workers"])
def ranks(
    request: pytest.FixtureRequest, trainings: Trainings, mpi_trainings: Trainings
) -> list[dict[str, Any]]:
    """What each of two workers found."""
    return {**trainings, **mpi_trainings}[request.param]


@pytest.mark.parametrize("name", ["accumulated", "averaged_in_each_step"])
def test_parts_of_a_batch_and_averages_in_each_step_give_the_synchronous_model(
    ranks: list[dict[str, Any]], name: str
) -> None:
    for rank in ranks:
        found = rank["exchanging_less"][name]
        np.testing.assert_allclose(found["epochs"], rank["epochs"], rtol=1e-5)
        assert_equal(found["weights"], rank["weights"])


def test_averages_every_few_steps_are_those_of_copies_of_the_model(
    ranks: list[dict[str, Any]], by_hand: list[np.ndarray]
) -> None:
    first, second = (rank["exchanging_less"]["averaged"] for rank in ranks)
    assert first["weights"] == second["weights"]
    assert_equal(first["weights"], by_hand)
    # not the synchronous model
    assert distance(first["weights"], ranks[0]["weights"]) > 0.01


def distance(found: list[Any], expected: list[Any]) -> float:
    """The largest difference of two weights."""
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(np.subtract(own, other)).max()) for own, other in pairs)


def test_rounded_gradients_give_the_model_of_sums_of_rounded_parts(
    ranks: list[dict[str, Any]], rounded_by_hand: list[np.ndarray]
) -> None:
    first, second = (rank["exchanging_less"]["rounded"]["weights"] for rank in ranks)
    assert first == second
    # a gradient between two numbers of 16 bits may be the other one here
    exact = distance(ranks[0]["weights"], rounded_by_hand)
    assert distance(first, rounded_by_hand) < exact / 4


def test_gradients_are_exchanged_once_for_all_parts_and_not_between_averages(
    ranks: list[dict[str, Any]],
) -> None:
    for rank in ranks:
        made = {name: found["all_reduces"] for name, found in rank["exchanging_less"].items()}
        assert made == {"accumulated": 1, "averaged_in_each_step": 0, "averaged": 0,
                        "rounded": 1}  # fmt: skip
