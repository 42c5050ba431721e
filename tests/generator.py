"""Reports of ranks and run records, made up but valid: for tests, and by the thousand.

The one place where tests and benchmarks make records: what a rank reports (`training_report`), what
a run measured (`phases`), its record (`record`), and the files of whole sweeps (`write_records`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tfscaling.record import checks, run_record, run_results
from tfscaling.record.phases import Phases
from tfscaling.record.prepared_data import DatasetFacts, Examples
from tfscaling.record.rank_report import (
    Epoch,
    Execution,
    HostFacts,
    RankClock,
    RankReport,
    TrainingReport,
)
from tfscaling.record.run_record import (
    Environment,
    PreparedData,
    RunRecord,
    ShortRun,
    SlurmJob,
    StepBlock,
)
from tfscaling.study.manifest import PlannedRun
from tfscaling.study.run_spec import RunSpec

FACTS = HostFacts(
    machine="12345678-1234-1234-1234-123456789abc",
    cpu_model="A processor",
    cpu_mhz=2300.0,
    cpus_online=2,
    memory_gb=7.8,
    network_mbit_per_s={"eth0": 10000.0},
    kernel="6.1",
    python="3.11.7",
    packages={"tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6"},
)

#: The checksum of the data where no dataset is prepared.
DATA_SHA256 = "d" * 64


def prepared(name: str, sha256: str = DATA_SHA256) -> PreparedData:
    """What a record says of its data."""
    return PreparedData(
        name=name, source="made up", sha256=sha256, train_examples=384, test_examples=100
    )


def write_dataset_facts(folder: Path, name: str, examples: int, sha256: str = DATA_SHA256) -> None:
    """Write what stands beside a prepared file with so many training examples."""
    counts = Examples(x_train=examples, y_train=examples, x_test=1, y_test=1)
    facts = DatasetFacts(dataset=name, source="made up", sha256=sha256, examples=counts)
    folder.mkdir(parents=True, exist_ok=True)
    run_record.write_json(folder / f"{name}.json", facts)


def training_report(rank: int = 0, **changes: Any) -> TrainingReport:
    """What a rank reports after two epochs of three steps; node<n> is the host of rank n."""
    usual: dict[str, Any] = {
        "rank": rank,
        "job": "worker",
        "host": f"node{rank}",
        "start_s": 1000.0 + rank,
        "cluster_hash": "0123456789abcdef",
        "cluster_source": "slurm",
        "devices": ("CPU:0",),
        "cpus": 8,
        "intra_op_threads": 8,
        "replicas": 2,
        "worker_devices": None,
        "per_replica_batch_size": 64,
        "global_batch_size": 128,
        "examples_per_step": 128,
        "data_sha256": DATA_SHA256,
        "examples_trained": 768,
        "model_parameters": 2770634,
        "flops_per_example": 2e7,
        "train_examples": 384,
        "test_examples": 100,
        "tensorflow_version": "2.21.0",
        "clock": {"offset_s": 0.0, "uncertainty_s": 0.001},
        "host_facts": FACTS,
        "epochs": (
            Epoch(epoch=1, loss=0.5, accuracy=0.8, duration_s=2.3),
            Epoch(epoch=2, loss=0.25, accuracy=0.9, duration_s=0.3),
        ),
        "steps": executions(
            (1, 0, 1, 2.0),
            (1, 1, 1, 0.1),
            (1, 2, 1, 0.2),
            *((2, step, 1, 0.1) for step in range(3)),
        ),
        "compute_steps": (0.08, 0.06, 0.07),
        "diverged": "",
        "test_loss": 0.3,
        "test_accuracy": 0.88,
        "use": {
            "duration_s": 20.0,
            "gpus": [{"uuid": "GPU-0", "energy_j": 6e3, "busy_share": 0.9, "memory_gb": 12.0}],
            "processors_energy_j": 3e3,
            "cpu_s": 30.0,
            "memory_gb": 1.5,
        },
    }
    return msgspec.convert({**usual, **changes}, TrainingReport)


def executions(*rows: tuple[int, int, int, float]) -> tuple[Execution, ...]:
    """Rows of epoch, first step, number of steps and seconds."""
    return tuple(Execution(*row) for row in rows)


def phases(execution_time_s: float = 17.75, **changes: float | None) -> Phases:
    """Durations of a run."""
    usual = {
        "queue_time_s": None,
        "boot_time_s": None,
        "launch_time_s": 1.0,
        "import_time_s": 4.0,
        "rendezvous_time_s": 0.5,
        "data_time_s": 0.25,
        "build_time_s": 1.0,
        "first_step_time_s": 2.0,
        "train_time_s": 10.0,
        "evaluation_time_s": 0.5,
        "probe_time_s": 0.25,
        "teardown_time_s": 0.25,
        "execution_time_s": execution_time_s,
    }
    durations: dict[str, Any] = {**usual, **changes}
    return Phases(**durations)


def record(
    spec: RunSpec,
    reports: Sequence[RankReport],
    durations: Phases,
    data: PreparedData | None = None,
    divergence: str = "",
    **environment: Any,
) -> RunRecord:
    """The record of a run that passed all checks, or diverged; made by nobody in particular."""
    usual = {"launcher_host": "login", "git_commit": None, "slurm_job": None}
    where = {**usual, "slurm_settings": None, "unchecked": (), **environment}
    passed = [name for name in checks.CHECKS if not divergence or name != checks.FINITE]
    return run_results.build_record(
        spec,
        1,
        reports,
        durations,
        Environment(dataset=data or (spec.dataset and prepared(spec.dataset)) or None, **where),
        passed,
        divergence,
    )


def content(record: msgspec.Struct) -> dict[str, Any]:
    """What the file of a record holds."""
    read: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(record)))
    return read


def usual_time_s(spec: RunSpec) -> float:
    """More replicas compute less each and communicate more: faster at first, then slower."""
    return 400.0 / spec.replicas + 6.0 * (spec.replicas - 1) ** 0.5 + 10.0


def write_records(
    planned: Iterable[PlannedRun],
    runs_dir: Path,
    time_s: Callable[[RunSpec], float] = usual_time_s,
    noise: float = 0.02,
) -> None:
    """Write a record for every planned run; times scatter by `noise`, a fraction.

    The runs are of the data that is prepared next to `runs_dir`, if there is any.
    """
    for number, run in enumerate(planned):
        spec = run.spec
        random_numbers = random.Random(number)
        folder = runs_dir / spec.path
        folder.mkdir(parents=True, exist_ok=True)
        facts = runs_dir.with_name("datasets") / f"{spec.dataset}.json"
        sha256 = json.loads(facts.read_text())["sha256"] if facts.exists() else DATA_SHA256
        execution_time_s = time_s(spec) * random_numbers.gauss(1.0, noise)
        data = prepared(spec.dataset, sha256)
        made = scattered(spec, execution_time_s, random_numbers, data)
        if (steps := spec.recipe.stop_after_steps) is not None:
            assert steps != "auto"
            made = shortened(made, steps)
        run_record.write_record(folder / run_record.RECORD, made)


def shortened(made: RunRecord, steps: int) -> RunRecord:
    """The record of a short run with a tenth of the steps, from which the time is projected."""
    assert made.phases.train_time_s is not None
    saved_s = 0.9 * made.phases.train_time_s
    block = StepBlock(steps=steps // 2, duration_s=saved_s / 9 / 2)
    short = ShortRun(
        steps=steps,
        steps_of_whole=10 * steps,
        epochs=1,
        epochs_of_whole=1,
        examples_of_whole=made.metrics.examples_trained or 0,
        evaluations=1,
        evaluations_of_whole=1,
        evaluation_time_s=0.5,
        epoch_turn_s=0.0,
        steady=(block, block),
    )
    durations = msgspec.structs.replace(
        made.phases,
        execution_time_s=made.phases.execution_time_s - saved_s,
        train_time_s=saved_s / 9,
    )
    return msgspec.structs.replace(made, phases=durations, short_run=short)


def scattered(
    spec: RunSpec, execution_time_s: float, random_numbers: random.Random, data: PreparedData
) -> RunRecord:
    """A record with this time; loss and accuracy follow the global batch."""
    epochs = [
        _epoch(
            number,
            spec.global_batch_size * 8 / number,
            execution_time_s / spec.recipe.epochs,
            random_numbers,
        )
        for number in range(1, spec.recipe.epochs + 1)
    ]
    fixed = {
        "launch_time_s": 1.5, "import_time_s": 4.0, "data_time_s": 0.5, "build_time_s": 0.75,
        "first_step_time_s": 2.0, "rendezvous_time_s": 0.25 * spec.geometry.tasks,
    }  # fmt: skip
    before_training_s = sum(fixed.values()) - fixed["launch_time_s"]
    durations = phases(
        execution_time_s,
        **fixed,
        queue_time_s=random_numbers.uniform(1, 60),
        boot_time_s=0.0,
        train_time_s=max(1.0, execution_time_s - before_training_s),
    )
    examples = (spec.recipe.train_examples_max or 60_000) * len(epochs)
    reports = [
        training_report(
            rank,
            cpus=2,
            clock=RankClock(0.001 * rank, 0.0005),
            # no machine is shared: all runs start at the same time
            host_facts=msgspec.structs.replace(FACTS, machine=f"{spec.parameters_hash}-{rank}"),
            epochs=tuple(epochs),
            steps=executions(*((e.epoch, 0, 20, e.duration_s) for e in epochs)),
            compute_steps=(0.8 * epochs[-1].duration_s / 20,) * 3,
            examples_per_step=spec.global_batch_size,
            examples_trained=examples,
            test_loss=2 * (epochs[-1].loss or 0.0),
            test_accuracy=epochs[-1].accuracy - 0.01,
        )
        for rank in range(spec.geometry.tasks)
    ]
    return record(
        spec,
        reports,
        durations,
        data,
        launcher_host="node0",
        git_commit="0" * 40,
        started="2026-01-01T00:00:00Z",
        slurm_job=SlurmJob(id="1", consumed_energy_j=10e3),
    )


def _epoch(number: int, batch: float, duration_s: float, random_numbers: random.Random) -> Epoch:
    error = min(0.9, 0.0006 * (batch / 64) ** 0.9 * 3 * random_numbers.gauss(1.0, 0.1))
    return Epoch(
        epoch=number,
        loss=3.3 * error,
        accuracy=1 - error,
        duration_s=duration_s,
        test_loss=6.6 * error,
        test_accuracy=max(0.0, 0.99 - error),
        evaluation_time_s=0.5,
    )
