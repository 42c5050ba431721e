"""Time-stamped phases of a rank, one JSON object a line. Layer 2 (job).

A file of a rank is written as the rank goes, so that a rank that dies leaves what it reached, and
the launcher sees progress by the file's growth.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TextIO

from tfscaling import files, strict_json

#: The events that end a phase, in the order in which a rank passes them.
PHASES = (
    *("start", "imported", "rendezvous", "data", "built", "first_step", "trained", "evaluated"),
    "probed",
)


class EventLog:
    """Appends events to a rank's file, each flushed at once.

    Times are seconds since the epoch by this host's clock.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self._file: TextIO = path.open("a", buffering=1)
        self._rank = rank

    def add(self, event: str, time_s: float | None = None, **details: Any) -> float:
        """Write one event, now or at `time_s`; returns its time."""
        moment = time.time() if time_s is None else time_s
        line = {"time_s": round(moment, 6), "rank": self._rank, "event": event, **details}
        self._file.write(strict_json.dumps(line) + "\n")
        return moment


def read(path: Path) -> list[dict[str, Any]]:
    """All complete events of a file; a half-written last line is left out.

    Raises ValueError if a number in it is NaN or infinite.
    """
    events = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            events.append(strict_json.loads(line))
        except JSONDecodeError:
            continue
    return events


def on_launcher_clock(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A rank's events by the launcher's clock; `host_time_s` is what the host's own clock said.

    The offset is that of the rank's first event; without one the host's clock is taken.
    """
    lines = list(events)
    offset_s = next((e["offset_s"] for e in lines if "offset_s" in e), 0.0)
    return [
        {**e, "time_s": round(e["time_s"] + offset_s, 6), "host_time_s": e["time_s"]} for e in lines
    ]


def times(events: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Event → time of its first occurrence, in seconds since the epoch."""
    result: dict[str, float] = {}
    for event in events:
        result.setdefault(event["event"], event["time_s"])
    return result


def write(path: Path, events: Iterable[dict[str, Any]]) -> None:
    """Write the events of all ranks as one file."""
    files.write_text(path, "".join(strict_json.dumps(event) + "\n" for event in events))
