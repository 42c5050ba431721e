"""One finished sweep on this machine, which the tests look at or copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project
from sweep import SWEEP


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
