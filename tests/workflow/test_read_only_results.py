"""A folder of results that cannot be written: each command ends with its name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project folder whose results are read-only; only root may mount one."""
    made = Project(tmp_path)
    recipe = {"program": ["true"], "per_replica_batch_size": 1, "epochs": 1}
    made.overlay({
        "grid": [{"platform": "laptop", "strategy": "own", "recipe": "user", "nodes": 1}],
        "recipes": {"user": recipe},
    })  # fmt: skip
    (results := tmp_path / "results").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(results)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield made
    subprocess.run(["umount", "--lazy", str(results)], check=True)


@pytest.mark.parametrize("words", [["plan"], ["partial"], []], ids=["plan", "partial", "sweep"])
def test_a_command_names_the_folder_and_what_to_do(words: list[str], project: Project) -> None:
    done = project.snakemake(*words, check=False)
    assert done.returncode == 1
    assert "results: cannot be written" in done.stdout and "OSError" not in done.stdout
    assert project.snakemake("--dry-run").returncode == 0
