"""What scontrol says of a job, in its own words."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfscaling import slurm_job

# one line of Slurm 22.05's `scontrol show job --oneliner`
SHOWN = (
    "JobId=12 JobName=train platform=gcp UserId=user(1000) GroupId=user(1000) MCS_label=N/A "
    "Priority=4294901748 Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None "
    "Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:05 "
    "TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-01-02T03:04:05 "
    "EligibleTime=2026-01-02T03:04:05 AccrueTime=2026-01-02T03:04:05 "
    "StartTime=2026-01-02T03:06:35 EndTime=2026-01-02T04:06:35 Deadline=N/A "
    "PreemptEligibleTime=2026-01-02T03:06:35 PreemptTime=None SuspendTime=None "
    "LastSchedEval=2026-01-02T03:06:35 Scheduler=Main Partition=cpu AllocNode:Sid=login:99 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList=cpu[1-2] BatchHost=cpu1 NumNodes=2 NumCPUs=4 "
    "NumTasks=2 CPUs/Task=2 ReqB:S:C:T=0:0:*:* TRES=cpu=4,mem=2G,node=2,billing=4 "
    "Comment=rule_train Power="
)


def test_wanted_fields_and_time_in_the_queue() -> None:
    assert slurm_job.parse(SHOWN) == {
        "id": "12",
        "partition": "cpu",
        "nodes": "cpu[1-2]",
        "nodes_allocated": "2",
        "cpus_allocated": "4",
        "submit": "2026-01-02T03:04:05",
        "start": "2026-01-02T03:06:35",
        "tres": "cpu=4,mem=2G,node=2,billing=4",
        "queue_time_s": 150.0,
    }


@pytest.mark.parametrize(
    "text", ["", "JobId=12", "JobId=12 SubmitTime=2026-01-02T03:04:05 StartTime=Unknown"]
)
def test_a_time_that_is_not_known_is_none(text: str) -> None:
    assert slurm_job.parse(text)["queue_time_s"] is None


def scontrol(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_the_controller_is_asked_about_this_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol(tmp_path, f'echo "$@" >{tmp_path}/asked; echo "{SHOWN}"', monkeypatch)
    job = slurm_job.describe({"SLURM_JOB_ID": "12"})
    assert job == slurm_job.parse(SHOWN)
    assert (tmp_path / "asked").read_text() == "show job --oneliner 12\n"


def test_a_controller_that_does_not_answer_loses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol(tmp_path, "exit 1", monkeypatch)
    assert slurm_job.describe({"SLURM_JOB_ID": "12"}) == {"id": "12"}


def test_a_node_without_slurms_programs_loses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm_job.describe({"SLURM_JOB_ID": "12"}) == {"id": "12"}


def test_outside_slurm_there_is_no_job() -> None:
    assert slurm_job.describe({}) is None


CONFIG = """Configuration data as of 2026-01-02T03:04:05
AccountingStorageHost   = localhost
ProctrackType           = proctrack/linuxproc
SLURM_VERSION           = 22.05.8
TaskPluginParam         = (null type)

Slurmctld(primary) at controller is UP
"""


def test_settings_that_place_and_trace_tasks_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shown").write_text(CONFIG)
    scontrol(tmp_path, f'while read -r line; do echo "$line"; done <{tmp_path}/shown', monkeypatch)
    assert slurm_job.settings({"SLURM_JOB_ID": "12"}) == {
        "SLURM_VERSION": "22.05.8",
        "TaskPluginParam": "(null type)",
        "ProctrackType": "proctrack/linuxproc",
    }


def test_settings_that_cannot_be_read_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slurm_job.settings({}) is None
    scontrol(tmp_path, "exit 1", monkeypatch)
    assert slurm_job.settings({"SLURM_JOB_ID": "12"}) is None
