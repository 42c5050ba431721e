"""What Slurm knows of the job we are in: submission, allocation, start, nodes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from tfscaling.cluster.slurm_environment import job_id, restarts
from tfscaling.record.run_record import SlurmJob

_WANTED = {
    "JobId": "id",
    "Partition": "partition",
    "NodeList": "nodes",
    "NumNodes": "nodes_allocated",
    "NumCPUs": "cpus_allocated",
    "SubmitTime": "submit",
    "StartTime": "start",
    "TRES": "tres",
    "TresPerNode": "tres_per_node",
}
#: The same of `sacct`, which knows of no allocation apart from the start.
_OF_ACCOUNTING = {
    "JobIDRaw": "id",
    "Partition": "partition",
    "NodeList": "nodes",
    "NNodes": "nodes_allocated",
    "NCPUS": "cpus_allocated",
    "Submit": "submit",
    "Start": "start",
    "AllocTRES": "tres",
}
#: Between the last look at a job and its start: what the scheduler may take, and no boot does.
_SCHEDULING_S = 5.0
#: A job that is to be started again has ended by then.
_REQUEUED_S = 60.0
#: Lines of `scontrol show job` that end in free text, in which anything may stand: only the first
#: field of them is read.
_FREE_TEXT = (
    *("JobId", "Comment", "AdminComment", "SystemComment", "Extra", "Command", "WorkDir"),
    *("StdErr", "StdIn", "StdOut", "SubmitLine"),
)
#: Slurm prints the local time without its zone, which jumps twice a year.
_IN_UTC = {"TZ": "UTC0", "SLURM_TIME_FORMAT": "standard"}
#: How tasks are placed, bound and traced, and which Slurm does it.
SETTINGS = (
    *("SLURM_VERSION", "SelectType", "SelectTypeParameters", "TaskPlugin", "TaskPluginParam"),
    *("ProctrackType", "MpiDefault", "LaunchParameters", "PrologFlags"),
)


def describe(environ: Mapping[str, str]) -> SlurmJob | None:
    """The job's facts, with queue_time_s and boot_time_s, or None.

    From the controller or else, without boot_time_s, from accounting. None outside Slurm, and the
    bare id if neither answers: a run is not lost for that.
    """
    number = job_id(environ)
    return None if number is None else replace(_told(number), restarts=restarts(environ))


def _told(number: str) -> SlurmJob:
    """What controller or accounting tell of the job with this id."""
    if shown := _answer("scontrol", "show", "job", number):
        job = parse(shown)
        if job.boot_time_s and (_config() or {}).get("ResumeProgram") == "(null)":
            # this Slurm powers no nodes up: its scheduler was slow
            waited_s = (job.queue_time_s or 0.0) + job.boot_time_s
            return replace(job, queue_time_s=waited_s, boot_time_s=0.0)
        return job
    fields = ",".join(_OF_ACCOUNTING)
    options = ("--allocations", "--noheader", "--parsable2", f"--format={fields}")
    if shown := _answer("sacct", *options, f"--jobs={number}"):
        return parse_accounting(shown)
    return SlurmJob(id=number)


def settings(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Slurm's settings that can change how a run goes, `SETTINGS`; None outside Slurm."""
    if job_id(environ) is None or (found := _config()) is None:
        return None
    return {name: found[name] for name in SETTINGS if name in found}


def is_preempted(environ: Mapping[str, str]) -> bool:
    """Whether Slurm is about to take the nodes of the job that we are in for another one.

    Where the partition has a GraceTime, the ranks are asked to end at its beginning, and the
    launcher at its end.
    """
    fields = _own_fields(environ)
    since, started = (_moment(fields.get(name)) for name in ("PreemptTime", "StartTime"))
    return since is not None and started is not None and since >= started


def start_again(environ: Mapping[str, str]) -> None:
    """Have Slurm start the job that we are in again, if it may be (`Requeue`) and runs still.

    Also where the partition itself would cancel it. Returns if it may not, or when the job has not
    ended after `_REQUEUED_S`.
    """
    fields = _own_fields(environ)
    if fields.get("JobState") != "RUNNING" or fields.get("Requeue") != "1":
        return
    if _answer("scontrol", "requeue", fields["JobId"], is_silent=True) is not None:
        time.sleep(_REQUEUED_S)


def _own_fields(environ: Mapping[str, str]) -> dict[str, str]:
    """What the controller shows of the job that we are in; nothing outside Slurm."""
    number = job_id(environ)
    shown = _answer("scontrol", "show", "job", number) if number else None
    return _fields(shown) if shown else {}


def signals_children_alone() -> bool:
    """Whether Slurm signals the processes that it has started, and none that these start.

    So does proctrack/cgroup, unless cgroup.conf says otherwise (Slurm 26.11).
    """
    found = _config() or {}
    signals_all = found.get("SignalChildrenProcesses", "no").lower() == "yes"
    return found.get("ProctrackType") == "proctrack/cgroup" and not signals_all


def parse(text: str) -> SlurmJob:
    """The wanted fields of one `scontrol show job`, and the times that follow.

    Slurm looks at a job for the last time when it allocates the nodes (LastSchedEval). If it has to
    boot some of them, it sets the start (StartTime) anew once all are up.
    """
    fields = _fields(text)
    job = _known({new: fields[old] for old, new in _WANTED.items() if old in fields})
    waited_s = job.queue_time_s
    if waited_s is None:
        return job
    boot_s = _seconds(fields.get("LastSchedEval"), fields.get("StartTime"))
    if boot_s is None:
        return job
    # the scheduler reads the clock once for many jobs, perhaps before this one was submitted
    boot_s = min(boot_s, waited_s) if boot_s > _SCHEDULING_S else 0.0
    return replace(job, queue_time_s=waited_s - boot_s, boot_time_s=boot_s)


def _fields(text: str) -> dict[str, str]:
    """All fields of one `scontrol show job` but those after free text."""
    fields: dict[str, str] = {}
    for line in text.strip().partition("\n\n")[0].splitlines():
        words = [word.split("=", 1) for word in line.split() if "=" in word]
        for name, value in words[:1] if words and words[0][0] in _FREE_TEXT else words:
            fields.setdefault(name, value)
    return fields


def parse_accounting(text: str) -> SlurmJob:
    """The wanted fields of one line of `sacct`; its queue_time_s has the boot in it."""
    values = text.splitlines()[0].split("|")
    return _known(dict(zip(_OF_ACCOUNTING.values(), values, strict=False)))


def _known(facts: Mapping[str, str]) -> SlurmJob:
    """The facts with `queue_time_s`, and where there is none, why; times with their zone."""
    waited_s, reason = _seconds(facts.get("submit"), facts.get("start")), None
    if waited_s is None:
        reason = "Slurm does not tell when the job was submitted or started"
    elif waited_s < 0:
        reason = f"Slurm's start is {-waited_s:g} s before the submission"
        waited_s = None
    times = {name: facts[name] for name in ("submit", "start") if _moment(facts.get(name))}
    in_utc = {name: f"{text}+00:00" for name, text in times.items()}
    job = msgspec.convert({**facts, **in_utc}, SlurmJob)
    return replace(job, queue_time_s=waited_s, queue_time_reason=reason)


def _config() -> dict[str, str] | None:
    shown = _answer("scontrol", "show", "config")
    if shown is None:
        return None
    pairs = (line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _answer(*command: str, is_silent: bool = False) -> str | None:
    """What one of Slurm's programs prints; None if it is missing, fails, or prints nothing.

    `is_silent`: it prints nothing where it succeeds.
    """
    environ = {**os.environ, **_IN_UTC}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True, env=environ
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or ("" if is_silent else None)


def _seconds(begin: str | None, end: str | None) -> float | None:
    """Seconds between two of Slurm's times; None if one is not known."""
    first, last = _moment(begin), _moment(end)
    return None if first is None or last is None else (last - first).total_seconds()


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text or "")
    except ValueError:
        return None
