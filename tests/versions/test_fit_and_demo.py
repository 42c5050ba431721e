"""The oracle and the demo in the TensorFlow of a user's environment, on one rank and on two.

`make versions` runs these tests in each of its environments: TRAINER_PYTHON is the Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from oracle_cases import fifty_steps
from oracle_comparison import check, trained
from project import REPOSITORY, Project

pytestmark = pytest.mark.timeout(7200)

STRATEGIES = ["multi_worker_mirrored", "mpi_all_reduce"]
#: The environment; by default the tests' own one.
ENVIRONMENT = (
    str(Path(python).absolute().parents[1])
    if (python := os.environ.get("TRAINER_PYTHON"))
    else None
)


def test_fifty_steps_are_those_of_fit(tmp_path: Path) -> None:
    ((name, case),) = fifty_steps().items()
    assert case.epochs * case.steps_per_epoch == 50
    ways = trained(tmp_path, "oracle_cases:fifty:0:1")[name]
    assert ways.keys() == {"fit", *(f"{way} {n}" for way in STRATEGIES for n in (1, 2))}
    deviations = check(name, case, ways)
    for way in sorted(deviations):
        print(f"{way}: deviation {deviations[way]:.1e}")


def demo() -> dict[str, Any]:
    """The demo's configuration, with both strategies on one and two nodes."""
    config: dict[str, Any] = yaml.safe_load((REPOSITORY / "config/demo.yaml").read_text())
    (block,) = config["grid"]
    block |= {"strategy": STRATEGIES, "nodes": [1, 2], "repeats": 1}
    if ENVIRONMENT:
        config["recipes"]["demo"]["environment"] = ENVIRONMENT
    return config


def test_the_demo_learns_and_its_losses_do_not_depend_on_the_strategy(
    new_project: Callable[[str], Project],
) -> None:
    project = new_project("demo")
    project.overlay(demo())
    project.snakemake(limit_s=6000)
    records = project.records()
    assert len(records) == 4
    for record in records:
        print(record["axes"]["strategy"], record["axes"]["nodes"], record["metrics"])
        assert record["metrics"]["test_accuracy"] > 0.95
    for nodes in (1, 2):
        losses = [r["metrics"]["loss"] for r in records if r["axes"]["nodes"] == nodes]
        assert losses == pytest.approx([losses[0]] * 2, rel=1e-3)
