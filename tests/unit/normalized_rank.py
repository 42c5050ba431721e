"""A rank that trains a model with batch normalization and dropout, for test_replica_statistics.py.

Usage: normalized_rank.py STRATEGY DEVICES PER_REPLICA_BATCH OUTPUT, with TF_CONFIG as train.py
sets it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from strategy_rank import synthetic_arrays, training_spec
from tfscaling.record.events import EventLog
from tfscaling.train import rank, strategies
from tfscaling.train.strategies import STRATEGIES, Exchange


def normalized_model() -> Any:
    import keras

    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(8),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    rank.load_tensorflow()
    name, count, batch, output = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    names = strategies.configure(count, "logical", 1)
    strategy = STRATEGIES[name].build(names, Exchange("ring"))

    from tfscaling.train.all_reduce import Trainer

    trainer = Trainer(strategy, normalized_model, synthetic_arrays(), training_spec(batch))

    def statistics() -> list[list[list[float]]]:
        """Moving mean and variance, of each replica of this rank."""
        variables = [v for v in trainer.model.non_trainable_variables if "moving" in v.path]
        local = strategy.experimental_local_results
        return [[value.numpy().tolist() for value in local(v.value)] for v in variables]

    events = EventLog(output.with_suffix(".events.jsonl"), 0)
    result = trainer.train(events, print)
    trained = statistics()
    trainer.evaluate(result, events, "evaluated")
    found = {
        "epochs": [[epoch.loss, epoch.accuracy] for epoch in result.epochs],
        "test": [result.test_loss, result.test_accuracy],
        "trained": trained,
        "evaluated": statistics(),
    }
    output.write_text(json.dumps(found))
    wait_for_peer(output)


def wait_for_peer(output: Path) -> None:
    """A worker that ends may cut off what the other one still receives from it."""
    name, _, index = output.stem.rpartition("-")
    until = time.monotonic() + 60
    while name and time.monotonic() < until:
        if output.with_name(f"{name}-{1 - int(index)}.json").exists():
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main()
