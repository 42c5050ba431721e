"""Allocations that Slurm refuses for now, loses, or lists no more."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import snakemake_executor_plugin_slurm_allocation as allocation
from slurm_executor import (
    Job,
    Slurm,
    StartedAllocation,
    Sweep,
    decorated,
    listed,
    site,
)
from snakemake_executor_plugin_slurm_allocation import grants
from snakemake_executor_plugin_slurm_allocation.grants import NAME, Grants
from snakemake_executor_plugin_slurm_sweep import queue
from snakemake_executor_plugin_slurm_sweep.slurm_client import SEPARATOR, SlurmClient
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

CALL = ("sbatch", "--parsable", "--wrap=true")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat requests without a pause."""
    monkeypatch.setattr(grants, "PAUSES_S", (0.0, 0.0))


def tried(times: int, known: tuple[str, ...] = ()) -> list[str | None]:
    """The answers to some tries."""
    granting = Grants(SlurmClient(), lambda _: None)
    return [granting.request_allocation("/folder ", CALL, known) for _ in range(times)]


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
    comment = decorated(queue.mark_comment("/folder "))
    lines = (listed(f"{n}|{state}", name=NAME, comment=comment) for n in ("3", "4"))
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


def test_an_allocation_is_requested_once_all_jobs_are_steps(
    slurm: Slurm, begin: Callable[..., StartedAllocation], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Otherwise it is too small or too short for jobs that are added later."""
    site(slurm, 3)
    executor, adopt = begin(), allocation.Executor._adopt
    sizes = random.sample([1, 2, 3], 3)
    jobs = [Job([str(tmp_path / f"{n}.json")], resources={"nodes": n}) for n in sizes]
    reached, gate = threading.Event(), threading.Event()

    def adopt_late(self: allocation.Executor, job: Job) -> SubmittedJobInfo | None:
        if job is jobs[-1]:
            reached.set()
            gate.wait()
        return adopt(self, job)

    monkeypatch.setattr(allocation.Executor, "_adopt", adopt_late)
    executor.run_jobs(jobs)
    try:
        reached.wait()
        executor.query(*(step.info for step in executor._steps.values()))
        assert len(executor._steps) == 2 and slurm.calls == []
    finally:
        gate.set()
        executor._submitter.shutdown(wait=True)
    executor.query(*(step.info for step in executor._steps.values()))
    (call,) = slurm.calls
    minutes = math.ceil(sum(sizes) * 60 / 3) + 1  # by default 60 minutes each
    assert {"--nodes=3", f"--time={minutes}"} <= {*call}


# --- steps ---


STEP = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-29T10:00:00"


@pytest.mark.parametrize(
    ("srun", "node", "state"),
    [
        # srun ends well where an allocation keeps its other nodes
        ("echo 'srun: error: Node failure on n1' >&2", "n1|allocated", "NODE_FAIL"),
        ("true", "n1|down*", "NODE_FAIL"),
        ("exit 1", "n1|down", "NODE_FAIL"),
        (f"echo '{STEP} DUE TO NODE FAILURE ***' >&2; exit 1", "", "NODE_FAIL"),
        (f"echo '{STEP} DUE TO TIME LIMIT ***' >&2; exit 1", "", "TIMEOUT"),
        (f"echo '{STEP} DUE TO PREEMPTION ***' >&2; exit 1", "", "PREEMPTED"),
        (f"echo '{STEP} ***' >&2; exit 1", "", "CANCELLED"),
        # Slurm 26.05
        (f"echo '{STEP} DUE to SIGNAL Terminated ***' >&2; exit 1", "", "CANCELLED"),
        (f"echo '{STEP} DUE TO TASK FAILURE ***' >&2; exit 1", "", "FAILED"),
        (f"echo '{STEP} DUE TO JOB REQUEUE ***' >&2; exit 1", "", "REQUEUED"),
        ("echo 'srun: error: n1: task 0: Out Of Memory' >&2; exit 1", "", "OUT_OF_MEMORY"),
        ("echo 'srun: error: n1: task 0: Exited with exit code 1' >&2; exit 1", "", "FAILED"),
        ("echo '    srun: error: Node failure on n1' >&2; exit 1", "n1|allocated*", "FAILED"),
    ],
)
@pytest.mark.parametrize("is_finished", [True, False])
def test_a_failed_step_has_the_state_that_slurm_reports(
    is_finished: bool, srun: str, node: str, state: str, slurm: Slurm, sweep: Sweep,
    begin: Callable[..., StartedAllocation], tmp_path: Path,
) -> None:  # fmt: skip
    """Unless it has left its record. No step is restarted, whatever a job is (`requeue`)."""
    site(slurm, 1, states=node, srun=srun)
    executor = begin(requeue=random.choice([True, False]))
    output = str(tmp_path / "run.json")
    info = executor._submit(Job([output]))
    assert info is not None and executor.query(info) == [info.external_jobid]
    (step,) = executor._steps.values()
    assert step.process is not None
    step.process.wait()
    if is_finished:
        sweep.finished = {"7"}
    assert executor.query(info) == []
    assert executor.ended == [(output, is_finished)]
    assert sweep.failures == ({} if is_finished else {step.name: state})


#: An srun that runs the step's command, and fails.
RUNS = 'while [ "$1" != sh ]; do shift; done; SLURM_JOB_ID=7 SLURM_STEP_ID={step} "$@"; exit 1'


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_failed_step_is_reported_by_the_number_that_sacct_lists(
    has_begun: bool, slurm: Slurm, sweep: Sweep, begin: Callable[..., StartedAllocation],
    tmp_path: Path,
) -> None:  # fmt: skip
    """The number of the allocation is the same for all its runs."""
    step, size = random.randint(0, 5000), random.randint(1, 3)
    site(slurm, size, srun=RUNS.format(step=step) if has_begun else "exit 1")
    executor = begin()
    executor.command = f'echo "$TFSCALING_STEP,$SLURM_STEP_ID" >{tmp_path}/told'
    info = executor._submit(Job([str(tmp_path / "run.json")], resources={"nodes": size}))
    assert info is not None
    executor.query(info)
    (started,) = executor._steps.values()
    assert started.process is not None
    started.process.wait()
    later = begin()  # it still knows the nodes
    assert sum(later._rotation.in_all.values()) == size
    executor.query(info)
    number = f"7.{step}" if has_begun else str(info.external_jobid)
    assert sweep.failures == {number: "FAILED"}
    if has_begun:  # the launcher knows its own, and its srun is no part of this step
        assert (tmp_path / "told").read_text() == f"{number},\n"


def test_a_step_whose_first_node_has_left_the_allocation_has_failed(
    slurm: Slurm, sweep: Sweep, begin: Callable[..., StartedAllocation], tmp_path: Path
) -> None:
    """Seen on Slurm: its srun waits until the allocation ends."""
    site(slurm, 3)
    executor, output = begin(), str(tmp_path / "run.json")
    info = executor._submit(Job([output], resources={"nodes": 2}))
    assert info is not None and executor.query(info) == [info.external_jobid]
    (step,) = executor._steps.values()
    assert step.process is not None
    for lost in (step.nodes[1], step.nodes[0]):
        left = " ".join({"n1", "n2", "n3"} - {lost})
        slurm.answer("scontrol", f"printf '%s\\n' {left}")
        going_on = executor.query(info)
        assert going_on == ([info.external_jobid] if lost == step.nodes[1] else [])
    assert step.process.wait() < 0
    assert executor.ended == [(output, False)] and sweep.failures == {step.name: "NODE_FAIL"}


def test_a_step_that_runs_in_another_allocation_goes_on(
    slurm: Slurm, begin: Callable[..., StartedAllocation], tmp_path: Path
) -> None:
    job = Job([str(tmp_path / "run.json")])
    name = begin()._make_step(job).name
    earlier = f"6.3 {name} n3"
    site(slurm, 3, earlier)
    executor = begin()
    info = executor._adopt(job)
    assert info is not None and executor.query(info) == [name]
    site(slurm, 2, earlier)  # the allocation of this start has other nodes
    other = executor._submit(Job([str(tmp_path / "other.json")]))
    assert other is not None
    for _ in range(3):
        assert executor.query(info, other) == [name, str(other.external_jobid)]
    assert executor.ended == []


@pytest.mark.parametrize("state", ["NODE_FAIL", "FAILED", "COMPLETED"])
def test_a_step_of_an_earlier_driver_that_is_gone_has_its_state(
    state: str, slurm: Slurm, sweep: Sweep, begin: Callable[..., StartedAllocation],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(queue, "ABSENT_S", 0.0)
    job = Job([str(tmp_path / "run.json")])
    name = begin()._make_step(job).name
    site(slurm, 1, f"7.3 {name} n1")
    executor = begin()
    info = executor._adopt(job)
    assert info is not None and executor.query(info) == [name]
    site(slurm, 1, states="n1|down*" if state == "NODE_FAIL" else "n1|idle")
    if state == "COMPLETED":
        (tmp_path / "run.json").touch()
    while executor.query(info):
        pass
    assert executor.ended == [(str(tmp_path / "run.json"), state == "COMPLETED")]
    assert sweep.failures == ({} if state == "COMPLETED" else {name: state})


def broken(record: Path, how: str) -> None:
    """Break the record of a step's nodes."""
    record.parent.mkdir(parents=True, exist_ok=True)
    if how == "folder":
        record.mkdir()
    elif how != "missing":
        texts = {"empty": b"", "cut": b"n1 n", "short": b"n1\n", "bytes": b"\xff\xfe\n"}
        record.write_bytes(texts[how])


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "short", "bytes", "folder"])
def test_a_running_step_without_a_record_of_its_nodes_is_adopted(
    how: str, slurm: Slurm, begin: Callable[..., StartedAllocation], tmp_path: Path
) -> None:
    """Slurm has its nodes in the step of its ranks; until then no other run may get one."""
    size = random.randint(2, 4)
    job = Job([str(tmp_path / "a/run.json")], resources={"nodes": size})
    other = Job([str(tmp_path / "b/run.json")], ["cpu", "x", "2"])
    first = begin()._make_step(job)
    broken(first.record, how)
    request = allocation._request_options(job)
    left = listed("7|RUNNING", name=NAME, comment=queue.mark_comment(f"{tmp_path} {request}"))
    site(slurm, size + 1, f"7.3 {first.name} n1")
    answer = (slurm.folder / "squeue").read_text()
    slurm.answer("squeue", f"echo '{left}'")
    executor = begin()
    (slurm.folder / "squeue").write_text(answer)
    info, waiting = executor._adopt(job), executor._submit(other)
    assert info is not None and waiting is not None
    assert executor.query(info, waiting) == [info.external_jobid, waiting.external_jobid]
    step = executor._steps[first.name]
    assert (step.nodes, step.state) == ((), "RUNNING"), size
    assert executor._steps[str(waiting.external_jobid)].state == "PENDING"
    site(slurm, size + 1, f"7.3 {first.name} n1", "8.1 bash n[1-2]", f"7.4 python3 n[1-{size}]")
    executor.query(info, waiting)
    assert step.nodes == tuple(f"n{n}" for n in range(1, size + 1))
    assert executor._steps[str(waiting.external_jobid)].nodes == (f"n{size + 1}",)
    assert executor.errors == [] and executor.ended == []


def test_a_step_leaves_a_record_of_its_nodes_for_the_next_driver(
    slurm: Slurm, begin: Callable[..., StartedAllocation], tmp_path: Path
) -> None:
    size = random.randint(1, 5)
    job = Job([str(tmp_path / "run.json")], resources={"nodes": size})
    site(slurm, 5)
    executor = begin()
    info = executor._submit(job)
    assert info is not None
    executor.query(info)
    (step,) = executor._steps.values()
    site(slurm, 5, f"7.0 {step.name} {step.nodes[0]}")
    later = begin()
    assert later._adopt(job) is not None
    assert later._steps[step.name].nodes == step.nodes and len(step.nodes) == size


def test_what_is_left_of_a_sweep_in_an_allocation_is_named(
    slurm: Slurm, begin: Callable[..., StartedAllocation], tmp_path: Path
) -> None:
    site(slurm, 3)
    executor = begin()
    assert executor.describe_remaining() == ""
    info = executor._submit(Job([str(tmp_path / "run.json")]))
    assert info is not None
    executor.query(info)
    assert "scancel 7" in executor.describe_remaining()
    slurm.answer("scancel", "exit 1")
    executor.shutdown()
    assert "scancel 7" in executor.describe_remaining()
    slurm.answer("scancel", "exit 0")
    executor.shutdown()
    assert executor.describe_remaining() == ""
    given = begin(job=7)
    info = given._submit(Job([str(tmp_path / "run.json")]))
    assert info is not None
    given.query(info)
    (step,) = given._steps.values()
    assert step.process is not None
    assert f"kill {step.process.pid}" in given.describe_remaining()
    step.process.kill()
    step.process.wait()
    assert given.describe_remaining() == ""
