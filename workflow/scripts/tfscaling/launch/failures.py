"""Why a launch failed: the first cause among the errors of many ranks.

When one rank dies, its peers soon raise an error of the collective, and srun ends the rest. So a
silent rank comes before ranks that reported errors, and the earliest error before later ones. A
stopped rank does not even end: it is known by its missing heartbeats. These may only be late on a
shared file system; they count if the reported error is one that a lost peer can cause.
"""

from __future__ import annotations

import itertools
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

#: Classes of errors that a lost peer causes: of TensorFlow's collectives, coordinator and servers,
#: and of connections. Other errors, such as a ValueError, are the rank's own.
_PEER_ERRORS = {
    *("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"),
    *("InternalError", "UnknownError", "FailedPreconditionError"),
    *("PSUnavailableError", "ClosureAbortedError", "ClosureInputError"),
    *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"),
    *("TimeoutError",),
}
#: TensorFlow's message about tasks whose heartbeats its coordination service misses.
_UNHEALTHY = re.compile(r"stopped sending heartbeats\):\s*((?:/job:\w+/replica:\d+/task:\d+\s*)+)")
#: Job and index of a task in such a message.
_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")
#: Kinds of failures that a lost node can imitate.
_MAY_BE_LOST_NODE: frozenset[Kind] = frozenset(
    {"stalled", "rank_died", "rank_failed", "incomplete"}
)
#: Errors of programs and ranks that end because the process that started them has ended.
_KILLED_WITH_STARTER = {
    *("killed by SIGTERM", "killed by SIGKILL", "killed by SIGHUP"),
    InterruptedTrainingError.__name__,
}
#: A line of srun or of Slurm's daemons about an error.
_SLURM_ERROR = re.compile(r"(?:srun|slurmstepd|slurmd)\S*: (?:error|fatal): ")
#: Slurm's messages about a step that exceeded its memory.
_NO_MEMORY = re.compile(r"out of memory|oom.kill|exceeded (?:job |step )?memory limit", re.I)
#: Messages of PyTorch, CUDA, HIP, SYCL, Metal, TensorFlow and XLA about a device's memory.
_NO_DEVICE_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|HPU|MUSA|MPS backend|device)(?: error:)? out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory|HIP_ERROR_OutOfMemory"
    r"|OUT_OF_(?:DEVICE|HOST)_MEMORY|(?:CUBLAS|CUDNN|HIPBLAS|ROCBLAS|MIOPEN)_STATUS_ALLOC_FAILED"
    r"|\bOutOfMemoryError\b|Cuda failure \d* ?'out of memory'|HIP failure \d* ?'out of memory'"
    r"|OOM when allocating|ResourceExhaustedError: .*failed to allocate memory"
    r"|RESOURCE_EXHAUSTED: .*(?:out of memory|failed to allocate|ran out of memory)",
    re.I,
)
#: Messages of Python, NumPy, PyTorch, C++ and the system about a host's memory.
_NO_HOST_MEMORY = re.compile(
    r"\b_?(?:Array)?MemoryError\b|Unable to allocate [\d.]+ (?:[KMGTPE]i)?B for an array"
    r"|DefaultCPUAllocator: (?:can't allocate|not enough) memory|std::bad_alloc"
    r"|\[Errno 12\]|Cannot allocate memory|paging file is too small"
)

#: The error of a rank that has other GPUs than the run requests.
DEVICE_ERROR = "DeviceError"
#: Advice for a rank whose TensorFlow sees no GPU, in the order in which to try it.
WAYS_OUT = (
    " (1) TensorFlow's CUDA libraries: `make setup CUDA=1`; (2) the node's driver, or a module to "
    "load in the platform's `setup`; (3) only to try it without GPUs: `devices: logical` in the "
    "platform splits the CPU."
)
#: Events that a rank of the trainer, or of a program, only passes with the GPUs that the run
#: requests.
_PASSED_WITH_GPUS = {EventName.IMPORTED, EventName.PROGRAM_STARTED}

#: The error of a program that hung and was ended; its message is the line of user code, if known.
HUNG = "Hung"
#: Explanation for programs that serve others and never end, with advice.
_OTHERS_ENDED = (
    "though all other ranks have ended well: a server that only joins its threads runs for ever. "
    "Let the other ranks end it when they are done, by a queue or a file (docs/programs.md, "
    "Parameter servers), or use `strategy: parameter_server` with a model instead of a program"
)
#: A cause's message that is only an exit code, as the launcher or srun reports it; not the code of
#: a shell or container's engine whose command was killed (SIGHUP, SIGINT, SIGKILL, SIGTERM).
_EXIT_CODE_ALONE = re.compile(
    r"(?:Exited with )?exit code (?!(?:129|130|137|143)\b)\d+(?: \(on \S+\))?"
)
#: Number of lines of code, at most, that a cause lists.
_PLACES_MAX = 4


def find_cause(
    folder: Path,
    exits: Mapping[int, int | None],
    srun_errors: Mapping[int, str],
    silent_ranks: Set[int] = frozenset(),
    killed_starter: str | None = None,
) -> Cause:
    """Return why a launch failed, from the events, logs and exit codes of its ranks.

    Args:
        folder: The attempt's folder, with the ranks' events and logs.
        exits: Rank → exit code, of ranks that the launcher started itself, in the order of their
            ends; None while a rank runs.
        srun_errors: Rank → srun's message about it, in srun's order.
        silent_ranks: Ranks that missed heartbeats before another rank reported an error.
        killed_starter: Clause that a signal ended the process which starts all ranks, so that they
            have ended as well; None if it did not. It is the cause, unless a rank has failed by
            itself.
    """
    seen = events.read_events_by_rank(folder)
    failed = {
        rank: event
        for rank, lines in seen.items()
        for event in lines
        if event.name is EventName.FAILED
    }
    ended = {rank for rank, lines in seen.items() if lines[-1].name is EventName.END}
    mute = [rank for rank in seen if rank not in failed and rank not in ended]
    complaint = min(failed, key=lambda r: failed[r].time_s, default=None)
    details = {} if complaint is None else failed[complaint].details
    about_a_peer = complaint is not None and _is_about_a_peer(details)
    has_own_error = complaint is not None and not about_a_peer
    is_own = has_own_error and details["error"] not in _KILLED_WITH_STARTER
    # in their order: the first that srun speaks of came first, others it may have killed itself
    badly = [*srun_errors, *filter(exits.get, exits)]
    if is_own:  # ranks that ended after it ended for it
        badly = [*itertools.takewhile(lambda rank: rank != complaint, badly)]
    named = [rank for rank in badly if rank in mute or rank not in seen]
    died = named or ([] if failed or killed_starter else mute)
    if complaint is not None:
        silent_ranks = silent_ranks | _find_unhealthy_ranks(seen, details["message"])
    # a stopped rank may continue when it is to be ended, and then complain last
    stopped = [r for r in seen if r in silent_ranks - ended - {complaint} and not exits.get(r)]
    if killed_starter and not died and not is_own:
        lines = rank_files.last_lines(folder / "srun.log")
        return Cause(kind="launch_failed", message=killed_starter, last_lines=lines)
    if has_own_error:
        stopped = []
    if complaint is not None and stopped and set(named[:1]) <= set(stopped):
        text = f"rank {stopped[0]} gave no sign of life until rank {complaint} complained: "
        text += _error_text(details)
        return cause_of_rank(folder, "stalled", stopped[0], text, exits.get(stopped[0]))
    if died:
        return cause_of_rank(
            folder, "rank_died", died[0], srun_errors.get(died[0]), exits.get(died[0])
        )
    if complaint is not None:
        # the line of user code, if it raised the exception
        place = details.get("place") if not about_a_peer else None
        return _cause_of_error(folder, complaint, details, place, exits.get(complaint))
    return _cause_of_srun(folder)


def _is_about_a_peer(details: Mapping[str, Any]) -> bool:
    """Return whether a rank reported an error that another rank caused.

    Args:
        details: Details of its event `failed`.
    """
    # the other ranks of a collective raise the error of the first, in these words
    return details["error"] in _PEER_ERRORS or "Collective ops is aborted" in details["message"]


def _cause_of_error(
    folder: Path,
    rank: int,
    details: Mapping[str, Any],
    place: Mapping[str, Any] | None,
    exit_code: int | None,
) -> Cause:
    """Return the cause for a rank that reported an error.

    Args:
        folder: The attempt's folder, with the ranks' events and logs.
        rank: The rank.
        details: Details of its event `failed`.
        place: The line of user code that raised the error, as in the event; None without one.
        exit_code: The rank's exit code, negative for a signal; None if unknown.
    """
    kind: Kind = "program_failed" if details.get("of_program") else "rank_failed"
    if details["error"] == InterruptedTrainingError.__name__:
        kind = "cancelled"  # one rank was terminated from outside; the others stopped for it
    cause = cause_of_rank(folder, kind, rank, _error_text(details), exit_code)
    line = None if place is None else msgspec.convert(place, UserLine)
    return replace(cause, error=details["error"], place=line)


def _cause_of_srun(folder: Path) -> Cause:
    """Return the cause for a launch in which no rank failed or died, from srun's log.

    Args:
        folder: The attempt's folder.
    """
    lines = rank_files.last_lines(folder / "srun.log", 500)
    # the first error has the cause; later errors report what srun does about it
    said = next(filter(_SLURM_ERROR.match, lines), lines[-1] if lines else "")
    text = said or "the launcher's command failed without a message"
    return Cause(kind="launch_failed", message=text, last_lines=lines[-30:])


def _find_unhealthy_ranks(seen: Mapping[int, list[Event]], message: str) -> set[int]:
    """Return the ranks that an error message of TensorFlow names as unhealthy tasks.

    Args:
        seen: Rank → its events; ranks without events are never returned.
        message: The error message.
    """
    said = _UNHEALTHY.search(message)
    tasks = _TASK.findall(said[1]) if said else []
    found = set[int]()
    for job, index in tasks:
        of_job = [r for r in sorted(seen) if seen[r][0].details.get("job", "worker") == job]
        found |= {*of_job[int(index) : int(index) + 1]}
    return found


def _error_text(failure: Mapping[str, Any]) -> str:
    """Return the error that a rank reported as text, from the details of its event `failed`."""
    if failure.get("of_program"):  # a complete sentence
        return str(failure["message"])
    return f"{failure['error']}: {failure['message']}"


def cause_of_stall(
    folder: Path, message: str, silent_rank: int | None = None, ranks: int | None = None
) -> Cause:
    """Return the cause for ranks that hang, with the rank that most likely causes the hang.

    This is `silent_rank` if it is given; else a rank that the others miss in the rendezvous; else
    the unfinished rank whose last event is oldest. Ranks that only serve a coordinator report no
    progress, and are named only if no other rank is unfinished. Without any event, no rank is
    named.

    Args:
        folder: The attempt's folder.
        message: Which limit was exceeded.
        silent_rank: The rank whose heartbeats are missing, if known.
        ranks: Number of ranks. If given, the message lists the ranks that did not start or did not
            pass the rendezvous.
    """
    seen = events.read_events_by_rank(folder)
    if silent_rank is not None:
        return cause_of_rank(folder, "stalled", silent_rank, message)
    if not seen:
        lines = rank_files.last_lines(folder / "srun.log")
        return Cause(kind="stalled", message=message, last_lines=lines)
    if ranks is not None and (missing := _find_missing_ranks(seen, ranks)):
        rank, text = missing
        return cause_of_rank(folder, "stalled", rank, f"{message}; {text}")
    unfinished = [r for r in seen if seen[r][-1].name is not EventName.END] or list(seen)
    driving = [r for r in unfinished if not seen[r][-1].details.get("serves")]
    rank = min(driving or unfinished, key=lambda r: seen[r][-1].time_s)
    if len(unfinished) < len(seen) and _has_event(seen[rank], EventName.PROGRAM_STARTED):
        message = f"{message}; {_name_ranks(unfinished)} did not end, {_OTHERS_ENDED}"
    return cause_of_rank(folder, "stalled", rank, message)


def _has_event(lines: Iterable[Event], name: EventName) -> bool:
    """Return whether an event with this name is among the events."""
    return any(event.name is name for event in lines)


def _find_missing_ranks(seen: Mapping[int, list[Event]], ranks: int) -> tuple[int, str] | None:
    """Return the first rank that is missing in the rendezvous, and a clause on all missing ranks.

    Args:
        seen: Rank → its events.
        ranks: Number of ranks of the run.

    Returns:
        (rank, clause); None if all ranks have started and none waits in the rendezvous.
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
        return absent[0], f"{_name_ranks(absent)} did not start"
    if waiting and late:
        return late[0], f"{_name_ranks(late)} did not come to the rendezvous"
    if waiting:
        return waiting[0], f"{_name_ranks(waiting)} did not find the others in the rendezvous"
    return None


def _name_ranks(ranks: Sequence[int]) -> str:
    """Return ranks in words: `rank 3`, `ranks 0, 3`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def add_hang_lines(cause: Cause, folder: Path) -> Cause:
    """Return the cause with the lines of code at which the user's programs hung.

    Args:
        cause: Why the launch failed.
        folder: The attempt's folder, with events in which the ranks have reported these lines.
    """
    places: dict[str, list[int]] = {}
    seen = events.read_events_by_rank(folder)
    for rank, lines in seen.items():
        for event in lines:
            if event.name is EventName.FAILED and event.details["error"] == HUNG:
                places.setdefault(event.details["message"], []).append(rank)
    places.pop("", None)  # of programs whose line is unknown
    hung = [f"{_name_ranks(ranks)} hung at {place}" for place, ranks in places.items()]
    log = rank_files.rank_log(folder, cause.rank or 0)
    message = "; ".join([cause.message, *hung[:_PLACES_MAX], f"log: {log}"])
    last = _last_lines_of_rank(seen.get(cause.rank or 0, ()), log)
    return replace(cause, message=message, last_lines=last)


def is_program_running(folder: Path, ignored_rank: int | None = None) -> bool:
    """Return whether a user's program is running on any rank.

    Args:
        folder: The attempt's folder.
        ignored_rank: A rank that does not count, such as a rank that no longer answers.
    """
    return any(
        lines[-1].name not in (EventName.FAILED, EventName.END)
        for rank, lines in events.read_events_by_rank(folder).items()
        if rank != ignored_rank and _has_event(lines, EventName.PROGRAM_STARTED)
    )


def find_lost_node(cause: Cause, log: Path | None) -> Cause:
    """Return the loss of a node as the cause, if Slurm reports one that explains `cause`.

    Otherwise `cause` is returned. srun reports the loss in its log, or Slurm lists a node of the
    run as down. In an allocation that keeps its other nodes, srun may even end without an error.

    Args:
        cause: The cause according to the ranks' events, exit codes and files.
        log: The log of srun; None without srun.
    """
    if log is None or not log.exists() or cause.kind not in _MAY_BE_LOST_NODE:
        return cause
    ended = slurm_job.cause_by_slurm(log)
    if ended is not None and ended.kind != "node_failed" and cause.kind != "incomplete":
        return cause
    has_own_error = cause.kind == "rank_failed" and cause.error not in _PEER_ERRORS
    if ended is None and not has_own_error:
        ended = slurm_job.cause_by_node_states(os.environ)
    return cause if ended is None else add_rank_of_host(ended, log.parent)


def add_rank_of_host(cause: Cause, folder: Path) -> Cause:
    """Return the cause with rank and log of the first rank that ran on `cause.host`.

    The cause is unchanged if it names no host, or if no rank has reported this host.

    Args:
        cause: The cause so far.
        folder: The attempt's folder, with the ranks' events and logs.
    """
    for rank, lines in events.read_events_by_rank(folder).items():
        host = str(lines[0].details.get("host"))
        if cause.host is not None and cause.host in (host, host.partition(".")[0]):
            return cause_of_rank(folder, cause.kind, rank, cause.message)
    return cause


def cause_of_exception(error: Exception) -> Cause:
    """Return the cause for an exception in the launcher itself, such as a full disk."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    disk = program_errors.describe_file_error(error) if isinstance(error, OSError) else None
    message = disk or f"{type(error).__name__}: {error}"
    return Cause(kind="launcher_failed", message=message, last_lines=tuple(lines[-30:]))


def cause_of_rank(
    folder: Path,
    kind: Kind,
    rank: int,
    message: str | None,
    exit_code: int | None = None,
) -> Cause:
    """Return the cause for the failure of one rank, with its host, last event and last lines.

    Args:
        folder: The attempt's folder, with the ranks' events and logs.
        kind: Kind of failure.
        rank: The rank that failed.
        message: What went wrong; None: the exit code in words.
        exit_code: The rank's exit code, negative for a signal; None if unknown.
    """
    lines = events.read_events_by_rank(folder).get(rank, [])
    log = rank_files.rank_log(folder, rank)
    return Cause(
        kind=kind,
        message=message or describe_exit(exit_code),
        rank=rank,
        host=lines[0].details.get("host") if lines else None,
        exit_code=exit_code,
        log=str(log),
        last_event=lines[-1].name if lines else None,
        last_lines=_last_lines_of_rank(lines, log),
    )


def _last_lines_of_rank(rank_events: Sequence[Event], log: Path) -> tuple[str, ...]:
    """Return the last lines of a rank's output as the rank has sent them, else from its log.

    The rank masks secrets that only its own environment has.

    Args:
        rank_events: The rank's events.
        log: The rank's log.
    """
    failed = (event for event in rank_events if event.name is EventName.FAILED)
    sent = next((event.details.get("last_lines") for event in failed), None)
    return tuple(map(str, sent)) if sent else rank_files.last_lines(log)


def describe_exit(code: int | None) -> str:
    """Return how a rank ended, in words, such as `exit code 3`, or `killed by SIGKILL` for -9.

    None means that the exit code is unknown.
    """
    if code is None:
        return "the rank ended without a report"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:  # most of the real-time signals have no name
            return f"killed by signal {-code}"
    return f"exit code {code}"


def add_last_line(cause: Cause) -> Cause:
    """Return the cause with the last line of the log in its message, if it has an exit code only.

    This happens before a rank's first event: a line of the platform's `setup` failed, or Python
    could not import the library. Otherwise the cause is returned unchanged.
    """
    lines = [line.strip() for line in cause.last_lines if line.strip()]
    if cause.last_event is not None or not lines or not _EXIT_CODE_ALONE.fullmatch(cause.message):
        return cause
    return replace(cause, message=f"{cause.message}; its last line: {lines[-1][:300]}")


def mark_out_of_memory(
    cause: Cause, rank_events: Sequence[Event] = (), slurm_messages: Iterable[str] = ()
) -> Cause:
    """Return the cause with kind `out_of_memory` if the rank or program failed for lack of memory.

    The evidence is an error message, Slurm's message, or the kernel's counter of killed processes
    if the rank ran on this host. Without evidence, the cause is returned unchanged.

    Args:
        cause: The cause so far.
        rank_events: Events of the rank that failed.
        slurm_messages: Lines that Slurm has written about the ranks.
    """
    has_failed = cause.kind in ("rank_failed", "program_failed")
    words = f"{cause.error or ''}: {cause.message}"
    if has_failed and (_NO_DEVICE_MEMORY.search(words) or _NO_HOST_MEMORY.search(words)):
        return replace(cause, kind="out_of_memory")
    killed = signal.SIGKILL.name in (cause.error or "")  # of a program
    if cause.kind != "rank_died" and not (cause.kind == "program_failed" and killed):
        return cause
    for words in (cause.message, *slurm_messages):
        if _NO_MEMORY.search(words):
            message = cause.message if words == cause.message else f"{cause.message}: {words}"
            return replace(cause, kind="out_of_memory", message=message)
    start = next((event.details for event in rank_events if event.name is EventName.START), {})
    is_here = start.get("host") == socket.gethostname() and "oom_counter" in start
    was_killed = is_here and (killed or cause.exit_code == -signal.SIGKILL)
    if was_killed and provenance.oom_kills(Path(start["oom_counter"])) > start["oom_kills"]:
        message = f"{cause.message}: the kernel had no memory left for it"
        return replace(cause, kind="out_of_memory", message=message)
    return cause


def memory_use(
    cause: Cause, folder: Path, job: SlurmJob | None, is_local: bool
) -> dict[str, float | None]:
    """Return peaks and limit of the memory of an attempt that ran out of memory, in GB.

    Args:
        cause: Why the attempt failed.
        folder: The attempt's folder, with the ranks' events.
        job: Slurm's facts about the job; None without Slurm.
        is_local: Whether this process has started the ranks.

    Returns:
        `rank_memory_gb`, `gpu_memory_gb` and `memory_limit_gb` (keys of `DoesNotFit`) → value, or
        None if unknown. The limit is the GPU's memory if a GPU ran out of memory.
    """
    ranks = events.read_events_by_rank(folder).values()
    failed = [event.details for lines in ranks for event in lines]
    peaks: dict[str, float | None] = {}
    for name in ("rank_memory_gb", "gpu_memory_gb"):
        peaks[name] = max((e[name] for e in failed if e.get(name)), default=None)
    if is_local:
        peaks["rank_memory_gb"] = max(peaks["rank_memory_gb"] or 0.0, resource_use.peak_memory_gb())
    if _NO_DEVICE_MEMORY.search(cause.message):
        gpus, _ = resource_use.gpu_meters_of_rank(os.environ)
        limit_gb = min((gpu.memory_gb for gpu in gpus), default=None)
    else:
        limit_gb = slurm_job.allocated_memory_gb(job) or provenance.memory_limit_gb()
    return {**peaks, "memory_limit_gb": limit_gb}


def mark_missing_gpus(cause: Cause, folder: Path) -> Cause:
    """Return the cause with kind `missing_gpus` if only some hosts of the run lack their GPUs.

    A retry on other nodes may then succeed. The cause is returned unchanged if its error is not a
    lack of GPUs, or if no other host of the run had its GPUs.

    Args:
        cause: The cause so far.
        folder: The attempt's folder, with the ranks' events.
    """
    if cause.error != DEVICE_ERROR:
        return cause
    having, lacking = set[str](), set[str]()
    for lines in events.read_events_by_rank(folder).values():
        begun, names = lines[0].details, {event.name for event in lines}
        host, failed = str(begun.get("host")), (e for e in lines if e.name is EventName.FAILED)
        if any(event.details["error"] == DEVICE_ERROR for event in failed):
            lacking.add(host)
        elif begun.get("job") == "worker" and names & _PASSED_WITH_GPUS:
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
