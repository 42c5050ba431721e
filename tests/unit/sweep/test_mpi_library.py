"""Runs that need MPI where there is none: refused before anything is submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, raw_config
from tfscaling.study import configuration
from tfscaling.sweep import mpi_library


def problem_of(strategy: str = "mpi_all_reduce", **platform: Any) -> str | None:
    raw = raw_config((("grid", 0, "strategy"), strategy), (("grid", 0, "gpus_per_node"), 0))
    raw["platforms"]["cluster"].update(platform)
    config = configuration.validate(raw)
    return mpi_library.problem((run.spec for run in manifest_of(config).runs), config)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """mpi4py is told of a library that is none."""
    (tmp_path / "libmpi.so").write_text("no library")
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "libmpi.so"))


def test_runs_by_mpi_need_a_library_that_can_be_loaded(broken: None) -> None:
    found = problem_of() or ""
    assert "of platform cluster" in found.splitlines()[0]
    places = [found.index(way) for way in ("make setup", "`setup`", "MPI4PY_LIBMPI")]
    assert places == sorted(places)


def test_nothing_is_said_where_none_is_needed_or_it_may_be_elsewhere(broken: None) -> None:
    assert problem_of("multi_worker_mirrored") is None
    assert problem_of(setup=["module load mpich"]) is None
    assert problem_of(env={"MPI4PY_LIBMPI": "/opt/mpich/lib/libmpi.so"}) is None


def test_the_environments_own_library_can_be_loaded() -> None:
    assert problem_of() is None
