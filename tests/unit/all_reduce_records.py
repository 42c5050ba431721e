"""All-reduce benchmarks that were never made: reports of ranks and records of an expected entry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builders import report
from tfscaling.records import benchmark_record
from tfscaling.study.geometry import Geometry
from tfscaling.study.parameters import cpus_per_task

SIZES = (4, 1024, 65536, 1048576, 16777216)
GRADIENT_BYTES = 11_082_536


def rank_report(
    rank: int, replicas: int, all_reduces: Sequence[tuple[int, Sequence[float]]]
) -> dict[str, Any]:
    """(bytes, durations in s) of the gradient, then of each size."""
    kept = ("job", "host", "devices", "cpus", "cluster_hash", "tensorflow_version", "clock")
    usual = {name: value for name, value in report(rank).items() if name in (*kept, "host_facts")}
    rows = [
        {"payload": "sweep" if number else "gradient", "bytes": size, "tensors": 1,
         "all_reduces_per_call": 1, "durations_s": list(durations_s)}
        for number, (size, durations_s) in enumerate(all_reduces)
    ]  # fmt: skip
    return {"rank": rank, **usual, "replicas": replicas, "all_reduces": rows}


def record_of(
    entry: Mapping[str, Any],
    latency_s: float = 1e-3,
    bandwidth_bytes_per_s: float = 5e8,
    scatter: Sequence[float] = (0.9, 1.0, 1.1),
) -> dict[str, Any]:
    """A record whose times follow latency and bandwidth, times a factor for each repetition."""
    axes, settings = entry["axes"], entry["parameters"]
    shape = Geometry.of(axes)
    times = [
        (size, [(latency_s + size / bandwidth_bytes_per_s) * factor for factor in scatter])
        for size in (GRADIENT_BYTES, *SIZES)
    ]
    derived = {
        "tasks": shape.tasks,
        "gpus_per_task": shape.gpus_per_task,
        "cpus_per_task": cpus_per_task(axes, settings),
        "replicas": entry["replicas"],
    }
    reports = [rank_report(rank, entry["replicas"], times) for rank in range(shape.tasks)]
    where = {"launcher_host": "n", "git_commit": None, "slurm_job": None, "slurm_settings": None}
    return benchmark_record.build(
        axes, derived, settings, entry["parameters_hash"], 1, reports, 20.0, where
    )


def write(folder: Path, entry: Mapping[str, Any], **shape: Any) -> Path:
    path = folder / entry["path"] / benchmark_record.RECORD
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record_of(entry, **shape)))
    return path
