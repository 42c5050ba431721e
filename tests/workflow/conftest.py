"""One finished sweep on this machine, which the tests look at or copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project import TINY, Project

SWEEP: dict[str, Any] = {
    "grid": [
        # 16 nodes are beyond nodes_max: excluded, with the reason
        {"platform": "laptop", "model": "mnist_cnn", "recipe": "tiny", "nodes": [1, 2, 16],
         "gpus_per_node": [0, 2]},
        {"platform": "laptop", "model": "mnist_cnn", "recipe": "other", "nodes": 1, "repeats": 2},
    ],
    "recipes": {"tiny": TINY, "other": {**TINY, "learning_rate": 0.002}},
    "platforms": {"laptop": {"nodes_max": 8}},
}  # fmt: skip


@pytest.fixture(scope="session")
def finished(new_project: Callable[[str], Project]) -> Project:
    """A finished sweep of six runs; not to be changed."""
    project = new_project("finished")
    project.overlay(SWEEP)
    project.snakemake()
    return project


@pytest.fixture
def copied(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished sweep, to be changed."""
    return finished.copy(tmp_path / "project")
