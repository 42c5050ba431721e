"""A process as one rank of a job: its cluster, clock, heartbeats, events and report.

The programs of ranks call `run_as_rank` with the function that does their work.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tfscaling.cluster import resolver
from tfscaling.cluster.gpu_allocation import gpu_variable, gpus_given
from tfscaling.cluster.resolver import Cluster
from tfscaling.cluster.slurm_environment import step_id
from tfscaling.files import strict_json
from tfscaling.launch import forked_ranks, heartbeat, link, provenance, rank_files, resource_use
from tfscaling.launch.heartbeat import Usage
from tfscaling.record import clock, crashes
from tfscaling.record import events as rank_events
from tfscaling.record.events import EventLog, EventName
from tfscaling.record.rank_report import Rank, RankClock
from tfscaling.record.run_record import write_json
from tfscaling.study import run_spec
from tfscaling.study.run_spec import RunSpec

#: Seconds for which a failure is deferred: ranks of other hosts may still import TensorFlow.
_DEFERRED_S = 10.0
#: Number of names, at most, in the message of a rank that cannot resolve hosts.
_UNKNOWN_MAX = 3
#: Pauses in seconds before each attempt to resolve a name.
_RESOLUTION_PAUSES_S = (0.0, 1.0, 2.0, 4.0)
#: Where MPI's ranks of a host share memory, and what each rank takes of it at least.
_SHARED_MEMORY, _SHARED_BYTES = Path("/dev/shm"), 2 << 20


@dataclass(frozen=True)
class RankContext:
    """Argument of the function that does a rank's work: the rank's place, folder and event log.

    Attributes:
        cluster: The cluster, and which task of it this process is.
        folder: The attempt's folder, which all ranks share.
        events: The rank's event log.
        start_s: When the process began, in seconds since the epoch.
        gpus_given: Number of GPUs that Slurm makes visible to the task; None if unknown.
        launcher: `HOST:PORT SECRET` of the launcher, as in `link.VARIABLE`; "" without a launcher.
    """

    cluster: Cluster
    folder: Path
    events: EventLog
    start_s: float
    gpus_given: int | None
    launcher: str = ""

    def wait_for_coordinator(self) -> bool:
        """Wait until rank 0, the coordinator, has ended; return whether it succeeded.

        If rank 0 hangs, the launcher ends all ranks.
        """
        if (own := link.connect(self.launcher, self.cluster.rank)) is not None:
            with contextlib.closing(own), contextlib.suppress(OSError):
                return own.wait_for_coordinator()
        while True:
            events = rank_events.read_events_by_rank(self.folder).get(0)
            if events and events[-1].name in (EventName.END, EventName.FAILED):
                return events[-1].name is EventName.END
            time.sleep(heartbeat.FILES_INTERVAL_S)

    @property
    def host(self) -> str:
        """Name of this host."""
        return socket.gethostname()

    def describe_rank(self) -> Rank:
        """Return the rank's host, CPUs, GPUs and software, as far as known without TensorFlow.

        Devices and clock offsets are left empty. Call it after the training, because the query of
        the GPU driver takes time that belongs to no phase.
        """
        cluster = self.cluster
        return Rank(
            rank=cluster.rank,
            job=cluster.job,
            host=self.host,
            start_s=self.start_s,
            clock=RankClock(),
            cluster_hash=hashlib.sha256(json.dumps(cluster.jobs).encode()).hexdigest()[:16],
            cluster_source=cluster.source,
            devices=(),
            gpus_given=self.gpus_given,
            gpus_visible=os.environ.get(gpu_variable(os.environ)),
            **provenance.read_placement()._asdict(),
            cpu_quota=provenance.cpu_quota(),
            tensorflow_version=None,
            host_facts=provenance.host_facts(),
        )


class CpuError(RuntimeError):
    """A rank got fewer CPUs than the run requests, so its training would not count."""


def _find_missing_cpus(spec: RunSpec) -> str:
    """Return which requested CPUs this rank lacks, in words; "" if it has all of them.

    Local ranks share the machine's CPUs and are not checked.
    """
    if spec.measured.launcher == "local":
        return ""
    cpus, quota, least = (
        provenance.read_placement().cpus,
        provenance.cpu_quota(),
        spec.cpus_per_task,
    )
    text = f"requested {least} CPUs per task"
    if cpus < least:
        return f"{text}, this rank may use {cpus}"
    return f"{text}, a limit of CPU time leaves {quota:g}" if (quota or least) < least else ""


class HostNameError(RuntimeError):
    """A rank cannot resolve the names of hosts that it must reach."""


def _find_unknown_hosts(cluster: Cluster) -> str:
    """Return which names of hosts this rank cannot resolve and why, as a sentence; else "".

    Rank 0 tries all hosts; any other rank tries the hosts of rank 0 and of the next rank.
    """
    addresses = [each for job in sorted(cluster.jobs) for each in cluster.jobs[job]]
    if cluster.rank:
        addresses = [addresses[0], addresses[(cluster.rank + 1) % len(addresses)]]
    hosts = dict.fromkeys(address.rpartition(":")[0].strip("[]") for address in addresses)
    unknown: dict[str, str] = {}
    for host in hosts:
        if why := _resolution_error(host):
            unknown[host] = why
        if len(unknown) == _UNKNOWN_MAX:
            break
    words = "; ".join(f"{host} ({why})" for host, why in unknown.items())
    text = f"{socket.gethostname()} cannot resolve names of hosts of this run: {words}"
    return text if unknown else ""


def _resolution_error(host: str) -> str:
    """Return why the name of a host cannot be resolved; "" if it can.

    If the name server is busy, it is queried again after pauses (`_RESOLUTION_PAUSES_S`).
    """
    why = ""
    for pause_s in _RESOLUTION_PAUSES_S:
        time.sleep(pause_s)
        try:
            socket.getaddrinfo(host, None)
        except socket.gaierror as error:
            why = error.strerror or str(error)
            if error.errno != socket.EAI_AGAIN:
                break
        else:
            return ""
    return why


class SharedMemoryError(RuntimeError):
    """A host has too little shared memory: the kernel would end MPI's ranks by SIGBUS."""


def _missing_shared_memory(cluster: Cluster) -> str:
    """Return how much shared memory this host lacks for MPI's ranks, in words, or ""."""
    tasks = [task.rpartition(":")[0] for task in cluster.jobs[cluster.job]]
    needed = tasks.count(tasks[cluster.index]) * _SHARED_BYTES
    space = os.statvfs(_SHARED_MEMORY)
    free = space.f_bavail * space.f_frsize
    if free >= needed or not space.f_blocks:  # it has no limit
        return ""
    return (
        f"{_SHARED_MEMORY} of {socket.gethostname()} has {free / 1e6:.1f} MB left, and MPI needs "
        f"{needed / 1e6:.1f} MB: remove files of ended processes there, or have it enlarged"
    )


class WorkFailedError(Exception):
    """A user's program failed; the message is a sentence for the user.

    Attributes:
        name: Class of the program's exception, or how the program ended.
        status: Exit status with which this process ends.
        last_lines: The last lines of the program's output, without secrets.
    """

    def __init__(
        self, name: str, message: str, status: int, last_lines: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.name, self.status, self.last_lines = name, status, last_lines


def make_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser for the options that `Attempt.run_ranks` passes to a rank's program.

    Args:
        description: The program's docstring; its first line is shown by --help.
    """
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    run_spec.add_spec_option(made)
    made.add_argument("--folder", type=Path, required=True, help="where to leave files")
    made.add_argument(forked_ranks.FLAG, type=Path, help=argparse.SUPPRESS)
    return made


def run_as_rank(
    spec: RunSpec,
    folder: Path,
    started_s: float,
    work: Callable[[RankContext], Rank],
    usage: Callable[[], Usage] = heartbeat.own_usage,
    on_given_up: Callable[[], object] = lambda: None,
) -> None:
    """Run `work` as this process's rank, write events and the report, and exit.

    After success the exit status is 0. If `work` fails, its error is written in an event `failed`.

    Args:
        spec: The run.
        folder: The attempt's folder, which all ranks share.
        started_s: When the process began, by `time.monotonic()`.
        work: Does the rank's work and returns its report.
        usage: Returns CPU time and I/O of the processes that do the work.
        on_given_up: Called when the launcher ends hanging ranks.

    Raises:
        SystemExit: A user's program failed, with its exit status.
        Exception: The exception of `work`, after it was logged.
    """
    context, own = _join_cluster(spec, folder, started_s)
    cluster, events, launcher = context.cluster, context.events, context.launcher
    offset = None if own is None else own.measure_offset()
    off = {} if offset is None else offset._asdict()
    # a warning before a time limit: whoever writes checkpoints takes it in another way
    signal.signal(signal.SIGUSR1, lambda *_: None)
    events.add(EventName.START, context.start_s, **_process_facts(context).details, **off)
    temporary = contextlib.ExitStack()
    atexit.register(temporary.close)  # after a failure, whose traceback reads temporary files

    def end_orphaned() -> None:
        """Remove temporary files and end this process."""
        temporary.close()
        _end_orphaned(events)

    heartbeat.HeartbeatThread(events, end_orphaned, usage, own, on_given_up).start()
    print(_log_title(context), flush=True)
    meter = resource_use.RankMeter(os.environ, spec.uses_gpus)
    try:
        if not spec.recipe.program:
            files = rank_files.make_temporary_folder(folder)
            temporary.callback(shutil.rmtree, files, ignore_errors=True)
        _check_host(spec, cluster)
        report = work(context)
        use = meter.end()
        last = None if own is None else link.connect(launcher, cluster.rank)
        if offset is not None and last is not None:
            off = offset.extend_until(last.measure_offset())._asdict()
        report = msgspec.structs.replace(report, clock=RankClock(**off), use=use)
    except WorkFailedError as error:
        _add_failure(events, meter, spec, error.name, str(error), error.last_lines, of_program=True)
        print(error, file=sys.stderr)
        sys.exit(error.status)
    except Exception as error:
        _add_exception(events, meter, spec, error)
        raise
    if not send_report(report, last):
        write_json(rank_files.report_path(folder, cluster.rank), report)
    events.add(EventName.END)
    if own is not None and not own.wait_until_delivered():
        events.write_posted()
    temporary.close()
    sys.stdout.flush()
    # TensorFlow's servers and coordinator have no shutdown, and iterators that are being freed may
    # wait for a minute; their threads outlive main
    os._exit(0)


def _join_cluster(
    spec: RunSpec, folder: Path, started_s: float
) -> tuple[RankContext, link.LauncherConnection | None]:
    """Find this rank's place in the cluster, set its environment, and connect to the launcher.

    Args:
        spec: The run.
        folder: The attempt's folder.
        started_s: When the process began, by `time.monotonic()`.

    Returns:
        The context of the rank's work; and the connection, None without a launcher.
    """
    launcher = os.environ.pop(link.VARIABLE, "")  # a program does not get the secret
    suffix = spec.measured.host_suffix or ""
    cluster = resolver.resolve(os.environ, jobs=spec.jobs, gpus=spec.uses_gpus, host_suffix=suffix)
    given = gpus_given(os.environ)
    os.environ.update(cluster.environment())
    own = link.connect(launcher, cluster.rank)
    path = rank_files.events_path(folder, cluster.rank)
    events = EventLog(path, cluster.rank, None if own is None else own.post)
    return RankContext(
        cluster, folder, events, clock.convert_monotonic(started_s), given, launcher
    ), own


def _check_host(spec: RunSpec, cluster: Cluster) -> None:
    """Check CPUs, host names and shared memory of this rank's host before the training.

    Args:
        spec: The run.
        cluster: The cluster, whose hosts this rank must reach.

    Raises:
        CpuError: The rank got fewer CPUs than the run requests.
        HostNameError: The rank cannot resolve the name of a host.
        SharedMemoryError: MPI's ranks of this host have too little shared memory.
    """
    if problem := _find_missing_cpus(spec):
        raise CpuError(problem)
    # a program may need no names, and MPI has its own
    if not (spec.recipe.program or spec.uses_mpi) and (unknown := _find_unknown_hosts(cluster)):
        raise HostNameError(unknown)
    if spec.uses_mpi and (problem := _missing_shared_memory(cluster)):
        raise SharedMemoryError(problem)


class ProcessFacts(NamedTuple):
    """Facts about the process of a rank: the details of the rank's event `start`.

    Attributes:
        host: Name of this host.
        pid: Process id.
        job: Job of the rank in the cluster, such as `worker`.
        oom_counter: File with the kernel's count of processes killed for lack of memory.
        oom_kills: The count in this file when the process began.
        source: Source of the cluster: TF_CONFIG, slurm or single.
        step: Id of the Slurm step, such as 12.0; None outside a step.
    """

    host: str
    pid: int
    job: str
    oom_counter: str
    oom_kills: int
    source: str
    step: str | None

    @property
    def details(self) -> dict[str, str | int]:
        """Name → value of the known facts."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def _process_facts(context: RankContext) -> ProcessFacts:
    """Return the facts about this process, which is a rank."""
    counter = provenance.oom_counter()
    return ProcessFacts(
        host=context.host,
        pid=os.getpid(),
        job=context.cluster.job,
        oom_counter=str(counter),
        oom_kills=provenance.oom_kills(counter),
        source=context.cluster.source,
        step=step_id(os.environ),
    )


def _log_title(context: RankContext) -> str:
    """Return the first line of a rank's log, such as `rank 3 on n2: worker 3 of 4 at n2:12003`."""
    cluster = context.cluster
    tasks = cluster.jobs[cluster.job]
    place = f"{cluster.job} {cluster.index} of {len(tasks)} at {tasks[cluster.index]}"
    return f"rank {cluster.rank} on {context.host}: {place}"


def send_report(report: Rank, connection: link.LauncherConnection | None) -> bool:
    """Send the report to the launcher; return whether the launcher has acknowledged it.

    Args:
        report: The rank's report.
        connection: A connection to the launcher, closed by this call; None without one.
    """
    if connection is None:
        return False
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.send_report(strict_json.encode(report))
        return True
    return False


def _add_failure(
    events: EventLog,
    meter: resource_use.RankMeter,
    spec: RunSpec,
    error: str,
    message: str,
    lines: Sequence[str],
    **more: Any,
) -> None:
    """Log an event `failed` with the error, without secrets, and the rank's peak memory.

    The launcher does not know the secrets that only this process has, as from a file that `setup`
    sources.

    Args:
        events: The rank's event log.
        meter: The rank's meter, stopped by this call.
        spec: The run.
        error: Class of the exception, or how a program ended.
        message: The error in words.
        lines: The last lines of the output.
        **more: Further details of the event.
    """
    use = meter.end()
    on_gpu = max((gpu.memory_gb or 0.0 for gpu in use.gpus), default=0.0)
    peaks = {"rank_memory_gb": use.memory_gb, "gpu_memory_gb": on_gpu or None}
    secrets = crashes.find_secrets(os.environ, spec.recipe.program, spec.measured.setup)
    # a file name that is no UTF-8 could not be written to a report
    texts = (message, *lines[-rank_files.LAST_LINES :])
    message, *last = (text.encode(errors="backslashreplace").decode() for text in texts)
    message = crashes.mask_secrets(message, secrets)[:2000]
    masked = [crashes.mask_secrets(line, secrets)[:2000] for line in last]
    if masked:
        more["last_lines"] = masked
    events.add(EventName.FAILED, error=error, message=message, **more, **peaks)


def _add_exception(
    events: EventLog, meter: resource_use.RankMeter, spec: RunSpec, error: Exception
) -> None:
    """Log an event `failed` with the exception of a rank's work and the user code that raised it.

    Args:
        events: The rank's event log.
        meter: The rank's meter, stopped by this call.
        spec: The run.
        error: The exception.
    """
    # Python prints them afterwards
    lines = "".join(traceback.format_exception(error)).splitlines()
    blamed = crashes.locate_exception(error, Path.cwd())
    if blamed is None:
        _add_failure(events, meter, spec, type(error).__name__, str(error), lines)
    else:
        words = blamed.error.removeprefix(f"{blamed.name}: ")
        place = msgspec.to_builtins(blamed.place)
        _add_failure(events, meter, spec, blamed.name, words, lines, place=place)


def _end_orphaned(events: EventLog) -> None:
    """Log an event `failed` and end this process at once, because its launcher has ended."""
    events.add(
        EventName.FAILED, error="LauncherEnded", message="the launcher ended before this rank"
    )
    os._exit(1)


def defer_failure(spec: RunSpec) -> None:
    """Wait some seconds if the run has several nodes, so that other ranks report their GPUs first.

    Call it before a rank fails: srun then ends all ranks.
    """
    if spec.geometry.nodes > 1 and spec.measured.launcher != "local":
        time.sleep(_DEFERRED_S)
