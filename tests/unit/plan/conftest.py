"""An executor of the plugin slurm-sweep, and Slurm's programs that it calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_executor import Slurm, Start, Started, Sweep


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
