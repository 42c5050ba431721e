"""From a wheelhouse with all packages to the demo and the trainer's tests, without a network.

Minutes and gigabytes: `make test-full` goes a shorter way, tests/workflow/test_closed_network.py.
The clone is of the commit that is checked out.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import without_network
from project import REPOSITORY

#: What `make setup DEV=1` installs next to the workflow.
PARTS = ("trainer", "parquet", "dev")
#: Of the trainer's tests: a rank of its own, and ranks that talk to each other.
TESTS = ("test_rank.py", "test_loop.py", "test_strategies.py", "test_parameter_server.py")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the wheelhouse's bundle with its environment; the home of its user is empty."""
    wheelhouse = tmp_path_factory.mktemp("closed") / "wheelhouse"
    making: list[Any] = [REPOSITORY / "provision/closed/wheelhouse.py", "make", wheelhouse]
    locks = ["requirements.txt", *(f"requirements-{part}.txt" for part in PARTS)]
    options = ["--locks", *locks, "--config", "config/demo.yaml"]
    subprocess.run([*making, *options], cwd=REPOSITORY, check=True)
    clone = wheelhouse.parent / "project"
    subprocess.run(["git", "clone", "--quiet", wheelhouse / "project.bundle", clone], check=True)
    python = Path(sys.executable).resolve()  # not the environment's
    words = ["make", "setup", "DEV=1", "WHEELHOUSE=../wheelhouse", f"PYTHON={python}"]
    done = without_network.run(clone, *words)
    assert done.returncode == 0, done.stdout
    return clone


def test_the_demo(project: Path) -> None:
    done = without_network.run(project, "make", "demo")
    assert done.returncode == 0, done.stdout
    with (project / "results/demo/comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["ok"] * 6
    assert (project / "results/demo/report.html").exists()


def test_tests_of_the_trainer(project: Path) -> None:
    files = [f"tests/unit/train/{name}" for name in TESTS]
    done = without_network.run(project, ".venv/bin/pytest", "--quiet", *files)
    assert done.returncode == 0, done.stdout
