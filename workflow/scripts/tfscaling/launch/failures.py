"""Why a launch failed: the first cause among many complaints.

When one rank dies, its peers soon raise an error of the collective, and srun ends the rest. So a
silent rank comes before ranks that complained, and the earliest complaint before later ones.
A stopped rank does not even end: it is known by its missing heartbeats. These may only be late, as
a shared file system shows them: they count if the complaint is one that a lost peer can cause.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import traceback
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tfscaling.files import program_errors
from tfscaling.launch import provenance, rank_files, resource_use, slurm_job
from tfscaling.launch.checkpoint_folder import InterruptedTrainingError
from tfscaling.record import events
from tfscaling.record.attempts import Cause, Kind, UserLine
from tfscaling.record.events import Event, EventName
from tfscaling.record.run_record import SlurmJob

#: Errors of a rank whose peer is gone: of TensorFlow's collectives, coordinator and servers, and of
#: connections. Other errors, as a ValueError, are the rank's own.
_ABOUT_A_PEER = {
    *("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"),
    *("InternalError", "UnknownError", "FailedPreconditionError"),
    *("PSUnavailableError", "ClosureAbortedError", "ClosureInputError"),
    *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"),
    *("TimeoutError",),
}
#: TensorFlow's words about tasks whose heartbeats its coordination service misses.
_UNHEALTHY = re.compile(r"stopped sending heartbeats\):\s*((?:/job:\w+/replica:\d+/task:\d+\s*)+)")
_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")
#: Kinds of failures that a lost node can imitate.
_MAY_BE_OF_A_NODE: frozenset[Kind] = frozenset({"stalled", "rank_died", "rank_failed"})
#: A line of srun or of Slurm's daemons about an error.
_OF_SLURM = re.compile(r"(?:srun|slurmstepd|slurmd)\S*: (?:error|fatal): ")
#: Words of Slurm about a step whose memory is limited by cgroups or watched.
_NO_MEMORY = re.compile(r"out of memory|oom.kill|exceeded (?:job |step )?memory limit", re.I)
#: Words of PyTorch, CUDA, HIP, SYCL, Metal, TensorFlow and XLA about a device's memory.
_NO_DEVICE_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|HPU|MUSA|MPS backend|device)(?: error:)? out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory|HIP_ERROR_OutOfMemory"
    r"|OUT_OF_(?:DEVICE|HOST)_MEMORY|(?:CUBLAS|CUDNN|HIPBLAS|ROCBLAS|MIOPEN)_STATUS_ALLOC_FAILED"
    r"|\bOutOfMemoryError\b|Cuda failure \d* ?'out of memory'|HIP failure \d* ?'out of memory'"
    r"|OOM when allocating|ResourceExhaustedError: .*failed to allocate memory"
    r"|RESOURCE_EXHAUSTED: .*(?:out of memory|failed to allocate|ran out of memory)",
    re.I,
)
#: Words of Python, NumPy, PyTorch, C++ and the system about a host's memory.
_NO_HOST_MEMORY = re.compile(
    r"\b_?(?:Array)?MemoryError\b|Unable to allocate [\d.]+ (?:[KMGTPE]i)?B for an array"
    r"|DefaultCPUAllocator: (?:can't allocate|not enough) memory|std::bad_alloc"
    r"|\[Errno 12\]|Cannot allocate memory|paging file is too small"
)

#: The error of a rank that has other GPUs than the run requests.
DEVICE_ERROR = "DeviceError"
#: What is worth a try where TensorFlow sees no GPU, in this order.
WAYS_OUT = (
    " (1) TensorFlow's CUDA libraries: `make setup CUDA=1`; (2) the node's driver, or a module to "
    "load in the platform's `setup`; (3) only to try it without GPUs: `devices: logical` in the "
    "platform splits the CPU."
)
#: A rank of the trainer and of a program passes these only with the GPUs that the run requests.
_WITH_GPUS = {EventName.IMPORTED, EventName.PROGRAM_STARTED}

#: The error of a program that was given up; its message is the line of user code, if known.
HUNG = "Hung"
#: Why programs that serve others never end, and what helps.
_OTHERS_ENDED = (
    "though all other ranks have ended well: a server that only joins its threads runs for ever. "
    "Let the other ranks end it when they are done, by a queue or a file (docs/programs.md, "
    "Parameter servers), or use `strategy: parameter_server` with a model instead of a program"
)
#: The message of a cause that is an exit code alone, in the launcher's or srun's words.
_EXIT_CODE_ALONE = re.compile(r"(?:Exited with )?exit code \d+(?: \(on \S+\))?")
#: At most this many places are named.
_PLACES_MAX = 4


def find_cause(
    folder: Path,
    exits: Mapping[int, int | None],
    srun: Mapping[int, str],
    silent: Set[int] = frozenset(),
) -> Cause:
    """Return why a launch failed, from the events, logs and exit codes of its ranks.

    Args:
        folder: The attempt's folder, with the ranks' events and logs.
        exits: Rank → exit code, of ranks that the launcher started itself; None while a rank runs.
        srun: Rank → srun's message about it.
        silent: Ranks that missed heartbeats before another rank reported an error.
    """
    seen = events.read_by_rank(folder)
    failed = {
        rank: event
        for rank, lines in seen.items()
        for event in lines
        if event.name is EventName.FAILED
    }
    ended = {rank for rank, lines in seen.items() if lines[-1].name is EventName.END}
    mute = [rank for rank in seen if rank not in failed and rank not in ended]
    # in srun's own order: the first that it speaks of came first, others it may have killed itself
    named = [rank for rank in srun if rank in mute]
    named += [rank for rank in mute if rank not in srun and exits.get(rank)]
    died = named or ([] if failed else mute)
    died += [r for r in {**exits, **srun} if r not in seen and (exits.get(r) or srun.get(r))]
    complaint = min(failed, key=lambda r: failed[r].time_s, default=None)
    details = {} if complaint is None else failed[complaint].details
    if complaint is not None:
        silent = silent | _called_silent(seen, details["message"])
    # a stopped rank may continue when it is to be ended, and then complain last
    stopped = [r for r in seen if r in silent - ended - {complaint} and not exits.get(r)]
    about_a_peer = complaint is not None and (
        details["error"] in _ABOUT_A_PEER
        # the other ranks of a collective raise the error of the first, in these words
        or "Collective ops is aborted" in details["message"]
    )
    if complaint is not None and not about_a_peer:
        stopped = []
    if complaint is not None and stopped and set(named[:1]) <= set(stopped):
        text = f"rank {stopped[0]} gave no sign of life until rank {complaint} complained: "
        text += _words(details)
        return cause_of_rank(folder, "stalled", stopped[0], text, exits.get(stopped[0]))
    if died:
        return cause_of_rank(folder, "rank_died", died[0], srun.get(died[0]), exits.get(died[0]))
    if complaint is not None:
        kind: Kind = "program_failed" if details.get("of_program") else "rank_failed"
        if details["error"] == InterruptedTrainingError.__name__:
            kind = "cancelled"  # one rank was terminated from outside; the others stopped for it
        text = _words(details)
        cause = cause_of_rank(folder, kind, complaint, text, exits.get(complaint))
        # the line of user code, if it raised the exception
        place = details.get("place") if not about_a_peer else None
        line = None if place is None else msgspec.convert(place, UserLine)
        return replace(cause, error=details["error"], place=line)
    lines = rank_files.last_lines(folder / "srun.log", 500)
    # the first error has the cause; later errors report what srun does about it
    said = next(filter(_OF_SLURM.match, lines), lines[-1] if lines else "")
    text = said or "the launcher's command failed without a message"
    return Cause(kind="launch_failed", message=text, last_lines=lines[-30:])


def _called_silent(seen: Mapping[int, list[Event]], message: str) -> set[int]:
    """Return the ranks that an error message of TensorFlow names as unhealthy tasks.

    Args:
        seen: Rank → its events. Ranks without events are not in the result.
        message: The message.
    """
    said = _UNHEALTHY.search(message)
    tasks = _TASK.findall(said[1]) if said else []
    found = set[int]()
    for job, index in tasks:
        of_job = [r for r in sorted(seen) if seen[r][0].details.get("job", "worker") == job]
        found |= {*of_job[int(index) : int(index) + 1]}
    return found


def _words(failure: Mapping[str, Any]) -> str:
    """Return a rank's error in words, from the details of its event `failed`."""
    if failure.get("of_program"):  # a complete sentence
        return str(failure["message"])
    return f"{failure['error']}: {failure['message']}"


def stalled(
    folder: Path, message: str, silent: int | None = None, ranks: int | None = None
) -> Cause:
    """Return the cause for ranks that hang; it names a single rank where possible.

    Without `silent`, this is a rank that the others wait for, else the rank with the oldest last
    event. Parameter servers, and workers that a coordinator drives, report no progress.

    Args:
        folder: The attempt's folder.
        message: Which limit was exceeded.
        silent: The rank whose heartbeats are missing, if known.
        ranks: Number of ranks. If given, ranks that did not start or did not pass the rendezvous
            are named.
    """
    seen = events.read_by_rank(folder)
    if silent is not None:
        return cause_of_rank(folder, "stalled", silent, message)
    if not seen:
        lines = rank_files.last_lines(folder / "srun.log")
        return Cause(kind="stalled", message=message, last_lines=lines)
    if ranks is not None and (missing := _missing(seen, ranks)):
        rank, text = missing
        return cause_of_rank(folder, "stalled", rank, f"{message}; {text}")
    unfinished = [r for r in seen if seen[r][-1].name is not EventName.END] or list(seen)
    rank = min(unfinished, key=lambda r: seen[r][-1].time_s)
    if len(unfinished) < len(seen) and _has(seen[rank], EventName.PROGRAM_STARTED):
        message = f"{message}; {_named(unfinished)} did not end, {_OTHERS_ENDED}"
    return cause_of_rank(folder, "stalled", rank, message)


def _has(lines: Iterable[Event], name: EventName) -> bool:
    """Return whether an event with this name is among the events."""
    return any(event.name is name for event in lines)


def _missing(seen: Mapping[int, list[Event]], ranks: int) -> tuple[int, str] | None:
    """Return the first rank that is missing in the rendezvous, and all missing ranks in words.

    Args:
        seen: Rank → its events.
        ranks: Number of ranks of the run.

    Returns:
        None if no rank waits in the rendezvous.
    """
    passed = {rank: {event.name for event in lines} for rank, lines in seen.items()}
    waiting = [
        rank
        for rank, names in passed.items()
        if EventName.IMPORTED in names and EventName.RENDEZVOUS not in names
    ]
    absent = [rank for rank in range(ranks) if rank not in seen]
    late = [rank for rank, names in passed.items() if names == {EventName.START}]
    if absent:
        return absent[0], f"{_named(absent)} did not start"
    if waiting and late:
        return late[0], f"{_named(late)} did not come to the rendezvous"
    if waiting:
        return waiting[0], f"{_named(waiting)} did not find the others in the rendezvous"
    return None


def _named(ranks: Sequence[int]) -> str:
    """Return ranks in words: `rank 3`, `ranks 0, 3`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def add_places(cause: Cause, folder: Path) -> Cause:
    """Return the cause with the lines of code at which the programs hung that were ended.

    Args:
        cause: Why the launch failed.
        folder: The attempt's folder, with the events in which the ranks report these lines.
    """
    places: dict[str, list[int]] = {}
    for rank, lines in events.read_by_rank(folder).items():
        for event in lines:
            if event.name is EventName.FAILED and event.details["error"] == HUNG:
                places.setdefault(event.details["message"], []).append(rank)
    places.pop("", None)  # of programs whose line is unknown
    hung = [f"{_named(ranks)} hung at {place}" for place, ranks in places.items()]
    log = rank_files.rank_log(folder, cause.rank or 0)
    message = "; ".join([cause.message, *hung[:_PLACES_MAX], f"log: {log}"])
    return replace(cause, message=message, last_lines=rank_files.last_lines(log))


def running(folder: Path, but: int | None = None) -> bool:
    """Return whether a user's program is running on any rank.

    Args:
        folder: The attempt's folder.
        but: A rank to ignore, such as a rank that no longer answers.
    """
    return any(
        lines[-1].name not in (EventName.FAILED, EventName.END)
        for rank, lines in events.read_by_rank(folder).items()
        if rank != but and _has(lines, EventName.PROGRAM_STARTED)
    )


def find_lost_node(cause: Cause, log: Path | None) -> Cause:
    """Return a node failure as the cause if srun reported one that explains `cause`; else `cause`.

    Args:
        cause: The cause by the ranks' events and exit codes.
        log: The log of srun; None without srun.
    """
    ended = slurm_job.ended_by(log) if cause.kind in _MAY_BE_OF_A_NODE else None
    if ended is None or ended.kind != "node_failed" or log is None:
        return cause
    return add_rank_of_host(ended, log.parent)


def add_rank_of_host(cause: Cause, folder: Path) -> Cause:
    """Return the cause with the first rank that ran on `cause.host`, and the end of its log.

    The cause is unchanged if it names no host, or no rank has reported this host.
    """
    for rank, lines in events.read_by_rank(folder).items():
        if cause.host is not None and lines[0].details.get("host") == cause.host:
            return cause_of_rank(folder, cause.kind, rank, cause.message)
    return cause


def cause_of_exception(error: Exception) -> Cause:
    """Return the cause for an exception in the launcher itself, such as a full disk."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    disk = program_errors.remedy(error) if isinstance(error, OSError) else None
    message = disk or f"{type(error).__name__}: {error}"
    return Cause(kind="launcher_failed", message=message, last_lines=tuple(lines[-30:]))


def cause_of_rank(
    folder: Path,
    kind: Kind,
    rank: int,
    message: str | None,
    exit_code: int | None = None,
) -> Cause:
    """Return a cause with a rank's host, last event and the end of its log.

    Args:
        folder: The attempt's folder.
        kind: Kind of failure.
        rank: The rank that failed.
        message: What went wrong; None: the exit code in words.
        exit_code: The rank's exit code, negative for a signal; None if unknown.
    """
    lines = events.read_by_rank(folder).get(rank, [])
    log = rank_files.rank_log(folder, rank)
    return Cause(
        kind=kind,
        message=message or exit_text(exit_code),
        rank=rank,
        host=lines[0].details.get("host") if lines else None,
        exit_code=exit_code,
        log=str(log),
        reached=lines[-1].name if lines else None,
        last_lines=rank_files.last_lines(log),
    )


def exit_text(code: int | None) -> str:
    """Return an exit code in words: `exit code 3`, `killed by SIGKILL` for -9."""
    if code is None:
        return "the rank ended without a report"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:  # most of the real-time signals have no name
            return f"killed by signal {-code}"
    return f"exit code {code}"


def add_last_line(cause: Cause) -> Cause:
    """Return the cause with the last line of the log, if the rank ended before its first event.

    Only an exit code is known then: a line of the platform's `setup` failed, or Python could not
    import the library.
    """
    lines = [line.strip() for line in cause.last_lines if line.strip()]
    if cause.reached is not None or not lines or not _EXIT_CODE_ALONE.fullmatch(cause.message):
        return cause
    return replace(cause, message=f"{cause.message}; its last line: {lines[-1][:300]}")


def mark_out_of_memory(
    cause: Cause, of_rank: Sequence[Event] = (), slurms_words: Iterable[str] = ()
) -> Cause:
    """Return the cause with kind `out_of_memory` if the rank or program failed for lack of memory.

    The evidence is an error message, Slurm's message, or the kernel's counter of killed processes
    if the rank ran on this host. Without evidence, the cause is returned unchanged.

    Args:
        cause: The cause so far.
        of_rank: Events of the rank that failed.
        slurms_words: Lines that Slurm has written about the ranks.
    """
    has_failed = cause.kind in ("rank_failed", "program_failed")
    words = f"{cause.error or ''}: {cause.message}"
    if has_failed and (_NO_DEVICE_MEMORY.search(words) or _NO_HOST_MEMORY.search(words)):
        return replace(cause, kind="out_of_memory")
    killed = signal.SIGKILL.name in (cause.error or "")  # of a program
    if cause.kind != "rank_died" and not (cause.kind == "program_failed" and killed):
        return cause
    for words in (cause.message, *slurms_words):
        if _NO_MEMORY.search(words):
            message = cause.message if words == cause.message else f"{cause.message}: {words}"
            return replace(cause, kind="out_of_memory", message=message)
    start = next((event.details for event in of_rank if event.name is EventName.START), {})
    is_here = start.get("host") == socket.gethostname() and "oom_counter" in start
    was_killed = is_here and (killed or cause.exit_code == -signal.SIGKILL)
    if was_killed and provenance.oom_kills(Path(start["oom_counter"])) > start["oom_kills"]:
        message = f"{cause.message}: the kernel had no memory left for it"
        return replace(cause, kind="out_of_memory", message=message)
    return cause


def memory(
    cause: Cause, folder: Path, job: SlurmJob | None, is_local: bool
) -> dict[str, float | None]:
    """Return peaks and limit of the memory, in GB, of an attempt that ran out of memory.

    Args:
        cause: Why the attempt failed.
        folder: The attempt's folder, with the ranks' events.
        job: Slurm's facts about the job; None without Slurm.
        is_local: Whether this process has started the ranks.

    Returns:
        Values of `rank_memory_gb`, `gpu_memory_gb` and `memory_limit_gb`, the keys of `DoesNotFit`;
        None if unknown. The limit is the GPU's memory if a GPU ran out of memory.
    """
    ranks = events.read_by_rank(folder).values()
    failed = [event.details for lines in ranks for event in lines]
    peaks: dict[str, float | None] = {}
    for name in ("rank_memory_gb", "gpu_memory_gb"):
        peaks[name] = max((e[name] for e in failed if e.get(name)), default=None)
    if is_local:
        peaks["rank_memory_gb"] = max(peaks["rank_memory_gb"] or 0.0, resource_use.memory_gb())
    if _NO_DEVICE_MEMORY.search(cause.message):
        gpus, _ = resource_use.gpus_of_rank(os.environ)
        limit_gb = min((gpu.memory_gb for gpu in gpus), default=None)
    else:
        limit_gb = slurm_job.memory_gb(job) or provenance.memory_limit_gb()
    return {**peaks, "memory_limit_gb": limit_gb}


def as_missing_gpus(cause: Cause, folder: Path) -> Cause:
    """Return the cause as `missing_gpus` if another host of the run did find its GPUs.

    Otherwise return it unchanged.

    A retry may then succeed on other nodes. The cause is unchanged if no other host of the run has
    reported its GPUs.
    """
    if cause.error != DEVICE_ERROR:
        return cause
    having, lacking = set[str](), set[str]()
    for lines in events.read_by_rank(folder).values():
        begun, names = lines[0].details, {event.name for event in lines}
        host, failed = str(begun.get("host")), (e for e in lines if e.name is EventName.FAILED)
        if any(event.details["error"] == DEVICE_ERROR for event in failed):
            lacking.add(host)
        elif begun.get("job") == "worker" and names & _WITH_GPUS:
            # coordinators and parameter servers take none
            having.add(host)
    having -= lacking
    if not having or cause.host is None:
        return cause
    found = (
        f"{cause.message.removesuffix(WAYS_OUT)} Another host of the run, {min(having)}, has its "
        f"GPUs: look for the fault on {', '.join(sorted(lacking))}, in GPUs, driver or Slurm's "
        "gres.conf, and inform the cluster's administrators"
    )
    node = slurm_job.find_node_name(cause.host, os.environ)
    return replace(cause, kind="missing_gpus", message=found, host=node)
