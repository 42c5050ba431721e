"""A rank of the trainings on pipelines that test_pipelines.py compares.

Usage: pipelines_rank.py STRATEGY OUTPUT, with TF_CONFIG as train.py sets it: one worker of two.
Without STRATEGY: Keras's own `fit`, one replica, and two replicas in one process.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from oracle_cases import mixed, two_outputs
from strategy_rank import PARAMETERS, training_spec
from tfscaling.record.events import EventLog, EventName
from tfscaling.train import rank, strategies
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


def classes(examples: int, seed: int) -> tuple[Any, Any]:
    inputs, answers, _ = mixed(examples, seed)
    return inputs["left"], answers["kind"]


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
    trainer.evaluate(result, events, EventName.EVALUATED)
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
    """Every `workers`-th example of `mixed`, from files of float32 numbers."""
    import tensorflow as tf

    def dataset(name: str, examples: int, seed: int) -> Any:
        parts = mixed(examples, seed)
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


def pipelines(single: Any, mirrored: Any) -> dict[str, Any]:
    """Pipelines on one worker, and what `fit` gives for the same datasets."""
    import keras

    keras.utils.set_random_seed(SETTINGS["seed"])
    given = whole(mixed)
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
        strategy = STRATEGIES[sys.argv[1]].build(
            strategies.configure_devices(0, "logical", 1), "ring"
        )
        worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        found["two workers"] = {
            "from files": piped(strategy, 2, two_outputs, from_files(output.parent, worker, 2)),
            "uneven": piped(strategy, 2, classifier, uneven(worker), **BY_RECIPE),
            "endless": piped(strategy, 2, classifier, endless(worker), **ENDLESS),
        }
    else:
        names = strategies.configure_devices(2, "logical", 1)
        single, mirrored = (STRATEGIES[n].build(names, "ring") for n in ("single", "mirrored"))
        found["pipelines"] = pipelines(single, mirrored)
    output.write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
