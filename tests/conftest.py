"""What workflow and Slurm tests share: the genuine dataset, fetched once, and a project folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from project import REPOSITORY, Project


@pytest.fixture(scope="session")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Genuine MNIST, prepared by the workflow's own rule."""
    project = Project(tmp_path_factory.mktemp("dataset"))
    project.snakemake("results/datasets/mnist.npz", config=["config/demo.yaml"])
    return project.folder / "results/datasets"


@pytest.fixture(scope="session")
def new_project(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """Makes a folder with the repository's config and the dataset, but no results."""

    def make(name: str) -> Project:
        project = Project(tmp_path_factory.mktemp(name))
        datasets = project.folder / "results/datasets"
        datasets.mkdir(parents=True)
        for file in mnist.iterdir():
            os.link(file, datasets / file.name)
        return project

    return make


@pytest.fixture
def project(new_project: Callable[[str], Project], request: pytest.FixtureRequest) -> Project:
    """A project folder of this test's own."""
    return new_project(request.node.name[:40].replace("[", "-").replace("]", ""))


@pytest.fixture(scope="session")
def repository_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that git tracks or would track, elsewhere: as a fresh clone has them."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    target = tmp_path_factory.mktemp("clone")
    for name in listed:
        if (REPOSITORY / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target / name)
    return target
