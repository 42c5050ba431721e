"""Bad configuration: one clear error that names file, key, value and what is allowed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from project import TINY, Project

BLOCK = {"platform": "laptop", "model": "mnist_cnn", "recipe": "tiny", "nodes": [1, 2]}
GOOD: dict[str, Any] = {"grid": [BLOCK], "recipes": {"tiny": TINY}, "platforms": {"laptop": {}}}

#: name → (change of the good configuration, what the message must contain)
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown key": ({"grid.0.nodez": [1]}, ["grid[0].nodez", "[1]", "nodes"]),
    "unknown recipe key": (
        {"recipes.tiny.learning_rat": 0.1}, ["recipes.tiny.learning_rat", "0.1", "learning_rate"],
    ),
    "unknown platform": ({"grid.0.platform": "laptp"}, ["grid[0].platform", "laptp", "laptop"]),
    "unknown model": ({"grid.0.model": "vgg"}, ["grid[0].model", "vgg", "mnist_cnn"]),
    "unknown strategy": (
        {"grid.0.strategy": "horovod"}, ["grid[0].strategy", "horovod", "multi_worker_mirrored"],
    ),
    "unknown recipe": ({"grid.0.recipe": "tinny"}, ["grid[0].recipe", "tinny", "tiny"]),
    "empty axis": ({"grid.0.nodes": []}, ["grid[0].nodes", "[]", "at least 1"]),
    "zero nodes": ({"grid.0.nodes": [1, 0]}, ["grid[0].nodes[1]", "0", "1 or more"]),
    "negative nodes": ({"grid.0.nodes": -2}, ["grid[0].nodes", "-2", "1 or more"]),
    "wrong type": ({"recipes.tiny.epochs": "two"}, ["recipes.tiny.epochs", "two", "integer"]),
    "duplicate points": ({"grid.1": BLOCK}, ["grid[1]", "grid[0]", '"nodes": 1']),
    "duplicate values": ({"grid.0.nodes": [2, 2]}, ["grid[0].nodes", "[2, 2]", "once"]),
    "GPUs beyond the platform": (
        {"grid.0.gpus_per_node": 8}, ["grid[0].gpus_per_node", "8", "gpus_per_node_max 4"],
    ),
    "price without date": (
        {"platforms.laptop.usd_per_node_hour": 0.1},
        ["platforms.laptop.price_date", "null", "price_date and price_source"],
    ),
    "two batch sizes": (
        {"recipes.tiny.global_batch_size": 64}, ["recipes.tiny", "exactly one of"],
    ),
    "unknown column": ({"comparison.columns": ["los"]}, ["comparison.columns[0]", "los", "loss"]),
    "unknown plot": ({"plots.pie": {}}, ["plots.pie", "pie", "execution_time"]),
    "no grid": ({"grid": []}, ["grid", "[]", "at least 1"]),
}  # fmt: skip


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The good configuration with `dotted.key: value` set."""
    content = copy.deepcopy(GOOD)
    for dotted, value in changes.items():
        target: Any = content
        *steps, last = dotted.split(".")
        for step in steps:
            target = target[int(step)] if isinstance(target, list) else target.setdefault(step, {})
        if isinstance(target, list):
            target.insert(int(last), value)
        else:
            target[last] = value
    return content


def test_the_unchanged_configuration_is_good(project: Project) -> None:
    project.overlay(GOOD)
    assert "train" in project.snakemake("--dry-run").stdout


@pytest.mark.parametrize("name", CASES)
def test_bad_configuration(name: str, project: Project) -> None:
    changes, expected = CASES[name]
    project.overlay(changed(changes))
    done = project.snakemake("--dry-run", check=False)
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if " is not allowed; " in line]
    assert len(lines) == 1, done.stdout
    assert lines[0].startswith("overlay.yaml: ")
    for text in expected:
        assert text in lines[0]
    assert "Traceback" not in done.stdout
    assert not list(project.folder.glob("results/runs"))


def test_the_value_of_the_command_line_is_named(project: Project) -> None:
    project.overlay(GOOD)
    done = project.snakemake("--dry-run", "--config", "seed=-1", check=False)
    assert done.returncode != 0
    assert "--config: seed: -1 is not allowed; allowed: 0 or more" in done.stdout
