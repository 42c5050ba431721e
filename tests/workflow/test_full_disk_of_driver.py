"""A sweep on a disk that its own runs fill: the cause is named, and nothing finished is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import Project
from soaking import small_disk

pytestmark = pytest.mark.full

#: Fills the disk of the project's folder, except in the first run, and makes some room again.
PROGRAM = """
import pathlib, sys

first, room = pathlib.Path("first"), pathlib.Path("has-room")
if first.exists() and not room.exists():
    with open("filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError:
            file.truncate(max(0, file.tell() - (LEFT << 10)))
    sys.exit(1)
first.touch()
"""


def filled_project(folder: Path, left_kb: int) -> Project:
    """A sweep of three runs; the second one fills the disk, and leaves so much room."""
    project = Project(folder)
    (project.folder / "filling.py").write_text(PROGRAM.replace("LEFT", str(left_kb)))
    project.overlay({
        "grid": [{"platform": "laptop", "strategy": "own", "recipe": "filling", "nodes": 1,
                  "repeats": 3}],
        "recipes": {"filling": {"program": ["python3", "filling.py"],
                                "observe": "nothing", "per_replica_batch_size": 1,
                                "epochs": 1}},
    })  # fmt: skip
    return project


def finish(project: Project) -> None:
    """Make room and finish the sweep by the same command: no finished run is repeated."""
    finished = {path: path.read_bytes() for path in project.files_of_runs("run.json")}
    assert finished
    (project.folder / "filler").unlink()
    (project.folder / "has-room").touch()
    if list(project.folder.glob(".snakemake/locks/*")):
        project.snakemake("--unlock")
    project.snakemake()
    assert len(project.files_of_runs("run.json")) == 3
    assert all(path.read_bytes() == content for path, content in finished.items())


def test_a_full_disk_is_named_with_the_report_that_it_cannot_have(tmp_path: Path) -> None:
    """By the sweep itself: Snakemake's own line about its metadata is none."""
    with small_disk(tmp_path / "small"):
        project = filled_project(tmp_path / "small", left_kb=0)
        done = project.snakemake(check=False)
        assert done.returncode == 1
        failed = [line for line in done.stdout.splitlines() if " FAILED laptop " in line]
        assert failed, done.stdout
        for line in failed:
            assert "[Errno 28] No space left on device: 'results/runs/" in line
            assert "/failure.json'" in line
        assert project.failures() == []
        finish(project)


def test_tables_that_a_full_disk_cannot_have_are_named(tmp_path: Path) -> None:
    """With room for the report of the failed run, and for nothing larger."""
    with small_disk(tmp_path / "small"):
        project = filled_project(tmp_path / "small", left_kb=160)
        done = project.snakemake(check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stdout, done.stdout
        (line,) = [each for each in done.stdout.splitlines() if "no tables of the" in each]
        assert "results/main/partial" in line
        assert not (project.folder / "results/main/partial").exists()
        kinds = {failure["cause"]["kind"] for failure in project.failures()}
        assert "program_failed" in kinds
        finish(project)
