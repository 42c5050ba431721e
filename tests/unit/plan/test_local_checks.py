"""Packages and libraries of CUDA and MPI that are missing: refused before anything is submitted."""

from __future__ import annotations

import ctypes.util
import random
from importlib import metadata, util
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


def package_problem(*changes: Any, **platform: Any) -> str:
    raw = raw_config(*changes)
    raw["platforms"]["cluster"].update(platform)
    config = config_validation.convert_to_types(raw)
    return local_checks.package_problem((run.spec for run in manifest_of(config).runs), config)


@pytest.fixture(params=["tensorflow", "pyarrow", "both"])
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Packages that are not installed, as far as the check can see."""
    names = {"tensorflow", "pyarrow"} if request.param == "both" else {request.param}
    find = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name, *more: None if name in names else find(name, *more)
    )
    return names


PARQUET = (("export",), ["parquet"])


def test_what_runs_and_tables_need_is_one_line_each_with_its_command(
    missing: set[str], dice: random.Random
) -> None:
    container = dice.choice([{}, {"container": {"image": "debian.sif"}}])  # has this environment
    lines = package_problem(PARQUET, **container).splitlines()
    commands = {"tensorflow": "make setup TRAINER=1", "pyarrow": "make setup PARQUET=1"}
    assert [line.rsplit(": ")[-1] for line in lines] == [commands[n] for n in sorted(missing)[::-1]]
    assert "2 of platform cluster" in lines[0] or "tensorflow" not in missing


PROGRAM = {
    "program": ["sleep", "1"],
    "per_replica_batch_size": 1,
    "epochs": 1,
    "observe": "nothing",
}


@pytest.mark.parametrize(
    ("changes", "platform"),
    [
        ([(("recipes",), {"weak": PROGRAM}), (("grid", 0, "strategy"), "own")], {}),
        ([], {"setup": ["module load tensorflow"]}),
        ([], {"env": {"PYTHONPATH": "/opt/tensorflow"}}),
        ([], {"python": "/usr/bin/python3"}),
    ],
    ids=["program", "setup", "env", "python"],
)
def test_no_package_is_missing_where_ranks_bring_it_or_nothing_needs_it(
    missing: set[str],
    changes: list[Any],
    platform: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert package_problem(*changes, **platform) == ""
    # `setup` and `env` may bring it, which is not known here
    is_open = "tensorflow" in missing and not {"setup", "env"}.isdisjoint(platform)
    assert ("TRAINER=1" in capsys.readouterr().err) is is_open


def test_no_package_is_missing_here() -> None:
    assert package_problem(PARQUET) == ""


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
