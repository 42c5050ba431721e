"""Records of the all-reduce benchmark: built from what the ranks left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfscaling.records import checks, run_record

SCHEMA, SCHEMA_VERSION = "benchmark_record", 1
RECORD, DURATIONS = "all_reduce.json", "all_reduce.csv"
#: Every rank compares the value of every sum with what it must be, and fails if it differs.
SUMS = "sums"


def build(
    axes: Mapping[str, Any],
    derived: Mapping[str, Any],
    parameters: Mapping[str, Any],
    parameters_hash: str,
    attempt: int,
    reports: Sequence[Mapping[str, Any]],
    wall_time_s: float,
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    """The record of a benchmark that passed the checks, validated against its schema."""
    record = {
        "schema_version": SCHEMA_VERSION,
        "axes": dict(axes),
        "derived": dict(derived),
        "parameters": dict(parameters),
        "parameters_hash": parameters_hash,
        "attempt": attempt,
        "wall_time_s": wall_time_s,
        "all_reduces": slowest([report["all_reduces"] for report in reports]),
        "ranks": [{k: v for k, v in report.items() if k != "all_reduces"} for report in reports],
        "environment": dict(environment),
        "validity": {"valid": True, "checks": [*checks.PLACE_CHECKS, SUMS]},
    }
    run_record.check(record, RECORD, SCHEMA)
    return record


def slowest(ranks: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """For each payload the slowest rank's time in each repetition.

    The ranks begin a repetition together, and an all-reduce is over when the last rank has it.
    """
    return [
        {
            **{key: value for key, value in rows[0].items() if key != "durations_s"},
            "slowest_s": [
                max(times) for times in zip(*(row["durations_s"] for row in rows), strict=True)
            ],
        }
        for rows in zip(*ranks, strict=True)
    ]


def write_durations(folder: Path, reports: Sequence[Mapping[str, Any]]) -> None:
    """The time of one all-reduce of every rank in every repetition as CSV."""
    lines = [
        f"{report['rank']},{row['payload']},{row['bytes']},{number},{duration_s:.9f}"
        for report in reports
        for row in report["all_reduces"]
        for number, duration_s in enumerate(row["durations_s"], 1)
    ]
    header = "rank,payload,bytes,repetition,duration_s"
    run_record.write_lines(folder / DURATIONS, [header, *lines])


def read(path: Path) -> dict[str, Any] | None:
    """A record that follows the schema, or None if there is no file. Raises RecordError."""
    record = run_record.read_json(path)
    if record is not None:
        run_record.check(record, path, SCHEMA)
    return record
