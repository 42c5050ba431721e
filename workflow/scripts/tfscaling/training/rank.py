"""One rank from its cluster to its report: devices, data, training."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import asdict as fields_of

from tfscaling.cluster import resolver
from tfscaling.cluster.gpu_allocation import GpuRequest
from tfscaling.cluster.resolver import Cluster
from tfscaling.cluster.slurm_environment import gpus_given
from tfscaling.datasets import catalogue
from tfscaling.jobs import heartbeat, host_facts, rank_files
from tfscaling.records import clock
from tfscaling.records.events import EventLog
from tfscaling.records.rank_report import Rank, RankReport, ServerReport, TrainingReport
from tfscaling.records.run_record import write_json
from tfscaling.study import run_spec
from tfscaling.study.run_spec import JobSpec, RunSpec
from tfscaling.training import devices, models, parameter_server, user_model
from tfscaling.training.all_reduce import Trainer
from tfscaling.training.parameter_server import ParameterServerTrainer
from tfscaling.training.strategies import STRATEGIES


@dataclass(frozen=True)
class RankContext:
    """This process among the ranks; `folder` is shared by all of them.

    `start_s` is when the process began, in seconds since the epoch; `gpus_given` is how many GPUs
    Slurm lets the task see.
    """

    cluster: Cluster
    folder: Path
    events: EventLog
    start_s: float
    gpus_given: int | None

    @property
    def host(self) -> str:
        return socket.gethostname()


def parser(description: str, kind: type[JobSpec]) -> argparse.ArgumentParser:
    """The flags that programs of ranks have, as `Attempt.run_ranks` gives them.

    `description` is the program's docstring, of which the first line is shown.
    """
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    run_spec.add_argument(made, kind)
    made.add_argument("--folder", type=Path, required=True, help="where to leave the report")
    return made


def process(
    spec: JobSpec,
    folder: Path,
    started_s: float,
    work: Callable[[RankContext], Rank],
) -> None:
    """Run `work` as one rank: resolve the cluster, log events, write the report.

    `started_s` is when the process began, by `time.monotonic()`; `folder` is shared by all ranks.
    """
    gpus = GpuRequest() if on_gpus(spec) else GpuRequest(gpus_per_node=0)
    cluster = resolver.resolve(os.environ, jobs=spec.jobs, gpus=gpus)
    given = gpus_given(os.environ)
    os.environ.update(cluster.environment())
    events = EventLog(rank_files.events_path(folder, cluster.rank), cluster.rank)
    context = RankContext(cluster, folder, events, clock.at(started_s), given)
    offset = clock.measure(os.environ)
    off = {} if offset is None else dataclasses.asdict(offset)
    details = {"host": context.host, "pid": os.getpid(), "job": cluster.job}
    events.add("start", context.start_s, **details, source=cluster.source, **off)
    heartbeat.Heart(folder, cluster.rank, lambda: _end_alone(events)).start()
    place = f"{cluster.job} {cluster.index} of {cluster.tf_config()}"
    print(f"rank {cluster.rank} on {context.host}: {place}", flush=True)
    try:
        report = work(context)
        if offset is not None:
            off = dataclasses.asdict(offset.over(clock.measure(os.environ)))
        report = msgspec.structs.replace(report, clock=off)
    except Exception as error:
        events.add("failed", error=type(error).__name__, message=str(error)[:2000])
        raise
    write_json(rank_files.report_path(folder, cluster.rank), report)
    events.add("end")
    sys.stdout.flush()
    if len(spec.jobs) > 1:
        # TensorFlow's servers and coordinator have no shutdown; their threads outlive main
        os._exit(0)


def _end_alone(events: EventLog) -> None:
    """End this process, whatever it does: a rank without a launcher would only take cores."""
    events.add("failed", error="LauncherEnded", message="the launcher ended before this rank")
    os._exit(1)


def prepare(context: RankContext, spec: JobSpec) -> list[str]:
    """Load TensorFlow and take this rank's devices; returns their names."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    # parameter servers and coordinators compute nothing that a GPU would help with
    gpus = spec.geometry.gpus_per_task if context.cluster.job == "worker" else 0
    if gpus == 0 or not on_gpus(spec):
        devices.hide_gpus(os.environ)
    load_tensorflow()
    context.events.add("imported")
    return devices.configure(gpus, spec.measured.devices, spec.cpus_per_task)


def load_tensorflow() -> None:
    """Import TensorFlow in half of the time that `import tensorflow` takes.

    Without what no rank needs: a search for garbage among its half a million objects, which is a
    quarter of the import and a second when Python ends; matplotlib, which Keras has for its plots;
    pandas, which Keras has for data frames given to `fit`. Code that is loaded later may import
    both. What is loaded already stays.
    """
    gc.disable()
    with _hidden("matplotlib", "pandas"):
        import tensorflow  # noqa: F401

    gc.freeze()
    gc.enable()


@contextlib.contextmanager
def _hidden(*names: str) -> Iterator[None]:
    """Modules that are not loaded are as if they were not installed."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def place_of(context: RankContext, spec: JobSpec, used: Sequence[str]) -> Rank:
    """What the rank got, its clock aside; `used` are the devices of its replicas.

    To be called after the work: to ask the driver takes time that is no phase of a training.
    """
    import tensorflow as tf

    cluster = context.cluster
    takes_gpus = cluster.job == "worker" and on_gpus(spec)
    return Rank(
        rank=cluster.rank,
        job=cluster.job,
        host=context.host,
        start_s=context.start_s,
        clock={},
        cluster_hash=hashlib.sha256(json.dumps(cluster.jobs).encode()).hexdigest()[:16],
        cluster_source=cluster.source,
        devices=tuple(used),
        gpus_given=context.gpus_given,
        gpus_visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        gpu_names=tuple(devices.gpu_names()) if takes_gpus else (),
        cpus=len(os.sched_getaffinity(0)),
        cpu_quota=host_facts.cpu_quota(),
        intra_op_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        tensorflow_version=tf.__version__,
        host_facts=host_facts.describe(),
    )


def on_gpus(spec: JobSpec) -> bool:
    """Whether ranks compute on GPUs, and not on parts of the CPU."""
    return spec.point.gpus_per_node > 0 and spec.measured.devices == "physical"


def run(context: RankContext, spec: RunSpec, dataset_file: Path) -> RankReport:
    """Do this rank's part of a training run and return its report."""
    names, kind = prepare(context, spec), STRATEGIES[spec.point.strategy]
    cluster, events = context.cluster, context.events
    if kind.coordinated and not cluster.is_chief:
        if not parameter_server.serve(cluster, context.folder, events):
            raise RuntimeError("the coordinator failed")
        return ServerReport(**fields_of(place_of(context, spec, names)))
    devices.set_precision(spec.recipe.precision)
    strategy = kind.build(names, spec.recipe.communication)
    # what TensorFlow has, which need not be what it was told
    worker_devices = devices.of_workers() if kind.coordinated else None
    used = names if kind.coordinated else devices.in_use(strategy)
    events.add("rendezvous", replicas=spec.replicas)
    arrays = catalogue.load(
        dataset_file, spec.recipe.train_examples_max, spec.recipe.test_examples_max
    )
    events.add("data", train_examples=arrays.train_examples, test_examples=arrays.test_examples)
    build = models.get(spec.point.model).build
    trainer: Trainer | ParameterServerTrainer
    if kind.coordinated:
        trainer = ParameterServerTrainer(strategy, build, arrays, spec, kind.synchronous)
    else:
        trainer = Trainer(strategy, build, arrays, spec)
    parameters = int(trainer.model.count_params())
    events.add("built", model_parameters=parameters)
    chatty = cluster.rank == 0  # the chief's log has the progress

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
    return TrainingReport(
        **fields_of(place_of(context, spec, used)),
        replicas=trainer.replicas if worker_devices is None else len(worker_devices),
        worker_devices=worker_devices,
        global_batch_size=trainer.global_batch,
        per_replica_batch_size=trainer.batch,
        examples_per_step=trainer.examples_per_step,
        model_parameters=parameters,
        data_sha256=arrays.sha256,
        warnings=tuple(user_model.warnings(trainer.model, spec.recipe)),
        train_examples=trainer.train_examples,
        test_examples=trainer.test_examples,
        examples_trained=result.examples_trained,
        diverged=result.diverged,
        epochs=tuple(result.epochs),
        steps=tuple(result.steps),
        compute_steps=tuple(compute_steps),
        test_loss=result.test_loss,
        test_accuracy=result.test_accuracy,
    )
