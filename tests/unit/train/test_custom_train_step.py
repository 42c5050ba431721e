"""Settings of compile() that several replicas cannot follow; metrics of one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfscaling.train.custom_train_step import CustomTrainStep
from tfscaling.train.user_model import ModelError

BATCH = (np.zeros((2, 4), np.float32), np.zeros((2, 1), np.float32))


def test_a_sum_over_a_batch_cannot_be_split() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", keras.losses.MeanSquaredError(reduction="sum"))
    with pytest.raises(ModelError, match="has the reduction sum"):
        CustomTrainStep(model, BATCH, replicas=2)


def test_averages_that_replace_weights_while_training_need_one_replica() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2), "mse")
    CustomTrainStep(model, BATCH, replicas=1)
    with pytest.raises(ModelError, match="ema_overwrite_frequency"):
        CustomTrainStep(model, BATCH, replicas=2)


def test_a_metric_of_one_class_has_one_value() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, "sigmoid")])
    f1 = keras.metrics.F1Score(threshold=0.5, name="f1")
    model.compile("sgd", "binary_crossentropy", metrics=[f1])
    step = CustomTrainStep(model, BATCH, replicas=1)
    found = step.compute_metric_results([variable.numpy() for variable in step.metrics])
    assert found.keys() == {"loss", "f1"}


class Called(keras.layers.Dense):
    """A layer that counts its calls."""

    calls = 0

    def call(self, inputs: object) -> object:
        Called.calls += 1
        return super().call(inputs)


@pytest.mark.parametrize(
    ("outputs", "settings", "calls"),
    [
        (lambda made: made, {"loss": "mse", "metrics": ["mae"]}, 0),
        # outputs with a name: the metrics' names follow from the structure of the outputs
        (lambda made: {"label": made}, {"loss": {"label": "mse"}, "metrics": {"label": "mae"}}, 1),
        (lambda made: {"label": made}, {"loss": "mse"}, 1),
    ],
    ids=["one output", "a named output", "a named output and one loss"],
)
def test_a_model_of_one_output_is_not_called_for_its_metrics(
    outputs: Callable[[object], object], settings: dict[str, Any], calls: int
) -> None:
    given = keras.Input((4,))
    model = keras.Model(given, outputs(Called(1)(given)))
    model.compile(keras.optimizers.Adam(), **settings)
    Called.calls = 0
    step = CustomTrainStep(model, BATCH, replicas=1)
    assert Called.calls == calls
    step.train(BATCH, None, 2)
    found = step.compute_metric_results([variable.numpy() for variable in step.metrics])
    assert found.keys() == {"loss", *(["mae"] if "metrics" in settings else [])}
    assert model.optimizer.iterations == 1


class Counting(keras.Sequential):
    """A model with its own `metrics`: it counts its batches, and calls them its loss."""

    @property
    def metrics(self) -> list[keras.Metric]:
        if not hasattr(self, "_count"):
            self._count = keras.metrics.Sum(name="loss")
        return [self._count]

    def compute_metrics(self, *_: object, **__: object) -> dict[str, object]:
        self._count.update_state(1.0)
        return {"loss": self._count.result()}


@pytest.mark.parametrize("kind", [keras.Sequential, Counting])
@pytest.mark.parametrize("examples", [0, 1, 2])
def test_the_loss_is_counted_once_by_keras_or_by_the_models_own_metrics(
    kind: type[keras.Sequential], examples: int
) -> None:
    model = kind([keras.Input((4,)), keras.layers.Dense(1, bias_initializer="ones")])
    model.compile("sgd", "mse")
    step = CustomTrainStep(model, BATCH, replicas=1)
    batch = (np.zeros((2, 4), np.float32), np.array([[0.0], [3.0]], np.float32))
    step.update_test_metrics(batch, tf.constant(examples))
    found = step.compute_metric_results([variable.numpy() for variable in step.metrics])
    expected = float(examples > 0) if kind is Counting else [0.0, 1.0, 2.5][examples]
    assert found == {"loss": pytest.approx(expected)}
    # a batch counts by its examples
    step.update_test_metrics(batch, tf.constant(1))
    found = step.compute_metric_results([variable.numpy() for variable in step.metrics])
    total = expected * examples + 1.0
    mean = expected + 1 if kind is Counting else total / (examples + 1)
    assert found == {"loss": pytest.approx(mean)}
