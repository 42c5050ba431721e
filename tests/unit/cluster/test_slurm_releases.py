"""Slurm's answers in several releases, recorded by tests/record_slurm.py and parsed by the client.

Fake programs print what was recorded. The jobs and nodes were in the same states in all releases.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from fake_programs import program
from tfscaling.cluster import slurm_client
from tfscaling.cluster.slurm_client import (
    Accepted,
    NoAnswer,
    Refusal,
    RefusalKind,
    SlurmClient,
    Submitted,
)
from tfscaling.launch import slurm_job
from tfscaling.plan import preflight, queue_waits

#: Release → what its programs printed.
RECORDED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())
    for path in Path(__file__).with_name("slurm_outputs").glob("*.json")
}
#: Name of a job → its state in the queue, and Slurm's reason.
STATES = {
    "completed": ("COMPLETED", "None"),
    "failed": ("FAILED", "NonZeroExitCode"),
    "cancelled": ("CANCELLED", "None"),
    "time_limit": ("TIMEOUT", "TimeLimit"),
    "node_failed": ("NODE_FAIL", "NodeDown"),
    "running": ("RUNNING", "None"),
    "gpus": ("RUNNING", "None"),
    "waiting": ("PENDING", "Resources"),
}
COMMENT = "rule_train a|b StartTime=2001-01-01T00:00:00"


def version(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")[:2]))


def pattern(words: list[str]) -> str:
    """A pattern of the shell for the arguments of a call: a begin of a time is any time."""
    parts = re.split(r"(?<=--starttime=)\S+", " ".join(words))
    return "*".join(map(shlex.quote, parts))


@pytest.fixture(params=sorted(RECORDED))
def recorded(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What a release printed; programs in PATH print it, and fail when called otherwise."""
    found = RECORDED[request.param]
    scripts: dict[str, str] = {}
    for number, call in enumerate(found["calls"]):
        words = call["command"]
        if words[0] == "sh":
            words = shlex.split(words[2].removeprefix("exec "))
        for stream in ("stdout", "stderr"):
            (tmp_path / f"{number}.{stream}").write_text(call[stream])
        answer = f"cat {tmp_path}/{number}.stdout; cat {tmp_path}/{number}.stderr >&2"
        case = f"{pattern(words[1:])}) {answer}; exit {call['exit']};;\n"
        scripts[words[0]] = scripts.get(words[0], "") + case
    for name, cases in scripts.items():
        program(tmp_path, name, f'case "$*" in\n{cases}esac\necho "not recorded: $*" >&2; exit 99')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return found


def test_releases_from_the_oldest_to_the_newest_are_recorded() -> None:
    versions = sorted(map(version, RECORDED))
    assert (versions[0], versions[-1]) == ((22, 5), (26, 5))
    assert all(recorded["source"] for recorded in RECORDED.values())


def test_the_queue(recorded: dict[str, Any]) -> None:
    jobs = SlurmClient().jobs()
    assert not isinstance(jobs, NoAnswer)
    found = {job.name: job for job in jobs}
    assert {job.name: job.number for job in jobs} == recorded["jobs"]
    assert {name: (job.state, job.reason) for name, job in found.items()} == STATES
    running, waiting = found["running"], found["waiting"]
    assert (running.partition, running.nodes) == ("cpu", "cpu[1-2]")
    assert running.comment == COMMENT
    assert running.workdir == "/cluster"
    assert running.start_s is not None and running.end_s == running.start_s + 600
    assert waiting.nodes == ""
    assert SlurmClient().jobs(numbers=["999999"]) == []


def test_steps(recorded: dict[str, Any]) -> None:
    steps = SlurmClient().steps(recorded["jobs"]["running"])
    assert not isinstance(steps, NoAnswer)
    found = {step.name: (step.job, step.nodes) for step in steps}
    assert found["step"] == (recorded["jobs"]["running"], "cpu[1-2]")


def test_accounting(recorded: dict[str, Any]) -> None:
    slurm, jobs = SlurmClient(), recorded["jobs"]
    states = slurm.accounted_states([*STATES])
    assert not isinstance(states, NoAnswer)
    assert {name: states[jobs[name]].split()[0] for name in STATES} == {
        name: state for name, (state, _) in STATES.items()
    }
    waits = slurm.accounted_waits("cpu", 2)
    assert not isinstance(waits, NoAnswer)
    assert len(waits) == 7 and queue_waits.parse_jobs(waits).shape[0] > 0
    energies = slurm.accounted_energy(jobs["completed"])
    assert not isinstance(energies, NoAnswer)
    assert f"{jobs['completed']}.0" in {number for number, _ in energies}
    lineages = slurm.account_lineages("root")
    if version(recorded["release"]) < (23, 11):
        assert isinstance(lineages, NoAnswer)
    else:
        assert not isinstance(lineages, NoAnswer)
        assert "/" in lineages  # the root account's


def test_the_facts_of_a_job(recorded: dict[str, Any]) -> None:
    slurm, jobs = SlurmClient(), recorded["jobs"]
    shown = slurm.show_job(jobs["running"])
    assert isinstance(shown, str)
    job = slurm_job.parse_job(shown)
    assert (job.id, job.partition, job.nodes) == (jobs["running"], "cpu", "cpu[1-2]")
    assert job.nodes_allocated == "2"
    assert job.submit is not None and job.submit.endswith("+00:00")
    assert job.tres is not None and "node=2" in job.tres.split(",")
    assert job.boot_time_s == 0 and job.queue_time_s is not None and job.queue_time_s >= 0
    assert slurm_job.allocation_problem(job, 2) == ""
    assert "cpu[1-2]" in slurm_job.allocation_problem(job, 3)
    assert slurm.run_time_s(jobs["time_limit"]) is not None
    gpus = slurm.show_job(jobs["gpus"])
    assert isinstance(gpus, str)
    assert re.fullmatch(r"gres[:/]gpu:2", slurm_job.parse_job(gpus).tres_per_node or "")
    waiting = slurm.show_job(jobs["waiting"])
    assert isinstance(waiting, str)
    assert slurm_job.parse_job(waiting).nodes is None


def test_settings_and_partitions(recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", recorded["jobs"]["running"])
    settings = SlurmClient().configuration()
    assert not isinstance(settings, NoAnswer)
    assert settings["SLURM_VERSION"] == recorded["release"]
    assert settings["ResumeProgram"] == "(null)"
    assert preflight.has_accounting()
    assert slurm_job.relevant_settings({"SLURM_JOB_ID": "1"}) is not None
    assert slurm_job.consumed_energy_j({"SLURM_JOB_ID": recorded["jobs"]["completed"]}) is None
    assert not slurm_job.signals_started_processes_only()
    cpu, gpu = preflight.read_partitions()
    assert (cpu["PartitionName"], gpu["PartitionName"]) == ("cpu", "gpu")
    assert (cpu["Default"], gpu["Default"], cpu["State"]) == ("YES", "NO", "UP")
    request = preflight.SlurmRequest("sbatch", 2, 60, None, "lab", None)
    assert preflight.select_partitions(request, [cpu, gpu]) == [cpu]
    assert preflight.find_limit_problem(request, [cpu, gpu]) == ""
    limited = [{**cpu, "MaxNodes": "1"}, gpu]
    assert preflight.find_limit_problem(request, limited).startswith("PartitionNodeLimit")


def test_nodes(recorded: dict[str, Any]) -> None:
    slurm = SlurmClient()
    found = slurm.nodes()
    assert not isinstance(found, NoAnswer)
    # `-`: the node is planned for a job that waits, in later releases
    assert {node: state.rstrip("-") for node, state in found.items()} == {
        "cpu1": "mixed", "cpu2": "mixed", "cpu3": "down*", "cpu4": "drained", "gpu1": "mixed",
    }  # fmt: skip
    states = slurm.nodes(names=["cpu1", "cpu3"])
    assert not isinstance(states, NoAnswer)
    assert [node for node, state in states.items() if slurm_client.is_node_down(state)] == ["cpu3"]
    assert slurm.hostnames("cpu[2-4,10],gpu1") == ("cpu2", "cpu3", "cpu4", "cpu10", "gpu1")
    assert slurm.ping() is None


def test_submission(recorded: dict[str, Any]) -> None:
    slurm = SlurmClient()
    test = ["sbatch", "--test-only", "--parsable", "--nodes=1", "--wrap=true"]
    accepted = slurm.test([*test, "--partition=cpu"])
    assert isinstance(accepted, Accepted) and accepted.start is not None
    for words in (["--partition=none"], ["--partition=cpu", "--nodes=5"]):
        answer = slurm.test([*test, *words])
        assert isinstance(answer, Refusal) and answer.kind is RefusalKind.FINAL
    start = "sbatch --parsable --nodes=1 --wrap=true"
    refused = slurm.submit(f"{start} --account=none")
    assert isinstance(refused, Refusal) and refused.kind is RefusalKind.FINAL
    assert "Invalid account" in refused.words
    for line in (f"{start} --hold", "sbatch --nodes=1 --wrap=true --hold"):
        submitted = slurm.submit(line)
        assert isinstance(submitted, Submitted)
        assert submitted.number is not None and int(submitted.number) > 8


def test_jobs_that_slurm_does_not_know(recorded: dict[str, Any]) -> None:
    slurm = SlurmClient()
    assert isinstance(slurm.requeue("999999"), NoAnswer)
    slurm.signal(["999999"], "TERM"), slurm.cancel(["999999"])


def test_why_steps_ended(recorded: dict[str, Any], tmp_path: Path) -> None:
    for name in STATES:
        (tmp_path / name).mkdir()
    for file, text in recorded["logs"].items():
        name, _, rank = file.removesuffix(".log").partition("-")
        if not rank:  # the job's log, in which the launcher's log of srun has only lines of srun
            text = "".join(line for line in text.splitlines(True) if line.startswith("srun: "))
        (tmp_path / name / f"{rank or 'srun'}.log").write_text(text)
    causes = {name: slurm_job.cause_by_slurm(tmp_path / name / "srun.log") for name in STATES}
    assert {name: cause.kind for name, cause in causes.items() if cause} == {
        "time_limit": "time_limit",
        "node_failed": "node_failed",
    }
    assert causes["node_failed"] is not None and causes["node_failed"].host == "cpu3"
    failed = tmp_path / "failed/srun.log"
    assert slurm_job.read_srun_errors(failed) == {0: "Exited with exit code 3 (on cpu1)"}
