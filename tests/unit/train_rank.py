"""A rank of a small training, in a process of its own, for `trainings` in conftest.py.

Usage: train_rank.py STRATEGY DEVICES PER_REPLICA_BATCH OUTPUT, with TF_CONFIG as launch.py sets it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tfscaling import devices
from tfscaling.datasets import Arrays
from tfscaling.events import EventLog
from tfscaling.strategies import STRATEGIES

#: Five steps of 16 and a rest; held-out examples that fill no evaluation batch exactly.
TRAIN_EXAMPLES, TEST_EXAMPLES, GLOBAL_BATCH = 87, 1203, 16
PARAMETERS = {
    "seed": 3,
    "epochs": 3,
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "learning_rate_scaling": "none",
    "momentum": 0.9,
    "steps_per_execution": 2,
    "communication": "ring",
}


def synthetic_arrays() -> Arrays:
    """Images of 8 x 8 pixels of ten classes, each a noisy pattern of its own."""
    random = np.random.default_rng(0)
    patterns = random.integers(0, 200, (10, 8, 8))

    def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.integers(0, 10, count)
        images = patterns[labels] + random.integers(0, 56, (count, 8, 8))
        return images.astype(np.uint8), labels.astype(np.uint8)

    return Arrays(*examples(TRAIN_EXAMPLES), *examples(TEST_EXAMPLES))


def small_model() -> Any:
    import keras

    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    name, count, batch, output = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    names = devices.configure(count, "logical", 1)
    strategy = STRATEGIES[name].build(names, PARAMETERS)

    from tfscaling.trainer import Trainer

    trainer = Trainer(strategy, small_model, synthetic_arrays(), batch, PARAMETERS)
    result = trainer.train(EventLog(output.with_suffix(".events.jsonl"), 0), print)
    trainer.evaluate(result)
    found = {
        "strategy": type(strategy).__name__,
        "replicas": strategy.num_replicas_in_sync,
        "devices": [device.split("/")[-1] for device in strategy.extended.worker_devices],
        "communication": communication_of(strategy) if name.startswith("multi") else None,
        "epochs": [[epoch["loss"], epoch["accuracy"]] for epoch in result.epochs],
        "test": [result.test_loss, result.test_accuracy],
        "weights": [weight.tolist() for weight in trainer.model.get_weights()],
    }
    output.write_text(json.dumps(found))


def communication_of(strategy: Any) -> str:
    return str(strategy.extended._communication_options.implementation.name)


if __name__ == "__main__":
    main()
