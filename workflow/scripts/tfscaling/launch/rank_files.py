"""The files that each rank leaves in the attempt's folder, and waiting for them.

A shared file system may show a node's files to the launcher some time after the rank has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tfscaling.files import strict_json
from tfscaling.record import events, run_record
from tfscaling.record.events import Event
from tfscaling.record.rank_report import RankReport

#: How long a shared file system may take to show a file, as profiles/slurm's latency-wait has it.
LATENCY_WAIT_S = 60.0
_POLL_S = 0.25


class IncompleteError(RuntimeError):
    """Files of ranks that ended well are missing or cut; `ranks` are theirs."""

    def __init__(self, message: str, ranks: list[int]) -> None:
        super().__init__(message)
        self.ranks = ranks


def rank_log(folder: Path, rank: int | str) -> Path:
    """The log of a rank; Slurm replaces `%t` by the rank."""
    return folder / f"rank-{rank}.log"


def last_lines(log: Path, count: int = 30) -> tuple[str, ...]:
    """The end of a log; nothing if it does not exist."""
    return tuple(log.read_text(errors="replace").splitlines()[-count:]) if log.exists() else ()


def report_path(folder: Path, rank: int) -> Path:
    """The report of a rank that has done its work."""
    return folder / f"rank-{rank}.json"


def events_path(folder: Path, rank: int) -> Path:
    """The events of a rank."""
    return folder / f"rank-{rank}.events.jsonl"


def observed_path(folder: Path, rank: int) -> Path:
    """The events that a user's program writes itself."""
    return folder / f"rank-{rank}.observed.jsonl"


def rank_events(folder: Path) -> dict[int, list[Event]]:
    """Rank → its events by the launcher's clock, of all ranks that wrote their first one."""
    found = {
        int(path.name.split(".")[0].removeprefix("rank-")): events.on_launcher_clock(
            events.read(path)
        )
        for path in folder.glob("rank-*.events.jsonl")
    }
    return {rank: lines for rank, lines in sorted(found.items()) if lines}


_REPORT: msgspec.json.Decoder[RankReport] = msgspec.json.Decoder(RankReport)


def reports(folder: Path) -> list[RankReport]:
    """The reports of all ranks, in their order. Raises RecordError if one is broken."""
    found = (run_record.decoded(path, _REPORT, 0) for path in folder.glob("rank-*.json"))
    return sorted((r for r in found if r is not None), key=lambda report: report.rank)


def wait(folder: Path, ranks: Iterable[int], limit_s: float) -> None:
    """Return when all ranks' reports and events are complete.

    Raises IncompleteError after `limit_s`, with each rank and its missing files.
    """
    waiting, deadline_s = list(ranks), time.monotonic() + limit_s
    while True:
        # to list a folder opens it, which makes NFS ask the server whether it has changed
        names = {path.name for path in folder.iterdir()}
        missing = {rank: text for rank in waiting if (text := _missing(folder, rank, names))}
        if not missing:
            return
        if time.monotonic() >= deadline_s:
            text = "; ".join(f"rank {rank}: {what}" for rank, what in missing.items())
            message = f"{text}, {limit_s:g} s (latency_wait_s) after the end"
            raise IncompleteError(message, list(missing))
        waiting = list(missing)
        time.sleep(min(_POLL_S, max(0.0, deadline_s - time.monotonic())))


def _missing(folder: Path, rank: int, names: set[str]) -> str | None:
    """The files of a rank that are missing or incomplete, in words; None if all are complete."""
    report, passed = report_path(folder, rank), events_path(folder, rank)
    wrong = []
    if report.name not in names:
        wrong.append(f"no {report.name}")
    else:
        try:
            strict_json.loads(report.read_text())
        except (OSError, ValueError):
            wrong.append(f"{report.name} is cut")
    last = events.last(passed) if passed.name in names else None
    if last is None:
        wrong.append(f"no {passed.name}")
    elif last["event"] != "end":
        wrong.append(f"{passed.name} ends with {last['event']!r}")
    return " and ".join(wrong) or None
