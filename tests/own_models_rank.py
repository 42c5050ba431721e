"""A rank of the trainings of users' models and pipelines that test_own_models.py compares.

Usage: own_models_rank.py STRATEGY OUTPUT, with TF_CONFIG as train.py sets it: one worker of two.
Without STRATEGY: Keras's own `fit`, one replica, and two replicas in one process.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from strategy_rank import PARAMETERS, training_spec
from tfscaling.datasets.catalogue import Arrays
from tfscaling.record.events import EventLog
from tfscaling.train import rank, strategies
from tfscaling.train.all_reduce import Trainer, order_of_epoch
from tfscaling.train.loop import TrainingLoop
from tfscaling.train.pipeline import Datasets, PipelineTrainer
from tfscaling.train.strategies import STRATEGIES

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

    class Focal(keras.Model):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.confidence = keras.metrics.Mean(name="confidence")

        def compute_loss(
            self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True
        ) -> Any:
            entropy = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
            return keras.ops.mean(entropy * entropy) + sum(self.losses)

        def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            self.confidence.update_state(keras.ops.softmax(y_pred)[:, 0])
            return super().compute_metrics(x, y, y_pred, sample_weight)

    given = keras.Input((4,))
    hidden = keras.layers.Dense(8, "relu", kernel_regularizer="l2")(given)
    model = Focal(given, keras.layers.Dense(2, dtype="float32")(hidden))
    model.compile(keras.optimizers.SGD(0.2, momentum=0.5), metrics=["accuracy"])
    return model


def accumulated() -> Any:
    """Two optimizers with settings of their own; one updates weights in some steps only."""
    import keras

    given = keras.Input((4,))
    hidden = keras.layers.Dense(8, "tanh")(given)
    model = keras.Model(given, keras.layers.Dense(1, name="head")(hidden))
    head = keras.optimizers.SGD(
        0.05, 0.9, weight_decay=0.1, clipnorm=0.5, gradient_accumulation_steps=4
    )
    rest = keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.5)
    optimizers = keras.optimizers.OptimizerMap(rest, {"head.*": head})
    model.compile(keras.optimizers.MultiOptimizer(optimizers), "mse", metrics=["mae"])
    return model


def collectives() -> Any:
    """A layer's statistics are over all replicas' examples, another's variable has their mean."""
    import keras

    class Centred(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.centre = self.add_weight(
                shape=(shape[-1],), trainable=False, aggregation="mean", name="centre"
            )

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                self.centre.assign(0.5 * self.centre + 0.5 * keras.ops.mean(inputs, axis=0))
            return inputs - self.centre

    given = keras.Input((4,))
    hidden = keras.layers.Dense(8)(Centred()(given))
    hidden = keras.layers.BatchNormalization(momentum=0.5, synchronized=True)(hidden)
    model = keras.Model(given, keras.layers.Dense(1)(keras.layers.ReLU()(hidden)))
    model.compile(keras.optimizers.Adam(0.01), "mse")
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
    "accumulated": Case(accumulated, values, steps_per_execution=5),
}


def trained(strategy: Any, replicas: int, case: Case) -> dict[str, Any]:
    """What the workflow's loop gives for arrays."""
    import keras

    keras.mixed_precision.set_dtype_policy(case.precision)
    settings = {**SETTINGS, "precision": case.precision}
    settings["steps_per_execution"] = case.steps_per_execution
    spec = training_spec(GLOBAL_BATCH // replicas, replicas, **settings)
    return found_by(Trainer(strategy, case.model, arrays_of(case.parts), spec))


def piped(
    strategy: Any, replicas: int, model: Callable[[], Any], given: Datasets, **changes: Any
) -> dict[str, Any]:
    """What it gives for a worker's part of a pipeline."""
    import keras

    keras.mixed_precision.set_dtype_policy("float32")
    settings = {**SETTINGS, "steps_per_execution": 1, **changes}
    spec = training_spec(GLOBAL_BATCH // replicas, replicas, **settings)
    return found_by(PipelineTrainer(strategy, model, given, spec))


def found_by(trainer: TrainingLoop) -> dict[str, Any]:
    events = EventLog(Path(os.devnull), 0)
    result = trainer.train(events, lambda _: None)
    trainer.evaluate(result, events, "evaluated")
    last = result.epochs[-1]
    return {
        "metrics": [{"loss": epoch.loss, **epoch.metrics} for epoch in result.epochs],
        "test": {"loss": result.test_loss, **last.test_metrics},
        "accuracy": last.accuracy,
        "examples": result.examples_trained,
        "steps": len(result.steps),
        "tested": trainer.test_examples,
        "weights": [np.asarray(weight).tolist() for weight in trainer.model.get_weights()],
    }


def fitted(case: Case) -> dict[str, Any]:
    """What Keras's own `fit` gives with the same batches, the last of each epoch as it is."""
    import keras

    keras.mixed_precision.set_dtype_policy(case.precision)
    keras.utils.set_random_seed(SETTINGS["seed"])
    model, arrays = case.model(), arrays_of(case.parts)
    steps = -(-TRAIN_EXAMPLES // GLOBAL_BATCH)
    return fitted_on(model, batches_of(arrays), batches(case.parts, TEST_EXAMPLES, 1), steps)


def fitted_on(model: Any, train: Any, test: Any, steps: int | None = None) -> dict[str, Any]:
    """What `fit` and `evaluate` give with these datasets."""
    history = model.fit(train, epochs=EPOCHS, steps_per_epoch=steps, verbose=0).history
    return {
        "metrics": [{name: of[n] for name, of in history.items()} for n in range(EPOCHS)],
        "test": model.evaluate(test, verbose=0, return_dict=True),
        "weights": [np.asarray(weight).tolist() for weight in model.get_weights()],
    }


def batches(
    parts: Callable[[int, int], tuple[Any, ...]],
    examples: int,
    seed: int,
    size: int = TEST_EXAMPLES,
) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(parts(examples, seed)).batch(size)


def whole(parts: Callable[[int, int], tuple[Any, ...]]) -> Datasets:
    """All batches, for a single worker."""
    return Datasets(
        batches(parts, TRAIN_EXAMPLES, 0, GLOBAL_BATCH),
        batches(parts, TEST_EXAMPLES, 1, GLOBAL_BATCH),
    )


def from_files(folder: Path, worker: int, workers: int) -> Datasets:
    """Every `workers`-th example of `data`, from files of float32 numbers."""
    import tensorflow as tf

    def dataset(name: str, examples: int, seed: int) -> Any:
        parts = data(examples, seed)
        leaves = [np.reshape(leaf, (examples, -1)) for leaf in tf.nest.flatten(parts)]
        widths, path = [leaf.shape[1] for leaf in leaves], str(folder / f"{name}-{worker}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for row in np.concatenate(leaves, axis=1).astype(np.float32):
                writer.write(row.tobytes())

        def parsed(record: Any) -> Any:
            columns = tf.split(tf.io.decode_raw(record, tf.float32), widths)
            given = zip(columns, tf.nest.flatten(parts), strict=True)
            flat = [tf.cast(tf.reshape(c, leaf.shape[1:]), leaf.dtype) for c, leaf in given]
            return tf.nest.pack_sequence_as(parts, flat)

        own = tf.data.TFRecordDataset(path).shard(workers, worker).map(parsed)
        return own.batch(GLOBAL_BATCH // workers)

    return Datasets(dataset("train", TRAIN_EXAMPLES, 0), dataset("test", TEST_EXAMPLES, 1))


def classifier() -> Any:
    """Not compiled: the cross-entropy trains it."""
    import keras

    return keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)]
    )


def compiled_classifier() -> Any:
    import keras

    keras.utils.set_random_seed(SETTINGS["seed"])
    model, loss = classifier(), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    return model


#: What trains a model that is not compiled.
BY_RECIPE = {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9}
#: The first of two workers has five batches, the second two and a half, and one held-out batch of
#: two.
UNEVEN_TRAIN, UNEVEN_TEST, ENDLESS_STEPS = (40, 20), (12, 3), 7
ENDLESS = {**BY_RECIPE, "steps_per_epoch": ENDLESS_STEPS}


def uneven(worker: int) -> Datasets:
    size = GLOBAL_BATCH // 2
    return Datasets(
        batches(classes, UNEVEN_TRAIN[worker], worker, size),
        batches(classes, UNEVEN_TEST[worker], 2 + worker, size),
    )


def endless(worker: int) -> Datasets:
    """The same again and again."""
    given = uneven(worker)
    return given._replace(train=given.train.repeat())


def uneven_together() -> Datasets:
    """The batches that both workers have in the same steps, one after the other."""
    import tensorflow as tf

    def joined(first: Any, second: Any) -> Any:
        def steps() -> Iterator[Any]:
            for batches in itertools.zip_longest(first, second):
                given = [batch for batch in batches if batch is not None]
                yield tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *given)

        signature = tf.nest.map_structure(
            lambda spec: tf.TensorSpec((None, *spec.shape[1:]), spec.dtype), first.element_spec
        )
        return tf.data.Dataset.from_generator(steps, output_signature=signature)

    return Datasets(*map(joined, uneven(0), uneven(1)))


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


def pipelines(single: Any, mirrored: Any) -> dict[str, Any]:
    """Pipelines on one worker, and what `fit` gives for the same datasets."""
    import keras

    keras.utils.set_random_seed(SETTINGS["seed"])
    given = whole(data)
    again = whole(classes)
    again = again._replace(train=again.train.repeat())
    return {
        "fit": fitted_on(two_outputs(), *given),
        "one replica": piped(single, 1, two_outputs, given),
        "two devices": piped(mirrored, 2, two_outputs, given),
        "endless fit": fitted_on(compiled_classifier(), *again, ENDLESS_STEPS),
        "endless": piped(single, 1, classifier, again, **ENDLESS),
        "uneven fit": fitted_on(compiled_classifier(), *uneven_together()),
    }


def main() -> None:
    rank.load_tensorflow()
    output, found = Path(sys.argv[-1]), {}
    if len(sys.argv) > 2:
        strategy = STRATEGIES[sys.argv[1]].build(strategies.configure(0, "logical", 1), "ring")
        worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        found["two workers"] = {
            "from files": piped(strategy, 2, two_outputs, from_files(output.parent, worker, 2)),
            "uneven": piped(strategy, 2, classifier, uneven(worker), **BY_RECIPE),
            "endless": piped(strategy, 2, classifier, endless(worker), **ENDLESS),
            "collectives": trained(strategy, 2, Case(collectives, values)),
            "accumulated": trained(strategy, 2, CASES["accumulated"]),
        }
    else:
        names = strategies.configure(2, "logical", 1)
        single, mirrored = (STRATEGIES[n].build(names, "ring") for n in ("single", "mirrored"))
        for name, case in CASES.items():
            found.setdefault("fit", {})[name] = fitted(case)
            found.setdefault("one replica", {})[name] = trained(single, 1, case)
            found.setdefault("two devices", {})[name] = trained(mirrored, 2, case)
        found["pipelines"] = pipelines(single, mirrored)
    output.write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
