"""A disk that is full or read-only, and a limit of file sizes: real ones.

What is finished stays, nothing half is taken for a result, and one line names the file.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import SCRIPTS
from program_runs import start
from tfscaling.record import run_record

#: Writes so many bytes into the file, as the programs of the workflow do.
WRITE = """
import sys
from pathlib import Path
from tfscaling.files import atomic, program_errors
path, text = Path(sys.argv[1]), "x" * int(sys.argv[2])
program_errors.exit_on_input_error(lambda: atomic.write_text(path, text))
"""
SIZE = 2 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB; only root may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def refused(folder: Path, refused_size: int, limit: int = resource.RLIM_INFINITY) -> str:
    """The only line of a program that can't replace a file by a larger one, which stays."""
    path = folder / "runs.csv"
    for size in (1000, refused_size):
        done = subprocess.run(
            [sys.executable, "-c", WRITE, str(path), str(size)],
            env={"PYTHONPATH": str(SCRIPTS)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr.count("\n")) == ((0, 0) if size == 1000 else (1, 1))
        assert path.stat().st_size == 1000 and [*folder.iterdir()] == [path]
    assert done.stderr.startswith(f"{path}: ")
    return done.stderr


def test_a_full_disk_leaves_the_earlier_file_and_says_what_to_do(disk: Path) -> None:
    assert "No space left" in refused(disk, SIZE + 1)


def test_a_limit_of_file_sizes_leaves_the_earlier_file(tmp_path: Path) -> None:
    assert "(ulimit -f)" in refused(tmp_path, 100_000, limit=50_000)


#: Fills the disk unless it is told that there is room.
FILLS = """
import os, sys
if not os.path.exists("room"):
    with open("fill", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
"""


def test_a_run_that_fills_the_disk_has_no_record_and_is_made_when_there_is_room(disk: Path) -> None:
    process = start(disk, FILLS)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    assert "No space left" in said
    folder = disk / "run"
    assert not (folder / run_record.RECORD).exists()
    assert not [*disk.rglob(".*.json.*")]
    (disk / "fill").unlink()
    (disk / "room").touch()
    process = start(disk, FILLS)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    record = json.loads((folder / run_record.RECORD).read_text())
    assert record["attempt"] == 2 and record["validity"]["valid"]
