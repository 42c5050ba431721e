"""Optimizers of recipes: rates, updates, norms, gradients in 16 bits, fewer exchanges."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from strategy_rank import functions_for_xla, training_spec
from tfscaling.train import optimizers
from tfscaling.train.optimizers import make_optimizer


def rates(updates: int, per_epoch: int, replicas: int = 1, **recipe: Any) -> list[float]:
    """The learning rate of each update from the first on."""
    optimizer = make_optimizer(training_spec(1, **recipe).recipe, replicas, per_epoch)
    optimizer.build([keras.Variable(0.0)])
    found = []
    for update in range(updates):
        optimizer.iterations.assign(update)
        found.append(float(optimizer.learning_rate))
    return found


def test_the_rate_rises_over_the_warm_up_and_then_falls_to_0() -> None:
    # two epochs of 4 updates: a warm-up of 2 updates, then 6
    recipe: dict[str, Any] = {"learning_rate": 0.6, "epochs": 2, "warmup_epochs": 0.5}
    assert rates(9, 4, **recipe, decay="linear") == pytest.approx(
        [0.3, 0.6, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0], abs=1e-6
    )
    cosine = 0.3 * (1 + np.cos(np.pi * np.arange(7) / 6))
    assert rates(9, 4, **recipe, decay="cosine") == pytest.approx([0.3, 0.6, *cosine], abs=1e-6)
    assert rates(8, 4, **recipe) == pytest.approx([0.3] + [0.6] * 7)
    recipe |= {"warmup_epochs": 0.0, "learning_rate_scaling": "linear"}
    assert rates(3, 4, 2, **recipe, decay="linear") == pytest.approx([1.2, 1.05, 0.9])


def test_gradients_of_bfloat16_are_cast_when_all_are_there() -> None:
    with tf.Graph().as_default():
        made = tf.constant(1.0, tf.bfloat16)
        found = optimizers.wait_for_all([tf.cast(made, tf.float32), tf.constant(1.0)])
        assert [gradient.dtype for gradient in found] == [tf.float32] * 2
        before = optimizers.undo_cast(found[0])
        assert before.dtype == tf.bfloat16 and before.op.inputs[0].op == made.op
        assert optimizers.undo_cast(found[1]) is None
        # neither a sum of casts, as a regulariser makes it, nor float16, which has a loss scale
        assert optimizers.undo_cast(found[0] + 1.0) is None
        half = tf.constant(1.0, tf.float16)
        assert optimizers.undo_cast(tf.cast(half, tf.float32)) is None
    assert optimizers.undo_cast(tf.cast(tf.constant(1.0, tf.bfloat16), tf.float32)) is None


def test_a_variable_is_updated_when_all_gradients_are_there() -> None:
    with tf.Graph().as_default():
        slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))
        gradients = [tf.constant(1.0), None, slices]
        found = optimizers.wait_for_all(gradients)
        assert found[1] is None and isinstance(found[2], tf.IndexedSlices)
        for value in (found[0], found[2].values):
            waits_for = {*value.op.control_inputs, *(tensor.op for tensor in value.op.inputs)}
            assert {gradients[0].op, slices.values.op, slices.indices.op} <= waits_for


#: What a recipe asks for, and Keras's own optimizer of the same updates.
OPTIMIZERS: list[tuple[dict[str, Any], Callable[[], Any]]] = [
    ({"optimizer": "sgd", "momentum": 0.0}, lambda: keras.optimizers.SGD(0.1)),
    (
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    ),
    (
        {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.01},
        lambda: keras.optimizers.SGD(0.1, weight_decay=0.01),
    ),
    ({"optimizer": "adam"}, lambda: keras.optimizers.Adam(0.1)),
]


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(("asked", "keras_own"), OPTIMIZERS)
def test_updates_are_those_of_keras(
    asked: dict[str, Any], keras_own: Callable[[], Any], is_sparse: bool
) -> None:
    random = np.random.default_rng(0)
    start = random.normal(size=(7, 5)).astype(np.float32)
    made = make_optimizer(training_spec(1, learning_rate=0.1, **asked).recipe, 1)
    ends = []
    for optimizer in (made, keras_own()):
        variable = keras.Variable(start)
        optimizer.build([variable])
        draws = np.random.default_rng(1)
        for _ in range(5):
            gradient = tf.constant(draws.normal(size=(7, 5)), tf.float32)
            if is_sparse:
                rows = tf.constant([1, 4])
                gradient = tf.IndexedSlices(tf.gather(gradient, rows), rows, tf.constant([7, 5]))
            optimizer.apply([gradient], [variable])
        ends.append(variable.numpy())
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6, atol=1e-6)
    assert not np.allclose(ends[0], start)


#: Compiled optimizers, and whether one operation of TensorFlow updates a variable.
COMPILED: list[tuple[Callable[[], Any], bool]] = [
    (lambda: keras.optimizers.SGD(0.1), True),
    (lambda: keras.optimizers.SGD(0.1, momentum=0.9), True),
    (lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, clipnorm=0.5), True),
    (lambda: keras.optimizers.Adam(0.1, use_ema=True), True),
    (lambda: keras.optimizers.AdamW(0.1, weight_decay=0.01), True),
    (lambda: keras.optimizers.Adam(0.1, amsgrad=True), False),
    (lambda: type("Custom", (keras.optimizers.SGD,), {})(0.1), False),
    (lambda: keras.optimizers.RMSprop(0.1), False),
]


def updated_in_graphs(optimizer: Any, start: np.ndarray) -> tuple[np.ndarray, set[str]]:
    """A variable after updates in graphs, one by rows; kinds of operations of the other graph."""
    variable = keras.Variable(start)
    optimizer.build([variable])

    @tf.function(autograph=False)
    def update(gradient: Any) -> None:
        optimizer.apply([gradient], [variable])

    @tf.function(autograph=False)
    def update_rows(gradient: Any) -> None:
        rows = tf.constant([1, 4])
        slices = tf.IndexedSlices(tf.gather(gradient, rows), rows, tf.constant(start.shape))
        optimizer.apply([slices], [variable])

    draws = np.random.default_rng(1)
    for step in (update, update, update_rows, update):
        gradient = tf.constant(draws.normal(size=start.shape), tf.float32)
        step(gradient)
    graph = update.get_concrete_function(gradient).graph
    return variable.numpy(), {operation.type for operation in graph.get_operations()}


@pytest.mark.parametrize(("compiled", "is_fused"), COMPILED)
def test_a_compiled_optimizer_updates_as_keras_does(
    compiled: Callable[[], Any], is_fused: bool
) -> None:
    start = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    expected, plain = updated_in_graphs(compiled(), start)
    optimizer = compiled()
    optimizers.fuse_updates(optimizer)
    found, kinds = updated_in_graphs(optimizer, start)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert not np.allclose(found, start)
    assert any(kind.startswith("ResourceApply") for kind in kinds) == is_fused
    assert not any(kind.startswith("ResourceApply") for kind in plain)


def updated_with_loss_scale(is_fused: bool) -> tuple[np.ndarray, int]:
    """A variable after three steps with one overflow, and the number of counted updates."""
    inner = keras.optimizers.Adam(0.1)
    optimizer = keras.mixed_precision.LossScaleOptimizer(inner)
    if is_fused:
        optimizers.fuse_updates(inner)
    variable = keras.Variable(np.ones(3, np.float32))
    optimizer.build([variable])

    @tf.function(autograph=False)
    def step(value: Any) -> None:
        optimizer.apply([tf.fill(variable.shape, value)], [variable])

    for value in (2e4, np.inf, 3e4):
        step(tf.constant(value, tf.float32))
    return variable.numpy(), int(inner.iterations)


def test_a_fused_optimizer_within_a_loss_scale_skips_an_overflow() -> None:
    (expected, updates), (found, own) = map(updated_with_loss_scale, (False, True))
    assert own == updates == 2
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert not np.allclose(found, 1)


@pytest.mark.parametrize("is_recipes", [False, True])
def test_variables_of_several_types_are_updated_as_keras_does(is_recipes: bool) -> None:
    types, sizes = ["float32", "bfloat16", "float32", "float16"], random.sample(range(1, 9), 4)
    ends = []
    for is_fused in (False, True):
        optimizer = keras.optimizers.Adam(0.125)
        if is_fused and is_recipes:
            recipe = training_spec(1, learning_rate=0.125, optimizer="adam").recipe
            optimizer = make_optimizer(recipe, 1)
        elif is_fused:
            optimizers.fuse_updates(optimizer)
        variables = [
            keras.Variable(np.ones(size), dtype=dtype)
            for dtype, size in zip(types, sizes, strict=True)
        ]
        optimizer.build(variables)
        for step in range(1, 6):
            gradients = [tf.cast(tf.fill(v.shape, 0.5 / step), v.dtype) for v in variables]
            optimizer.apply(gradients, variables)
        ends.append([keras.ops.convert_to_numpy(v).astype(np.float64) for v in variables])
    for found, expected, dtype in zip(ends[1], ends[0], types, strict=True):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=dtype)


def updated(optimizer: Any, starts: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """Variables after 5 updates by gradients of bfloat16; what XLA compiled for them."""
    variables = [keras.Variable(start) for start in starts]
    optimizer.build(variables)

    @tf.function(autograph=False)
    def step(gradients: list[Any]) -> None:
        optimizer.apply([tf.cast(gradient, tf.float32) for gradient in gradients], variables)

    draws = np.random.default_rng(1)
    for _ in range(5):
        gradients = [tf.constant(draws.normal(size=start.shape), tf.bfloat16) for start in starts]
        step(gradients)
    graph = step.get_concrete_function(gradients).graph
    return [variable.numpy() for variable in variables], functions_for_xla(graph)


@pytest.mark.parametrize(("asked", "keras_own"), OPTIMIZERS)
def test_updates_that_cast_are_those_of_keras(
    asked: dict[str, Any], keras_own: Callable[[], Any]
) -> None:
    shapes = [(7, 5), (optimizers.COMPILED_ELEMENTS_MIN // 64, 64)]
    random = np.random.default_rng(0)
    starts = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    made = make_optimizer(training_spec(1, learning_rate=0.1, **asked).recipe, 1, casts=True)
    found, compiled = updated(made, starts)
    expected, _ = updated(keras_own(), starts)
    assert compiled == 1  # the small one is not worth it
    for own, plain, start in zip(found, expected, starts, strict=True):
        np.testing.assert_allclose(own, plain, rtol=1e-4, atol=1e-5)
        assert not np.allclose(own, start)


def test_a_step_exchanges_its_gradients_once(two_ranks: list[dict[str, Any]]) -> None:
    assert [rank["all_reduces"] for rank in two_ranks] == [1, 1]


def slices(places: list[int], width: int) -> tf.IndexedSlices:
    """Slices of ones at these places of a table."""
    return tf.IndexedSlices(tf.ones([len(places), width]), tf.constant(places), (9, width))


@pytest.mark.parametrize(
    ("own", "of_all", "expected"),
    [
        ([2, 5], [2, 5, 2, 5], [(2, 2.0), (5, 2.0)]),
        ([5, 5], [5, 5] * 3, [(5, 3.0), (5, 3.0)]),
        ([2, 5], [2, 5, 5, 2], [(2, 1.0), (5, 1.0), (5, 1.0), (2, 1.0)]),
        ([2], [2, 2, 2, 5], [(2, 1.0), (2, 1.0), (2, 1.0), (5, 1.0)]),
        ([2], [2, 2, 2], [(2, 1.0), (2, 1.0), (2, 1.0)]),
    ],
)
def test_lookups_are_added_if_all_replicas_made_the_same(
    own: list[int], of_all: list[int], expected: list[tuple[int, float]], dice: random.Random
) -> None:
    """The last case is of replicas with different numbers of lookups."""
    replicas, width = (3 if own == [5, 5] else 2), dice.randint(1, 7)
    found = optimizers.merge_equal_lookups(slices(own, width), slices(of_all, width), replicas)
    values = [float(row[0]) for row in found.values.numpy()]
    assert list(zip(found.indices.numpy().tolist(), values, strict=True)) == expected


def test_gradients_that_are_no_lookups_stay_as_they_are() -> None:
    total = tf.ones([3])
    assert optimizers.merge_equal_lookups(tf.zeros([3]), total, 2) is total
