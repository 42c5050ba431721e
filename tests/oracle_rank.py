"""A rank that trains cases by each strategy, many of them in one process.

Usage: oracle_rank.py CASES DEVICES OUTPUT. With TF_CONFIG of a job as train.py sets it: two
or four workers, or a coordinator with a parameter server and two workers. Without TF_CONFIG on
DEVICES of one process; where these are two, Keras's own `fit` trains the cases, too. CASES names a
module and its function with arguments, as "drawn_models:cases:1:0:10". The result is a list with an
entry for each case and way of training.

Four workers train with one, two and four replicas: the first two as workers of TensorFlow with one
device each, the last two with two; by MPI all four, the first two, and the last alone.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from oracle_cases import Case
from strategy_rank import training_spec
from tfscaling.cluster import resolver
from tfscaling.launch import heartbeat
from tfscaling.launch.rank_process import RankContext
from tfscaling.record.events import EventLog, EventName
from tfscaling.study.config_types import MPI_STRATEGY
from tfscaling.train import loop, parameter_server, rank, strategies
from tfscaling.train.all_reduce import ArrayTrainer, order_of_epoch
from tfscaling.train.mpi import library as mpi
from tfscaling.train.mpi import strategy as mpi_strategy
from tfscaling.train.optimizers import make_optimizer
from tfscaling.train.parameter_server import ParameterServerTrainer
from tfscaling.train.strategies import STRATEGIES, make_replica_hiding_class

SEED = 3
#: Those of a model that trains itself; a case's own recipe changes them.
SETTINGS = {"seed": SEED, "evaluation_interval_epochs": None, "steps_per_execution": 1,
            "momentum": None}  # fmt: skip
BY_ITSELF = {"loss": "model", "optimizer": "model", "learning_rate": None}


#: The strategy of parameter servers that waits for all workers.
SERVERS = "synchronous_parameter_server"


def go_on() -> None:
    """Begin at once: TensorFlow's ranks wait for each other asleep."""


def meet(ranks: Any) -> None:
    """Wait for the other ranks asleep. MPI itself polls, which takes CPU from training ranks."""
    are_all_here = ranks.Ibarrier()
    while not are_all_here.Test():
        time.sleep(0.01)


class Way(NamedTuple):
    """How this rank trains, with others or not; `begin` waits for the others."""

    strategy: str
    replicas: int
    built: Any
    begin: Callable[[], None] = go_on

    @property
    def name(self) -> str:
        return f"{self.strategy} {self.replicas}"


def ways_alone(count: int) -> Iterator[Way]:
    names = strategies.configure_devices(count, "logical", 1)
    if count == 2:
        # TensorFlow wants it first
        workers = STRATEGIES["multi_worker_mirrored"].build(names[:1], "ring")
        yield Way("single", 1, STRATEGIES["single"].build(names, "ring"))
        yield Way("multi_worker_mirrored", 1, workers)
        yield Way("mirrored", 1, STRATEGIES["mirrored"].build(names[:1], "ring"))
    # TensorFlow sums over groups of one size in a process
    yield Way("mirrored", count, STRATEGIES["mirrored"].build(names, "ring"))


def ways_of_job(own: int, ranks: int) -> Iterator[Way]:
    # a process of TensorFlow can be in one group of workers: two have a device each, two have two
    count = 1 + own // 2
    names = strategies.configure_devices(count, "logical", 1)
    config = json.loads(os.environ["TF_CONFIG"])
    workers = config["cluster"]["worker"][own // 2 * 2 :][:2]
    task = {"type": "worker", "index": own % 2}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    built = STRATEGIES["multi_worker_mirrored"].build(names, "ring")
    yield Way("multi_worker_mirrored", 2 * count, built)
    world = mpi.world_communicator(own, ranks)
    of_node = mpi.node_communicator

    def by_mpi(ranks: Any, words: str = "") -> Way:
        made = make_replica_hiding_class(mpi_strategy.make_strategy_class(names[0], ranks))()
        return Way(MPI_STRATEGY + words, ranks.size, made, partial(meet, ranks))

    yield by_mpi(world)
    if ranks < 4:
        return
    # the first two share memory with each other, and the last two: two nodes
    mpi.node_communicator = lambda world: world.Split(own // 2)
    yield by_mpi(world, " of two nodes")
    mpi.node_communicator = of_node
    parts = world.Split(min(own, 2) // 2 + own // 3)  # the first two, the third, the fourth
    if own != 2:
        yield by_mpi(parts)


def ways_of_coordinator() -> Iterator[Way]:
    names = strategies.configure_devices(1, "logical", 1)
    yield Way(SERVERS, 2, STRATEGIES[SERVERS].build(names, "ring"))


def is_classifier(case: Case) -> bool:
    return "learning_rate" in case.recipe


def is_trained(case: Case, way: Way) -> bool:
    """Return whether the case is trained in this way; servers train only classifiers."""
    strategies = case.strategies or STRATEGIES
    is_named = any(way.strategy.startswith(name) for name in strategies)
    is_named = is_named and way.replicas in case.replicas and way.name != case.without_way
    return is_named and (way.strategy != SERVERS or is_classifier(case))


def spec_of(case: Case, replicas: int) -> Any:
    chosen = {} if is_classifier(case) else BY_ITSELF
    # float64 is a data type of the tests only
    precision = case.precision.replace("float64", "float32")
    settings = {**SETTINGS, "epochs": case.epochs, "precision": precision, **chosen}
    return training_spec(case.batch // replicas, replicas, **{**settings, **case.recipe})


def trained(case: Case, way: Way) -> dict[str, Any]:
    """What the workflow's loop finds."""
    way.begin()
    spec = spec_of(case, way.replicas)
    trainer: loop.TrainingLoop
    if way.strategy == SERVERS:
        trainer = ParameterServerTrainer(way.built, case.model, case.arrays, spec, True)
    else:
        trainer = ArrayTrainer(way.built, case.model, case.arrays, spec)
    set_loss_scale(trainer.optimizer, case)
    events, updates = EventLog(Path(os.devnull), 0), []
    result = trainer.train(events, lambda _: updates.append(updates_of(trainer.optimizer)))
    if case.is_evaluated:
        trainer.evaluate(result, events, EventName.EVALUATED)
    of_epochs = [(epoch.accuracy, epoch.metrics) for epoch in result.epochs]
    accuracy = {"accuracy": result.test_accuracy} if is_classifier(case) else {}
    return {
        "loss": [epoch.loss for epoch in result.epochs],
        "metrics": [m or {"accuracy": value} for value, m in of_epochs],
        "test": {"loss": result.test_loss, **accuracy, **result.epochs[-1].test_metrics},
        "sha256": checksum(trainer.model),
        "examples": result.examples_trained,
        "updates": updates[: case.epochs],
    }


def fitted(case: Case) -> dict[str, Any]:
    """What Keras's own `fit` finds on one device with the same batches."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(SEED)
    model, arrays, scale, smoothing = case.model(), case.arrays, 1.0, 0.0
    if is_classifier(case):
        made = make_optimizer(spec_of(case, 1).recipe, 1, case.steps_per_epoch)
        entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        smoothing = spec_of(case, 1).recipe.label_smoothing
        smoothed = keras.losses.CategoricalCrossentropy(True, label_smoothing=smoothing)
        model.compile(made, smoothed if smoothing else entropy, metrics=["accuracy"])
        scale = 255.0 if arrays.x_train.dtype == np.uint8 else 1.0

    def scaled(part: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *rest = part
        return (x if scale == 1.0 else x / np.float32(scale), *rest)

    train = scaled(arrays.train)
    if smoothing:
        train = (train[0], np.eye(10, dtype=np.float32)[train[1]])

    def batches() -> Iterator[Any]:
        for epoch in range(1, case.epochs + 1):
            order = order_of_epoch(SEED, epoch, arrays.train_examples, case.batch)
            for step, padded in enumerate(order):
                rows = padded[: arrays.train_examples - step * case.batch]
                yield keras.tree.map_structure(lambda array, rows=rows: array[rows], train)

    set_loss_scale(model.optimizer, case)
    updates: list[int] = []
    counted = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: updates.append(updates_of(model.optimizer))
    )
    signature = tf.nest.map_structure(
        lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype), train
    )
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    steps = case.steps_per_epoch  # without them Keras 3.15 counts one step more at the end
    history = model.fit(
        data, epochs=case.epochs, steps_per_epoch=steps, verbose=0, callbacks=[counted]
    ).history
    loss = history.pop("loss")
    found = {
        "loss": loss,
        "metrics": [{name: of[n] for name, of in history.items()} for n in range(case.epochs)],
        "test": {"loss": None},
        "examples": case.epochs * arrays.train_examples,
        "updates": updates,
    }
    if smoothing:  # of the trained loss only
        model.compile(model.optimizer, entropy, metrics=["accuracy"])
    if case.is_evaluated:
        x, y, *weights = scaled(arrays.test)
        found["test"] = model.evaluate(
            x, y, sample_weight=weights[0] if weights else None, verbose=0, return_dict=True,
            batch_size=arrays.test_examples,
        )  # fmt: skip
    return found


def by_hand(case: Case, replicas: int) -> dict[str, Any]:
    """Replicas on one device: copies of a model that see parts of each batch, without a strategy.

    The copies have the same weights, but normalize by their own part and draw their own masks.
    Padding repeats the first examples of the epoch and has no weight. A case without a recipe has
    a compiled model, whose loss and optimizer are used.
    """
    import keras
    import tensorflow as tf

    def copied() -> Any:
        keras.utils.set_random_seed(SEED)
        return case.model()

    copies = [copied() for _ in range(replicas)]
    for number, copy in enumerate(copies):
        for state in [v for v in copy.non_trainable_variables if "seed" in v.path]:
            state.assign_add(np.array([number * loop.SEED_STRIDE, 0]))
    first, arrays = copies[0], case.arrays
    if case.recipe:
        optimizer = make_optimizer(spec_of(case, 1).recipe, 1, case.steps_per_epoch)
        loss_of_each = partial(keras.losses.sparse_categorical_crossentropy, from_logits=True)
    else:
        optimizer, loss = first.optimizer, keras.losses.get(first.loss)
        loss_of_each = loss.call if isinstance(loss, keras.losses.Loss) else loss
    optimizer.build(first.trainable_variables)
    set_loss_scale(optimizer, case)

    @tf.function
    def step(images: Any, labels: Any, is_real: Any, weights: Any) -> Any:
        summed, total = [0.0] * len(first.trainable_variables), 0.0
        of_all = images, labels, is_real, weights
        for copy, x, y, real, w in zip(
            copies, *(tf.split(each, replicas) for each in of_all), strict=True
        ):
            with tf.GradientTape() as tape:
                losses = loss_of_each(y, tf.cast(copy(x, training=True), tf.float32))
                share = tf.reduce_sum(real) / tf.reduce_sum(is_real)
                own = sum(tf.cast(loss, tf.float32) for loss in copy.losses)
                loss = tf.reduce_sum(losses * real * w) / tf.reduce_sum(is_real) + own * share
                scaled = optimizer.scale_loss(loss)
            total += loss
            gradients = tape.gradient(scaled, copy.trainable_variables)
            summed = [None if g is None else s + g for s, g in zip(summed, gradients, strict=True)]
        optimizer.apply(summed, first.trainable_variables)
        for copy in copies[1:]:
            for own, same in zip(copy.trainable_variables, first.trainable_variables, strict=True):
                own.assign(same)
        return total

    images, labels = np.asarray(arrays.x_train), np.asarray(arrays.y_train)
    if case.recipe and images.dtype == np.uint8:
        images = images / np.float32(255)
    if labels.dtype.kind in "iu":
        labels = labels.astype(np.int32)
    weights = arrays.weights_train
    weights = np.ones(len(labels), np.float32) if weights is None else np.asarray(weights)
    of_epochs, of_updates = [], []
    for epoch in range(1, case.epochs + 1):
        losses = []
        order = order_of_epoch(SEED, epoch, arrays.train_examples, case.batch)
        for number, rows in enumerate(order):
            real = min(case.batch, arrays.train_examples - number * case.batch)
            is_real = (np.arange(case.batch) < real).astype(np.float32)
            loss = step(images[rows], labels[rows], is_real, weights[rows])
            losses.append(float(loss) * real)
        of_epochs.append(sum(losses) / arrays.train_examples)
        of_updates.append(updates_of(optimizer))
    return {"loss": of_epochs, "updates": of_updates}


def set_loss_scale(optimizer: Any, case: Case) -> None:
    """Give a loss-scaling optimizer, built or not, the case's scale and the steps of its growth."""
    if case.growth_steps:
        optimizer.dynamic_growth_steps = case.growth_steps
    if case.loss_scale:
        optimizer.initial_scale = case.loss_scale
        if optimizer.built:
            optimizer.dynamic_scale.assign(case.loss_scale)


def updates_of(optimizer: Any) -> int:
    return int(np.asarray(optimizer.iterations))


def checksum(model: Any) -> str:
    parts = [np.asarray(weight).tobytes() for weight in model.trainable_variables]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def wait_for(outputs: list[Path]) -> None:
    """Wait for the other ranks, which may still receive the last sum from this one."""
    deadline = time.monotonic() + 600
    while not all(path.exists() for path in outputs) and time.monotonic() < deadline:
        time.sleep(0.05)


def cases_of(words: str) -> Iterator[tuple[str, Case]]:
    module, function, *arguments = words.split(":")
    found: Callable[..., Iterator[tuple[str, Case]]] = getattr(
        importlib.import_module(module), function
    )
    return found(*map(int, arguments))


def entries(words: str, ways: list[Way], is_alone: bool) -> Iterator[dict[str, Any]]:
    """What each case gives in each way of training."""
    import keras

    spent_s = 0.0
    for name, case in cases_of(words):
        keras.mixed_precision.set_dtype_policy(case.precision)
        keras.config.set_floatx("float64" if case.precision == "float64" else "float32")
        calls: dict[str, Callable[[], dict[str, Any]]] = {
            way.name: partial(trained, case, way) for way in ways if is_trained(case, way)
        }
        if is_alone and case.is_by_hand:
            calls |= {f"by hand {n}": partial(by_hand, case, n) for n in case.replicas}
        elif is_alone:
            calls["fit"] = partial(fitted, case)
        for way, call in calls.items():
            print(f"{name}: {way}", flush=True)
            found, before_s = call(), spent_s
            spent_s = time.process_time()  # since the start of this process
            yield {"case": name, "way": way, "cpu_s": spent_s - before_s, **found}
        keras.backend.clear_session()
        gc.collect()


def main() -> None:
    rank.load_tensorflow()
    words, devices, output = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if "TF_CONFIG" not in os.environ:
        found = entries(words, [*ways_alone(devices)], devices == 2)
        output.write_text(json.dumps([*found]))
        os._exit(0)
    own = resolver.resolve(os.environ, gpus=None)
    events = EventLog(output.parent / f"rank-{own.rank}.events.jsonl", own.rank)
    if "ps" not in own.jobs:
        ranks = len(own.jobs["worker"])
        output.write_text(json.dumps([*entries(words, [*ways_of_job(own.rank, ranks)], False)]))
        wait_for([output.with_name(f"{rank}.json") for rank in range(ranks)])
    elif own.is_chief:
        output.write_text(json.dumps([*entries(words, [*ways_of_coordinator()], False)]))
    else:
        strategies.configure_devices(1, "logical", 1)
        heartbeat.FILES_INTERVAL_S = 0.3
        parameter_server.run_server(RankContext(own, output.parent, events, 0.0, None))
        output.write_text("[]")
    events.add(EventName.END)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
