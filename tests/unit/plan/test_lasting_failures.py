"""Which failed runs Snakemake is not to try again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import manifest_of, valid_config, write_failure
from tfscaling.plan.retries import SlurmSweep, given_up, lasts
from tfscaling.record.attempts import ATTEMPTS_MAX, Cause, Kind
from tfscaling.record.run_record import FAILURE

RUN, OTHER = manifest_of(valid_config()).runs


@pytest.mark.parametrize(
    ("error", "in_user_code", "lasts"),
    [
        ("DeviceError", False, True),
        ("UnavailableError", False, False),
        ("ValueError", True, True),
        ("ValueError", False, False),
        ("OSError", True, False),
    ],
)
def test_a_run_that_would_fail_again_is_known_by_its_report(
    error: str, in_user_code: bool, lasts: bool, tmp_path: Path
) -> None:
    place = {"place": {"file": "own/training.py", "line": 42}} if in_user_code else {}
    write_failure(tmp_path, RUN, kind="rank_failed", error=error, **place)
    records = [tmp_path / run.spec.path / "run.json" for run in (RUN, OTHER)]
    assert [SlurmSweep({}).fails_again(record) for record in records] == [lasts, False]


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_time_limit_is_not_paid_twice_without_a_checkpoint(
    has_checkpoint: bool, tmp_path: Path
) -> None:
    write_failure(tmp_path, RUN, kind="time_limit")
    folder = tmp_path / RUN.spec.path
    if has_checkpoint:
        (folder / "checkpoints/steps=5").mkdir(parents=True)
    assert SlurmSweep({}).fails_again(folder / "run.json") is not has_checkpoint


def test_outputs_that_are_no_records_and_broken_reports_last_not(tmp_path: Path) -> None:
    write_failure(tmp_path, RUN, kind="rank_failed", error="DeviceError")
    folder = tmp_path / RUN.spec.path
    assert not SlurmSweep({}).fails_again(folder / "table.csv")
    (folder / "failure.json").write_text("{")
    assert not SlurmSweep({}).fails_again(folder / "run.json")


@pytest.mark.parametrize(
    "kind", ["node_failed", "preempted", "requeued", "time_limit", "cancelled", "rank_died"]
)
def test_what_happened_to_a_job_is_tried_again(kind: Kind) -> None:
    assert not lasts(Cause(kind=kind, message="Slurm ended the job"))


@pytest.mark.parametrize("kind", ["rank_failed", "program_failed", "missing_gpus"])
def test_missing_gpus_last_unless_another_host_has_its_own(kind: Kind) -> None:
    cause = Cause(kind=kind, message="GPUs requested for this task: 4", error="DeviceError")
    assert lasts(cause) is (kind != "missing_gpus")


def test_what_a_job_was_given_is_not() -> None:
    assert lasts(Cause(kind="invalid", message="requested 2 CPUs per task, got {1: 1}"))


@pytest.mark.parametrize(
    ("error", "message", "last"),
    [
        ("exit code 3", "the program ended with exit code 3", True),
        ("ValueError", "the program ended with exit code 1, a.py:1: ValueError: x", True),
        ("killed by SIGSEGV", "the program was killed by SIGSEGV", True),
        ("killed by SIGKILL", "the program was killed by SIGKILL", False),
        ("RuntimeError", "RuntimeError: [gloo/pair.cc:598] Connection closed by peer", False),
        ("ConnectionResetError", "the program ended with exit code 1", False),
    ],
)
def test_a_crash_of_a_program_lasts_and_a_lost_connection_does_not(
    error: str, message: str, last: bool
) -> None:
    assert lasts(Cause(kind="program_failed", message=message, error=error)) is last


_NCCL = (
    "terminate called after throwing an instance of 'c10::DistBackendError' what():  [Rank 1] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE)"
)
_ABORTED = "the program was killed by SIGABRT, a.py:8 in step: Fatal Python error: Aborted"


@pytest.mark.parametrize(
    ("error", "message", "last_lines", "last"),
    [
        ("Aborted", f"{_ABORTED}; {_NCCL}", (), False),
        ("killed by SIGABRT", f"the program was killed by SIGABRT; {_NCCL}", (), False),
        ("killed by SIGABRT", "the program was killed by SIGABRT", (_NCCL, "frame #7"), False),
        ("exit code 134", "the program ended with exit code 134", (_NCCL, "Aborted"), False),
        ("ChildFailedError", f"the program ended with exit code 1; {_NCCL}", (), False),
        ("Aborted", _ABORTED, ("epoch 1: loss 0.3",), True),
        ("Aborted", f"{_ABORTED}; what():  CUDA error: an illegal memory access was encountered",
         ("frame #1: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x14d",), True),
        ("killed by SIGBUS", "the program was killed by SIGBUS", (), False),
        ("Bus error", "the program was killed by SIGBUS, a.py:8: Fatal Python error: Bus error", (),
         False),
        ("exit code 135", "the program ended with exit code 135; its last line: x", (), False),
        ("RuntimeError", "a.py:8: RuntimeError: DataLoader worker (pid 421) is killed by signal: "
         "Bus error. It is possible that dataloader's workers are out of shared memory.", (),
         False),
    ],
)  # fmt: skip
def test_an_abort_for_a_lost_connection_and_a_failed_memory_do_not_last(
    error: str, message: str, last_lines: tuple[str, ...], last: bool
) -> None:
    cause = Cause(kind="program_failed", message=message, error=error, last_lines=last_lines)
    assert lasts(cause) is last


@pytest.mark.parametrize(
    ("causes", "parameters_hash", "is_out"),
    [
        (["rank_died"] * ATTEMPTS_MAX, RUN.spec.parameters_hash, True),
        (["rank_died"] * (ATTEMPTS_MAX - 1) + ["cancelled"], RUN.spec.parameters_hash, False),
        (["rank_died"] * ATTEMPTS_MAX, "0" * 16, False),
    ],
)
def test_a_run_is_given_up_after_so_many_failures_of_its_own(
    tmp_path: Path, causes: list[str], parameters_hash: str, is_out: bool
) -> None:
    folder = tmp_path / RUN.spec.path
    for number, kind in enumerate(causes, 1):
        write_failure(tmp_path, RUN, kind=kind)
        report = json.loads((folder / FAILURE).read_text())
        report["parameters_hash"] = parameters_hash
        (folder / FAILURE).write_text(json.dumps(report))
        (folder / f"attempt={number}").mkdir()
        shutil.copy(folder / FAILURE, folder / f"attempt={number}")
    search = SimpleNamespace(with_shorts=[RUN.spec.point])
    planned: Any = SimpleNamespace(searches=[search], runs=[RUN])
    assert given_up(planned, tmp_path) == ({RUN.spec.path} if is_out else set())
    (folder / "run.json").touch()
    assert given_up(planned, tmp_path) == set()
