"""One rank from its cluster to its report: devices, data, training."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfscaling.cluster import resolver
from tfscaling.cluster.resolver import Cluster
from tfscaling.cluster.slurm_environment import gpus_given
from tfscaling.datasets import catalogue
from tfscaling.jobs import heartbeat, host_facts, rank_files
from tfscaling.records import clock
from tfscaling.records.events import EventLog
from tfscaling.records.run_record import write_json
from tfscaling.study.geometry import Geometry, batch_sizes
from tfscaling.study.parameters import cpus_per_task, recipe_of
from tfscaling.training import devices, models, parameter_server, user_model
from tfscaling.training.all_reduce import Trainer
from tfscaling.training.parameter_server import ParameterServerTrainer
from tfscaling.training.strategies import STRATEGIES


def process(
    axes: Mapping[str, Any],
    settings: Mapping[str, Any],
    folder: Path,
    started_s: float,
    work: Callable[[Cluster, EventLog], dict[str, Any]],
) -> None:
    """This process as a rank: its place in the cluster, `work`, the report that `work` returns.

    `started_s` is when the process began, by `time.monotonic()`; `folder` is shared by all ranks.
    """
    on_gpus = axes["gpus_per_node"] > 0 and settings["devices"] == "physical"
    jobs = STRATEGIES[axes["strategy"]].jobs(
        Geometry.of(axes), settings.get("parameter_servers", 0)
    )
    own = resolver.resolve(os.environ, jobs=jobs, gpus_per_node=None if on_gpus else 0)
    given = gpus_given(os.environ)
    os.environ.update(own.environment())
    events = EventLog(rank_files.events_path(folder, own.rank), own.rank)
    host, start_s = socket.gethostname(), clock.at(started_s)
    offset = clock.measure(os.environ)
    off = {} if offset is None else dataclasses.asdict(offset)
    events.add("start", start_s, host=host, pid=os.getpid(), job=own.job, source=own.source, **off)
    heartbeat.Heart(folder, own.rank, lambda: _end_alone(events)).start()
    print(f"rank {own.rank} on {host}: {own.job} {own.index} of {own.tf_config()}", flush=True)
    try:
        report = {"rank": own.rank, "job": own.job, "host": host, "start_s": start_s}
        report["gpus_given"] = given
        report |= work(own, events)
        if offset is not None:
            off = dataclasses.asdict(offset.over(clock.measure(os.environ)))
        report["clock"] = off
    except Exception as error:
        events.add("failed", error=type(error).__name__, message=str(error)[:2000])
        raise
    write_json(rank_files.report_path(folder, own.rank), report)
    events.add("end")
    sys.stdout.flush()
    if len(jobs) > 1:
        # TensorFlow's servers and coordinator have no shutdown; their threads outlive main
        os._exit(0)


def _end_alone(events: EventLog) -> None:
    """End this process, whatever it does: a rank without a launcher would only take cores."""
    events.add("failed", error="LauncherEnded", message="the launcher ended before this rank")
    os._exit(1)


def prepare(
    own: Cluster, axes: Mapping[str, Any], settings: Mapping[str, Any], events: EventLog
) -> tuple[list[str], dict[str, Any]]:
    """Load TensorFlow, take this rank's devices: (their names, the facts for its report)."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    # TensorFlow's half a million objects stay: to search them for garbage takes a quarter of the
    # import, and a second when Python ends
    gc.disable()
    # parameter servers and coordinators compute nothing that a GPU would help with
    gpus = Geometry.of(axes).gpus_per_task if own.job == "worker" else 0
    on_gpus = gpus > 0 and settings["devices"] == "physical"
    if not on_gpus:
        devices.hide_gpus(os.environ)
    import tensorflow as tf

    gc.freeze()
    gc.enable()
    events.add("imported")
    names = devices.configure(gpus, settings["devices"], cpus_per_task(axes, settings))
    return names, {
        "cluster_hash": hashlib.sha256(json.dumps(own.jobs).encode()).hexdigest()[:16],
        "cluster_source": own.source,
        "devices": names,
        "gpus_visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "gpu_names": devices.gpu_names() if on_gpus else [],
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_quota": host_facts.cpu_quota(),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "tensorflow_version": tf.__version__,
    }


def run(
    own: Cluster,
    axes: Mapping[str, Any],
    settings: Mapping[str, Any],
    dataset_file: Path,
    folder: Path,
    events: EventLog,
) -> dict[str, Any]:
    """Do this rank's part and return its report; `folder` is shared by all ranks."""
    names, report = prepare(own, axes, settings, events)
    geometry, spec = Geometry.of(axes), STRATEGIES[axes["strategy"]]
    if spec.coordinated and not own.is_chief:
        if not parameter_server.serve(own, folder, events):
            raise RuntimeError("the coordinator failed")
        return report | {"host_facts": host_facts.describe()}
    devices.set_precision(settings["precision"])
    strategy = spec.build(names, settings)
    replicas = spec.replicas(geometry, settings["parameter_servers"])
    # what TensorFlow has, which need not be what it was told
    worker_devices = devices.of_workers() if spec.coordinated else None
    report["devices"] = names if spec.coordinated else devices.in_use(strategy)
    events.add("rendezvous", replicas=replicas)
    arrays = catalogue.load(
        dataset_file, settings["train_examples_max"], settings["test_examples_max"]
    )
    events.add("data", train_examples=len(arrays.y_train), test_examples=len(arrays.y_test))
    batch, _ = batch_sizes(recipe_of(settings), geometry, replicas)
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

    def report_line(line: str) -> None:
        if chatty:
            print(line, flush=True)

    result = trainer.train(events, report_line)
    compute_steps: list[float] = []
    if result.diverged:
        events.add("evaluated")  # the phase is there, and empty: nothing is left to evaluate
    else:
        report_line(trainer.evaluate(result, events, "evaluated"))
        compute_steps = trainer.compute_steps()
    events.add("probed", steps=len(compute_steps))
    return report | {
        "host_facts": host_facts.describe(),
        "replicas": trainer.replicas if worker_devices is None else len(worker_devices),
        "worker_devices": worker_devices,
        "global_batch_size": trainer.global_batch,
        "per_replica_batch_size": trainer.batch,
        "examples_per_step": trainer.examples_per_step,
        "model_parameters": int(trainer.model.count_params()),
        "data_sha256": arrays.sha256,
        "warnings": user_model.warnings(trainer.model),
        "train_examples": trainer.train_examples,
        "test_examples": trainer.test_examples,
        "examples_trained": result.examples_trained,
        "diverged": result.diverged,
        "epochs": result.epochs,
        "steps": result.steps,
        "compute_steps": compute_steps,
        "test_loss": result.test_loss,
        "test_accuracy": result.test_accuracy,
    }
