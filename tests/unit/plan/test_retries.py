"""Which failed runs Snakemake is not to try again."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import manifest_of, valid_config, write_failure
from tfscaling.plan.retries import SlurmSweep, find_given_up_runs, is_permanent
from tfscaling.record.attempts import ATTEMPTS_MAX, Cause, Kind, UserLine
from tfscaling.record.run_record import FAILURE

RUN, OTHER = manifest_of(valid_config()).runs


def test_what_user_code_raises_lasts_unless_a_file_or_connection_may_do_it() -> None:
    place = UserLine(file="own/training.py", line=42)
    causes = [("ValueError", place), ("ValueError", None), ("OSError", place)]
    found = [Cause(kind="rank_failed", message="x", error=e, place=at) for e, at in causes]
    assert [*map(is_permanent, found)] == [True, False, False]


@pytest.mark.parametrize("checkpoint", ["steps=5", "program/newest.keras", "program", ""])
def test_a_time_limit_is_not_paid_twice_without_a_checkpoint(
    checkpoint: str, tmp_path: Path
) -> None:
    """Files of a program are a checkpoint; its empty folder is none."""
    has_checkpoint = checkpoint not in ("program", "")
    write_failure(tmp_path, RUN, kind="time_limit")
    folder = tmp_path / RUN.spec.path
    (folder / "checkpoints" / checkpoint).mkdir(parents=True)
    assert SlurmSweep({}).has_permanent_failure(folder / "run.json") is not has_checkpoint


def test_outputs_that_are_no_records_and_broken_reports_last_not(tmp_path: Path) -> None:
    write_failure(tmp_path, RUN, kind="rank_failed", error="DeviceError")
    folder, other = (tmp_path / run.spec.path for run in (RUN, OTHER))
    assert SlurmSweep({}).has_permanent_failure(folder / "run.json")
    assert not SlurmSweep({}).has_permanent_failure(other / "run.json")
    assert not SlurmSweep({}).has_permanent_failure(folder / "table.csv")
    (folder / "failure.json").write_text("{")
    assert not SlurmSweep({}).has_permanent_failure(folder / "run.json")


_NCCL = (
    "terminate called after throwing an instance of 'c10::DistBackendError' what():  [Rank 1] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE)"
)
_ABORTED = "the program was killed by SIGABRT, a.py:8 in step: Fatal Python error: Aborted"
_ENDED, _KILLED = "the program ended with exit code", "the program was killed by"


@pytest.mark.parametrize(
    ("kind", "error", "message", "last"),
    [
        # what happened to a job is tried again, but not what it was given
        *((kind, "", "Slurm ended the job", False) for kind in (
            "node_failed", "preempted", "requeued", "time_limit", "cancelled", "rank_died")),
        ("invalid", "", "requested 2 CPUs per task, got {1: 1}", True),
        # GPUs are missing everywhere, or another host has its own
        ("rank_failed", "DeviceError", "GPUs requested for this task: 4", True),
        ("program_failed", "DeviceError", "GPUs requested for this task: 4", True),
        ("missing_gpus", "DeviceError", "GPUs requested for this task: 4", False),
        ("rank_failed", "CpuError", "requested 2 CPUs per task, this rank may use 1", True),
        # a crash of a program, or a lost connection
        ("program_failed", "exit code 3", f"{_ENDED} 3", True),
        ("program_failed", "ValueError", f"{_ENDED} 1, a.py:1: ValueError: x", True),
        ("program_failed", "killed by SIGSEGV", f"{_KILLED} SIGSEGV", True),
        ("program_failed", "killed by SIGKILL", f"{_KILLED} SIGKILL", False),
        ("program_failed", "RuntimeError",
         "RuntimeError: [gloo/pair.cc:598] Connection closed by peer", False),
        ("program_failed", "ConnectionResetError", f"{_ENDED} 1", False),
        # an abort for a lost connection, or for itself
        ("program_failed", "Aborted", f"{_ABORTED}; {_NCCL}", False),
        ("program_failed", "Aborted", f"{_ABORTED}\nepoch 1: loss 0.3", True),
        ("program_failed", "Aborted",
         f"{_ABORTED}; what():  CUDA error: an illegal memory access was encountered\n"
         "frame #1: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x14d", True),
        ("program_failed", "killed by SIGABRT", f"{_KILLED} SIGABRT; {_NCCL}", False),
        ("program_failed", "killed by SIGABRT", f"{_KILLED} SIGABRT\n{_NCCL}\nframe #7", False),
        ("program_failed", "exit code 134", f"{_ENDED} 134\n{_NCCL}\nAborted", False),
        ("program_failed", "ChildFailedError", f"{_ENDED} 1; {_NCCL}", False),
        # memory that failed
        ("program_failed", "killed by SIGBUS", f"{_KILLED} SIGBUS", False),
        ("program_failed", "Bus error",
         f"{_KILLED} SIGBUS, a.py:8: Fatal Python error: Bus error", False),
        ("program_failed", "exit code 135", f"{_ENDED} 135; its last line: x", False),
        ("program_failed", "RuntimeError",
         "a.py:8: RuntimeError: DataLoader worker (pid 421) is killed by signal: Bus error. It is "
         "possible that dataloader's workers are out of shared memory.", False),
    ],
)  # fmt: skip
def test_causes_that_last_and_causes_that_pass(
    kind: Kind, error: str, message: str, last: bool
) -> None:
    """A message is followed by the last lines of the log."""
    message, *lines = message.split("\n")
    cause = Cause(kind=kind, message=message, error=error or None, last_lines=tuple(lines))
    assert is_permanent(cause) is last


@pytest.mark.parametrize(
    ("causes", "is_out"),
    [
        (["rank_died"] * ATTEMPTS_MAX, True),
        (["rank_died"] * (ATTEMPTS_MAX - 1) + ["cancelled"], False),
    ],
)
def test_a_run_is_given_up_after_so_many_failures_of_its_own(
    tmp_path: Path, causes: list[str], is_out: bool
) -> None:
    folder = tmp_path / RUN.spec.path
    for number, kind in enumerate(causes, 1):
        write_failure(tmp_path, RUN, kind=kind)
        (folder / f"attempt={number}").mkdir()
        shutil.copy(folder / FAILURE, folder / f"attempt={number}")
    search = SimpleNamespace(all_points=[RUN.spec.point])
    planned: Any = SimpleNamespace(searches=[search], runs=[RUN])
    assert find_given_up_runs(planned, tmp_path) == ({RUN.spec.path} if is_out else set())
    (folder / "run.json").touch()
    assert find_given_up_runs(planned, tmp_path) == set()
