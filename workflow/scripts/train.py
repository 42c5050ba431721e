#!/usr/bin/env python3
"""Train one rank of a run: cluster from the environment, TF_CONFIG, strategy, training, report.

INPUTS   the prepared dataset (--dataset-file), the run's axes and parameters as flags
OUTPUTS  in --folder: rank-<n>.events.jsonl (phases as they pass), rank-<n>.json (the report)
"""

import time

START_S = time.time()  # execution_time_s begins with the trainer's first line

import argparse  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import platform  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from tfscaling import TRAINER_VERSION, cluster, devices, parameters  # noqa: E402
from tfscaling.events import EventLog  # noqa: E402
from tfscaling.geometry import Geometry, batch_sizes  # noqa: E402
from tfscaling.records import write_json  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset-file", type=Path, required=True, help="file of rule dataset")
    parser.add_argument("--folder", type=Path, required=True, help="where to leave the report")
    parameters.add_arguments(parser)
    args = parser.parse_args()
    axes, settings = parameters.from_namespace(args)
    if settings["trainer_version"] != TRAINER_VERSION:
        parser.error(f"this is trainer_version {TRAINER_VERSION}")
    train(axes, settings, args.dataset_file, args.folder)


def train(axes: dict, settings: dict, dataset_file: Path, folder: Path) -> None:
    """Run this rank from its first line to its report."""
    on_gpus = axes["gpus_per_node"] > 0 and settings["devices"] == "physical"
    own = cluster.resolve(os.environ, gpus_per_node=None if on_gpus else 0)
    os.environ.update(own.environment())
    events = EventLog(folder / f"rank-{own.rank}.events.jsonl", own.rank)
    host = socket.gethostname()
    events.add("start", START_S, host=host, pid=os.getpid(), source=own.source)
    print(f"rank {own.rank} on {host}: {own.job} {own.index} of {own.tf_config()}", flush=True)
    try:
        report = {"rank": own.rank, "host": host, "start_s": START_S}
        report |= _train(own, axes, settings, dataset_file, events)
    except Exception as error:
        events.add("failed", error=type(error).__name__, message=str(error)[:2000])
        raise
    write_json(folder / f"rank-{own.rank}.json", report)
    events.add("end")


def _train(
    own: cluster.Cluster, axes: dict, settings: dict, dataset_file: Path, events: EventLog
) -> dict:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    import tensorflow as tf
    from tfscaling import datasets
    from tfscaling.models import MODELS
    from tfscaling.strategies import STRATEGIES
    from tfscaling.trainer import Trainer

    events.add("imported")
    geometry = Geometry(axes["nodes"], axes["tasks_per_node"], axes["gpus_per_node"])
    cpus = parameters.cpus_per_task(axes, settings)
    names = devices.configure(geometry.gpus_per_task, settings["devices"], cpus)
    spec = STRATEGIES[axes["strategy"]]
    strategy = spec.build(names, settings)
    events.add("rendezvous", replicas=strategy.num_replicas_in_sync)
    arrays = datasets.load(dataset_file, settings)
    events.add("data", train_examples=len(arrays.y_train), test_examples=len(arrays.y_test))
    batch, _ = batch_sizes(settings, geometry, spec.replicas(geometry))
    trainer = Trainer(strategy, MODELS[axes["model"]].build, arrays, batch, settings)
    events.add("built", model_parameters=trainer.model.count_params())
    chatty = own.rank == 0  # the chief's log has the progress
    result = trainer.train(events, lambda line: print(line, flush=True) if chatty else None)
    trainer.evaluate(result)
    events.add("evaluated", test_loss=result.test_loss, test_accuracy=result.test_accuracy)
    if chatty:
        print(f"held-out: loss {result.test_loss:.4f}, accuracy {result.test_accuracy:.4f}")
    return {
        "cluster_hash": hashlib.sha256(json.dumps(own.jobs).encode()).hexdigest()[:16],
        "cluster_source": own.source,
        "devices": names,
        "gpus_visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "cpus": len(os.sched_getaffinity(0)),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "replicas": strategy.num_replicas_in_sync,
        "global_batch_size": trainer.global_batch,
        "model_parameters": int(trainer.model.count_params()),
        "train_examples": trainer.train_examples,
        "test_examples": trainer.test_examples,
        "tensorflow_version": tf.__version__,
        "python_version": platform.python_version(),
        "epochs": result.epochs,
        "steps": result.steps,
        "test_loss": result.test_loss,
        "test_accuracy": result.test_accuracy,
    }


if __name__ == "__main__":
    main()
    sys.stdout.flush()
