"""What scontrol and sacct say of a job, in their own words."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from fake_programs import program
from tfscaling.launch import slurm_job
from tfscaling.record.run_record import SlurmJob

# Slurm 22.05's `scontrol show job`
SHOWN = """JobId=12 JobName=train platform=gcp SubmitTime=2001-01-01T00:00:00
   UserId=user(1000) GroupId=user(1000) MCS_label=N/A
   Priority=4294901748 Nice=0 Account=(null) QOS=(null)
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:05 TimeLimit=01:00:00 TimeMin=N/A
   SubmitTime=2026-01-02T03:04:05 EligibleTime=2026-01-02T03:04:05
   AccrueTime=2026-01-02T03:04:05
   StartTime=2026-01-02T03:06:35 EndTime=2026-01-02T04:06:35 Deadline=N/A
   PreemptEligibleTime=2026-01-02T03:06:35 PreemptTime=None
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-01-02T03:06:35 Scheduler=Main
   Partition=cpu AllocNode:Sid=login:99
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=cpu[1-2]
   BatchHost=cpu1
   NumNodes=2 NumCPUs=4 NumTasks=2 CPUs/Task=2 ReqB:S:C:T=0:0:*:*
   TRES=cpu=4,mem=2G,node=2,billing=4
   Command=/home/user/train StartTime=2001-01-01T00:00:00
   Comment=rule_train StartTime=2027-01-01T00:00:00 Partition=none
   Power=
"""


def test_wanted_fields_and_time_in_the_queue() -> None:
    assert slurm_job.parse_job(SHOWN) == SlurmJob(
        id="12",
        partition="cpu",
        nodes="cpu[1-2]",
        nodes_allocated="2",
        cpus_allocated="4",
        submit="2026-01-02T03:04:05+00:00",
        start="2026-01-02T03:06:35+00:00",
        tres="cpu=4,mem=2G,node=2,billing=4",
        queue_time_s=150.0,
        boot_time_s=0.0,
    )


def test_a_record_has_only_the_facts_that_are_known() -> None:
    assert msgspec.to_builtins(SlurmJob(id="12", restarts=1)) == {"id": "12", "restarts": 1}


@pytest.mark.parametrize(
    "line",
    [
        "TRES=cpu=4,mem=2G,node=2,billing=4",  # Slurm 22.05
        "AllocTRES=cpu=4,mem=2G,node=2,billing=4",
        "ReqTRES=cpu=2,mem=1G,node=2,billing=2\n   AllocTRES=cpu=4,mem=2G,node=2,billing=4",
    ],
)
def test_what_a_job_got_is_read_as_each_release_writes_it(line: str) -> None:
    shown = SHOWN.replace("TRES=cpu=4,mem=2G,node=2,billing=4", line)
    job = slurm_job.parse_job(shown)
    assert job.tres == "cpu=4,mem=2G,node=2,billing=4"
    assert slurm_job.allocated_memory_gb(job) == pytest.approx(2 * 1024**3 / 2 / 1e9)


@pytest.mark.parametrize(
    "text", ["", "JobId=12", "JobId=12 SubmitTime=2026-01-02T03:04:05 StartTime=Unknown"]
)
def test_a_time_that_is_not_known_is_none(text: str) -> None:
    job = slurm_job.parse_job(text)
    assert (job.queue_time_s, job.boot_time_s) == (None, None)
    assert job.queue_time_reason


def test_a_start_before_the_submission_is_no_time_in_the_queue() -> None:
    """A controller whose clock was set back; LastSchedEval would make a boot of it."""
    shown = SHOWN.replace("\n   StartTime=2026-01-02T03:06", "\n   StartTime=2026-01-02T02:06")
    job = slurm_job.parse_job(
        shown.replace("LastSchedEval=2026-01-02T03", "LastSchedEval=2026-01-02T01")
    )
    assert (job.queue_time_s, job.boot_time_s) == (None, None)
    assert "3450 s" in job.queue_time_reason


def looked_at(time: str) -> str:
    """SHOWN with another time of the last look at the job."""
    return SHOWN.replace("LastSchedEval=2026-01-02T03:06:35", f"LastSchedEval=2026-01-02T{time}")


@pytest.mark.parametrize(
    ("evaluated", "queue_s", "boot_s"),
    [
        ("03:06:35", 150.0, 0.0),  # nodes were up
        ("03:06:36", 150.0, 0.0),  # the start, too, is read from a clock of whole seconds
        ("03:06:33", 150.0, 0.0),  # what the backfill scheduler takes
        ("03:05:46", 101.0, 49.0),  # nodes were booted
        ("03:04:05", 0.0, 150.0),  # allocated at once
        ("03:04:03", 0.0, 150.0),  # with a clock that was read before the submission
        ("", 150.0, None),  # not told: both are in one
    ],
)
def test_boot_is_apart_from_the_queue(evaluated: str, queue_s: float, boot_s: float | None) -> None:
    """Slurm sets the start anew when nodes that it boots are up."""
    shown = looked_at(evaluated) if evaluated else SHOWN.replace("LastSchedEval=", "Other=")
    job = slurm_job.parse_job(shown)
    assert (job.queue_time_s, job.boot_time_s) == (queue_s, boot_s)


def scontrol(
    folder: Path, script: str, monkeypatch: pytest.MonkeyPatch, name: str = "scontrol"
) -> None:
    program(folder, name, script)
    monkeypatch.setenv("PATH", str(folder))


#: Central European time; in the last night of October 03:00 is 02:00 again.
SUMMER_TIME = "CET-1CEST,M3.5.0,M10.5.0/3"


def test_the_end_of_summer_time_is_no_time_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm prints the local time of its caller: 02:30 at the submission, 02:15 at the start."""
    (tmp_path / "date").symlink_to(shutil.which("date") or pytest.skip("no program date"))
    submit, start = (
        f"$(date -d @{seconds} +%Y-%m-%dT%H:%M:%S)" for seconds in (1792888200, 1792890900)
    )
    script = f'echo "JobId=4"; echo "   SubmitTime={submit}"; echo "   StartTime={start}"'
    scontrol(tmp_path, script, monkeypatch)
    monkeypatch.setenv("TZ", SUMMER_TIME)
    monkeypatch.setenv("SLURM_TIME_FORMAT", "%H")
    job = slurm_job.describe_job({"SLURM_JOB_ID": "4"})
    assert job is not None
    assert job.queue_time_s == 2700.0
    assert job.submit == "2026-10-25T00:30:00+00:00"


@pytest.mark.parametrize(
    ("program", "times"),
    [("(null)", (150.0, 0.0)), ("/opt/slurm/resume", (101.0, 49.0)), (None, (101.0, 49.0))],
)
def test_only_a_slurm_that_powers_nodes_up_boots_them(
    program: str | None, times: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere a long time between allocation and start is the scheduler's own."""
    config = "exit 1" if program is None else f'echo "ResumeProgram           = {program}"'
    script = f'if [ "$2" = config ]; then {config}; else echo "{looked_at("03:05:46")}"; fi'
    scontrol(tmp_path, script, monkeypatch)
    job = slurm_job.describe_job({"SLURM_JOB_ID": "12"})
    assert job is not None
    assert (job.queue_time_s, job.boot_time_s) == times


@pytest.mark.parametrize("controller", ["exit 1", None])
def test_a_slurm_that_does_not_answer_loses_no_run(
    controller: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if controller is not None:
        scontrol(tmp_path, controller, monkeypatch)
    assert slurm_job.describe_job({"SLURM_JOB_ID": "12"}) == SlurmJob(id="12")
    assert slurm_job.relevant_settings({"SLURM_JOB_ID": "12"}) is None


def test_a_record_has_the_settings_that_concern_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = "echo 'TaskPlugin              = task/affinity,task/cgroup'; echo 'MpiDefault = pmix'"
    scontrol(tmp_path, f"{shown}; echo 'SlurmUser = slurm(64030)'", monkeypatch)
    found = slurm_job.relevant_settings({"SLURM_JOB_ID": "12"})
    assert found == {"TaskPlugin": "task/affinity,task/cgroup", "MpiDefault": "pmix"}


def test_outside_slurm_there_is_no_job() -> None:
    assert slurm_job.describe_job({}) is None
    assert slurm_job.relevant_settings({}) is None


@pytest.mark.parametrize(
    ("plugin", "accounted", "energy_j"),
    [
        ("acct_gather_energy/ipmi", "12|5\n12.batch|9\n12.extern|9\n12.0|700\n12.1|300\n", 1000.0),
        ("acct_gather_energy/rapl", "12.0|700\n12.1|4294967294\n12.2|\n", 700.0),
        ("acct_gather_energy/rapl", "12.0|0\n", None),
        ("acct_gather_energy/rapl", "", None),
        ("acct_gather_energy/none", "12.0|700\n", None),
        ("(null)", "12.0|700\n", None),
    ],
)
def test_the_energy_of_the_steps_is_slurms_if_it_has_a_plugin(
    plugin: str,
    accounted: str,
    energy_j: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scontrol(tmp_path, f'echo "AcctGatherEnergyType    = {plugin}"', monkeypatch)
    scontrol(tmp_path, f"printf '{accounted}'", monkeypatch, name="sacct")
    assert slurm_job.consumed_energy_j({"SLURM_JOB_ID": "12"}) == energy_j
    assert slurm_job.consumed_energy_j({}) is None


RUNS = "JobId=12 JobName=x\n   JobState=RUNNING Reason=None\n   Requeue=1 Restarts=1\n"
SINCE = "   StartTime=2026-01-02T03:05:54 EndTime=Unknown\n   PreemptTime={}\n"


@pytest.mark.parametrize(
    ("since", "is_so"),
    [("None", False), ("2026-01-02T03:06:00", True), ("2026-01-02T03:00:00", False)],
)
def test_a_job_is_preempted_since_its_last_start(
    since: str, is_so: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol(tmp_path, f'echo "{RUNS}{SINCE.format(since)}"', monkeypatch)
    assert slurm_job.is_preempted({"SLURM_JOB_ID": "12"}) is is_so
    assert slurm_job.is_preempted({}) is False


@pytest.mark.parametrize(
    ("change", "asked"),
    [("", "requeue 12\n"), ("s/RUNNING/COMPLETING/", None), ("s/Requeue=1/Requeue=0/", None)],
)
def test_a_job_that_runs_and_may_be_is_started_again(
    change: str, asked: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = f'echo "{RUNS}" | sed "{change}"'
    script = f'case $1 in requeue) echo "$@" >{tmp_path}/asked;; *) {shown};; esac'
    scontrol(tmp_path, script, monkeypatch)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(slurm_job, "_REQUEUED_S", 0.0)
    slurm_job.requeue_own_job({"SLURM_JOB_ID": "12"})
    slurm_job.requeue_own_job({})
    found = tmp_path / "asked"
    assert (found.read_text() if found.exists() else None) == asked


@pytest.mark.parametrize(
    ("tracked", "alone"),
    [
        ("ProctrackType           = proctrack/linuxproc", False),
        ("ProctrackType           = proctrack/cgroup", True),
        ("ProctrackType = proctrack/cgroup\nSignalChildrenProcesses = no", True),
        ("ProctrackType = proctrack/cgroup\nSignalChildrenProcesses = yes", False),
        ("", False),
    ],
)
def test_whom_slurm_signals_is_read_from_its_configuration(
    tracked: str, alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shown").write_text(f"Configuration data\n{tracked}\n")
    scontrol(tmp_path, f'while read -r line; do echo "$line"; done <{tmp_path}/shown', monkeypatch)
    assert slurm_job.signals_started_processes_only() is alone


SRUN_LINES: dict[str, tuple[str, dict[int, str]]] = {
    "exit_code": (
        "srun: error: tfbench-cpu-0: task 12: Exited with exit code 1",
        {12: "Exited with exit code 1 (on tfbench-cpu-0)"},
    ),
    "range_of_tasks": (
        "srun: error: cpu3: tasks 2-3: Exited with exit code 1",
        {2: "Exited with exit code 1 (on cpu3)", 3: "Exited with exit code 1 (on cpu3)"},
    ),
    "list_of_tasks": (
        "srun: error: cpu3: tasks 0,2,4-5: Killed",
        dict.fromkeys((0, 2, 4, 5), "Killed (on cpu3)"),
    ),
    "ended_by_srun_itself": ("srun: error: cpu2: task 1: Terminated", {}),
    "first_cause_among_noise": (
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "srun: error: cpu2: task 1: Killed\n"
        "srun: error: cpu1: task 0: Terminated\n",
        {1: "Killed (on cpu2)"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SRUN_LINES.values(), ids=SRUN_LINES)
def test_ranks_and_words_of_srun(text: str, expected: dict[int, str], tmp_path: Path) -> None:
    log = tmp_path / "srun.log"
    log.write_text(text)
    assert slurm_job.read_srun_errors(log) == expected


@pytest.mark.parametrize(
    ("nodes", "requested", "is_other"),
    [
        ("cpu[1-2]", 2, False),
        ("cpu[1-3]", 1, True),
        ("cpu[1-3]", 4, True),
        ("a1,b[07-09]", 4, False),
        (None, 3, False),  # the controller did not answer
    ],
)
def test_a_job_with_other_nodes_than_requested_is_noticed(
    nodes: str | None, requested: int, is_other: bool
) -> None:
    problem = slurm_job.allocation_problem(SlurmJob(id="1", nodes=nodes), requested)
    assert bool(problem) is is_other
    assert nodes is None or not is_other or nodes in problem


def test_without_a_job_nothing_was_allocated() -> None:
    assert not slurm_job.allocation_problem(None, 2)
