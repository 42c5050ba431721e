"""A rank of the trainings of users' models that test_own_models.py compares.

Usage: own_models_rank.py OUTPUT, with TF_CONFIG as train.py sets it: one worker of two. Without
TF_CONFIG: Keras's own `fit`, one replica, and two replicas in one process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from strategy_rank import PARAMETERS, training_spec
from tfscaling.datasets.catalogue import Arrays
from tfscaling.records.events import EventLog
from tfscaling.training import devices, rank
from tfscaling.training.all_reduce import Trainer
from tfscaling.training.loop import order_of_epoch
from tfscaling.training.strategies import STRATEGIES

#: Ten steps an epoch, the last of 7 examples: the second of two replicas has none of these.
GLOBAL_BATCH, TRAIN_EXAMPLES, TEST_EXAMPLES, EPOCHS = 16, 151, 45, 5
SETTINGS = {
    **PARAMETERS,
    "epochs": EPOCHS,
    "evaluation_interval_epochs": None,
    "loss": "model",
    "optimizer": "model",
    "learning_rate": None,
    "momentum": None,
}


def data(examples: int, seed: int) -> tuple[Any, Any, Any]:
    """Two inputs, two outputs by name, and weights of the examples of each output."""
    random = np.random.default_rng(seed)
    left = random.random((examples, 4), np.float32)
    right = random.integers(0, 5, (examples, 3))
    total = left.sum(axis=1) + right.sum(axis=1)
    kind, value = (total > 8).astype(np.int32), (total[:, None] / 8).astype(np.float32)
    weights = {name: random.random(examples, np.float32) for name in ("kind", "value")}
    return {"left": left, "right": right}, {"kind": kind, "value": value}, weights


def arrays_of(parts: Callable[[int, int], tuple[Any, ...]]) -> Arrays:
    train, test = parts(TRAIN_EXAMPLES, 0), parts(TEST_EXAMPLES, 1)
    weights = (*train[2:], *test[2:]) or (None, None)
    return Arrays(train[0], train[1], test[0], test[1], *weights)


def values(examples: int, seed: int) -> tuple[Any, Any]:
    """One input and a number to estimate."""
    inputs, answers, _ = data(examples, seed)
    return inputs["left"], answers["value"]


def classes(examples: int, seed: int) -> tuple[Any, Any]:
    inputs, answers, _ = data(examples, seed)
    return inputs["left"], answers["kind"]


def two_outputs() -> Any:
    """A compiled model with all that `compile` takes, and a metric with a state of its own."""
    import keras

    class F1(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="f1")
            self.right = self.add_variable((), "zeros", name="right")
            self.wrong = self.add_variable((), "zeros", name="wrong")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            true = keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "bool")
            found = keras.ops.argmax(y_pred, axis=-1) == 1
            self.right.assign_add(keras.ops.sum(keras.ops.cast(true & found, "float32")))
            self.wrong.assign_add(keras.ops.sum(keras.ops.cast(true ^ found, "float32")))

        def result(self) -> Any:
            return 2 * self.right / (2 * self.right + self.wrong + 1e-9)

    left = keras.Input((4,), name="left")
    right = keras.Input((3,), dtype="int64", name="right")
    words = keras.layers.Flatten()(keras.layers.Embedding(5, 2)(right))
    whole = keras.layers.concatenate([left, words])
    hidden = keras.layers.Dense(8, "tanh", kernel_regularizer=keras.regularizers.L2(0.01))(whole)
    outputs = {
        "kind": keras.layers.Dense(2, name="kind")(hidden),
        "value": keras.layers.Dense(1, name="value", kernel_regularizer="l2")(hidden),
    }
    model = keras.Model({"left": left, "right": right}, outputs)
    model.compile(
        keras.optimizers.AdamW(0.01, weight_decay=0.02, clipnorm=0.3),
        {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "value": "huber"},
        loss_weights={"kind": 0.7, "value": 2.0},
        metrics={"kind": ["accuracy", F1()], "value": "mae"},
        weighted_metrics={"value": [keras.metrics.MeanSquaredError(name="weighted_mse")]},
    )
    return model


def own_loss() -> Any:
    """A subclass with a loss and metrics of its own, as Keras's guides show it."""
    import keras

    class Focal(keras.Model):  # type: ignore[misc]
        def compute_loss(
            self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True
        ) -> Any:
            entropy = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
            return keras.ops.mean(entropy * entropy) + sum(self.losses)

        def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            found = super().compute_metrics(x, y, y_pred, sample_weight)
            return {**found, "confidence": keras.ops.mean(keras.ops.softmax(y_pred)[:, 0])}

    given = keras.Input((4,))
    hidden = keras.layers.Dense(8, "relu", kernel_regularizer="l2")(given)
    model = Focal(given, keras.layers.Dense(2, dtype="float32")(hidden))
    model.compile(keras.optimizers.SGD(0.2, momentum=0.5), metrics=["accuracy"])
    return model


def own_step() -> Any:
    """A subclass with a `train_step` and a `test_step` of its own."""
    import keras
    import tensorflow as tf

    class Stepper(keras.Model):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.mae = keras.metrics.MeanAbsoluteError(name="mae")

        def train_step(self, batch: Any) -> dict[str, Any]:
            x, y = batch
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = keras.ops.mean(keras.ops.square(y - y_pred))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            self.mae.update_state(y, y_pred)
            return {"loss": loss, "mae": self.mae.result()}

        def test_step(self, batch: Any) -> dict[str, Any]:
            x, y = batch
            y_pred = self(x, training=False)
            self.mae.update_state(y, y_pred)
            return {"loss": keras.ops.mean(keras.ops.square(y - y_pred)), "mae": self.mae.result()}

        @property
        def metrics(self) -> list[Any]:
            return [self.mae]

    given = keras.Input((4,))
    model = Stepper(given, keras.layers.Dense(1)(keras.layers.Dense(8, "tanh")(given)))
    model.compile(keras.optimizers.RMSprop(0.01))
    return model


class Case(NamedTuple):
    model: Callable[[], Any]
    parts: Callable[[int, int], tuple[Any, ...]]
    precision: str = "float32"
    #: More than one are a loop, which takes as long to compile as a step.
    steps_per_execution: int = 1


CASES = {
    "two_outputs": Case(two_outputs, data),
    "own_loss": Case(own_loss, classes, "mixed_float16"),
    "own_step": Case(own_step, values, steps_per_execution=5),
}


def trained(strategy: Any, replicas: int, case: Case) -> dict[str, Any]:
    """What the workflow's loop gives."""
    devices.set_precision(case.precision)
    settings = {**SETTINGS, "precision": case.precision}
    settings["steps_per_execution"] = case.steps_per_execution
    spec = training_spec(GLOBAL_BATCH // replicas, replicas, **settings)
    trainer = Trainer(strategy, case.model, arrays_of(case.parts), spec)
    events = EventLog(Path(os.devnull), 0)
    result = trainer.train(events, lambda _: None)
    trainer.evaluate(result, events, "evaluated")
    last = result.epochs[-1]
    return {
        "metrics": [{"loss": epoch.loss, **epoch.metrics} for epoch in result.epochs],
        "test": {"loss": result.test_loss, **last.test_metrics},
        "accuracy": last.accuracy,
        "examples": result.examples_trained,
        "weights": [np.asarray(weight).tolist() for weight in trainer.model.get_weights()],
    }


def fitted(case: Case) -> dict[str, Any]:
    """What Keras's own `fit` gives with the same batches, the last of each epoch as it is."""
    import keras

    devices.set_precision(case.precision)
    keras.utils.set_random_seed(SETTINGS["seed"])
    model, arrays = case.model(), arrays_of(case.parts)
    steps = -(-TRAIN_EXAMPLES // GLOBAL_BATCH)
    history = model.fit(batches_of(arrays), epochs=EPOCHS, steps_per_epoch=steps, verbose=0).history
    x, y, weights = (*arrays.test, None)[:3]
    test = model.evaluate(x, y, TEST_EXAMPLES, sample_weight=weights, verbose=0, return_dict=True)
    return {
        "metrics": [{name: of[n] for name, of in history.items()} for n in range(EPOCHS)],
        "test": test,
        "weights": [np.asarray(weight).tolist() for weight in model.get_weights()],
    }


def batches_of(arrays: Arrays) -> Any:
    import tensorflow as tf

    def batches() -> Iterator[Any]:
        for epoch in range(1, EPOCHS + 1):
            order = order_of_epoch(SETTINGS["seed"], epoch, TRAIN_EXAMPLES, GLOBAL_BATCH)
            for step, padded in enumerate(order):
                rows = padded[: TRAIN_EXAMPLES - step * GLOBAL_BATCH]
                yield tf.nest.map_structure(lambda array, rows=rows: array[rows], arrays.train)

    signature = tf.nest.map_structure(
        lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype), arrays.train
    )
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def main() -> None:
    rank.load_tensorflow()
    output, found = Path(sys.argv[1]), {}
    if "TF_CONFIG" in os.environ:
        strategy = STRATEGIES["multi_worker_mirrored"].build(
            devices.configure(0, "logical", 1), "ring"
        )
        found["two workers"] = {"two_outputs": trained(strategy, 2, CASES["two_outputs"])}
    else:
        names = devices.configure(2, "logical", 1)
        single, mirrored = (STRATEGIES[n].build(names, "ring") for n in ("single", "mirrored"))
        for name, case in CASES.items():
            found.setdefault("fit", {})[name] = fitted(case)
            found.setdefault("one replica", {})[name] = trained(single, 1, case)
            found.setdefault("two devices", {})[name] = trained(mirrored, 2, case)
    output.write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
