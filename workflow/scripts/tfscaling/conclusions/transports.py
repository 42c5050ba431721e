"""All-reduces by size: what each transport takes for it, and how much faster than gRPC it is.

One row per point and payload of the all-reduce benchmarks that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import pandas as pd

from tfscaling.conclusions import communication
from tfscaling.conclusions.evidence import Study
from tfscaling.record.benchmark_record import SlowestRank
from tfscaling.spec.config import MPI_STRATEGY, POINT_AXES
from tfscaling.spec.platforms import GPU, device_kind
from tfscaling.spec.run_spec import BenchmarkSpec
from tfscaling.tables.display import TextTable, cell, of_points, rounded
from tfscaling.tables.estimates import CONFIDENCE, median_interval, ratio_interval
from tfscaling.tables.table_rows import Row, columns_of

GRPC, MPI, NCCL, IN_PROCESS = "gRPC", "MPI", "NCCL", "in process"
COLUMNS = (
    *POINT_AXES,
    *("devices", "transport", "replicas", "payload", "bytes", "repetitions"),
    *("all_reduce_time_s", "all_reduce_time_s_low", "all_reduce_time_s_high"),
    *("speedup_over_grpc", "speedup_over_grpc_low", "speedup_over_grpc_high"),
)
WHOLE = ("replicas", "bytes", "repetitions")
NOTES = (
    "all_reduce_time_s: the slowest rank's time of one all-reduce, of all repetitions the median "
    f"with its {CONFIDENCE:.0%} interval. payload: the model's gradient, with all its tensors, or "
    "one tensor of the sweep of sizes.",
    "speedup_over_grpc: the median time by gRPC over that of this row, with the "
    f"{CONFIDENCE:.0%} interval of the ratio (bootstrap); for the same payload of the same "
    "platform, model and replicas on as many nodes. Each benchmark is a job of its own: if one of "
    "the two had a busier machine or network, the ratio is off by that.",
)


class _Timed(NamedTuple):
    spec: BenchmarkSpec
    transport: str
    payload: SlowestRank

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for those that sum the same over the same replicas."""
        point, payload = self.spec.point, self.payload
        place = (point.platform, point.model, point.nodes, point.gpus_per_node, self.spec.replicas)
        return *place, payload.payload, payload.bytes

    def differences(self, other: _Timed) -> int:
        """In how much else this one's point differs from the other's."""
        own, others = self.spec.point, other.spec.point
        return (own.recipe != others.recipe) + (own.tasks_per_node != others.tasks_per_node)


def transport(spec: BenchmarkSpec) -> str:
    """By what the replicas of a benchmark's point talk."""
    if spec.point.strategy == MPI_STRATEGY:
        return MPI
    if _devices(spec) == GPU and spec.communication != "ring":
        return NCCL
    return GRPC if spec.geometry.tasks > 1 else IN_PROCESS


def _devices(spec: BenchmarkSpec) -> str:
    return device_kind(spec.point.gpus_per_node, spec.measured.devices)


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: points with the same replicas beside each other, size by size."""
    timed: dict[tuple[object, ...], list[_Timed]] = {}
    for planned in study.manifest.all_reduce_benchmarks:
        spec = planned.spec
        record = spec and communication.read(spec, study.benchmarks_dir).record
        if not spec or not record:
            continue
        for payload in record.all_reduces:
            one = _Timed(spec, transport(spec), payload)
            timed.setdefault(one.key, []).append(one)
    rows = [_row(one, same) for same in timed.values() for one in same]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(WHOLE, "Int64"))


def _row(one: _Timed, same: Sequence[_Timed]) -> Row:
    times, payload = one.payload.slowest_s, one.payload
    low, high = median_interval(times) or (None, None)
    row: Row = {
        **columns_of(one.spec.point),
        "devices": _devices(one.spec),
        "transport": one.transport,
        "replicas": one.spec.replicas,
        "payload": payload.payload,
        "bytes": payload.bytes,
        "repetitions": len(times),
        "all_reduce_time_s": median(times),
        "all_reduce_time_s_low": low,
        "all_reduce_time_s_high": high,
    }
    by_grpc = [other for other in same if other.transport == GRPC]
    if one.transport == GRPC or not by_grpc:
        return row
    theirs = min(by_grpc, key=one.differences).payload.slowest_s
    row["speedup_over_grpc"] = median(theirs) / median(times)
    low, high = ratio_interval(theirs, times) or (None, None)
    return row | {"speedup_over_grpc_low": low, "speedup_over_grpc_high": high}


def as_text(table: pd.DataFrame) -> TextTable:
    """`table` for people: seconds and ratios with their intervals."""
    none = "No all-reduce was timed: the page of communication says why."
    return of_points(table, "All-reduce by size", _cells, NOTES, none)


def _cells(row: Row, axes: Sequence[str]) -> dict[str, str]:
    cells = {axis: cell(axis, row) for axis in axes}
    cells |= {name: rounded(row[name], 0) for name in ("replicas", "bytes")}
    cells |= {name: str(row[name]) for name in ("payload", "transport")}
    for name, digits in (("all_reduce_time_s", 6), ("speedup_over_grpc", 2)):
        cells[name] = rounded(row[name], digits, row[f"{name}_low"], row[f"{name}_high"])
    return cells
