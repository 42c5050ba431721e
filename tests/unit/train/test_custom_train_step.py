"""Settings of compile() that several replicas cannot follow; metrics of one value."""

from __future__ import annotations

import keras
import numpy as np
import pytest
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
