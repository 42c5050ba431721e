"""`make all-reduce` times what it promises, with the trainer as it is."""

import random
import subprocess
import sys

import pytest
from project import REPOSITORY


@pytest.mark.full
def test_each_size_and_the_step_have_a_row() -> None:
    seed = random.randrange(1000)
    print(f"seed {seed}")
    workers = random.Random(seed).choice([1, 2, 3])
    program = [sys.executable, str(REPOSITORY / "benchmarks/all_reduce.py"), "--rounds=1"]
    done = subprocess.run(
        [*program, f"--workers={workers}"], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    _, _, _, *rows = done.stdout.splitlines()
    timed = [row.split("|")[1].split(",")[0].strip() for row in rows]
    assert timed == ["all-reduce"] * 5 + ["step"]
    assert all(float(cell) > 0 for row in rows for cell in row.split("|")[2:4])
    copies_ms = [row.split("|")[5].strip() for row in rows]
    assert [bool(cell) for cell in copies_ms] == [False, False, True, True, True, False]
    assert all(float(cell) > 0 for cell in filter(None, copies_ms))
