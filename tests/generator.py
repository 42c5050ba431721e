"""Run records by the thousand, made up but valid: for tables, plots and the report."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfscaling.records import checks, run_record
from tfscaling.study.geometry import Geometry
from tfscaling.study.parameters import cpus_per_task

Entry = Mapping[str, Any]
#: Seconds of the phases that do not depend on the number of replicas.
_FIXED_S = {
    "launch_time_s": 1.5, "import_time_s": 4.0, "data_time_s": 0.5, "build_time_s": 0.75,
    "first_step_time_s": 2.0, "evaluation_time_s": 0.5, "probe_time_s": 0.25,
    "teardown_time_s": 0.25,
}  # fmt: skip

FACTS = {
    "machine": "12345678-1234-1234-1234-123456789abc", "cpu_model": "A processor",
    "cpu_mhz": 2300.0, "cpus_online": 2, "memory_gb": 7.8, "network_mbit_per_s": {"eth0": 10000.0},
    "gpus": [], "gpu_uuids": [], "gpu_driver": None, "kernel": "6.1", "python": "3.11.7",
    "packages": {"tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6"},
}  # fmt: skip

#: The checksum of the data where no dataset is prepared.
DATA_SHA256 = "d" * 64


def dataset_of(name: str, sha256: str = DATA_SHA256) -> dict[str, Any]:
    """What a record says of its data."""
    return {"name": name, "source": "made up", "sha256": sha256, "train_examples": 384,
            "test_examples": 100}  # fmt: skip


def usual_time_s(entry: Entry) -> float:
    """More replicas compute less each and communicate more: faster at first, then slower."""
    replicas = entry["replicas"]
    return 400.0 / replicas + 6.0 * (replicas - 1) ** 0.5 + 10.0


def write_records(
    expected: Mapping[str, Any],
    runs_dir: Path,
    time_s: Callable[[Entry], float] = usual_time_s,
    noise: float = 0.02,
) -> None:
    """Write a record for every expected run; times scatter by `noise`, a fraction.

    The runs are of the data that is prepared beside them, if there is any.
    """
    for number, entry in enumerate(expected["runs"]):
        dice = random.Random(number)
        folder = runs_dir / entry["path"]
        folder.mkdir(parents=True, exist_ok=True)
        name = entry["parameters"]["dataset"]
        prepared = runs_dir.with_name("datasets") / f"{name}.json"
        sha256 = json.loads(prepared.read_text())["sha256"] if prepared.exists() else DATA_SHA256
        data = dataset_of(name, sha256)
        record = record_of(entry, time_s(entry) * dice.gauss(1.0, noise), dice, data)
        (folder / run_record.RECORD).write_text(json.dumps(record))


def record_of(
    entry: Entry, execution_time_s: float, dice: random.Random, data: Mapping[str, Any]
) -> dict[str, Any]:
    """A record of `entry` with this time; loss and accuracy follow the global batch."""
    axes, parameters = entry["axes"], entry["parameters"]
    shape, batch = Geometry.of(axes), entry["global_batch_size"]
    phases = {**_FIXED_S, "rendezvous_time_s": 0.25 * shape.tasks}
    outside = ("launch_time_s", "evaluation_time_s", "probe_time_s", "teardown_time_s")
    rest = sum(value for name, value in phases.items() if name not in outside)
    epochs = [
        _epoch(number, batch * 8 / number, execution_time_s / parameters["epochs"], dice)
        for number in range(1, parameters["epochs"] + 1)
    ]
    return run_record.build(
        axes,
        {
            "tasks": shape.tasks,
            "gpus_per_task": shape.gpus_per_task,
            "cpus_per_task": cpus_per_task(axes, parameters),
            **{key: entry[key] for key in
               ("replicas", "per_replica_batch_size", "global_batch_size")},
        },
        parameters,
        entry["parameters_hash"],
        1,
        [_report(rank, entry, epochs) for rank in range(shape.tasks)],
        {
            **phases,
            "queue_time_s": dice.uniform(1, 60),
            "boot_time_s": 0.0,
            "train_time_s": max(1.0, execution_time_s - rest),
            "execution_time_s": execution_time_s,
        },
        {
            "launcher_host": "node0", "git_commit": "0" * 40, "started": "2026-01-01T00:00:00Z",
            "slurm_job": {"id": "1"}, "slurm_settings": None,
            "dataset": data, "unchecked": [],
        },
        list(checks.CHECKS),
    )  # fmt: skip


def _epoch(number: int, batch: float, duration_s: float, dice: random.Random) -> dict[str, Any]:
    error = min(0.9, 0.0006 * (batch / 64) ** 0.9 * 3 * dice.gauss(1.0, 0.1))
    return {
        "epoch": number, "loss": 3.3 * error, "accuracy": 1 - error, "duration_s": duration_s,
        "test_loss": 6.6 * error, "test_accuracy": max(0.0, 0.99 - error),
        "evaluation_time_s": _FIXED_S["evaluation_time_s"],
    }  # fmt: skip


def _report(rank: int, entry: Entry, epochs: list[dict[str, Any]]) -> dict[str, Any]:
    # no machine is shared: all runs start at the same time
    facts = {**FACTS, "machine": f"{entry['parameters_hash']}-{rank}"}
    return {
        "rank": rank, "job": "worker", "host": f"node{rank}", "devices": ["CPU:0"], "cpus": 2,
        "cluster_hash": "0123456789abcdef", "tensorflow_version": "2.21.0", "epochs": epochs,
        "clock": {"offset_s": 0.001 * rank, "uncertainty_s": 0.0005}, "host_facts": facts,
        "compute_steps": [0.8 * epochs[-1]["duration_s"] / 20] * 3,
        "examples_per_step": entry["global_batch_size"],
        "examples_trained": (entry["parameters"]["train_examples_max"] or 60_000) * len(epochs),
        "steps": [(epoch["epoch"], 0, 20, epoch["duration_s"]) for epoch in epochs],
        "test_loss": 2 * epochs[-1]["loss"],
        "test_accuracy": epochs[-1]["accuracy"] - 0.01,
    }  # fmt: skip
