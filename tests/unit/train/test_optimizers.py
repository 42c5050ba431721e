"""Optimizers of recipes: rates, updates, norms, gradients in 16 bits, fewer exchanges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
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
    functions_for_xla,
    small_model,
    synthetic_arrays,
    training_spec,
)
from tfscaling.record.events import EventLog
from tfscaling.train import optimizers
from tfscaling.train.all_reduce import Trainer, order_of_epoch
from tfscaling.train.optimizers import make_optimizer
from tfscaling.train.own_step import OwnStep


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
        found = optimizers.after_all([tf.cast(made, tf.float32), tf.constant(1.0)])
        assert [gradient.dtype for gradient in found] == [tf.float32] * 2
        before = optimizers.before_cast(found[0])
        assert before.dtype == tf.bfloat16 and before.op.inputs[0].op == made.op
        assert optimizers.before_cast(found[1]) is None
        # neither a sum of casts, as a regulariser makes it, nor float16, which has a loss scale
        assert optimizers.before_cast(found[0] + 1.0) is None
        half = tf.constant(1.0, tf.float16)
        assert optimizers.before_cast(tf.cast(half, tf.float32)) is None
    assert optimizers.before_cast(tf.cast(tf.constant(1.0, tf.bfloat16), tf.float32)) is None


def test_a_variable_is_updated_when_all_gradients_are_there() -> None:
    with tf.Graph().as_default():
        slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))
        gradients = [tf.constant(1.0), None, slices]
        found = optimizers.after_all(gradients)
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
    # TensorFlow's Adam has 1 - beta in float32
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-4, atol=1e-6)
    assert not np.allclose(ends[0], start)


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


PARTS = 2


def norms_by_hand(weights: list[Any], epoch: int) -> tuple[float, float]:
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
    parts, whole = norms_by_hand(trainer.model.get_weights(), last.epoch)
    assert (last.parts[0], last.whole[0]) == (pytest.approx(parts), pytest.approx(whole))


def test_parts_of_two_workers(two_ranks: list[dict[str, Any]]) -> None:
    for rank in two_ranks:
        found = rank["gradient_norms"]
        parts, whole = norms_by_hand(rank["weights"], PARAMETERS["epochs"])
        assert found["part_examples"] * PARTS == found["whole_examples"] == GLOBAL_BATCH
        assert found["parts"][0] == pytest.approx(parts, rel=1e-4)
        assert found["whole"][0] == pytest.approx(whole, rel=1e-4)


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

    dense, none, sparse, double = optimizers.rounded_sum(given(), exchange)
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

        return optimizers.rounded_sum([tf.cast(made, tf.float32)], exchange)[0]

    step(tf.constant([VALUE], tf.bfloat16))
    (found,) = exchanged
    assert found.op.type != "Cast"


def weights_after_an_update(rounds: bool) -> np.ndarray:
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
        step = OwnStep(model, batch, 2, rounds)

    def update() -> None:
        step.train(batch, tf.constant(2), tf.constant(2))

    tf.function(lambda: strategy.run(update), autograph=False)()
    return np.ravel(model.get_weights()[0])


def test_the_optimizer_of_an_own_step_gets_what_the_replicas_exchange() -> None:
    exact = np.float32(1) - np.float32(VALUE)
    np.testing.assert_allclose(weights_after_an_update(False), [exact] * 3, rtol=1e-4)
    rounded = 1.0 - float(np.float32(VALUE).astype(ml_dtypes.bfloat16))
    assert weights_after_an_update(True).tolist() == [rounded] * 3


REPLICAS = 2


def steps_by_hand() -> Iterator[tuple[int, list[np.ndarray], bool]]:
    """Of each step the examples that count, the rows of each replica, whether averages follow."""
    for epoch in range(1, PARAMETERS["epochs"] + 1):
        order = order_of_epoch(PARAMETERS["seed"], epoch, TRAIN_EXAMPLES, GLOBAL_BATCH)
        for step, rows in enumerate(order):
            real = min(GLOBAL_BATCH, TRAIN_EXAMPLES - step * GLOBAL_BATCH)
            parts = np.split(np.where(np.arange(GLOBAL_BATCH) < real, rows, -1), REPLICAS)
            averages = (step + 1) % LOCAL_STEPS == 0 or step + 1 == len(order)
            yield real, [part[part >= 0] for part in parts], averages


@pytest.fixture(scope="module")
def rounded_by_hand() -> list[np.ndarray]:
    """Weights of a model whose gradients are sums of the rounded ones of parts."""
    keras.utils.set_random_seed(PARAMETERS["seed"])
    model, arrays = small_model(), synthetic_arrays()
    optimizer = keras.optimizers.SGD(PARAMETERS["learning_rate"], PARAMETERS["momentum"])
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def rounded(value: np.ndarray) -> np.ndarray:
        return value.astype(ml_dtypes.bfloat16).astype(np.float32)

    for real, parts, _ in steps_by_hand():
        total = [np.zeros(weight.shape, np.float32) for weight in model.get_weights()]
        for own in parts:
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
    for real, parts, averages in steps_by_hand():
        for copy, optimizer, own in zip(copies, optimizers, parts, strict=True):
            with tf.GradientTape() as tape:
                logits = copy(arrays.x_train[own] / np.float32(255), training=True)
                # an equal share of the step's examples for each replica
                loss = entropy(arrays.y_train[own], logits) / (real / REPLICAS)
            gradients = tape.gradient(loss, copy.trainable_variables)
            optimizer.apply(gradients, copy.trainable_variables)
        if averages:
            both = zip(*(copy.get_weights() for copy in copies), strict=True)
            means = [np.mean(weights, axis=0) for weights in both]
            for copy in copies:
                copy.set_weights(means)
    weights: list[np.ndarray] = first.get_weights()
    return weights


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["accumulated", "averaged_in_each_step"])
def test_parts_of_a_batch_and_averages_in_each_step_give_the_synchronous_model(
    two_ranks: list[dict[str, Any]], name: str
) -> None:
    for rank in two_ranks:
        found = rank["exchanging_less"][name]
        np.testing.assert_allclose(found["epochs"], rank["epochs"], rtol=1e-5)
        assert_equal(found["weights"], rank["weights"])


def test_averages_every_few_steps_are_those_of_copies_of_the_model(
    two_ranks: list[dict[str, Any]], by_hand: list[np.ndarray]
) -> None:
    first, second = (rank["exchanging_less"]["averaged"] for rank in two_ranks)
    assert first["weights"] == second["weights"]
    assert_equal(first["weights"], by_hand)
    # not the synchronous model
    assert distance(first["weights"], two_ranks[0]["weights"]) > 0.01


def distance(found: list[Any], expected: list[Any]) -> float:
    """The largest difference of two weights."""
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(np.subtract(own, other)).max()) for own, other in pairs)


def test_rounded_gradients_give_the_model_of_sums_of_rounded_parts(
    two_ranks: list[dict[str, Any]], rounded_by_hand: list[np.ndarray]
) -> None:
    first, second = (rank["exchanging_less"]["rounded"]["weights"] for rank in two_ranks)
    assert first == second
    # a gradient between two numbers of 16 bits may be the other one here
    exact = distance(two_ranks[0]["weights"], rounded_by_hand)
    assert distance(first, rounded_by_hand) < exact / 4


def test_gradients_are_exchanged_once_for_all_parts_and_not_between_averages(
    two_ranks: list[dict[str, Any]],
) -> None:
    for rank in two_ranks:
        made = {name: found["all_reduces"] for name, found in rank["exchanging_less"].items()}
        assert made == {"accumulated": 1, "averaged_in_each_step": 0, "averaged": 0,
                        "rounded": 1}  # fmt: skip
