"""Machines without internet: a set-up from a small wheelhouse, and a run with the data in it.

`make test-closed` goes the whole way: all packages, the demo, the trainer's tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import without_network
from project import BIN, QUICK, REPOSITORY, SMALL_MODEL, Project

pytestmark = pytest.mark.full

#: Of the project's locks: what set-up needs itself, wheels, and a package that has no wheel.
LOCKED = {
    "requirements.txt": ("connection-pool", "setuptools", "tabulate", "uv"),
    "requirements-trainer.txt": ("gast",),
}
GRID = {
    "grid": [{
        "platform": "laptop", "model": SMALL_MODEL, "recipe": "quick",
        "nodes": 2, "gpus_per_node": 0,
    }],
    "recipes": {"quick": QUICK},
}  # fmt: skip


def new_folder(folder: Path) -> Project:
    """A separate project whose locks are small and older than any environment."""
    project = Project(folder)
    for name in ("Makefile", "Snakefile", "plugins", "profiles", "provision", "workflow"):
        (folder / name).symlink_to(REPOSITORY / name)
    for name, packages in LOCKED.items():
        entries = re.split(r"\n(?=[a-z])", (REPOSITORY / name).read_text())
        small = [entry for entry in entries if entry.split("==")[0] in packages]
        assert len(small) == len(packages)
        (folder / name).write_text("\n".join(small) + "\n")
        os.utime(folder / name, (0, 0))
    project.overlay(GRID)
    return project


@pytest.fixture(scope="module")
def wheelhouse(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheelhouse` makes where there is internet; the environment is this one."""
    project = new_folder(tmp_path_factory.mktemp("open"))
    project.link_datasets(mnist)
    (project.folder / ".venv").symlink_to(BIN.parent)
    words = ["make", "--old-file=.venv/.installed-trainer", "wheelhouse", "CONFIG=overlay.yaml"]
    done = subprocess.run(words, cwd=project.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.folder / "wheelhouse.tar").exists()
    return project.folder / "wheelhouse"


@pytest.fixture
def copied(wheelhouse: Path, tmp_path: Path) -> Path:
    """A copy of the wheelhouse, to be broken."""
    return shutil.copytree(wheelhouse, tmp_path / "wheelhouse", copy_function=os.link)


def test_the_set_up_and_a_run_on_two_nodes_ask_for_no_network(
    wheelhouse: Path, mnist: Path, tmp_path: Path
) -> None:
    project = new_folder(tmp_path / "closed")
    done = without_network.run(
        project.folder, "make", "setup", "TRAINER=1", f"WHEELHOUSE={wheelhouse}",
        f"PYTHON={sys.executable}",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    shown: list[Any] = [
        project.folder / ".venv/bin/python",
        "-c",
        "import connection_pool, gast, tabulate",
    ]
    assert subprocess.run(shown).returncode == 0
    for name in ("mnist.npz", "mnist.json"):
        assert (project.folder / "results/datasets" / name).read_bytes() == (
            mnist / name
        ).read_bytes()
    words = ["--profile", "profiles/local", "--until", "train", "--configfile", "overlay.yaml"]
    done = without_network.run(project.folder, BIN / "snakemake", *words, path=str(BIN))
    assert done.returncode == 0, done.stdout + project.logs()
    (record,) = project.records()
    assert record["axes"]["nodes"] == 2
    assert len(record["ranks"]) == 2


def failed(project: Project, *words: str | Path) -> str:
    """The message of a command that fails."""
    done = subprocess.run(words, cwd=project.folder, capture_output=True, text=True, check=False)
    assert done.returncode
    (message,) = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    return message


def test_a_wheel_that_is_missing_is_named_before_anything_is_made(
    copied: Path, tmp_path: Path
) -> None:
    (wheel,) = (copied / "wheels").glob("tabulate-*.whl")
    wheel.unlink()
    project = new_folder(tmp_path / "closed")
    python = f"PYTHON={sys.executable}"
    message = failed(project, "make", "setup", f"WHEELHOUSE={copied}", python)
    assert str(wheel) in message
    assert "make wheelhouse" in message
    assert not (project.folder / ".venv").exists()


def test_data_that_is_missing_is_named(copied: Path, tmp_path: Path) -> None:
    (copied / "datasets/mnist.npz").unlink()
    project = new_folder(tmp_path / "closed")
    (project.folder / ".venv").symlink_to(BIN.parent)
    words = ["make", "--old-file", ".venv/.installed", "setup", f"WHEELHOUSE={copied}"]
    message = failed(project, *words)
    assert str(copied / "datasets/mnist.npz") in message
    assert "make wheelhouse" in message


def test_a_command_that_asks_for_another_address_fails_though_it_hides_it(tmp_path: Path) -> None:
    asking = "import socket\ntry: socket.create_connection(('198.51.100.1', 80))\nexcept OSError: 0"
    (folder := tmp_path / "closed").mkdir()
    assert without_network.run(folder, sys.executable, "-c", asking).returncode == 1
    assert without_network.run(folder, sys.executable, "-c", "").returncode == 0
