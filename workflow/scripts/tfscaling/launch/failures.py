"""Why a launch failed: the first cause among many complaints.

When one rank dies, its peers soon raise an error of the collective, and srun ends the rest. So a
rank that fell silent comes before those that complained, and the earliest complaint before later.
A stopped rank does not even end: it is known by its missing heartbeats. These may only be late, as
a shared file system shows them: they count if the complaint is one that a lost peer can cause.
"""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Mapping, Set
from pathlib import Path

import msgspec

from tfscaling.files import program_errors
from tfscaling.launch.checkpoint_folder import InterruptedTrainingError
from tfscaling.launch.launchers import rank_log
from tfscaling.record import events
from tfscaling.record.attempts import Cause, Kind, UserLine
from tfscaling.record.events import Event

_LAST_LINES = 30
#: Errors of a rank whose peer is gone: of TensorFlow's collectives, coordinator and servers, and of
#: connections. Other errors, as a ValueError, are the rank's own.
_ABOUT_A_PEER = {
    *("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"),
    *("InternalError", "UnknownError", "FailedPreconditionError"),
    *("PSUnavailableError", "ClosureAbortedError", "ClosureInputError"),
    *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"),
    *("TimeoutError", "CoordinatorSilentError"),
}


def rank_events(folder: Path) -> dict[int, list[Event]]:
    """Rank → its events by the launcher's clock, of all ranks that wrote their first one."""
    found = {
        int(path.name.split(".")[0].removeprefix("rank-")): events.on_launcher_clock(
            events.read(path)
        )
        for path in folder.glob("rank-*.events.jsonl")
    }
    return {rank: lines for rank, lines in sorted(found.items()) if lines}


def find_cause(
    folder: Path,
    exits: Mapping[int, int | None],
    srun: Mapping[int, str],
    silent: Set[int] = frozenset(),
) -> Cause:
    """The cause of a failure.

    `folder` has the ranks' events and logs, `exits` the exit codes of ranks that the launcher
    started itself, `srun` its words about ranks that it started. `silent` are ranks that gave no
    sign of life before the first complaint.
    """
    seen = rank_events(folder)
    failed = {rank: e for rank, lines in seen.items() for e in lines if e["event"] == "failed"}
    ended = {rank for rank, lines in seen.items() if lines[-1]["event"] == "end"}
    mute = [rank for rank in seen if rank not in failed and rank not in ended]
    # in srun's own order: the first that it speaks of came first, others it may have killed itself
    named = [rank for rank in srun if rank in mute]
    named += [rank for rank in mute if rank not in srun and exits.get(rank)]
    died = named or ([] if failed else mute)
    unheard = [
        rank
        for rank in {**exits, **srun}
        if rank not in seen and (exits.get(rank) or srun.get(rank))
    ]
    complaint = min(failed, key=lambda r: failed[r]["time_s"], default=None)
    # a rank that was stopped may go on when it is to be ended, and then complain last
    stopped = [r for r in seen if r in silent - ended - {complaint} and not exits.get(r)]
    if complaint is not None and not _is_about_a_peer(failed[complaint]):
        stopped = []
    if complaint is not None and stopped and set(named[:1]) <= set(stopped):
        text = f"rank {stopped[0]} gave no sign of life until rank {complaint} complained: "
        text += _words(failed[complaint])
        return _details(folder, "stalled", stopped[0], exits, text, seen)
    if died:
        return _details(folder, "rank_died", died[0], exits, srun.get(died[0]), seen)
    if unheard:
        return _details(folder, "rank_died", unheard[0], exits, srun.get(unheard[0]), seen)
    if complaint is not None:
        text = _words(failed[complaint])
        kind: Kind = "program_failed" if failed[complaint].get("of_program") else "rank_failed"
        if failed[complaint]["error"] == InterruptedTrainingError.__name__:
            kind = "cancelled"  # somebody has ended one rank, and it has told the others
        cause = _details(folder, kind, complaint, exits, text, seen)
        return _blaming(cause, failed[complaint])
    lines = last_lines(folder / "srun.log")
    text = lines[-1] if lines else "the launcher's command failed without a message"
    return Cause(kind="launch_failed", message=text, last_lines=lines)


def _blaming(cause: Cause, failed: Event) -> Cause:
    """The cause with the rank's exception, and the line of the user's code if it raised it."""
    place = failed.get("place") if not _is_about_a_peer(failed) else None
    line = None if place is None else msgspec.convert(place, UserLine)
    return msgspec.structs.replace(cause, error=failed["error"], place=line)


def _is_about_a_peer(failed: Event) -> bool:
    # the other ranks of a collective raise the error of the first, in these words
    return failed["error"] in _ABOUT_A_PEER or "Collective ops is aborted" in failed["message"]


def _words(failed: Event) -> str:
    if failed.get("of_program"):  # a sentence that says it all
        return str(failed["message"])
    return f"{failed['error']}: {failed['message']}"


def stalled(
    folder: Path, message: str, silent: int | None = None, ranks: int | None = None
) -> Cause:
    """The cause when ranks hang: the silent rank, or else the one whose last event is the oldest.

    Parameter servers and workers that a coordinator drives have no events of their own to be late.
    If there are to be `ranks`, those that did not start or did not meet the others are named.
    """
    seen = rank_events(folder)
    if ranks is not None and silent is None and seen and (missing := _missing(seen, ranks)):
        rank, text = missing
        return _details(folder, "stalled", rank, {}, f"{message}; {text}", seen)
    if silent is not None:
        return _details(folder, "stalled", silent, {}, message, seen)
    if not seen:
        lines = last_lines(folder / "srun.log")
        return Cause(kind="stalled", message=message, last_lines=lines)
    unfinished = [r for r in seen if seen[r][-1]["event"] != "end"] or list(seen)
    rank = min(unfinished, key=lambda r: seen[r][-1]["time_s"])
    return _details(folder, "stalled", rank, {}, message, seen)


#: A rank of the workflow's own trainer passes the first event when it looks for the others, and
#: the second when it has met them.
_LOOKS, _HAS_MET = "imported", "rendezvous"


def _missing(seen: Mapping[int, list[Event]], ranks: int) -> tuple[int, str] | None:
    """The first rank for which the others wait in a rendezvous, and which those are."""
    passed = {rank: {event["event"] for event in lines} for rank, lines in seen.items()}
    waiting = [r for r, names in passed.items() if _LOOKS in names and _HAS_MET not in names]
    absent = [rank for rank in range(ranks) if rank not in seen]
    late = [rank for rank, names in passed.items() if names == {"start"}]
    if absent:
        return absent[0], f"{_named(absent)} did not start"
    if waiting and late:
        return late[0], f"{_named(late)} did not come to the rendezvous"
    if waiting:
        return waiting[0], f"{_named(waiting)} did not find the others in the rendezvous"
    return None


def _named(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


#: Slurm's word for why it ends a job → what that is here.
_ENDED_BY_SLURM: dict[str, Kind] = {
    "TIME LIMIT": "time_limit",
    "PREEMPTION": "preempted",
    "JOB REQUEUE": "requeued",
    "NODE FAILURE": "node_failed",
}
#: What ranks look like when the node of one of them has no power.
_MAY_BE_OF_A_NODE: frozenset[Kind] = frozenset({"stalled", "rank_died", "rank_failed"})
_CANCELLED = re.compile(r"\*\*\* (?:STEP|JOB) \S+ ON (\S+) CANCELLED AT \S+ DUE TO ([^*,]+)")
_NODE_FAILED = re.compile(r"srun: error: Node failure on (\S+)")
#: Slurm's daemon of a step tells its words to the step's ranks: they are in these logs, too.
_OF_STEP = "slurmstepd"
_END_BYTES = 1 << 16


def slurms_words(log: Path | None) -> tuple[str, ...]:
    """What Slurm has said of a step: the log of its srun, and then its lines in the ranks' logs."""
    if log is None:
        return ()
    of_ranks = (line for path in sorted(log.parent.glob("rank-*.log")) for line in _end(path))
    return (*last_lines(log, 500), *(line for line in of_ranks if line.startswith(_OF_STEP)))


def _end(log: Path) -> list[str]:
    """The last lines of a log that may be long."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _END_BYTES))
        return file.read().decode(errors="replace").splitlines()


def ended_by_slurm(log: Path | None) -> Cause | None:
    """Why Slurm itself ended a job, by the log of its srun; None if it did not, or does not say.

    A user's scancel has no reason in the log.
    """
    lines = slurms_words(log)
    for line in lines:
        if (failed := _NODE_FAILED.search(line)) is not None:
            said, shown = f"Slurm: node failure on {failed[1]}", lines[-_LAST_LINES:]
            return Cause(kind="node_failed", message=said, host=failed[1], last_lines=shown)
    for line in lines:
        if (ended := _CANCELLED.search(line)) is not None:
            reason = ended[2].strip()
            kind = _ENDED_BY_SLURM.get(reason)
            if kind is not None:
                said = f"Slurm ended the job: {reason.lower()}"
                return Cause(kind=kind, message=said, last_lines=lines[-_LAST_LINES:])
    return None


def preempted(cause: Cause) -> Cause:
    """The cause when ranks ended because Slurm takes their nodes for another job."""
    said = "Slurm ended the job: preemption"
    return Cause(kind="preempted", message=said, last_lines=cause.last_lines)


def of_a_lost_node(cause: Cause, log: Path | None) -> Cause:
    """The cause, or that Slurm has lost a node, of which other ranks may have complained first."""
    ended = ended_by_slurm(log) if cause.kind in _MAY_BE_OF_A_NODE else None
    if ended is None or ended.kind != "node_failed" or log is None:
        return cause
    return with_rank_of_host(ended, log.parent)


def with_rank_of_host(cause: Cause, folder: Path) -> Cause:
    """The cause with the first rank that ran on its host, if it names one."""
    for rank, lines in rank_events(folder).items():
        if cause.host is not None and lines[0].get("host") == cause.host:
            return _details(folder, cause.kind, rank, {}, cause.message, {rank: lines})
    return cause


def incomplete(folder: Path, message: str, rank: int) -> Cause:
    """The cause when ranks ended well, but not all of what they wrote is there."""
    return _details(folder, "incomplete", rank, {}, message, rank_events(folder))


def of_exception(error: Exception) -> Cause:
    """The cause when the launcher itself fails, as when the disk is full."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    disk = program_errors.remedy(error) if isinstance(error, OSError) else None
    return Cause(
        kind="launcher_failed",
        message=disk or f"{type(error).__name__}: {error}",
        last_lines=tuple(lines[-_LAST_LINES:]),
    )


def _details(
    folder: Path,
    kind: Kind,
    rank: int,
    exits: Mapping[int, int | None],
    message: str | None,
    seen: Mapping[int, list[Event]],
) -> Cause:
    lines = seen.get(rank, [{}])
    return Cause(
        kind=kind,
        message=message or exit_text(exits.get(rank)),
        rank=rank,
        host=lines[0].get("host"),
        exit_code=exits.get(rank),
        log=str(rank_log(folder, rank)),
        reached=lines[-1].get("event"),
        last_lines=last_lines(rank_log(folder, rank)),
    )


def last_lines(log: Path, count: int = _LAST_LINES) -> tuple[str, ...]:
    """The end of a log, for the failure's report."""
    return tuple(log.read_text(errors="replace").splitlines()[-count:]) if log.exists() else ()


def exit_text(code: int | None) -> str:
    """An exit code in words; negative ones are signals, as subprocess has them."""
    if code is None:
        return "the rank ended without a report"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:  # most of the real-time signals have no name
            return f"killed by signal {-code}"
    return f"exit code {code}"


def _ranks(text: str) -> list[int]:
    """Slurm's short form of ranks: `0,2,4-5`."""
    spans = [part.partition("-") for part in text.split(",") if part]
    return [r for low, _, high in spans for r in range(int(low), int(high or low) + 1)]


def srun_errors(log: Path) -> dict[int, str]:
    """Rank → srun's own words, from lines such as `srun: error: node2: task 1: Killed`.

    Ranks that srun itself terminated after the first failure are left out: they are no cause.
    """
    found: dict[int, str] = {}
    for line in last_lines(log, 500):
        match = re.search(r"error: (\S+): tasks? ([\d,-]+): (.+)", line)
        if match and "Terminated" not in match[3]:
            found |= dict.fromkeys(_ranks(match[2]), f"{match[3]} (on {match[1]})")
    return found
