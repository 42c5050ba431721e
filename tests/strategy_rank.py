"""A rank of a small training, in a process of its own, for `trainings` in conftest.py.

Usage: strategy_rank.py STRATEGY DEVICES PER_REPLICA_BATCH OUTPUT, with TF_CONFIG as
train.py sets it.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import interrupted
import msgspec
import numpy as np
from tfscaling import TRAINER_VERSION
from tfscaling.cluster import resolver
from tfscaling.datasets.catalogue import Arrays
from tfscaling.launch import heartbeat
from tfscaling.launch.rank_process import RankContext
from tfscaling.record.events import EventLog, EventName
from tfscaling.record.rank_report import Epoch, Execution
from tfscaling.study.config_types import MeasuredKeys, Recipe
from tfscaling.study.run_spec import Point, RunSpec
from tfscaling.train import all_reduce_loop, parameter_server, rank, strategies
from tfscaling.train.all_reduce import ArrayTrainer
from tfscaling.train.loop import TrainingLoop, TrainingResult
from tfscaling.train.parameter_server import ParameterServerTrainer
from tfscaling.train.strategies import STRATEGIES

#: Five steps of 16 and one of 7; held-out examples that fill no evaluation batch exactly.
TRAIN_EXAMPLES, TEST_EXAMPLES, GLOBAL_BATCH = 87, 1203, 16
PARAMETERS: dict[str, Any] = {
    "seed": 3,
    "epochs": 3,
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "learning_rate_scaling": "none",
    "momentum": 0.9,
    "evaluation_interval_epochs": 2,
    "steps_per_execution": 2,
    "communication": "ring",
    "precision": "float32",
    "parameter_servers": 1,
}


def training_spec(batch: int, replicas: int = 1, **changes: Any) -> RunSpec:
    """The specification of a training with `batch` examples per replica and step."""
    values = {**PARAMETERS, **changes}
    seed = values.pop("seed")
    recipe = msgspec.convert({**values, "per_replica_batch_size": batch}, Recipe)
    point = Point(
        platform="p",
        model="m",
        strategy="s",
        recipe="r",
        nodes=1,
        gpus_per_node=0,
        tasks_per_node=1,
    )
    return RunSpec(
        point=point,
        repeat=1,
        recipe=recipe,
        measured=MeasuredKeys(launcher="local", cpus_per_node=1),
        dataset="mnist",
        seed=seed,
        trainer_version=TRAINER_VERSION,
        replicas=replicas,
        per_replica_batch_size=batch,
        global_batch_size=batch * replicas,
        jobs={"worker": 1},
    )


def synthetic_arrays(train_examples: int = TRAIN_EXAMPLES) -> Arrays:
    """Images of 8 x 8 pixels of ten classes, each a noisy pattern of its own."""
    random = np.random.default_rng(0)
    patterns = random.integers(0, 200, (10, 8, 8))

    def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.integers(0, 10, count)
        images = patterns[labels] + random.integers(0, 56, (count, 8, 8))
        return images.astype(np.uint8), labels.astype(np.uint8)

    return Arrays(*examples(train_examples), *examples(TEST_EXAMPLES))


def small_model(*between: Any) -> Any:
    import keras

    first = [keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(16, "relu")]
    return keras.Sequential([*first, *between, keras.layers.Dense(10)])


#: Of trainings that are interrupted.
TINY_TRAINING = {
    "epochs": 3,
    "evaluation_interval_epochs": 2,
    "steps_per_execution": 1,
    "checkpoint_every_epochs": 1,
}


def lively_model() -> Any:
    """Each step changes moments, random numbers and weights."""
    import keras

    return small_model(keras.layers.BatchNormalization(), keras.layers.Dropout(0.3))


def main() -> None:
    rank.load_tensorflow()
    name, count, batch, output = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    spec, own = STRATEGIES[name], resolver.resolve(os.environ, gpus=None)
    names = strategies.configure_devices(count, "logical", 1)
    events = EventLog(output.parent / f"rank-{own.rank}.events.jsonl", own.rank)
    if spec.coordinated and not own.is_chief:
        heartbeat.FILES_INTERVAL_S = 0.3
        ended_well = parameter_server.run_server(RankContext(own, output.parent, events, 0.0, None))
        output.write_text(json.dumps({"job": own.job, "ended_well": ended_well}))
        os._exit(0)
    strategy = spec.build(names, PARAMETERS["communication"])
    trainer: TrainingLoop
    if spec.coordinated:
        trainer = ParameterServerTrainer(
            strategy,
            small_model,
            synthetic_arrays(),
            training_spec(batch, len(own.jobs["worker"])),
            spec.synchronous,
        )
    else:
        trainer = ArrayTrainer(strategy, small_model, synthetic_arrays(), training_spec(batch))
    result = trainer.train(events, print)
    trainer.evaluate(result, events, EventName.EVALUATED)
    found = {
        "job": own.job,
        "strategy": type(strategy).__name__,
        "replicas": trainer.replicas,
        "examples_per_step": trainer.examples_per_step,
        "examples_trained": result.examples_trained,
        "devices": [device.split("/")[-1] for device in strategy.extended.worker_devices],
        "communication": communication_of(strategy) if name.startswith("multi") else None,
        "epochs": [[epoch.loss, epoch.accuracy] for epoch in result.epochs],
        "steps": [[row.epoch, row.first_step, row.steps] for row in result.steps],
        "test": [result.test_loss, result.test_accuracy],
        "weights": [np.asarray(weight).tolist() for weight in trainer.model.get_weights()],
    }
    if trainer.replicas > 1 and isinstance(trainer, ArrayTrainer):
        found["computation"] = computation_after(trainer, events)
    if name == "mirrored":
        found |= lively_training(strategy, batch)
        found["computations"] = computations(strategy, batch)
    if len(own.jobs["worker"]) == 2 and isinstance(trainer, ArrayTrainer):
        found["all_reduces"] = all_reduces_in_a_step(strategy, batch)
        found |= interrupted_training(strategy, batch, output.parent, (own.rank, 2))
    spec.end()
    output.write_text(json.dumps(found))
    events.add(EventName.END)
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's coordinator has no shutdown


def interrupted_training(
    strategy: Any, batch: int, folder: Path, place: tuple[int, int]
) -> dict[str, Any]:
    """What a training gave that was interrupted three times, and one that was not."""
    spec = training_spec(batch, **TINY_TRAINING)

    def make() -> ArrayTrainer:
        return ArrayTrainer(strategy, lively_model, synthetic_arrays(), spec)

    again = interrupted.train(make, folder / "checkpoints", spec.recipe, 3, place)
    return {
        "begun": again.begun,
        "interrupted": interrupted.outcome(again.trainer, again.result),
        **lively_training(strategy, batch),
    }


def lively_training(strategy: Any, batch: int) -> dict[str, Any]:
    """An uninterrupted training, with each local replica's moments before and after evaluation."""
    spec = training_spec(batch, **TINY_TRAINING)
    trainer = ArrayTrainer(strategy, lively_model, synthetic_arrays(), spec)

    def moments() -> list[list[list[float]]]:
        variables = [v for v in trainer.model.non_trainable_variables if "moving" in v.path]
        local = strategy.experimental_local_results
        return [[value.numpy().tolist() for value in local(v.value)] for v in variables]

    events = EventLog(Path(os.devnull), 0)
    result = trainer.train(events, lambda _: None)
    trained = moments()
    trainer.evaluate(result, events, EventName.EVALUATED)
    outcome = interrupted.outcome(trainer, result)
    return {"uninterrupted": outcome, "moments": {"trained": trained, "evaluated": moments()}}


def training_of(steps: int, step_s: float) -> TrainingResult:
    """Measurements of a training whose steps took this long."""
    result = TrainingResult(epochs=[Epoch(epoch=1, loss=0.0, accuracy=None, duration_s=1.0)])
    result.steps = [Execution(1, step, 1, step_s) for step in range(steps)]
    return result


def computation_after(trainer: ArrayTrainer, events: EventLog) -> dict[str, Any]:
    """What steps of computation alone after a training give, and what they change."""
    result, before = training_of(1000, 10.0), trainer.model.get_weights()
    traced = trainer.traced_differentiations
    durations = trainer.compute_steps(result)
    weights = zip(trainer.model.get_weights(), before, strict=True)
    again = trainer.traced_differentiations
    trainer.evaluate(result, events, EventName.EVALUATED)
    return {
        "traced": [traced, again],
        "steps": len(durations),
        "fewest_s": min(durations),
        "are_weights_unchanged": all(map(np.array_equal, *zip(*weights, strict=True))),
        "test": [result.test_loss, result.test_accuracy],
    }


def computations(strategy: Any, batch: int) -> dict[str, Any]:
    """Steps of computation alone of other trainings: of a known length, too long, not wanted."""
    import keras
    import tensorflow as tf

    passed_s = 0.0

    def work(images: Any) -> Any:
        nonlocal passed_s
        passed_s += 50
        return images

    class Work(keras.layers.Layer):  # type: ignore[misc]
        """A layer that takes 50 s of the clock."""

        def call(self, images: Any) -> Any:
            done = tf.py_function(work, [images], images.dtype)
            done.set_shape(images.shape)
            return done

    def make(*layers: Any, **recipe: Any) -> ArrayTrainer:
        spec = training_spec(batch, **{**TINY_TRAINING, "epochs": 1, **recipe})
        model = partial(small_model, *(layer() for layer in layers))
        return ArrayTrainer(strategy, model, synthetic_arrays(), spec)

    def train(trainer: ArrayTrainer) -> ArrayTrainer:
        trainer.train(EventLog(Path(os.devnull), 0), lambda _: None)
        return trainer

    working = train(make(Work))
    clock = SimpleNamespace(perf_counter=lambda: passed_s)
    with mock.patch.object(all_reduce_loop, "time", clock):
        found: dict[str, Any] = {"durations_s": working.compute_steps(training_of(1000, 100.0))}
    for name, steps in (("enough", 80), ("too_few", 79)):  # 5 % are four steps, and fewer
        found[name] = len(working.compute_steps(training_of(steps, 10.0)))
    off, together = (
        train(each)
        for each in (
            make(measure_computation=False),
            make(lambda: keras.layers.BatchNormalization(synchronized=True)),
        )
    )
    for name, trainer in (("off", off), ("together", together)):
        durations = trainer.compute_steps(training_of(1000, 10.0))
        found[name] = [len(durations), trainer.traced_differentiations]
    return found


def all_reduces_in_a_step(strategy: Any, batch: int) -> int:
    import tensorflow as tf

    spec = training_spec(batch, steps_per_execution=1)
    trainer = ArrayTrainer(strategy, small_model, synthetic_arrays(), spec)
    order = tf.constant(trainer.order.epoch_indices(1, 1))
    step = trainer._execute.get_concrete_function(
        order, tf.constant(0), tf.constant(1), *trainer.train_data
    )
    # MPI is called by operations that call Python
    types = [operation.type for operation in step.graph.get_operations()]
    return sum("CollectiveReduce" in name or "PyFunc" in name for name in types)


def functions_for_xla(graph: Any) -> int:
    """How many functions of a compiled function XLA compiles."""
    functions = graph.as_graph_def().library.function
    return sum("_XlaMustCompile" in function.attr for function in functions)


def communication_of(strategy: Any) -> str:
    return str(strategy.extended._communication_options.implementation.name)


if __name__ == "__main__":
    main()
