"""State that each replica has of its own, where workers share a model."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfscaling.train.loop import is_seed, replica_random_state
from tfscaling.train.parameter_server import ReplicaStates, find_changing_variables

SHAPE = (4,)
IMAGES = np.random.default_rng(0).random((8, *SHAPE), np.float32)


class Draw(keras.layers.Layer):
    """Adds random numbers, and their sum as a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.random.SeedGenerator(5)

    def call(self, inputs: Any) -> Any:
        drawn = keras.random.uniform((3,), seed=self.generator)
        self.add_loss(keras.ops.sum(drawn))
        return inputs


def make_model(draws: bool = True) -> Any:
    """Nested: frozen weights, batch normalization, and layers that draw."""
    inner = keras.Sequential(
        [keras.Input(SHAPE), keras.layers.Dense(4, name="frozen", kernel_regularizer="l2"), Draw()]
        if draws
        else [keras.Input(SHAPE), keras.layers.Dense(4, name="frozen", kernel_regularizer="l2")]
    )
    inner.get_layer("frozen").trainable = False
    return keras.Sequential(
        [
            keras.Input(SHAPE),
            inner,
            keras.layers.Dense(4, kernel_regularizer="l2"),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.Dropout(0.5 if draws else 0.0, seed=6),
        ]
    )


def names(variables: list[Any]) -> list[str]:
    return sorted(variable.name for variable in variables)


def test_states_of_random_numbers_are_found_in_nested_layers() -> None:
    states = [*filter(is_seed, make_model().non_trainable_variables)]
    assert sorted(int(state.numpy()[0]) for state in states) == [5, 6]
    assert not any(map(is_seed, make_model(draws=False).non_trainable_variables))


def test_replica_0_draws_as_keras_alone_and_others_draw_elsewhere() -> None:
    state = tf.constant([7, 3], tf.int64)
    streams = [tuple(replica_random_state(state, number).numpy().tolist()) for number in range(100)]
    assert streams[0] == (7, 3)
    assert len(set(streams)) == 100
    assert {count for _, count in streams} == {3}


def test_frozen_weights_are_not_changed_by_training() -> None:
    model = make_model()
    before = [weights.copy() for weights in model.get_weights()]
    assert names(find_changing_variables(model, SHAPE)) == [
        "moving_mean", "moving_variance", "seed_generator_state", "seed_generator_state",
    ]  # fmt: skip
    # found by looking, not by training
    for weights, same in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weights, same)
    model.get_layer(index=2).trainable = False
    assert names(find_changing_variables(model, SHAPE)) == ["seed_generator_state"] * 2


def call_of(model: Any) -> Any:
    """The outputs, and the sum of the model's own losses."""
    return lambda: (model(IMAGES, training=True), tf.add_n(model.losses))


def drawn(found: Any) -> list[float]:
    outputs, losses = found
    return [*np.asarray(outputs).ravel().tolist(), float(losses)]


def test_each_replica_draws_numbers_of_its_own_reproducibly() -> None:
    runs: list[Any] = []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        model = make_model()
        states, call = ReplicaStates(model, SHAPE, 2), call_of(model)
        # whichever worker comes first
        order = (0, 1, 0, 1) if not runs else (1, 0, 0, 1)
        found: dict[int, list[list[float]]] = {0: [], 1: []}
        for replica in order:
            found[replica].append(drawn(states.forward(tf.constant(replica), call)))
        runs.append(found)
    first, again = runs
    for replica in (0, 1):
        np.testing.assert_allclose(first[replica], again[replica], rtol=1e-6)
    assert not np.allclose(first[0][0], first[1][0])
    assert not np.allclose(first[0][0], first[0][1])


def test_moments_of_the_replicas_are_averaged() -> None:
    keras.utils.set_random_seed(2)
    model = make_model(draws=False)
    states = ReplicaStates(model, SHAPE, 2)
    moments = [v for v in model.non_trainable_variables if v.name.startswith("moving")]
    start = [v.numpy() for v in moments]
    model(IMAGES, training=True)
    once = [v.numpy() for v in moments]
    for variable, value in zip(moments, start, strict=True):
        variable.assign(value)
    states.forward(tf.constant(1), call_of(model))
    for variable, value in zip(moments, start, strict=True):
        assert (variable.numpy() == value).all()  # the replica's, not the model's
    states.average()
    for variable, before, after in zip(moments, start, once, strict=True):
        assert variable.numpy() == pytest.approx((before + after) / 2, rel=1e-6)
