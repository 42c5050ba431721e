"""All-reduces by size: the time by each transport, and how much faster than gRPC it is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import pandas as pd

from tfscaling.conclusions import communication, shown
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.shown import with_spread
from tfscaling.spec.config import MPI_STRATEGY, POINT_AXES
from tfscaling.spec.platforms import GPU, device_kind
from tfscaling.spec.run_spec import BenchmarkSpec
from tfscaling.tables.display import TextTable, rounded
from tfscaling.tables.estimates import median_interval, ratio_interval
from tfscaling.tables.table_rows import Row, columns_of

GRPC, MPI, NCCL, IN_PROCESS = "gRPC", "MPI", "NCCL", "in process"
COLUMNS = (
    *POINT_AXES,
    *("devices", "transport", "replicas", "payload", "bytes", "repetitions"),
    *("all_reduce_time_s", "all_reduce_time_s_low", "all_reduce_time_s_high"),
    *("speedup_over_grpc", "speedup_over_grpc_low", "speedup_over_grpc_high"),
)


class _Timed(NamedTuple):
    """An all-reduce of a benchmark: the slowest rank's seconds of each repetition."""

    spec: BenchmarkSpec
    transport: str
    payload: str
    bytes: int
    times_s: Sequence[float]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for all-reduces of the same payload over the same replicas."""
        point = self.spec.point
        place = (point.platform, point.model, point.nodes, point.gpus_per_node, self.spec.replicas)
        return *place, self.payload, self.bytes

    def differences(self, other: _Timed) -> int:
        """How many other axes of the points differ."""
        own, others = self.spec.point, other.spec.point
        return (own.recipe != others.recipe) + (own.tasks_per_node != others.tasks_per_node)


def transport(spec: BenchmarkSpec) -> str:
    """How the replicas of a benchmark's point communicate."""
    if spec.point.strategy == MPI_STRATEGY:
        return MPI
    if _devices(spec) == GPU and spec.communication != "ring":
        return NCCL
    return GRPC if spec.geometry.tasks > 1 else IN_PROCESS


def _devices(spec: BenchmarkSpec) -> str:
    return device_kind(spec.point.gpus_per_node, spec.measured.devices)


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: a row per point and payload of the all-reduce benchmarks that count.

    Points with the same replicas are next to each other, size by size.
    """
    timed: dict[tuple[object, ...], list[_Timed]] = {}
    for spec in (each.spec for each in study.manifest.all_reduce_benchmarks if each.spec):
        record = communication.read(spec, study.benchmarks_dir).record
        for each in record.all_reduces if record else ():
            one = _Timed(spec, transport(spec), each.payload, each.bytes, each.slowest_s)
            timed.setdefault(one.key, []).append(one)
    rows = [_row(one, alike) for alike in timed.values() for one in alike]
    whole = dict.fromkeys(("replicas", "bytes", "repetitions"), "Int64")
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(whole)


def _row(one: _Timed, alike: Sequence[_Timed]) -> Row:
    low, high = median_interval(one.times_s) or (None, None)
    row: Row = {
        **columns_of(one.spec.point),
        **{"devices": _devices(one.spec), "transport": one.transport},
        **{"replicas": one.spec.replicas, "payload": one.payload, "bytes": one.bytes},
        **{"repetitions": len(one.times_s), "all_reduce_time_s": median(one.times_s)},
        **{"all_reduce_time_s_low": low, "all_reduce_time_s_high": high},
    }
    by_grpc = [other for other in alike if other.transport == GRPC]
    if one.transport == GRPC or not by_grpc:
        return row
    theirs = min(by_grpc, key=one.differences).times_s
    row["speedup_over_grpc"] = median(theirs) / median(one.times_s)
    low, high = ratio_interval(theirs, one.times_s) or (None, None)
    return row | {"speedup_over_grpc_low": low, "speedup_over_grpc_high": high}


def as_text(table: pd.DataFrame) -> TextTable:
    """`table` for people: seconds and ratios with their intervals."""
    none = "No all-reduce was timed: the page of communication says why."
    return shown.text_table("All-reduce by size", table, _cells, shown.notes("all_reduce"), none)


def _cells(row: Row) -> dict[str, str]:
    return {
        **{name: rounded(row[name], 0) for name in ("replicas", "bytes")},
        **{name: str(row[name]) for name in ("payload", "transport")},
        "all_reduce_time_s": with_spread(row, "all_reduce_time_s", 6),
        "speedup_over_grpc": with_spread(row, "speedup_over_grpc", 2),
    }
