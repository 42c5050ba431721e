"""Allocations that Slurm refuses for now, loses, or lists no more."""

from __future__ import annotations

from pathlib import Path

import pytest
import snakemake_executor_plugin_slurm_allocation as allocation
from slurm_executor import Slurm, listed
from snakemake_executor_plugin_slurm_allocation import grants
from snakemake_executor_plugin_slurm_allocation.grants import NAME, Grants
from snakemake_executor_plugin_slurm_sweep import queue
from snakemake_executor_plugin_slurm_sweep.slurm_client import SEPARATOR, SlurmClient
from snakemake_interface_common.exceptions import WorkflowError

CALL = ("sbatch", "--parsable", "--wrap=true")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat requests without a pause."""
    monkeypatch.setattr(grants, "PAUSES_S", (0.0, 0.0))


def tried(times: int, known: tuple[str, ...] = ()) -> list[str | None]:
    """The answers to some tries."""
    granting = Grants(SlurmClient(), lambda _: None)
    return [granting.request_allocation("folder ", CALL, known) for _ in range(times)]


def fails(slurm: Slurm, times: int, words: str) -> None:
    """Let sbatch fail with these words some times."""
    calls = slurm.folder / "calls"
    slurm.answer(
        "sbatch",
        f'echo "$*" >>{calls}\n'
        f"if [ $(wc -l <{calls}) -le {times} ]; then echo '{words}' >&2; exit 1; fi; echo 7",
    )


@pytest.mark.parametrize(
    "words", ["Socket timed out", "Unexpected message received", "AssocMaxSubmitJobLimit"]
)
def test_an_allocation_is_requested_again_after_a_refusal_for_now(words: str, slurm: Slurm) -> None:
    fails(slurm, 2, words)
    slurm.states()
    assert tried(3) == [None, None, "7"] and len(slurm.calls) == 3


def test_an_allocation_is_not_requested_again_before_the_pause(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "PAUSES_S", (3600.0,))
    fails(slurm, 1, "Socket timed out")
    slurm.states()
    assert tried(3) == [None, None, None] and len(slurm.calls) == 1


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_an_allocation_whose_answer_was_lost_is_found(state: str, slurm: Slurm) -> None:
    fails(slurm, 9, "Socket timed out")
    lines = (listed(f"{n}|{state}", name=NAME, comment="folder ") for n in ("3", "4"))
    slurm.answer("squeue", f"printf '%s\\n' '{next(lines)}' '{next(lines)}'")
    assert tried(2, known=("3",)) == [None, "4"] and len(slurm.calls) == 1


def test_an_allocation_without_a_number_is_not_submitted_twice(slurm: Slurm) -> None:
    slurm.answer("sbatch", f"echo x >>{slurm.folder}/calls; echo Welcome")
    slurm.states()
    with pytest.raises(WorkflowError, match="no number"):
        tried(9)
    assert len(slurm.calls) == 1


def test_nothing_is_submitted_while_the_queue_is_unknown(slurm: Slurm) -> None:
    fails(slurm, 1, "Socket timed out")
    slurm.states("silent")
    assert tried(5) == [None] * 5 and len(slurm.calls) == 1


def test_a_final_refusal_ends_the_sweep(slurm: Slurm) -> None:
    fails(slurm, 9, "Invalid account")
    with pytest.raises(WorkflowError, match="Invalid account"):
        tried(1)


@pytest.mark.parametrize("answer", ["", "echo Invalid job id specified >&2; exit 1"])
def test_an_allocation_that_one_answer_does_not_have_goes_on(
    answer: str, slurm: Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = allocation.Allocation("7", state="RUNNING")
    slurm.answer("squeue", answer)
    held.update_from_queue(SlurmClient())
    assert held.state == "RUNNING"
    monkeypatch.setattr(queue, "ABSENT_S", 0.0)
    for _ in range(queue.ABSENT_ANSWERS):
        held.update_from_queue(SlurmClient())
    assert held.state == "FAILED"


def test_an_allocation_has_the_nodes_in_slurms_order_and_its_end(slurm: Slurm) -> None:
    line = "7|RUNNING|None|n|cpu|cpu[1-2]|N/A|2026-10-25T00:30:00|/folder|"
    slurm.answer("squeue", f"echo '{line.replace('|', SEPARATOR)}'")
    slurm.answer("scontrol", "echo cpu2; echo cpu1")
    held = allocation.Allocation("7")
    held.update_from_queue(SlurmClient())
    assert (held.nodes, held.end_s) == (("cpu2", "cpu1"), 1792888200.0)
