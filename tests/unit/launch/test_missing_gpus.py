"""GPUs that one host of a run lacks, and those that all lack."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import local_spec, rank_events, write_events
from tfscaling.launch import failures, missing_gpus, slurm_job
from tfscaling.record.attempts import Cause
from tfscaling.record.run_record import SlurmJob
from tfscaling.train import strategies

BEGUN, IMPORTED = {"start": 1.0}, {"start": 1.0, "imported": 2.0}
PROGRAM = {"start": 1.0, "program_start": 2.0}
HOST = "n2.cluster.example"


def told(rank: int, host: str, passed: dict[str, float], job: str = "worker") -> list[Any]:
    return rank_events(rank, passed, host=host, job=job)


def lacking(rank: int, host: str, seen: int = 3, error: str = "DeviceError") -> list[Any]:
    failed = {"time_s": 9.0, "rank": rank, "event": "failed", "error": error}
    return [*told(rank, host, BEGUN), {**failed, "message": strategies.missing_gpus(4, seen, {})}]


def cause_of(folder: Path, *ranks: list[Any]) -> Cause:
    for events in ranks:
        write_events(folder, events[0]["rank"], events)
    exits = {events[0]["rank"]: 1 for events in ranks if events[-1]["event"] == "failed"}
    found = failures.find_cause(folder, exits, {})
    return missing_gpus.of_one_host(found, folder)


@pytest.fixture
def on_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_job, "describe", lambda _: SlurmJob(id="7", nodes="n[1-3]"))


@pytest.mark.usefixtures("on_slurm")
@pytest.mark.parametrize("passed", [IMPORTED, PROGRAM])
@pytest.mark.parametrize("seen", [0, 3])
def test_a_host_that_lacks_what_another_has_is_named_and_not_the_installation(
    seen: int, passed: dict[str, float], tmp_path: Path
) -> None:
    waiting, silent = told(0, "n1", passed), told(2, "n3", BEGUN)
    cause = cause_of(tmp_path, waiting, lacking(1, HOST, seen), silent)
    assert (cause.kind, cause.error, cause.rank) == ("missing_gpus", "DeviceError", 1)
    assert cause.host == "n2", "as Slurm calls it"
    assert f"GPUs that TensorFlow sees: {seen}; " in cause.message
    assert f"Another host of the run, n1, has its GPUs: look for the fault on {HOST}, " in (
        cause.message
    )
    assert "make setup" not in cause.message and "devices: logical" not in cause.message


@pytest.mark.usefixtures("on_slurm")
@pytest.mark.parametrize(
    "others",
    [
        [],
        [told(1, "n1", BEGUN)],
        [lacking(1, "n1")],
        [told(1, HOST, IMPORTED)],
        [told(1, "n1", IMPORTED, job="ps")],
        [lacking(1, "n1"), told(2, "n1", IMPORTED)],
    ],
    ids=["alone", "silent", "all", "same host", "a server", "some of each host"],
)
def test_without_a_host_that_has_them_the_advice_is_that_of_the_rank(
    others: list[list[Any]], tmp_path: Path
) -> None:
    cause = cause_of(tmp_path, lacking(0, HOST, 0), *others)
    assert (cause.kind, cause.error, cause.host) == ("rank_failed", "DeviceError", HOST)
    assert "make setup CUDA=1" in cause.message


@pytest.mark.parametrize("nodes", ["m[1-3]", "n[1-", None])
def test_a_host_of_another_name_is_not_given_to_slurm(
    nodes: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_job, "describe", lambda _: SlurmJob(id="7", nodes=nodes))
    cause = cause_of(tmp_path, told(0, "n1", IMPORTED), lacking(1, HOST))
    assert (cause.kind, cause.host) == ("missing_gpus", None)
    assert HOST in cause.sentence


def test_other_errors_stay(tmp_path: Path) -> None:
    cause = cause_of(tmp_path, told(0, "n1", IMPORTED), lacking(1, HOST, error="ValueError"))
    assert (cause.kind, cause.error, cause.host) == ("rank_failed", "ValueError", HOST)


@pytest.mark.parametrize(
    ("nodes", "launcher", "waits"), [(2, "srun", True), (1, "srun", False), (2, "local", False)]
)
def test_only_where_other_hosts_would_be_ended_a_rank_waits(
    nodes: int, launcher: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    spec = local_spec()
    missing_gpus.let_others_tell(
        msgspec.structs.replace(
            spec,
            point=msgspec.structs.replace(spec.point, nodes=nodes),
            measured=msgspec.structs.replace(spec.measured, launcher=launcher),
        )
    )
    assert bool(slept) == waits
