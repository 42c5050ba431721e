"""All-reduce benchmarks that were never made: reports of ranks and records of an expected entry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from generator import training_report
from tfscaling.record import benchmark_record, run_record
from tfscaling.record.benchmark_record import BenchmarkEnvironment, BenchmarkRecord
from tfscaling.record.rank_report import AllReduces, BenchmarkReport, Rank, summary
from tfscaling.spec.manifest import PlannedBenchmark
from tfscaling.spec.run_spec import BenchmarkSpec

SIZES = (4, 1024, 65536, 1048576, 16777216)
GRADIENT_BYTES = 11_082_536


def rank_report(
    rank: int, replicas: int, all_reduces: Sequence[tuple[int, Sequence[float]]]
) -> BenchmarkReport:
    """(bytes, durations in s) of the gradient, then of each size."""
    rows = [
        AllReduces(
            payload="sweep" if number else "gradient",
            bytes=size,
            tensors=1,
            all_reduces_per_call=1,
            durations_s=tuple(durations_s),
        )
        for number, (size, durations_s) in enumerate(all_reduces)
    ]
    place = summary(training_report(rank), Rank)
    return BenchmarkReport(
        **msgspec.structs.asdict(place), replicas=replicas, all_reduces=tuple(rows)
    )


def spec_of(planned: PlannedBenchmark) -> BenchmarkSpec:
    """The specification of a planned benchmark that has one."""
    assert planned.spec is not None, planned.refusal
    return planned.spec


def record_of(
    planned: PlannedBenchmark,
    latency_s: float = 1e-3,
    bandwidth_bytes_per_s: float = 5e8,
    scatter: Sequence[float] = (0.9, 1.0, 1.1),
) -> BenchmarkRecord:
    """A record whose times follow latency and bandwidth, times a factor for each repetition."""
    times = [
        (size, [(latency_s + size / bandwidth_bytes_per_s) * factor for factor in scatter])
        for size in (GRADIENT_BYTES, *SIZES)
    ]
    spec = spec_of(planned)
    reports = [rank_report(rank, spec.replicas, times) for rank in range(spec.geometry.tasks)]
    where = BenchmarkEnvironment(
        launcher_host="n", git_commit=None, slurm_job=None, slurm_settings=None
    )
    return benchmark_record.build(spec, 1, reports, 20.0, where)


def write(folder: Path, planned: PlannedBenchmark, **shape: Any) -> Path:
    path = folder / spec_of(planned).path / benchmark_record.RECORD
    path.parent.mkdir(parents=True, exist_ok=True)
    run_record.write_json(path, record_of(planned, **shape))
    return path
