"""One finished sweep on this machine, which the tests look at or copy; a Slurm without jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from project import Project
from shared import made_once
from sweep import CONSOLE, SECRET, SWEEP, TEMPORARY


@pytest.fixture(scope="session")
def finished(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished sweep of six runs, and what it printed; not to be changed."""

    def sweep(folder: Path) -> None:
        project = Project(folder)
        project.link_datasets(mnist)
        project.overlay(SWEEP)
        (folder / TEMPORARY).mkdir()
        environ = {"TOKEN_OF_THE_USER": SECRET, "TMPDIR": str(folder / TEMPORARY)}
        (folder / CONSOLE).write_text(project.snakemake(environ=environ).stdout)

    return Project(made_once(tmp_path_factory, "finished", sweep))


@pytest.fixture
def copied(finished: Project, tmp_path: Path) -> Project:
    """A copy of a finished sweep, to be changed."""
    return finished.copy(tmp_path / "project")


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """An environment whose Slurm submits nothing, and accepts every question of sbatch's."""
    commands = tmp_path / "slurm"
    commands.mkdir()
    for name in ("sbatch", "squeue", "sinfo", "sacct", "sacctmgr", "sshare", "scontrol", "srun"):
        (commands / name).write_text(f"#!/bin/sh\necho {name} >>{commands}/called\nexit 1\n")
        (commands / name).chmod(0o755)
    (commands / "squeue").write_text("#!/bin/sh\n")  # nothing is in it
    (commands / "sbatch").write_text(
        f'#!/bin/sh\necho sbatch "$@" >>{commands}/called\n'
        'case "$*" in *--test-only*) exit 0;; esac\n'
        "echo sbatch: error: QOSMaxWallDurationPerJobLimit >&2\nexit 1\n"
    )
    return {"PATH": f"{commands}:{os.environ['PATH']}"}
