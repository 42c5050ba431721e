"""Allocations and their steps while Slurm boots nodes, lacks fit ones, or does not answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import snakemake_executor_plugin_slurm_allocation as allocation
import snakemake_executor_plugin_slurm_sweep as plugin
from slurm_executor import Job, Slurm, StartedAllocation, Sweep, listed, site
from snakemake_executor_plugin_slurm_allocation.grants import NAME
from snakemake_executor_plugin_slurm_sweep import queue
from snakemake_interface_common.exceptions import WorkflowError

Begin = Callable[..., StartedAllocation]


def options(call: list[str], name: str) -> list[str]:
    """The values of an option in a call of sbatch."""
    return [word.partition("=")[2] for word in call if word.startswith(f"--{name}=")]


@pytest.mark.parametrize("state", ["CONFIGURING", "SUSPENDED", "SIGNALING", "STOPPED", "RESIZING"])
def test_an_allocation_that_does_not_run_yet_is_waited_for(
    state: str, slurm: Slurm, begin: Begin, tmp_path: Path
) -> None:
    site(slurm, 2, state=state)
    executor = begin()
    info = executor._submit(Job([str(tmp_path / "run.json")]))
    assert info is not None
    for _ in range(3):
        assert executor.query(info) == [info.external_jobid]
    (step,) = executor._steps.values()
    assert (step.state, step.process) == ("PENDING", None) and len(slurm.calls) == 1
    site(slurm, 2)
    executor.query(info)
    assert step.state == "RUNNING" and len(slurm.calls) == 1 and slurm.cancelled == []


@pytest.mark.parametrize("state", ["COMPLETING", "PREEMPTED", "TIMEOUT", "NODE_FAIL", "CANCELLED"])
def test_an_allocation_that_has_ended_is_replaced(
    state: str, slurm: Slurm, begin: Begin, tmp_path: Path
) -> None:
    site(slurm, 2, state=state)
    executor = begin()
    info = executor._submit(Job([str(tmp_path / "run.json")]))
    assert info is not None
    for _ in range(2):
        assert executor.query(info) == [info.external_jobid]
    assert len(slurm.calls) == 2
    # Slurm would start it without its steps
    assert all("--no-requeue" in call for call in slurm.calls)


def test_an_allocation_on_another_cluster_of_a_federation_ends_the_sweep(
    slurm: Slurm, begin: Begin, tmp_path: Path
) -> None:
    site(slurm, 1, state="REVOKED")
    executor = begin()
    info = executor._submit(Job([str(tmp_path / "run.json")]))
    assert info is not None
    with pytest.raises(WorkflowError, match="federation.*--clusters"):
        executor.query(info)


@pytest.mark.parametrize("extra", ["", "--exclude=n9 --exclude=n7"])
def test_the_next_allocation_excludes_nodes_without_gpus(
    extra: str, slurm: Slurm, sweep: Sweep, begin: Begin, tmp_path: Path
) -> None:
    """Otherwise the same nodes come again, and no step ever fits."""
    site(slurm, 2)
    executor = begin()
    resources = {"nodes": 2, "slurm_extra": extra}
    info = executor._submit(Job([str(tmp_path / "run.json")], resources=resources))
    assert info is not None
    sweep.unfit = []
    slurm.states("7|PENDING Resources")
    executor.query(info)
    site(slurm, 2)
    sweep.unfit = ["n2", "n4"]  # of an earlier attempt, whose allocation this still is
    for _ in range(2):
        assert executor.query(info) == [info.external_jobid]
    first, second = slurm.calls[:2]
    assert options(first, "exclude")[-1:] == (["n7"] if extra else [])
    assert options(second, "exclude")[-1] == ("n7,n2,n4" if extra else "n2,n4")
    assert slurm.cancelled[0] == "7"


def test_a_step_without_fit_nodes_on_the_cluster_fails_alone(
    slurm: Slurm, sweep: Sweep, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site(slurm, 1)
    words = "Requested node configuration is not available"
    refuse = f"echo '{words}' >&2; exit 1"
    slurm.answer("sbatch", f'case "$*" in *--exclude=n2*) {refuse};; esac; echo 7')
    limited, other = (str(tmp_path / name / "run.json") for name in "ab")
    unfit = {Path(limited): ["n2"]}
    monkeypatch.setattr(sweep, "nodes_to_avoid", lambda output: unfit.get(output, []))
    executor = begin()
    infos = [executor._submit(Job([limited])), executor._submit(Job([other], ["cpu", "x", "2"]))]
    one, two = (info for info in infos if info is not None)
    assert executor.query(one, two) == [two.external_jobid]
    assert executor.ended == [(limited, False)] and sweep.failures == {}
    assert words in sweep.refusals[Path(limited)] and Path(limited) in executor._lost
    executor.query(two)
    assert executor._steps[str(two.external_jobid)].state == "RUNNING"


def test_an_allocation_shorter_than_its_longest_run_is_refused(
    slurm: Slurm, begin: Begin, tmp_path: Path
) -> None:
    """No step would ever fit: one allocation after the other would be submitted."""
    site(slurm, 1)
    executor = begin(duration_min=5)
    info = executor._submit(Job([str(tmp_path / "run.json")], resources={"runtime": 7}))
    assert info is not None
    with pytest.raises(WorkflowError, match="duration-min 5.* 7 min.*at least 8"):
        executor.query(info)
    assert slurm.calls == []


def test_a_run_gets_the_gpus_that_it_requests(
    slurm: Slurm, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a variable for its own srun: options for srun in the user's shell do not count."""
    monkeypatch.setenv("SLURM_GRES", "gpu:8")
    monkeypatch.setenv("SLURM_CONSTRAINT", "fast")
    told = tmp_path / "told"
    run = 'while [ "$1" != sh ]; do shift; done; SLURM_JOB_ID=7 SLURM_STEP_ID=0 "$@"'
    site(slurm, 2, srun=f"echo $* ${{SLURM_GRES-}}${{SLURM_CONSTRAINT-}} >{told}.srun; {run}")
    executor = begin()
    executor.command = f'echo "${{SLURM_GRES-}},$TFSCALING_GRES" >{told}'
    info = executor._submit(Job([str(tmp_path / "run.json")], resources={"gres": "gpu:2"}))
    assert info is not None
    executor.query(info)
    (step,) = executor._steps.values()
    assert step.process is not None
    step.process.wait()
    assert told.read_text() == ",gpu:2\n"
    said = (tmp_path / "told.srun").read_text()
    assert "--gres=gpu:2 " in said and "gpu:8" not in said and "fast" not in said


def test_a_step_whose_adoption_had_no_answer_is_not_started_twice(
    slurm: Slurm, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "PAUSES_S", (0.0,))
    silent, job = random.randint(1, 4), Job([str(tmp_path / "run.json")])
    executor = begin()
    name = executor._make_step(job).name
    site(slurm, 1, f"7.3 {name} n1")
    answer = (slurm.folder / "squeue").read_text().partition("\n")[2]
    count = f"echo x >>{slurm.folder}/asked; [ $(wc -l <{slurm.folder}/asked) -gt {silent} ]"
    slurm.answer("squeue", f"{count} || exit 1\n{answer}")
    info = executor._adopt(job)
    assert info is not None and executor._steps[name].state == "RUNNING"
    assert executor._steps[name].number == "7.3" and len(executor.log.warnings) == 1


def test_a_stop_ends_the_wait_for_the_steps_of_an_earlier_start(
    slurm: Slurm, begin: Begin, tmp_path: Path
) -> None:
    executor, job = begin(), Job([str(tmp_path / "run.json")])
    slurm.states("silent")
    executor._is_stopped.set()
    assert executor._adopt(job) is None and executor._submit(job) is None


def test_one_empty_answer_loses_no_step_of_an_earlier_start(
    slurm: Slurm, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "PAUSE_S", 0.0)
    job = Job([str(tmp_path / "run.json")])
    name = begin()._make_step(job).name
    request = allocation._request_options(job)
    left = listed("7|RUNNING", name=NAME, comment=queue.mark_comment(f"{tmp_path} {request}"))
    slurm.answer("squeue", f"echo '{left}'")
    executor = begin()
    site(slurm, 1, f"7.3 {name} n1")
    answer = (slurm.folder / "squeue").read_text().partition("\n")[2]
    slurm.answer("squeue", f"[ -e {tmp_path}/asked ] || exec touch {tmp_path}/asked\n{answer}")
    assert executor._adopt(job) is not None


def test_a_start_without_an_answer_about_allocations_is_refused(
    slurm: Slurm, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = begin()
    monkeypatch.setattr(queue, "PAUSE_S", 0.0)
    slurm.states("silent")
    with pytest.raises(WorkflowError, match="allocations of an earlier start"):
        executor._find_earlier_allocations()


def test_an_allocation_that_slurm_did_not_cancel_is_cancelled_later(
    slurm: Slurm, begin: Begin, tmp_path: Path
) -> None:
    site(slurm, 1)
    cancel = (slurm.folder / "scancel").read_text().partition("\n")[2]
    slurm.answer("scancel", "exit 1")
    executor = begin()
    info = executor._submit(Job([str(tmp_path / "run.json")], resources={"nodes": 2}))
    assert info is not None
    executor.query(info)  # it has too few nodes for the step
    assert executor._allocations == {}
    assert "scancel 7" in executor.describe_remaining()
    slurm.answer("scancel", cancel)
    slurm.answer("sbatch", "echo 8")
    slurm.states("8|PENDING Resources")
    while not slurm.cancelled:  # the executor's own thread queries, too
        executor.query(info)
    executor.query(info)
    assert executor.describe_remaining().startswith("SLURM jobs 8 ")
    slurm.answer("scancel", "exit 1")
    executor.shutdown()
    slurm.answer("scancel", cancel)
    executor.shutdown()
    assert {*slurm.cancelled} == {"7", "8"} and executor.describe_remaining() == ""


def test_an_idle_allocation_that_slurm_did_not_cancel_is_cancelled_later(
    slurm: Slurm, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "_IDLE_S", -1.0)
    site(slurm, 1, srun="exit 1")
    cancel = (slurm.folder / "scancel").read_text().partition("\n")[2]
    slurm.answer("scancel", "exit 1")
    executor = begin()
    info = executor._submit(Job([str(tmp_path / "run.json")]))
    assert info is not None
    executor.query(info)
    (step,) = executor._steps.values()
    assert step.process is not None
    step.process.wait()
    assert executor.query(info) == []
    executor.query()
    assert executor._allocations == {}
    slurm.answer("scancel", cancel)
    while not slurm.cancelled:
        executor.query()
    assert {*slurm.cancelled} == {"7"}


def test_ctrl_c_ends_the_steps_of_an_earlier_start_in_the_users_job(
    slurm: Slurm, begin: Begin, tmp_path: Path
) -> None:
    job = Job([str(tmp_path / "run.json")])
    name = begin()._make_step(job).name
    site(slurm, 1, f"7.3 {name} n1")
    executor = begin(job=7)
    info = executor._adopt(job)
    assert info is not None and executor.query(info) == [name]
    assert "scancel 7.3" in executor.describe_remaining()
    executor.cancel_jobs([info])
    assert slurm.cancelled == ["7.3"] and executor.describe_remaining() == ""


def test_no_step_starts_after_a_stop_that_comes_during_a_query(
    slurm: Slurm, begin: Begin, tmp_path: Path
) -> None:
    site(slurm, 1)
    executor = begin()
    info = executor._submit(Job([str(tmp_path / "run.json")]))
    assert info is not None
    executor._is_stopped.set()
    executor.cancel_jobs([info])
    asyncio.run(executor._states([]))
    (step,) = executor._steps.values()
    assert (step.state, step.process) == ("PENDING", None)


@pytest.mark.parametrize("state", queue.HELD)
def test_a_held_allocation_is_named(
    state: str, slurm: Slurm, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its number: steps that wait for it have none."""
    monkeypatch.setattr(plugin, "REASONS_AFTER_S", 0.0)
    site(slurm, 1, state=state)
    executor = begin()
    infos = [executor._submit(Job([f"{tmp_path}/{n}"], ["cpu", "x", str(n)])) for n in range(2)]
    known = [info for info in infos if info is not None]
    for _ in range(2):
        assert len(executor.query(*known)) == 2
    (line,) = executor.log.warnings
    assert "`scontrol release 7`" in line and len(slurm.calls) == 1
