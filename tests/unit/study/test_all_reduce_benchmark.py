"""Which points have a benchmark, and what can make an earlier one no longer count."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from builders import raw_config
from tfscaling.study import all_reduce_benchmark, configuration, grid, parameters
from tfscaling.study.grid import POINT_AXES
from tfscaling.training.models import MODELS
from tfscaling.training.strategies import STRATEGIES

POINT = {"platform": "laptop", "model": "mnist_cnn", "recipe": "weak", "repeats": 2}
BLOCKS = [
    {**POINT, "nodes": [1, 2]},
    {**POINT, "nodes": 1, "gpus_per_node": 2, "strategy": "mirrored"},
    {**POINT, "nodes": 2, "tasks_per_node": 2, "strategy": "parameter_server"},
]


def entries(*changes: tuple[list[str], Any], enabled: bool = True) -> list[dict[str, Any]]:
    raw = raw_config(
        (("grid",), BLOCKS), (("all_reduce_benchmark",), {"enabled": enabled}), *changes
    )
    config = configuration.validate(raw)
    runs = grid.expand(config, MODELS, STRATEGIES).runs
    return all_reduce_benchmark.entries(config, runs, STRATEGIES)


def test_one_for_each_point_that_trains_by_all_reduce() -> None:
    found = [(e["axes"]["strategy"], e["axes"]["nodes"], e["refusal"]) for e in entries()]
    assert found == [
        ("multi_worker_mirrored", 1, "single replica"),
        ("multi_worker_mirrored", 2, None),
        ("mirrored", 1, None),
        ("parameter_server", 2, "no all-reduce"),
    ]
    single, double = entries()[:2]
    assert (single["parameters"], single["parameters_hash"]) == (None, None)
    assert double["path"] == (
        "platform=laptop/model=mnist_cnn/strategy=multi_worker_mirrored/recipe=weak/nodes=2/"
        "gpus_per_node=0/tasks_per_node=1"
    )
    assert len(double["parameters_hash"]) == 16 and double["replicas"] == 2


def test_none_unless_enabled() -> None:
    assert entries(enabled=False) == []


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
    before, after = entries()[1], entries((path, value))[1]
    assert (before["parameters_hash"] != after["parameters_hash"]) == is_another


def test_parameters_survive_the_command_line() -> None:
    entry = entries((["platforms", "laptop", "env"], {"A": "1"}))[1]
    parser = argparse.ArgumentParser()
    parameters.add_arguments(parser, POINT_AXES, all_reduce_benchmark.definitions())
    words = parameters.to_arguments(entry["axes"], entry["parameters"])
    axes, values = parameters.from_namespace(
        parser.parse_args(words), POINT_AXES, all_reduce_benchmark.definitions()
    )
    assert (axes, values) == (entry["axes"], entry["parameters"])
    assert parameters.parameters_hash(axes, values) == entry["parameters_hash"]


def test_it_lies_beside_the_runs() -> None:
    assert all_reduce_benchmark.folder_beside(Path("results/runs")) == Path("results/all_reduce")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [("sizes_bytes", [6], "multiples of 4"), ("repetitions", 0, "allowed: 1 or more")],
)
def test_wrong_values_are_errors(key: str, value: Any, allowed: str) -> None:
    with pytest.raises(configuration.ConfigError, match=allowed):
        configuration.validate(raw_config((("all_reduce_benchmark",), {key: value})))
