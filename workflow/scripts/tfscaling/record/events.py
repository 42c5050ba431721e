"""Time-stamped phases of ranks, one JSON object a line.

Ranks post them to their launcher as they pass, which writes one file of all ranks; a rank without
a connection writes a file. So a rank that dies leaves what it reached.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tfscaling.files import atomic, strict_json
from tfscaling.record import clock

#: What a line holds: `event`, `time_s`, and details of the event.
Event = dict[str, Any]
#: Events around a user program.
PROGRAM_STARTED, PROGRAM_ENDED = "program_start", "program_end"
#: The event of a program that has used CPU time or written something since the last one.
WORKING = "working"
#: The event with how long checkpoints took a rank, `read_s` and `written_s`.
CHECKPOINTED = "checkpointed"
#: A rank's sign of life. It says nothing about the run: only `new` returns it.
BEAT = "beat"
#: In an attempt's folder: the events of all ranks that have a connection, as they came.
OF_RANKS = "ranks.events.jsonl"


class EventLog:
    """Posts a rank's events by `post`, or else appends them to its file; threads may share it.

    `post` returns False once it has lost the connection: the file then has all events.
    `time_s` is this process's time, which no step of the wall clock changes (`clock.now`);
    `host_time_s` is what the host's wall clock said, as other logs of the host have it.
    """

    def __init__(self, path: Path, rank: int, post: Callable[[str], bool] | None = None) -> None:
        self._path, self._rank, self._post = path, rank, post
        self._posted: list[str] = []
        self._lock = threading.Lock()

    def add(self, event: str, time_s: float | None = None, **details: Any) -> float:
        """Write one event, now or at `time_s`; returns its time."""
        moment, wall_s = (clock.now(), time.time()) if time_s is None else (time_s, time_s)
        line = {"time_s": round(moment, 6), "host_time_s": round(wall_s, 6), "rank": self._rank}
        text = strict_json.dumps({**line, "event": event, **details}) + "\n"
        with self._lock:
            if self._post is not None and self._post(text):
                if event != BEAT:
                    self._posted.append(text)
                return moment
            self._post = None
            # closed each time: network file systems show others then what it has
            with self._path.open("a") as file:
                file.writelines((*self._posted, text))
            self._posted.clear()
        return moment


def read(path: Path) -> list[Event]:
    """All complete events of a file; what is no event, as a half-written last line, is left out.

    Heartbeats are left out, too. Raises ValueError if a number in it is NaN or infinite.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError:  # not there, or, on a shared file system, not any more
        return []
    found = (event for line in lines if (event := parsed(line)) is not None)
    return [event for event in found if event["event"] != BEAT]


def of_ranks(folder: Path) -> dict[int, list[Event]]:
    """Rank → its events by the launcher's clock, in an attempt's folder."""
    found: dict[int, list[Event]] = {}
    for event in read(folder / OF_RANKS):
        found.setdefault(event["rank"], []).append(event)
    for path in folder.glob("rank-*.events.jsonl"):
        if lines := read(path):
            found[rank_of(path)] = lines  # all of the rank's, also if it has lost its connection
    return {rank: on_launcher_clock(found[rank]) for rank in sorted(found)}


def rank_of(path: Path) -> int:
    """The rank that a file belongs to, by its name."""
    return int(path.name.split(".")[0].removeprefix("rank-"))


def new(path: Path, offset: int) -> tuple[list[Event], int]:
    """Complete events of a file from this byte on, and the byte from which to read on."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read()
    except OSError:
        return [], offset
    complete = text[: text.rfind(b"\n") + 1]
    found = []
    for line in complete.splitlines():
        with contextlib.suppress(strict_json.NotFiniteError):
            found.append(parsed(line))
    return [event for event in found if event is not None], offset + len(complete)


def parsed(line: bytes) -> Event | None:
    """The event in a line; None if it is none. Raises NotFiniteError, a ValueError."""
    try:
        event = strict_json.loads(line.decode())
    except strict_json.NotFiniteError:
        raise
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"event", "time_s"} <= event.keys() else None


def on_launcher_clock(events: Iterable[Event]) -> list[Event]:
    """A rank's events by the launcher's clock; `host_time_s` is what the host's own clock said.

    The offset is in the rank's first events; without one the host's clock is taken.
    """
    lines = list(events)
    offset_s = next((e["offset_s"] for e in lines if "offset_s" in e), 0.0)
    return [
        {"host_time_s": e["time_s"], **e, "time_s": round(e["time_s"] + offset_s, 6)} for e in lines
    ]


def times(events: Iterable[Event]) -> dict[str, float]:
    """Event → time of its first occurrence, in seconds since the epoch."""
    return {event["event"]: event["time_s"] for event in reversed([*events])}


def write(path: Path, events: Iterable[Event]) -> None:
    """Write the events of all ranks as one file."""
    atomic.write_text(path, "".join(strict_json.dumps(event) + "\n" for event in events))
