"""A sweep on a disk that its own runs fill: the cause is named, and nothing finished is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import Project
from soaking import small_disk

pytestmark = pytest.mark.full

#: Fills the disk of the project's folder, except in the first run.
PROGRAM = """
import pathlib

first, room = pathlib.Path("first"), pathlib.Path("has-room")
if first.exists() and not room.exists():
    with open("filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError:
            pass
first.touch()
"""


def test_a_full_disk_is_named_and_the_same_command_finishes_the_sweep(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small"):
        project = Project(tmp_path / "small")
        (project.folder / "filling.py").write_text(PROGRAM)
        project.overlay({
            "grid": [{"platform": "laptop", "strategy": "own", "recipe": "filling", "nodes": 1,
                      "repeats": 3}],
            "recipes": {"filling": {"program": ["python3", "filling.py"],
                                    "observe": "nothing", "per_replica_batch_size": 1,
                                    "epochs": 1}},
        })  # fmt: skip
        done = project.snakemake(check=False)
        assert done.returncode == 1
        assert "No space left on device" in done.stdout, done.stdout
        finished = {path: path.read_bytes() for path in project.files_of_runs("run.json")}
        (project.folder / "filler").unlink()
        (project.folder / "has-room").touch()
        if list(project.folder.glob(".snakemake/locks/*")):
            project.snakemake("--unlock")
        project.snakemake()
        assert len(project.files_of_runs("run.json")) == 3
        assert all(path.read_bytes() == content for path, content in finished.items())
