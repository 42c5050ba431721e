"""What `make own`, the examples and `.test` have is a valid grid; `make examples` runs these."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from project import REPOSITORY, Project, axis

EXAMPLES = sorted(path.parent.name for path in REPOSITORY.glob("examples/*/config.yaml"))
#: What environments of their own the examples name.
ENVIRONMENTS = (".venv-jax", ".venv-tf_keras", ".venv-torch")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_planned(new_project: Callable[[str], Project], name: str) -> None:
    project = new_project(name)
    shutil.copytree(REPOSITORY / "examples", project.folder / "examples")
    for environment in ENVIRONMENTS:  # `make examples` makes them
        (project.folder / environment).symlink_to(sys.prefix)
    runs = project.planned(config=[f"examples/{name}/config.yaml"])
    assert any("/nodes=2/" in run for run in runs)


def test_the_grid_for_the_catalogue_is_planned(tmp_path: Path) -> None:
    """As `--directory .test` reads it: no file of the repository's own configuration."""
    project = Project(shutil.copytree(REPOSITORY / ".test", tmp_path / "test"))
    runs = project.planned(config=["config/config.yaml"])
    assert sorted(axis(run, "nodes") for run in runs) == ["1", "2"]
    assert {axis(run, "platform") for run in runs} == {"processes"}


def test_every_example_is_in_the_table_of_examples() -> None:
    text = (REPOSITORY / "examples/README.md").read_text()
    assert EXAMPLES
    assert all(f"({name}/README.md)" in text for name in EXAMPLES)


def make_own(project: Project) -> int:
    """Exit status of `make own` in the project's folder."""
    words = ["make", "--file", str(REPOSITORY / "Makefile"), "own"]
    return subprocess.run(words, cwd=project.folder, capture_output=True, check=False).returncode


def test_the_scaffold_trains_and_writes_over_nothing(
    new_project: Callable[[str], Project],
) -> None:
    project = new_project("scaffold")
    assert make_own(project) == 0
    config = project.folder / "own/config.yaml"
    config.write_text(config.read_text().replace("repeats: 2", "repeats: 1"))
    project.snakemake(config=["own/config.yaml"])
    rows = project.table("results/own/tables/comparison.csv")
    assert [(row["nodes"], row["status"]) for row in rows] == [("1", "ok"), ("2", "ok")]
    assert all(float(row["test_accuracy"]) > 0.9 for row in rows)
    assert make_own(project) != 0
    assert "repeats: 1" in config.read_text()
