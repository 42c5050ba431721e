"""What Slurm reports about the job of this process, by its programs and in the logs of a step.

The launcher uses it for the record, and to explain and handle failures.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tfscaling.cluster.nodelist import NodeListError, expand_node_list
from tfscaling.cluster.slurm_client import NoAnswer, SlurmClient, is_node_down
from tfscaling.cluster.slurm_environment import job_id, restarts, run_node_list
from tfscaling.files import log_files
from tfscaling.launch.rank_files import last_lines
from tfscaling.record.attempts import Cause, Kind
from tfscaling.record.run_record import SlurmJob

#: Field of `scontrol show job` → field of SlurmJob.
_FIELDS = {
    "JobId": "id",
    "Partition": "partition",
    "NodeList": "nodes",
    "NumNodes": "nodes_allocated",
    "NumCPUs": "cpus_allocated",
    "SubmitTime": "submit",
    "StartTime": "start",
    "AllocTRES": "tres",
    "TresPerNode": "tres_per_node",
}
#: Longest time in seconds from the scheduler's last evaluation of a job to the job's start; booting
#: nodes takes longer.
_SCHEDULING_S = 5.0
#: Longest wait in seconds for Slurm to end a requeued job.
_REQUEUED_S = 60.0
#: Lines of `scontrol show job` that end in free text: only their first field is parsed.
_FREE_TEXT = (
    *("JobId", "Comment", "AdminComment", "SystemComment", "Extra", "Command", "WorkDir"),
    *("StdErr", "StdIn", "StdOut", "SubmitLine"),
)
_SLURM = SlurmClient(timeout_s=30.0)
#: Slurm's settings that the record has: how tasks are placed, bound and traced, and the version.
SETTINGS = (
    *("SLURM_VERSION", "SelectType", "SelectTypeParameters", "TaskPlugin", "TaskPluginParam"),
    *("ProctrackType", "MpiDefault", "LaunchParameters", "PrologFlags", "AcctGatherEnergyType"),
)
#: The setting that names the plugin by which Slurm measures energy.
ENERGY_PLUGIN = "AcctGatherEnergyType"
#: Slurm's number for an unknown energy; higher numbers are unknown energies as well.
_UNKNOWN_J = 2**32 - 2
#: Slurm's word for why it ends a job → kind of the cause.
_ENDED_BY_SLURM: dict[str, Kind] = {
    "TIME LIMIT": "time_limit",
    "PREEMPTION": "preempted",
    "JOB REQUEUE": "requeued",
    "NODE FAILURE": "node_failed",
}
_CANCELLED = re.compile(r"\*\*\* (?:STEP|JOB) \S+ ON (\S+) CANCELLED AT \S+ DUE TO ([^*,]+)")
_NODE_FAILED = re.compile(r"srun: error: Node failure on (\S+)")
_SRUN_ERROR = re.compile(r"error: (\S+): tasks? ([\d,-]+): (.+)")
#: Begin of a line from Slurm's daemon of a step, which also writes to the logs of the step's ranks:
#: its name or, in Slurm 26.05, the time.
_OF_STEP = re.compile(r"slurmstepd|\[[^]\n]+\] error: (?:\*\*\* |Detected \d)")


def describe_job(environ: Mapping[str, str]) -> SlurmJob | None:
    """Return Slurm's facts about the job in which this process runs; None outside Slurm.

    If the controller does not answer, only the job's id is known.
    """
    number = job_id(environ)
    if number is None:
        return None
    shown = _SLURM.show_job(number)
    job = parse_job(shown) if isinstance(shown, str) else SlurmJob(id=number)
    if job.boot_time_s and (_query_settings() or {}).get("ResumeProgram") == "(null)":
        # this Slurm powers no nodes up: its scheduler was slow
        waited_s = (job.queue_time_s or 0.0) + job.boot_time_s
        job = replace(job, queue_time_s=waited_s, boot_time_s=0.0)
    if part := run_node_list(environ):
        why = "the run is a part of an allocation, which waited once for all its runs"
        job = replace(job, nodes=part, queue_time_s=None, boot_time_s=None, queue_time_reason=why)
    return replace(job, restarts=restarts(environ))


def allocation_problem(job: SlurmJob | None, nodes: int) -> str:
    """Return a message if Slurm allocated another number of nodes than requested; else "".

    If the run is a part of an allocation, the nodes of this part count. Additional nodes would be
    missing in the run's node-hours.

    Args:
        job: Slurm's facts about the job; None without Slurm.
        nodes: The requested number of nodes.
    """
    if job is None or job.nodes is None:
        return ""
    with contextlib.suppress(NodeListError):
        if len(held := expand_node_list(job.nodes)) != nodes:
            return f"requested {nodes} nodes, Slurm allocated {len(held)}: {job.nodes}"
    return ""


def allocated_memory_gb(job: SlurmJob | None) -> float | None:
    """Return the memory in GB that Slurm allocated to a job on each node; None if unknown."""
    if job is None or (found := re.search(r"\bmem=([\d.]+)([KMGT])", job.tres or "")) is None:
        return None
    return float(found[1]) * 1024 ** "_KMGT".index(found[2]) / int(job.nodes_allocated or 1) / 1e9


def relevant_settings(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return name → value of the Slurm settings that a record contains, those in SETTINGS.

    None outside Slurm, or if Slurm does not answer.
    """
    if job_id(environ) is None or (found := _query_settings()) is None:
        return None
    return {name: found[name] for name in SETTINGS if name in found}


def consumed_energy_j(environ: Mapping[str, str]) -> float | None:
    """Return the energy in joules of this job's ended steps, from sacct; None if unknown."""
    number, plugin = job_id(environ), (_query_settings() or {}).get(ENERGY_PLUGIN, "")
    if (
        number is None
        or run_node_list(environ)
        or not plugin.startswith("acct_gather_energy/")
        or plugin.endswith("/none")
    ):
        return None
    rows = _SLURM.accounted_energy(number)
    of_steps = [] if isinstance(rows, NoAnswer) else rows
    found = [
        float(energy_j)
        for step, energy_j in of_steps
        if re.fullmatch(rf"{number}\.\d+", step)
        and energy_j.isdecimal()
        and int(energy_j) < _UNKNOWN_J
    ]
    return sum(found) or None


def find_node_name(host: str, environ: Mapping[str, str]) -> str | None:
    """Return Slurm's name of the node with a host name; None if the node is not in this job.

    Args:
        host: Host name, with or without its domain.
        environ: The environment of this process.
    """
    nodes = _list_own_nodes(environ)
    return next((node for node in (host, host.partition(".")[0]) if node in nodes), None)


def _list_own_nodes(environ: Mapping[str, str]) -> list[str]:
    """Return the nodes of this job, or of the run's part of it; [] outside Slurm or if unknown."""
    job = describe_job(environ)
    try:
        return expand_node_list(job.nodes) if job is not None and job.nodes else []
    except NodeListError:
        return []


def is_preempted(environ: Mapping[str, str]) -> bool:
    """Return whether Slurm is preempting this job to give its nodes to another job.

    In a partition with GraceTime, Slurm signals the ranks when the grace time begins, and ends the
    launcher when the grace time is over.
    """
    fields = _query_own_fields(environ)
    since, started = (_parse_time(fields.get(name)) for name in ("PreemptTime", "StartTime"))
    return since is not None and started is not None and since >= started


def requeue_own_job(environ: Mapping[str, str]) -> None:
    """Requeue the job that this process runs in, if it is running and Slurm allows it (`Requeue`).

    A job is requeued even if its partition cancels preempted jobs. Slurm then ends this process.
    The call returns only if the job was not requeued, or has not ended after `_REQUEUED_S` seconds.
    """
    fields = {} if run_node_list(environ) else _query_own_fields(environ)
    if fields.get("JobState") != "RUNNING" or fields.get("Requeue") != "1":
        return
    if _SLURM.requeue(fields["JobId"]) is None:
        time.sleep(_REQUEUED_S)


def _query_own_fields(environ: Mapping[str, str]) -> dict[str, str]:
    """Return field → value of `scontrol show job` for this job; {} without an answer."""
    number = job_id(environ)
    shown = _SLURM.show_job(number) if number else ""
    return _parse_fields(shown) if isinstance(shown, str) else {}


def signals_started_processes_only() -> bool:
    """Return whether Slurm's signals reach only the processes that it started, not their children.

    This is the default of proctrack/cgroup, unless cgroup.conf has `SignalChildrenProcesses=yes`
    (Slurm 26.11).
    """
    found = _query_settings() or {}
    signals_all = found.get("SignalChildrenProcesses", "no").lower() == "yes"
    return found.get("ProctrackType") == "proctrack/cgroup" and not signals_all


def parse_job(text: str) -> SlurmJob:
    """Parse the output of `scontrol show job` for one job, and derive queue and boot time.

    The wait in the queue ends with the last evaluation of the job (LastSchedEval), at which its
    nodes are allocated. Slurm may then boot nodes and sets StartTime after that. If times are
    missing, `queue_time_reason` has the reason.
    """
    fields = _parse_fields(text)
    fields.setdefault("AllocTRES", fields.get("TRES", ""))  # its name until Slurm 23.02
    facts = {name: fields[old] for old, name in _FIELDS.items() if fields.get(old)}
    times = {name: facts[name] for name in ("submit", "start") if _parse_time(facts.get(name))}
    in_utc = {name: f"{text}+00:00" for name, text in times.items()}
    job = msgspec.convert({**facts, **in_utc}, SlurmJob)
    waited_s = _seconds_between(facts.get("submit"), facts.get("start"))
    if waited_s is None or waited_s < 0:
        reason = "Slurm does not report when the job was submitted or started"
        if waited_s is not None:
            reason = f"Slurm's start is {-waited_s:g} s before the submission"
        return replace(job, queue_time_reason=reason)
    boot_s = _seconds_between(fields.get("LastSchedEval"), fields.get("StartTime"))
    if boot_s is None:
        return replace(job, queue_time_s=waited_s)
    # the scheduler reads the clock once for many jobs, perhaps before this one was submitted
    boot_s = min(boot_s, waited_s) if boot_s > _SCHEDULING_S else 0.0
    return replace(job, queue_time_s=waited_s - boot_s, boot_time_s=boot_s)


def _parse_fields(text: str) -> dict[str, str]:
    """Return field → value from the output of `scontrol show job`.

    If a line begins with a field in `_FREE_TEXT`, its other fields are ignored: they may be a part
    of free text.
    """
    fields: dict[str, str] = {}
    for line in text.strip().partition("\n\n")[0].splitlines():
        words = [word.split("=", 1) for word in line.split() if "=" in word]
        for name, value in words[:1] if words and words[0][0] in _FREE_TEXT else words:
            fields.setdefault(name, value)
    return fields


def _query_settings() -> dict[str, str] | None:
    """Return name → value of all Slurm settings; None without an answer."""
    settings = _SLURM.configuration()
    return None if isinstance(settings, NoAnswer) else settings or None


def _seconds_between(begin: str | None, end: str | None) -> float | None:
    """Return the seconds between two times as Slurm prints them; None if one is unknown."""
    first, last = _parse_time(begin), _parse_time(end)
    return None if first is None or last is None else (last - first).total_seconds()


def _parse_time(text: str | None) -> datetime | None:
    """Parse a time as Slurm prints it; None if it is unknown, such as `N/A`."""
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text or "")
    return None


def read_slurm_messages(log: Path | None) -> tuple[str, ...]:
    """Return Slurm's messages about a step: the end of srun's log and lines in the ranks' logs.

    Args:
        log: The log of srun; None if the ranks were not started by Slurm, which gives ().
    """
    if log is None:
        return ()
    found = [*last_lines(log, 500)]
    for path in sorted(log.parent.glob("rank-*.log")):  # which may be long
        lines = log_files.read_end(path).splitlines()
        found += [line for line in lines if _OF_STEP.match(line)]
    return tuple(found)


def cause_by_slurm(log: Path | None) -> Cause | None:
    """Return the cause if Slurm ended the job, for example at its time limit; else None.

    A user's scancel gives no reason in the log, so the result is None.

    Args:
        log: The log of srun; None without srun.
    """
    lines = read_slurm_messages(log)
    for failed in filter(None, map(_NODE_FAILED.search, lines)):
        said = f"Slurm: node failure on {failed[1]}"
        return Cause(kind="node_failed", message=said, host=failed[1], last_lines=lines[-30:])
    for ended in filter(None, map(_CANCELLED.search, lines)):
        reason = ended[2].strip()
        if (kind := _ENDED_BY_SLURM.get(reason)) is not None:
            said = f"Slurm ended the job: {reason.lower()}"
            return Cause(kind=kind, message=said, last_lines=lines[-30:])
    return None


def cause_by_node_states(environ: Mapping[str, str]) -> Cause | None:
    """Return the cause if Slurm lists a node of this job, or of the run's part of it, as down.

    None if all nodes are up, outside Slurm, or if Slurm does not answer.
    """
    nodes = _list_own_nodes(environ)
    states = _SLURM.nodes(names=nodes) if nodes else {}
    for node, state in {} if isinstance(states, NoAnswer) else states.items():
        if is_node_down(state) and node in nodes:
            said = f"Slurm: node {node} is {state}"
            return Cause(kind="node_failed", message=said, host=node)
    return None


def read_srun_errors(log: Path) -> dict[int, str]:
    """Return rank → srun's message, from lines such as `srun: error: node2: task 1: Killed`.

    Ranks that srun itself terminated after the first failure are left out.
    """
    found: dict[int, str] = {}
    for match in filter(None, map(_SRUN_ERROR.search, last_lines(log, 500))):
        if "Terminated" not in match[3]:
            # Slurm writes ranks as it writes nodes: `0,2,4-5`
            ranks = map(int, expand_node_list(f"[{match[2]}]"))
            found |= dict.fromkeys(ranks, f"{match[3]} (on {match[1]})")
    return found
