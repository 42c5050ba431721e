"""An executor of the plugin slurm-sweep, and Slurm's programs that it calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_executor import Slurm, Start, Started, StartedAllocation, Sweep


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    (folder := tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return Slurm(folder)


@pytest.fixture
def sweep() -> Sweep:
    return Sweep()


@pytest.fixture
def start(tmp_path: Path, sweep: Sweep, slurm: Slurm) -> Iterator[Start]:
    """Starts executors, and shuts them down in the end."""
    started: list[Started] = []

    def make(**settings: Any) -> Started:
        started.append(Started(tmp_path, sweep, **settings))
        return started[-1]

    yield make
    for executor in started:
        executor.shutdown()


@pytest.fixture
def begin(tmp_path: Path, slurm: Slurm, sweep: Sweep) -> Iterator[Callable[..., StartedAllocation]]:
    """Starts executors whose allocation is job 7, and shuts them down in the end.

    Their fake sruns end with the test, also if it is killed: they read from a pipe that it holds.
    """
    started: list[StartedAllocation] = []
    slurm.states()
    os.mkfifo(slurm.folder / "running")
    held = os.open(slurm.folder / "running", os.O_RDWR | os.O_CLOEXEC)

    def make(**settings: Any) -> StartedAllocation:
        started.append(StartedAllocation(tmp_path, sweep, **settings))
        return started[-1]

    yield make
    for executor in started:
        executor.shutdown()
    os.close(held)
