"""Time-stamped phases of a rank, one JSON object a line.

A file of a rank is written as the rank goes, so that a rank that dies leaves what it reached, and
the launcher sees progress by the file's growth.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from tfscaling.files import atomic, strict_json
from tfscaling.record import clock

#: What a line holds: `event`, `time_s`, and details of the event.
Event = dict[str, Any]
#: Events around a user program.
PROGRAM_STARTED, PROGRAM_ENDED = "program_start", "program_end"
#: The event with how long checkpoints took a rank, `read_s` and `written_s`.
CHECKPOINTED = "checkpointed"
#: No event of a rank is longer: an exception's message is cut.
_LINE_BYTES_MAX = 1 << 16


class EventLog:
    """Appends events to a rank's file, each flushed at once; threads may share it.

    `time_s` is this process's time, which no step of the wall clock changes (`clock.now`);
    `host_time_s` is what the host's wall clock said, as other logs of the host have it.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self._file: TextIO = path.open("a", buffering=1)
        self._rank, self._lock = rank, threading.Lock()

    def add(self, event: str, time_s: float | None = None, **details: Any) -> float:
        """Write one event, now or at `time_s`; returns its time."""
        moment, wall_s = (clock.now(), time.time()) if time_s is None else (time_s, time_s)
        line = {"time_s": round(moment, 6), "host_time_s": round(wall_s, 6), "rank": self._rank}
        with self._lock:
            self._file.write(strict_json.dumps({**line, "event": event, **details}) + "\n")
        return moment


def read(path: Path) -> list[Event]:
    """All complete events of a file; what is no event, as a half-written last line, is left out.

    Raises ValueError if a number in it is NaN or infinite.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError:  # not there, or, on a shared file system, not any more
        return []
    return [event for line in lines if (event := _event(line)) is not None]


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
            found.append(_event(line))
    return [event for event in found if event is not None], offset + len(complete)


def last(path: Path) -> Event | None:
    """The last complete event of a file, however long the file is; None if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LINE_BYTES_MAX))
            lines = file.read().splitlines()
    except OSError:
        return None
    return next((event for line in reversed(lines) if (event := _event(line)) is not None), None)


def _event(line: bytes) -> Event | None:
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
    result: dict[str, float] = {}
    for event in events:
        result.setdefault(event["event"], event["time_s"])
    return result


def write(path: Path, events: Iterable[Event]) -> None:
    """Write the events of all ranks as one file."""
    atomic.write_text(path, "".join(strict_json.dumps(event) + "\n" for event in events))
