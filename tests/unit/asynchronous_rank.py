"""Asynchronous training in mixed_float16: servers and coordinator in one process.

Usage: asynchronous_rank.py OUTPUT PORT PORT PORT
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from oracle_rank import arrays_of
from strategy_rank import training_spec
from tfscaling.record.events import EventLog
from tfscaling.train import rank, strategies
from tfscaling.train.parameter_server import ParameterServerTrainer
from tfscaling.train.strategies import STRATEGIES

BATCH = 16
#: The trainer whose loss scale "another worker" changes.
TRAINERS: list[ParameterServerTrainer] = []


def interrupted_model() -> Any:
    """The loss scale changes while the gradients are computed, as by another worker."""
    import keras
    import tensorflow as tf

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def meanwhile(inputs: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            scale = TRAINERS[0].optimizer.dynamic_scale.value
            with tf.control_dependencies([upstream, scale.assign(scale / 1024.0)]):
                return tf.identity(upstream)

        return tf.identity(inputs), gradient

    class Meanwhile(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return meanwhile(inputs)

    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(10, kernel_initializer="zeros"),
            Meanwhile(),
        ]
    )


def main() -> None:
    rank.load_tensorflow()
    output, ports = Path(sys.argv[1]), sys.argv[2:]
    chief, server, worker = [[f"127.0.0.1:{port}"] for port in ports]
    jobs = {"chief": chief, "ps": server, "worker": worker}
    task = {"type": "chief", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": jobs, "task": task})
    names = strategies.configure(0, "logical", 1)
    import tensorflow as tf

    strategies.set_precision("mixed_float16")
    spec = tf.train.ClusterSpec(jobs)
    servers = [tf.distribute.Server(spec, job, 0, protocol="grpc") for job in ("ps", "worker")]
    strategy = STRATEGIES["parameter_server"].build(names, "ring")
    arrays = arrays_of(BATCH)
    asked = training_spec(BATCH, epochs=1, precision="mixed_float16", momentum=0.0)
    TRAINERS.append(ParameterServerTrainer(strategy, interrupted_model, arrays, asked, False))
    TRAINERS[0].train(EventLog(Path(os.devnull), 0), print)  # one update
    found = {
        "weights": TRAINERS[0].model.get_weights()[0].tolist(),
        "updates": int(TRAINERS[0].optimizer.iterations.numpy()),
    }
    output.write_text(json.dumps({**found, "servers": len(servers)}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
