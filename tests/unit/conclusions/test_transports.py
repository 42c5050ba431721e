"""All-reduces by size: every transport of the same replicas, and its ratio to gRPC."""

from __future__ import annotations

from pathlib import Path

import all_reduce_records
import pandas as pd
import pytest
from builders import manifest_of, raw_config
from tfscaling.conclusions import transports
from tfscaling.conclusions.evidence import Study
from tfscaling.spec import configuration
from tfscaling.spec.manifest import Manifest
from tfscaling.tables import display

STRATEGIES = ["multi_worker_mirrored", "mpi_all_reduce"]
SCATTER = [0.9, 0.95, 1.0, 1.0, 1.05, 1.1]
POINT = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak"}


@pytest.fixture(scope="module")
def planned() -> Manifest:
    blocks = [{**POINT, "nodes": [1, 2, 3], "strategy": STRATEGIES}]
    raw = raw_config((("grid",), blocks), (("all_reduce_benchmark",), {"enabled": True}))
    return manifest_of(configuration.validate(raw))


def table(planned: Manifest, folder: Path) -> pd.DataFrame:
    nothing = pd.DataFrame()
    return transports.table(Study(nothing, nothing, planned, benchmarks_dir=folder))


def timed(planned: Manifest, folder: Path) -> pd.DataFrame:
    """Both on 2 nodes, MPI with a fourth of the latency and five times the bandwidth; 3: MPI."""
    for each in planned.all_reduce_benchmarks:
        is_mpi = each.point.strategy == "mpi_all_reduce"
        latency_s, bandwidth = (0.25e-3, 2.5e9) if is_mpi else (1e-3, 5e8)
        if each.spec and (each.point.nodes == 2 or is_mpi):
            all_reduce_records.write(
                folder,
                each,
                latency_s=latency_s,
                bandwidth_bytes_per_s=bandwidth,
                scatter=SCATTER if each.point.nodes == 2 else [1.0],
            )
    return table(planned, folder)


def test_every_size_has_each_transport_and_its_ratio(planned: Manifest, tmp_path: Path) -> None:
    made = timed(planned, tmp_path)
    two = made[made["nodes"] == 2]
    sizes = [all_reduce_records.GRADIENT_BYTES, *all_reduce_records.SIZES]
    assert two["bytes"].tolist() == [size for size in sizes for _ in STRATEGIES]
    assert two["transport"].tolist() == ["gRPC", "MPI"] * len(sizes)
    assert two["payload"].tolist()[:3] == ["gradient", "gradient", "sweep"]
    assert two["speedup_over_grpc"].isna().tolist() == [True, False] * len(sizes)
    by_mpi = two[two["transport"] == "MPI"].set_index("bytes")
    assert by_mpi.loc[4, "speedup_over_grpc"] == pytest.approx(4.0, rel=1e-3)
    largest = by_mpi.loc[16777216]
    assert largest["all_reduce_time_s"] == pytest.approx(0.25e-3 + 16777216 / 2.5e9)
    assert largest["all_reduce_time_s_low"] == pytest.approx(0.9 * largest["all_reduce_time_s"])
    low, high = largest["speedup_over_grpc_low"], largest["speedup_over_grpc_high"]
    assert 4.0 < low < largest["speedup_over_grpc"] < high < 6.0


def test_without_gRPC_or_with_few_repetitions_there_is_no_ratio(
    planned: Manifest, tmp_path: Path
) -> None:
    made = timed(planned, tmp_path)
    three = made[made["nodes"] == 3]
    assert set(three["transport"]) == {"MPI"}
    assert three["speedup_over_grpc"].isna().all() and three["all_reduce_time_s_low"].isna().all()
    shown = transports.as_text(made).cells
    row = shown[(shown["bytes"] == "4") & (shown["transport"] == "MPI")]
    assert row["all_reduce_time_s"].tolist() == ["0.000250 (0.000225–0.000275)", "0.000250"]
    assert row["speedup_over_grpc"].tolist()[1] == "–"


@pytest.mark.parametrize(
    ("strategy", "gpus", "devices", "communication", "expected"),
    [
        ("multi_worker_mirrored", 0, "physical", "auto", "gRPC"),
        ("multi_worker_mirrored", 2, "physical", "auto", "NCCL"),
        ("multi_worker_mirrored", 2, "physical", "ring", "gRPC"),
        ("multi_worker_mirrored", 2, "logical", "auto", "gRPC"),
        ("mirrored", 2, "logical", "auto", "in process"),
        ("mpi_all_reduce", 1, "physical", "auto", "MPI"),
    ],
)
def test_the_transport_is_that_of_strategy_and_devices(
    strategy: str, gpus: int, devices: str, communication: str, expected: str
) -> None:
    nodes = 1 if strategy == "mirrored" else 2
    block = {**POINT, "nodes": nodes, "gpus_per_node": gpus, "strategy": strategy}
    raw = raw_config(
        (("grid",), [block]),
        (("all_reduce_benchmark",), {"enabled": True}),
        (("platforms", "cluster", "devices"), devices),
        (("platforms", "cluster", "gpus_per_node_max"), 2),
        (("recipes", "weak", "communication"), communication),
    )
    (planned,) = manifest_of(configuration.validate(raw)).all_reduce_benchmarks
    assert transports.transport(all_reduce_records.spec_of(planned)) == expected


def test_without_benchmarks_there_is_a_word_and_no_row(planned: Manifest, tmp_path: Path) -> None:
    made = table(planned, tmp_path)
    assert made.empty and tuple(made) == transports.COLUMNS
    assert "No all-reduce was timed" in display.markdown(transports.as_text(made))
