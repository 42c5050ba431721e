"""Which points have a benchmark, and what can make an earlier one no longer count."""

from __future__ import annotations

from typing import Any

import pytest
from builders import REGISTRIES, raw_config
from tfscaling.spec import configuration, grid
from tfscaling.spec.manifest import Manifest, PlannedBenchmark
from tfscaling.spec.run_spec import BenchmarkSpec

POINT = {"platform": "laptop", "model": "mnist_cnn", "recipe": "weak", "repeats": 2}
BLOCKS = [
    {**POINT, "nodes": [1, 2]},
    {**POINT, "nodes": 1, "gpus_per_node": 2, "strategy": "mirrored"},
    {**POINT, "nodes": 2, "tasks_per_node": 2, "strategy": "parameter_server"},
]


def planned(*changes: tuple[list[str], Any], enabled: bool = True) -> tuple[PlannedBenchmark, ...]:
    raw = raw_config(
        (("grid",), BLOCKS), (("all_reduce_benchmark",), {"enabled": enabled}), *changes
    )
    config = configuration.validate(raw)
    expanded = grid.expand(config, REGISTRIES)
    return Manifest.of(config, expanded, REGISTRIES.strategies).all_reduce_benchmarks


def spec_of(*changes: tuple[list[str], Any]) -> BenchmarkSpec:
    """Of the point on two nodes."""
    spec = planned(*changes)[1].spec
    assert spec is not None
    return spec


def test_one_for_each_point_that_trains_by_all_reduce() -> None:
    assert [(p.point.strategy, p.point.nodes, p.refusal) for p in planned()] == [
        ("multi_worker_mirrored", 1, "single replica"),
        ("multi_worker_mirrored", 2, None),
        ("mirrored", 1, None),
        ("parameter_server", 2, "no all-reduce"),
    ]
    assert [p.spec is None for p in planned()] == [True, False, False, True]
    assert spec_of().path == (
        "platform=laptop/model=mnist_cnn/strategy=multi_worker_mirrored/recipe=weak/nodes=2/"
        "gpus_per_node=0/tasks_per_node=1"
    )
    assert (spec_of().replicas, spec_of().jobs) == (2, {"worker": 2})


def test_records_of_before_keep_their_parameters_and_hash() -> None:
    assert spec_of().parameters == {
        "precision": "float32",
        "communication": "auto",
        "launcher": "local",
        "devices": "logical",
        "gpu_type": None,
        "instance_type": None,
        "cpus_per_node": 2,
        "setup": [],
        "env": {},
        "sizes_bytes": [4, 64, 1024, 16384, 65536, 262144, 1048576, 4194304, 16777216],
        "repetitions": 20,
        "benchmark_version": 1,
    }
    assert spec_of().parameters_hash == "15e59bc835e06eaa"


def test_none_unless_enabled() -> None:
    assert planned(enabled=False) == ()


@pytest.mark.parametrize(
    ("path", "value", "is_another"),
    [
        (["recipes", "weak", "communication"], "ring", True),
        (["platforms", "laptop", "env"], {"NCCL_DEBUG": "WARN"}, True),
        (["platforms", "laptop", "cpus_per_node"], 3, True),
        (["all_reduce_benchmark"], {"enabled": True, "repetitions": 3}, True),
        (["all_reduce_benchmark"], {"enabled": True, "sizes_bytes": [4, 8]}, True),
        (["recipes", "weak", "learning_rate"], 0.5, False),
        (["recipes", "weak", "epochs"], 5, False),
        (["seed"], 7, False),
        (["platforms", "laptop", "partition"], "other", False),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else None,
)
def test_only_what_can_change_an_all_reduce_makes_it_another(
    path: list[str], value: Any, is_another: bool
) -> None:
    assert (spec_of().parameters_hash != spec_of((path, value)).parameters_hash) == is_another
