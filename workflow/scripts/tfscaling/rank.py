"""One rank from its cluster to its report: devices, data, training. Layer 3 (training)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfscaling import datasets, devices, host_facts, models, parameter_server
from tfscaling.cluster import Cluster
from tfscaling.events import EventLog
from tfscaling.geometry import Geometry, batch_sizes
from tfscaling.parameter_server import ParameterServerTrainer
from tfscaling.parameters import cpus_per_task
from tfscaling.strategies import STRATEGIES
from tfscaling.trainer import Trainer


def run(
    own: Cluster,
    axes: Mapping[str, Any],
    settings: Mapping[str, Any],
    dataset_file: Path,
    folder: Path,
    events: EventLog,
) -> dict[str, Any]:
    """Do this rank's part and return its report; `folder` is shared by all ranks."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    import tensorflow as tf

    events.add("imported")
    geometry, spec = Geometry.of(axes), STRATEGIES[axes["strategy"]]
    # parameter servers and coordinators compute nothing that a GPU would help with
    gpus = geometry.gpus_per_task if own.job == "worker" else 0
    names = devices.configure(gpus, settings["devices"], cpus_per_task(axes, settings))
    report = {
        "cluster_hash": hashlib.sha256(json.dumps(own.jobs).encode()).hexdigest()[:16],
        "cluster_source": own.source,
        "devices": names,
        "gpus_visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "cpus": len(os.sched_getaffinity(0)),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "tensorflow_version": tf.__version__,
    }
    if spec.coordinated and not own.is_chief:
        if not parameter_server.serve(own, folder, events):
            raise RuntimeError("the coordinator failed")
        return report | {"host_facts": host_facts.describe()}
    devices.set_precision(settings["precision"])
    strategy = spec.build(names, settings)
    replicas = spec.replicas(geometry, settings)
    events.add("rendezvous", replicas=replicas)
    arrays = datasets.load(dataset_file, settings)
    events.add("data", train_examples=len(arrays.y_train), test_examples=len(arrays.y_test))
    batch, _ = batch_sizes(settings, geometry, replicas)
    build = models.get(axes["model"]).build
    trainer: Trainer | ParameterServerTrainer
    if spec.coordinated:
        trainer = ParameterServerTrainer(
            strategy, build, arrays, batch, settings, replicas, spec.synchronous
        )
    else:
        trainer = Trainer(strategy, build, arrays, batch, settings)
    events.add("built", model_parameters=int(trainer.model.count_params()))
    chatty = own.rank == 0  # the chief's log has the progress
    result = trainer.train(events, lambda line: print(line, flush=True) if chatty else None)
    trainer.evaluate(result)
    events.add("evaluated", test_loss=result.test_loss, test_accuracy=result.test_accuracy)
    compute_steps = trainer.compute_steps()
    events.add("probed", steps=len(compute_steps))
    if chatty:
        print(f"held-out: loss {result.test_loss:.4f}, accuracy {result.test_accuracy:.4f}")
    return report | {
        "host_facts": host_facts.describe(),
        "replicas": trainer.replicas,
        "global_batch_size": trainer.global_batch,
        "examples_per_step": trainer.examples_per_step,
        "model_parameters": int(trainer.model.count_params()),
        "train_examples": trainer.train_examples,
        "test_examples": trainer.test_examples,
        "epochs": result.epochs,
        "steps": result.steps,
        "compute_steps": compute_steps,
        "test_loss": result.test_loss,
        "test_accuracy": result.test_accuracy,
    }
