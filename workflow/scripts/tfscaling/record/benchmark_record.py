"""Records of the all-reduce benchmark: their types, built from what the ranks left.

The types are the one source of `workflow/schemas/benchmark_record.schema.yaml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tfscaling.record import checks, run_record
from tfscaling.record.rank_report import (
    Above0,
    AllReduces,
    Amount,
    BenchmarkedRank,
    BenchmarkReport,
    Part,
    Positive,
    Rank,
    TimedPayload,
    summary,
)
from tfscaling.record.run_record import Origin, Place
from tfscaling.spec.run_spec import BenchmarkSpec, Point, Value

SCHEMA_VERSION: Final = 1
RECORD, DURATIONS = "all_reduce.json", "all_reduce.csv"
#: Every rank compares the value of every sum with what it must be, and fails if it differs.
SUMS = "sums"


class SlowestRank(TimedPayload, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The times of one payload."""

    slowest_s: Annotated[tuple[Above0, ...], Meta(min_length=1)]
    """Time of one all-reduce on the slowest rank in each repetition."""


class BenchmarkEnvironment(Origin, frozen=True, kw_only=True):
    """Where the benchmark was made."""

    unchecked: tuple[str, ...] = ()
    """What could not be compared with the request."""


class Passed(Part, frozen=True, kw_only=True):
    """Records are written only for benchmarks that passed every check.

    Every rank compares every sum itself.
    """

    valid: bool
    checks: Annotated[tuple[str, ...], Meta(min_length=1)]


class BenchmarkRecord(Part, frozen=True, kw_only=True):
    """all_reduce.json of one point: how its all-reduces were timed and how long they took."""

    schema_version: Literal[1]
    axes: Point
    derived: Place
    parameters: dict[str, Value]
    """Every parameter of the benchmark (what of recipe and platform can change it, sizes,
    repetitions, benchmark_version)."""
    parameters_hash: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    attempt: Positive
    """Which attempt succeeded; folder attempt=N has its logs."""
    wall_time_s: Amount
    """The launcher's start to all ranks ended and checked."""
    all_reduces: Annotated[tuple[SlowestRank, ...], Meta(min_length=2)]
    """The model's gradient first, then the sizes of the sweep; all_reduce.csv has every rank's
    durations."""
    ranks: Annotated[tuple[Rank, ...], Meta(min_length=1)]
    """What each rank got."""
    environment: BenchmarkEnvironment
    validity: Passed


_DECODER = msgspec.json.Decoder(BenchmarkRecord)


def folder_beside(runs_dir: Path) -> Path:
    """Where the benchmarks lie, given where the runs do."""
    return runs_dir.with_name("all_reduce")


def read(path: Path) -> BenchmarkRecord | None:
    """A record, or None if there is no file. Raises RecordError."""
    return run_record.decoded(path, _DECODER, SCHEMA_VERSION)


def build(
    spec: BenchmarkSpec,
    attempt: int,
    reports: Sequence[BenchmarkReport],
    wall_time_s: float,
    environment: BenchmarkEnvironment,
) -> BenchmarkRecord:
    """The record of a benchmark that passed the checks. Raises RecordError if it is none."""
    record = BenchmarkRecord(
        schema_version=SCHEMA_VERSION,
        axes=spec.point,
        derived=run_record.place_of(spec),
        parameters=spec.parameters,
        parameters_hash=spec.parameters_hash,
        attempt=attempt,
        wall_time_s=wall_time_s,
        all_reduces=slowest([report.all_reduces for report in reports]),
        ranks=tuple(summary(report, BenchmarkedRank) for report in reports),
        environment=environment,
        validity=Passed(valid=True, checks=(*checks.PLACE_CHECKS, SUMS)),
    )
    return run_record.checked(record, RECORD)


def slowest(ranks: Sequence[Sequence[AllReduces]]) -> tuple[SlowestRank, ...]:
    """For each payload the slowest rank's time in each repetition.

    The ranks begin a repetition together, and an all-reduce is over when the last rank has it.
    """
    return tuple(
        SlowestRank(
            **msgspec.structs.asdict(summary(rows[0], TimedPayload)),
            slowest_s=tuple(map(max, zip(*(row.durations_s for row in rows), strict=True))),
        )
        for rows in zip(*ranks, strict=True)
    )


def write_durations(folder: Path, reports: Sequence[BenchmarkReport]) -> None:
    """The time of one all-reduce of every rank in every repetition as CSV."""
    lines = [
        f"{report.rank},{row.payload},{row.bytes},{number},{duration_s:.9f}"
        for report in reports
        for row in report.all_reduces
        for number, duration_s in enumerate(row.durations_s, 1)
    ]
    header = "rank,payload,bytes,repetition,duration_s"
    run_record.write_lines(folder / DURATIONS, [header, *lines])
