#!/usr/bin/env python3
"""The workflow's trainer on one device, and `mirrored` on the two halves of that device.

trainer.py GPU|CPU MNIST_FILE EXAMPLES EPOCHS [--jit-compile]

Prints a JSON object: number of replicas → losses, examples per second after the first epoch, the
devices of the replicas, and where the training data lie. Both train with global batches of 1024 in
the same order, so the losses are equal but for rounding. `--jit-compile` is the recipe's key.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow/scripts"))

from tfscaling import TRAINER_VERSION
from tfscaling.datasets import catalogue
from tfscaling.record.events import EventLog
from tfscaling.study.config_types import MeasuredKeys, Recipe
from tfscaling.study.run_spec import Point, RunSpec
from tfscaling.train import models, rank

BATCH, MEMORY_MB = 1024, 16_384


def spec(replicas: int, epochs: int) -> RunSpec:
    recipe = Recipe(
        optimizer="sgd",
        learning_rate=0.2,
        epochs=epochs,
        per_replica_batch_size=BATCH // replicas,
        jit_compile="--jit-compile" in sys.argv,
    )
    axes = {"platform": "p", "model": "mnist_cnn", "strategy": "mirrored", "recipe": "r"}
    return RunSpec(
        point=Point(**axes, nodes=1, gpus_per_node=replicas, tasks_per_node=1),
        repeat=1,
        recipe=recipe,
        measured=MeasuredKeys(launcher="local", cpus_per_node=1),
        dataset="mnist",
        seed=1,
        trainer_version=TRAINER_VERSION,
        replicas=replicas,
        per_replica_batch_size=BATCH // replicas,
        global_batch_size=BATCH,
        jobs={"worker": 1},
    )


def trained(kind: str, replicas: int, arrays: catalogue.Arrays, epochs: int) -> dict[str, Any]:
    """Train on the first `replicas` halves of the device and return the results."""
    from tfscaling.train.all_reduce import ArrayTrainer
    from tfscaling.train.strategies import STRATEGIES, devices_in_use

    name = "single" if replicas == 1 else "mirrored"
    strategy = STRATEGIES[name].build(
        [f"{kind}:{n}" for n in range(replicas)], spec(replicas, epochs).recipe.communication
    )
    trainer = ArrayTrainer(
        strategy, models.find_model("mnist_cnn").build, arrays, spec(replicas, epochs)
    )
    result = trainer.train(EventLog(Path(os.devnull), 0), lambda _: None)
    # without the first epoch, in which functions are compiled
    later_s = sum(each.duration_s for each in result.epochs[1:] if each.duration_s is not None)
    local = strategy.experimental_local_results
    return {
        "devices": devices_in_use(strategy),
        "data_on": [each.device.rpartition("device:")[2] for each in local(trainer.train_data[0])],
        "losses": [epoch.loss for epoch in result.epochs],
        "examples_per_s": arrays.train_examples * (epochs - 1) / later_s,
    }


def main() -> None:
    kind, file, examples, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rank.load_tensorflow()
    import tensorflow as tf

    half = tf.config.LogicalDeviceConfiguration(MEMORY_MB if kind == "GPU" else None)
    for device in tf.config.list_physical_devices(kind)[:1]:
        tf.config.set_logical_device_configuration(device, [half, half])
    arrays = catalogue.load(Path(file), train_examples_max=examples)
    print(json.dumps({n: trained(kind, n, arrays, epochs) for n in (1, 2)}))


if __name__ == "__main__":
    main()
