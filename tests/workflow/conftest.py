"""One finished sweep on this machine, which the tests look at or copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import Project
from shared import made_once
from sweep import CONSOLE, SECRET, SWEEP, TEMPORARY


@pytest.fixture(scope="session")
def finished(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished sweep of six runs with all plots, and what it printed; not to be changed."""

    def sweep(folder: Path) -> None:
        project = Project(folder)
        project.link_datasets(mnist)
        project.overlay(SWEEP)
        (folder / TEMPORARY).mkdir()
        environ = {"TOKEN_OF_THE_USER": SECRET, "TMPDIR": str(folder / TEMPORARY)}
        (folder / CONSOLE).write_text(project.snakemake(environ=environ).stdout)

    return Project(made_once(tmp_path_factory, "finished", sweep))


@pytest.fixture(scope="session")
def finished_with_few_plots(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same sweep with two plots, so that it is quickly made anew; not to be changed."""

    def draw(folder: Path) -> None:
        project = finished.copy(folder)
        project.draw_few_plots()
        project.snakemake()

    return Project(made_once(tmp_path_factory, "finished-with-few-plots", draw))


@pytest.fixture
def copied(finished_with_few_plots: Project, tmp_path: Path) -> Project:
    """A copy of a finished sweep, to be changed."""
    return finished_with_few_plots.copy(tmp_path / "project")
