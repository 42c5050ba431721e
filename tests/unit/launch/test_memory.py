"""Deaths for want of memory are told from others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfscaling.launch import memory
from tfscaling.record.attempts import Cause


def test_the_kernels_count_is_read(tmp_path: Path) -> None:
    file = tmp_path / "vmstat"
    assert memory.oom_kills(file) == 0
    file.write_text("pgfault 7\noom_kill 3\nswap_ra 0\n")
    assert memory.oom_kills(file) == 3


@pytest.mark.parametrize(
    ("message", "exit_code", "before", "kind"),
    [
        ("Out Of Memory (on node2)", None, 0, "out_of_memory"),
        ("killed by SIGKILL", -9, 0, "out_of_memory"),
        ("killed by SIGKILL", -9, 3, "rank_died"),
        ("killed by SIGSEGV", -11, 0, "rank_died"),
        ("Killed (on node2)", None, 0, "rank_died"),
    ],
)
def test_a_rank_that_had_no_memory_is_named(
    message: str, exit_code: int | None, before: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "oom_kills", lambda: 3)  # the kernel cannot be made to do it
    cause = Cause(kind="rank_died", message=message, rank=1, exit_code=exit_code)
    assert memory.named(cause, before).kind == kind
    assert memory.named(cause, before).rank == 1


def test_other_causes_stay() -> None:
    cause = Cause(kind="rank_failed", message="Out Of Memory")
    assert memory.named(cause, 0) == cause


@pytest.mark.parametrize(
    ("error", "words", "kind"),
    [
        ("killed by SIGKILL", "slurmstepd: error: Detected 1 oom_kill event", "out_of_memory"),
        ("killed by SIGKILL", "slurmstepd: error: STEP 7.0 CANCELLED", "program_failed"),
        ("exit code 3", "slurmstepd: error: Detected 1 oom_kill event", "program_failed"),
    ],
)
def test_a_program_that_had_no_memory_is_named_by_slurm(
    error: str, words: str, kind: str, tmp_path: Path
) -> None:
    cause = Cause(kind="program_failed", message=f"the program was {error}", error=error)
    kills = memory.oom_kills()
    assert memory.named(cause, kills, ["srun: got SIGCONT", words]).kind == kind
