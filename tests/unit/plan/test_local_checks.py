"""CUDA's libraries and MPI's where they are missing: refused before anything is submitted."""

from __future__ import annotations

import ctypes.util
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, raw_config
from tfscaling.plan import local_checks
from tfscaling.study import config_validation


@pytest.fixture(autouse=True)
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if neither packages nor the system had them."""
    monkeypatch.setattr(metadata, "distributions", lambda: iter(()))
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


def cuda_problem(gpus: int = 2, **platform: Any) -> str:
    raw = raw_config((("grid", 0, "gpus_per_node"), gpus))
    raw["platforms"]["cluster"].update(platform)
    config = config_validation.convert_to_types(raw)
    return local_checks.cuda_problem((run.spec for run in manifest_of(config).runs), config)


def test_runs_on_gpus_need_the_libraries() -> None:
    found = cuda_problem() or ""
    assert "2 of platform cluster" in found
    places = [found.index(way) for way in ("make setup CUDA=1", "`setup`", "logical")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "platform",
    [
        {"devices": "logical"},
        {"setup": ["module load cuda"]},
        {"env": {"PATH": "/cuda"}},
        {"container": {"image": "tf.sif"}},
    ],
    ids=str,
)
def test_nothing_is_said_where_they_are_not_needed_or_may_be_elsewhere(
    platform: dict[str, Any],
) -> None:
    assert not cuda_problem(**platform)
    assert not cuda_problem(gpus=0)


def test_the_systems_libraries_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcudnn.so.9").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    assert not cuda_problem()


def mpi_problem(strategy: str = "mpi_all_reduce", **platform: Any) -> str:
    raw = raw_config((("grid", 0, "strategy"), strategy), (("grid", 0, "gpus_per_node"), 0))
    raw["platforms"]["cluster"].update(platform)
    config = config_validation.convert_to_types(raw)
    return local_checks.mpi_problem((run.spec for run in manifest_of(config).runs), config)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """mpi4py is told of a library that is none."""
    (tmp_path / "libmpi.so").write_text("no library")
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "libmpi.so"))


def test_runs_by_mpi_need_a_library_that_can_be_loaded(broken: None) -> None:
    found = mpi_problem()
    assert "of platform cluster" in found.splitlines()[0]
    places = [found.index(way) for way in ("make setup", "`setup`", "MPI4PY_LIBMPI")]
    assert places == sorted(places)


def test_nothing_is_said_where_none_is_needed_or_it_may_be_elsewhere(broken: None) -> None:
    assert mpi_problem("multi_worker_mirrored") == ""
    assert mpi_problem(setup=["module load mpich"]) == ""
    assert mpi_problem(container={"image": "tf.sif"}) == ""
    assert mpi_problem(env={"MPI4PY_LIBMPI": "/opt/mpich/lib/libmpi.so"}) == ""


def test_the_environments_own_library_can_be_loaded() -> None:
    assert mpi_problem() == ""
