"""What users type to `make`: the targets of its help, and a sweep that is only planned."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from project import BIN, REPOSITORY, Project

MAKEFILE = REPOSITORY / "Makefile"


def make(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    """`make` in the project's folder, with this environment and no terminal."""
    scripts = f"PATH={BIN}:/usr/bin:/bin"
    command = ["make", "--file", str(MAKEFILE), "--old-file", ".venv/.installed", scripts, *words]
    return subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def listed(target: str) -> set[str]:
    """The targets that `make TARGET` lists."""
    command = ["make", "--file", str(MAKEFILE), target]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (\S+) ", shown, re.MULTILINE))


def test_help_has_the_targets_of_users_and_help_dev_all_others() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", MAKEFILE.read_text(), re.MULTILINE)
    assert targets
    users, others = listed("help"), listed("help-dev")
    assert {"demo", "own", "run", "view"} <= users and len(users) <= 8 and not users & others
    unlisted = {"help", "help-dev", "test-here", "test-slurm"}
    assert set(targets[1].split()) - users - others == unlisted


@pytest.mark.parametrize("given", ["run", "run CONFIG=nowhere.yaml"])
def test_run_without_a_configuration_says_what_to_write(tmp_path: Path, given: str) -> None:
    words = ["make", "--file", str(MAKEFILE), "--old-file", ".venv/.installed", *given.split()]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert any(line.startswith("CONFIG: ") for line in ended.stderr.splitlines())


def test_a_sweep_is_planned_and_runs_only_after_yes(
    new_project: Callable[[str], Project],
) -> None:
    project = new_project("make-sweep")
    (project.folder / "workflow").symlink_to(REPOSITORY / "workflow")
    ended = make(project, "sweep", "NODES=1,2", "GPUS=0,2", "REPEATS=2", "STUDY=asked")
    assert ended.returncode == 2, ended.stderr  # make's status for a recipe that failed
    assert "YES=1" in ended.stderr
    assert (project.folder / "sweeps/asked.yaml").exists()
    assert (project.folder / "results/asked/plan.md").exists()
    with (project.folder / "results/asked/plan.csv").open() as file:
        points = {(row["nodes"], row["gpus_per_node"]) for row in csv.DictReader(file)}
    assert points == {(nodes, gpus) for nodes in "12" for gpus in "02"}
    assert not list(project.folder.glob("results/runs/**/run.json"))
