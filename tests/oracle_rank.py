"""A rank of the trainings that test_oracle.py compares, all of them one after the other.

Usage: oracle_rank.py STRATEGY DEVICES OUTPUT, with TF_CONFIG as train.py sets it. STRATEGY
`references` stands for what the others are compared with.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from strategy_rank import PARAMETERS, small_model, synthetic_arrays, training_spec
from tfscaling.cluster import resolver
from tfscaling.datasets.catalogue import Arrays
from tfscaling.launch import heartbeat
from tfscaling.launch.rank_process import RankContext
from tfscaling.record.events import EventLog
from tfscaling.train import loop, parameter_server, rank, strategies
from tfscaling.train.all_reduce import Trainer, order_of_epoch
from tfscaling.train.loop import Result, TrainingLoop
from tfscaling.train.optimizers import make_optimizer
from tfscaling.train.parameter_server import ParameterServerTrainer
from tfscaling.train.strategies import STRATEGIES

#: Ten steps an epoch: whole batches, or a last one of 7 examples.
GLOBAL_BATCH, WHOLE, UNEVEN, STEPS = 16, 160, 151, 10
#: Only mixed_float16 scales the loss; what several replicas sum is float32 in each of them.
PRECISIONS = ("float32", "mixed_float16")
ALONE = (*PRECISIONS, "mixed_bfloat16")
#: One step per execution: a loop of steps would be compiled as well; test_all_reduce.py has it.
SETTINGS = {**PARAMETERS, "epochs": 5, "evaluation_interval_epochs": None, "steps_per_execution": 1}
#: A training whose scaled loss overflows every few steps, on the replica with a bright image.
GROWTH_STEPS, BRIGHT = 3, 8
OVERFLOW = {**SETTINGS, "epochs": 8, "precision": "mixed_float16", "learning_rate": 1e-6,
            "momentum": 0.0}  # fmt: skip
#: A schedule of learning rates with all that the recipe's optimizer can do besides.
SCHEDULED = {**SETTINGS, "nesterov": True, "weight_decay": 0.05, "warmup_epochs": 1.5,
             "decay": "cosine", "label_smoothing": 0.2}  # fmt: skip


def arrays_of(examples: int) -> Any:
    every: Any = synthetic_arrays(WHOLE)
    return Arrays(every.x_train[:examples], every.y_train[:examples], every.x_test, every.y_test)


def arrays_with_bright_images() -> Arrays:
    """Dark images, and a few bright ones of different classes."""
    arrays: Any = arrays_of(WHOLE)
    images, labels = arrays.x_train // 64, arrays.y_train.copy()
    images[:BRIGHT], labels[:BRIGHT] = 255, np.arange(BRIGHT)
    return Arrays(images, labels, arrays.x_test, arrays.y_test)


def layers() -> Any:
    """Layers that Keras does not have."""
    import keras

    class WithoutGradient(keras.layers.Layer):
        """A trainable variable that the loss does not depend on."""

        def build(self, shape: Any) -> None:
            self.unused = self.add_weight(shape=(3,), name="unused")

        def call(self, inputs: Any) -> Any:
            return inputs

    class Spread(keras.layers.Layer):
        """Adds a loss of its own, a mean over the batch."""

        def call(self, inputs: Any) -> Any:
            self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
            return inputs

    return WithoutGradient, Spread


def plain_model() -> Any:
    """All that does not depend on how a batch is split: embedding, L2, no gradient, no dropout."""
    import keras

    without_gradient, _ = layers()
    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Rescaling(255 / 16, dtype="float32"),
            keras.layers.Embedding(16, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(16, "relu", kernel_regularizer=keras.regularizers.L2(0.01)),
            without_gradient(),
            keras.layers.Dropout(0.0),
            keras.layers.Dense(10),
        ]
    )  # fmt: skip


def split_model() -> Any:
    """What depends on how a batch is split: batch normalization, dropout, losses of a batch."""
    import keras

    without_gradient, spread = layers()
    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(16, kernel_regularizer=keras.regularizers.L2(0.01)),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            spread(dtype="float32"),  # Keras cannot add losses of several types
            keras.layers.Dropout(0.5),
            keras.layers.Dense(
                16, activity_regularizer=keras.regularizers.L2(0.001), dtype="float32"
            ),
            without_gradient(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
    )


def overflowing_model() -> Any:
    """The gradient of its weights is the brightest image times that of the loss.

    So it overflows above a scale of 2 ** 14 if there is a bright image among a replica's images.
    """
    import keras

    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Rescaling(64.0),
            keras.layers.Dense(10, use_bias=False, kernel_initializer="zeros"),
        ]
    )


Make = Callable[..., TrainingLoop]


def cases(replicas: int) -> dict[str, tuple[Callable[[], Any], int, str]]:
    """Name → model, number of examples, precision."""
    found = {}
    for precision in PRECISIONS if replicas > 1 else ALONE:
        found[f"plain {precision}"] = (plain_model, UNEVEN, precision)
        found[f"split {precision}"] = (split_model, UNEVEN, precision)
        if replicas == 1:  # `fit` knows no replicas
            found[f"whole {precision}"] = (split_model, WHOLE, precision)
    return found


def trained(make: Make, replicas: int) -> dict[str, Any]:
    """What all cases gave."""
    import keras

    found = {}
    for name, (model, examples, precision) in cases(replicas).items():
        keras.mixed_precision.set_dtype_policy(precision)
        settings = {**SETTINGS, "precision": precision}
        trainer = make(model, arrays_of(examples), GLOBAL_BATCH // replicas, settings)
        events = EventLog(Path(os.devnull), 0)
        result = trainer.train(events, lambda _: None)
        if name.startswith("plain"):  # nothing held out is compared of the others
            trainer.evaluate(result, events, "evaluated")
        found[name] = found_in(result)
    keras.mixed_precision.set_dtype_policy("float32")
    trainer = make(small_model, arrays_of(UNEVEN), GLOBAL_BATCH // replicas, SCHEDULED)
    events = EventLog(Path(os.devnull), 0)
    result = trainer.train(events, lambda _: None)
    trainer.evaluate(result, events, "evaluated")
    found["scheduled"] = found_in(result)
    found["overflow"] = overflowing(make, replicas)
    return found


def found_in(result: Result) -> dict[str, Any]:
    return {
        "loss": [epoch.loss for epoch in result.epochs],
        "accuracy": [epoch.accuracy for epoch in result.epochs],
        "test_loss": result.test_loss,
        "examples": result.examples_trained,
    }


def overflowing(make: Make, replicas: int) -> dict[str, Any]:
    """Losses of a training with overflows, and how many updates were made by each epoch's end."""
    import keras

    keras.mixed_precision.set_dtype_policy("mixed_float16")
    arrays = arrays_with_bright_images()
    trainer = make(overflowing_model, arrays, GLOBAL_BATCH // replicas, OVERFLOW)
    trainer.optimizer.dynamic_growth_steps = GROWTH_STEPS
    made: list[int] = []
    result = trainer.train(
        EventLog(Path(os.devnull), 0),
        lambda _: made.append(int(np.asarray(trainer.optimizer.iterations))),
    )
    return {"loss": [epoch.loss for epoch in result.epochs], "updates": made}


def fitted_with_overflows() -> dict[str, Any]:
    """The same by Keras's `fit` on one device."""
    import keras

    model = compiled(overflowing_model, OVERFLOW)
    model.optimizer.dynamic_growth_steps = GROWTH_STEPS
    made: list[int] = []
    counted = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: made.append(int(model.optimizer.iterations))
    )
    data = data_of(arrays_with_bright_images(), OVERFLOW["epochs"])
    history = model.fit(
        data, epochs=OVERFLOW["epochs"], steps_per_epoch=STEPS, verbose=0, callbacks=[counted]
    ).history
    return {"loss": history["loss"], "updates": made}


def fitted_by_schedule() -> dict[str, Any]:
    """Keras's `fit` with labels smoothed by NumPy, and the rate of each update from a table."""
    import keras

    class FromTable(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return keras.ops.take(table, keras.ops.cast(step, "int32"))

    updates, warmup = STEPS * SCHEDULED["epochs"], round(STEPS * SCHEDULED["warmup_epochs"])
    falling = 0.5 * (1 + np.cos(np.pi * np.arange(updates - warmup) / (updates - warmup)))
    shape = np.concatenate([np.arange(1, warmup + 1) / warmup, falling])
    table = keras.ops.convert_to_tensor((SCHEDULED["learning_rate"] * shape).astype(np.float32))
    arrays, smoothing = arrays_of(UNEVEN), SCHEDULED["label_smoothing"]
    built = compiled(small_model, SETTINGS)
    built.compile(
        keras.optimizers.SGD(FromTable(), SCHEDULED["momentum"], True, weight_decay=0.05),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    smoothed = data_of(arrays, SCHEDULED["epochs"]).map(
        lambda x, y: (x, keras.ops.one_hot(y, 10) * (1 - smoothing) + smoothing / 10)
    )
    history = built.fit(
        smoothed, epochs=SCHEDULED["epochs"], steps_per_epoch=STEPS, verbose=0
    ).history
    images, labels = arrays.x_test / np.float32(255), np.eye(10)[arrays.y_test]
    test_loss, _ = built.evaluate(images, labels, batch_size=500, verbose=0)
    return {"loss": history["loss"], "accuracy": history["accuracy"], "test_loss": test_loss}


def compiled(model: Callable[[], Any], settings: dict[str, Any]) -> Any:
    import keras

    keras.mixed_precision.set_dtype_policy(settings["precision"])
    keras.utils.set_random_seed(settings["seed"])
    built = model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    built.compile(
        make_optimizer(training_spec(GLOBAL_BATCH, **settings).recipe, 1),
        loss,
        metrics=["accuracy"],
    )
    return built


def data_of(arrays: Arrays, epochs: int) -> Any:
    """The batches of all epochs, the last of each as small as it is."""
    import tensorflow as tf

    examples = len(arrays.y_train)

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for epoch in range(1, epochs + 1):
            order = order_of_epoch(SETTINGS["seed"], epoch, examples, GLOBAL_BATCH)
            for step, padded in enumerate(order):
                rows = padded[: examples - step * GLOBAL_BATCH]
                yield arrays.x_train[rows] / np.float32(255), arrays.y_train[rows].astype(np.int32)

    signature = (tf.TensorSpec((None, 8, 8), tf.float32), tf.TensorSpec((None,), tf.int32))
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def fitted(model: Callable[[], Any], examples: int, precision: str) -> dict[str, Any]:
    """What Keras's own `fit` gives on one device with the same batches."""
    built, arrays = compiled(model, {**SETTINGS, "precision": precision}), arrays_of(examples)
    data, epochs = data_of(arrays, SETTINGS["epochs"]), SETTINGS["epochs"]
    history = built.fit(data, epochs=epochs, steps_per_epoch=STEPS, verbose=0).history
    images, labels = arrays.x_test / np.float32(255), arrays.y_test.astype(np.int32)
    test_loss, _ = built.evaluate(images, labels, batch_size=500, verbose=0)
    return {"loss": history["loss"], "accuracy": history["accuracy"], "test_loss": test_loss}


def by_hand(
    model: Callable[[], Any], examples: int, precision: str, replicas: int
) -> dict[str, Any]:
    """Replicas on one device: copies of a model that see parts of each batch, without a strategy.

    The copies have the same weights, but normalize by their own part and draw their own masks.
    Padding repeats the first examples of the epoch and has no weight.
    """
    import keras
    import tensorflow as tf

    settings = {**SETTINGS, "precision": precision}
    copies = [compiled(model, settings) for _ in range(replicas)]
    for number, copy in enumerate(copies):
        for state in [v for v in copy.non_trainable_variables if "seed" in v.path]:
            state.assign_add(np.array([number * loop.SEED_STRIDE, 0]))
    first, arrays = copies[0], arrays_of(examples)
    optimizer, entropy = first.optimizer, keras.losses.sparse_categorical_crossentropy
    optimizer.build(first.trainable_variables)

    @tf.function
    def step(images: Any, labels: Any, weights: Any) -> Any:
        summed, total = [0.0] * len(first.trainable_variables), 0.0
        for copy, x, y, w in zip(
            copies, *(tf.split(all_, replicas) for all_ in (images, labels, weights)), strict=True
        ):
            with tf.GradientTape() as tape:
                losses = entropy(y, tf.cast(copy(x, training=True), tf.float32), from_logits=True)
                share = tf.reduce_sum(w) / tf.reduce_sum(weights)
                own = tf.add_n([tf.cast(loss, tf.float32) for loss in copy.losses])
                loss = tf.reduce_sum(losses * w) / tf.reduce_sum(weights) + own * share
                scaled = optimizer.scale_loss(loss)
            total += loss
            gradients = tape.gradient(scaled, copy.trainable_variables)
            summed = [None if g is None else s + g for s, g in zip(summed, gradients, strict=True)]
        optimizer.apply(summed, first.trainable_variables)
        for copy in copies[1:]:
            for own, same in zip(copy.trainable_variables, first.trainable_variables, strict=True):
                own.assign(same)
        return total

    found: dict[str, Any] = {"loss": []}
    for epoch in range(1, SETTINGS["epochs"] + 1):
        losses = []
        for number, rows in enumerate(
            order_of_epoch(SETTINGS["seed"], epoch, examples, GLOBAL_BATCH)
        ):
            real = min(GLOBAL_BATCH, examples - number * GLOBAL_BATCH)
            weights = np.arange(GLOBAL_BATCH) < real
            images, labels = arrays.x_train[rows] / np.float32(255), arrays.y_train[rows]
            loss = step(images, labels.astype(np.int32), weights.astype(np.float32))
            losses.append(float(loss) * real)
        found["loss"].append(sum(losses) / examples)
    return found


def references() -> dict[str, Any]:
    found: dict[str, Any] = {"overflow": fitted_with_overflows(), "scheduled": fitted_by_schedule()}
    for replicas in (1, 2, 4):
        for name, (model, examples, precision) in cases(replicas).items():
            if name.startswith("split"):
                found[f"{name} {replicas}"] = by_hand(model, examples, precision, replicas)
            elif replicas == 1:
                found[name] = fitted(model, examples, precision)
    return found


def wait_for(outputs: Sequence[Path]) -> None:
    """Wait for the other ranks, which may still receive the last sum from this one."""
    deadline = time.monotonic() + 600
    while not all(path.exists() for path in outputs) and time.monotonic() < deadline:
        time.sleep(0.05)


def main() -> None:
    rank.load_tensorflow()
    name, count, output = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if name == "references":
        strategies.configure(0, "logical", 1)
        output.write_text(json.dumps(references()))
        return
    spec, own = STRATEGIES[name], resolver.resolve(os.environ, gpus=None)
    names = strategies.configure(count, "logical", 1)
    events = EventLog(output.parent / f"rank-{own.rank}.events.jsonl", own.rank)
    if spec.coordinated and not own.is_chief:
        heartbeat.FILES_INTERVAL_S = 0.3
        parameter_server.serve(RankContext(own, output.parent, events, 0.0, None))
        output.write_text("{}")
        os._exit(0)
    strategy = spec.build(names, PARAMETERS["communication"])
    replicas = len(own.jobs["worker"]) * max(1, count)

    def make(model: Any, arrays: Any, batch: int, settings: Any) -> Any:
        if spec.coordinated:
            asked = training_spec(batch, replicas, **settings)
            return ParameterServerTrainer(strategy, model, arrays, asked, spec.synchronous)
        return Trainer(strategy, model, arrays, training_spec(batch, **settings))

    output.write_text(json.dumps(trained(make, replicas)))
    events.add("end")
    sys.stdout.flush()
    if not spec.coordinated:
        wait_for([output.with_name(f"{rank}.json") for rank in range(len(own.jobs["worker"]))])
    os._exit(0)


if __name__ == "__main__":
    main()
