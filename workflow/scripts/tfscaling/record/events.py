"""Events of ranks with their times, one JSON object per line.

Ranks send events to their launcher, which writes one file for all ranks; a rank without a
connection writes a file itself. So events of a rank that dies are kept. From them the launcher
explains failures and measures phases, and the console shows progress.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tfscaling.files import atomic, strict_json
from tfscaling.record import clock

#: In an attempt's folder: the file with the events of all ranks that have a connection, in the
#: order of their arrival.
RANKS_EVENTS = "ranks.events.jsonl"


class RankActivity(enum.Enum):
    """What a running rank does at present, as its events show it."""

    #: The rank imports, loads data or builds a model: it may wait, and its heartbeats may stop.
    LOADING = enum.auto()
    #: The rank looks for the other ranks, without heartbeats until all have come.
    MEETING = enum.auto()
    #: The rank may wait for more than the other ranks: for a program, a pipeline of data, a server.
    WAITING = enum.auto()
    #: The rank trains or evaluates, and waits for other ranks only.
    TRAINING = enum.auto()
    #: The rank has ended.
    ENDED = enum.auto()


class EventName(str, enum.Enum):
    """The events of a rank, in the order of the built-in trainer.

    Attributes:
        activity: What a rank of the built-in trainer does after the event.
        next_step: What the rank does after the event, in words for the console; "" if the
            event begins nothing new.
    """

    activity: RankActivity
    next_step: str

    def __new__(
        cls, name: str, activity: RankActivity = RankActivity.TRAINING, next_step: str = ""
    ) -> EventName:
        """Return the member with this name in files and these attributes."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.activity, member.next_step = activity, next_step
        return member

    __str__ = str.__str__  # as of enum.StrEnum, which Python 3.10 lacks

    START = "start", RankActivity.LOADING, "importing TensorFlow"
    IMPORTED = "imported", RankActivity.MEETING, "connecting the ranks"
    RENDEZVOUS = "rendezvous", RankActivity.LOADING, "reading the data"
    DATA = "data", RankActivity.LOADING, "building the model"
    BUILT = "built", RankActivity.TRAINING, "first step, with compilation"
    FIRST_STEP = "first_step", RankActivity.TRAINING, "training"
    #: Within an epoch, so that the rank's events do not stop.
    PROGRESS = "progress"
    EPOCH = "epoch"
    EPOCH_EVALUATED = "epoch_evaluated"
    #: After the training, with the seconds that checkpoints took the rank: `read_s`, `written_s`.
    CHECKPOINTED = "checkpointed"
    TRAINED = "trained", RankActivity.TRAINING, "evaluation"
    EVALUATED = "evaluated", RankActivity.TRAINING, "timing the computation alone"
    #: After the steps of computation alone. The rank then reads counters by the GPUs' driver.
    PROBED = "probed", RankActivity.WAITING
    END = "end", RankActivity.ENDED
    FAILED = "failed"
    PROGRAM_STARTED = "program_start"
    PROGRAM_ENDED = "program_end"
    #: A program has used CPU time or written something since the last event.
    WORKING = "working"
    #: A heartbeat, which is no progress of the run: only `read_new_events` returns it.
    BEAT = "beat"


class _EventKeys(msgspec.Struct):
    """The keys that every event has in a file."""

    event: EventName
    time_s: float
    rank: int = 0
    host_time_s: float | None = None


_HEAD_KEYS = frozenset(_EventKeys.__struct_fields__)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a rank: name, time and further facts about it.

    In a file it is a line of JSON, in which `details` are keys next to the others.
    """

    name: EventName
    time_s: float
    """Seconds since the epoch by the rank's clock, or by the launcher's clock after
    `convert_to_launcher_clock`."""
    rank: int = 0
    host_time_s: float | None = None
    """Time by the wall clock of the host; None if it equals `time_s`."""
    details: Mapping[str, Any] = {}

    @property
    def line(self) -> str:
        """The event as a line of JSON, with its end, for a file."""
        head = {"time_s": self.time_s, "host_time_s": self.host_time_s, "rank": self.rank}
        known = {key: value for key, value in head.items() if value is not None}
        return strict_json.dumps({**known, "event": self.name, **self.details}) + "\n"


class EventLog:
    """The event log of a rank, which sends events to the launcher, or appends them to a file.

    Several threads may use it.

    Args:
        path: The file, which is written only without a connection. It then has all events, also
            events that were sent before.
        rank: The rank.
        post: Sends a line to the launcher and returns False once the connection is lost; None
            without a connection.
    """

    def __init__(self, path: Path, rank: int, post: Callable[[str], bool] | None = None) -> None:
        self._path, self._rank, self._post = path, rank, post
        self._posted: list[str] = []
        self._lock = threading.Lock()

    def add(self, name: EventName, time_s: float | None = None, **details: Any) -> float:
        """Add an event, now or at `time_s`, and return its time.

        By default, the time is from `clock.now`, so that steps of the wall clock do not change it.

        Args:
            name: Name of the event.
            time_s: When it happened, in seconds since the epoch; None: now.
            **details: Further keys of the event.
        """
        moment, wall_s = (clock.now(), time.time()) if time_s is None else (time_s, time_s)
        event = Event(
            name=EventName(name),
            time_s=round(moment, 6),
            rank=self._rank,
            host_time_s=round(wall_s, 6),
            details=details,
        )
        text = event.line
        with self._lock:
            if self._post is not None and self._post(text):
                if event.name is not EventName.BEAT:
                    self._posted.append(text)
                return moment
            self._post = None
            self._write(text)
        return moment

    def write_posted(self) -> None:
        """Append all events that were sent so far to the file.

        The launcher may not have received the last of them. Later events are only appended.
        """
        with self._lock:
            self._post = None
            self._write()

    def _write(self, *lines: str) -> None:
        """Append to the file the events that were only sent so far, then these lines."""
        # closed each time: network file systems show others then what it has
        with self._path.open("a") as file:
            file.writelines((*self._posted, *lines))
        self._posted.clear()


def parse_event(line: bytes) -> Event | None:
    """Return the event in a line; None if the line has none, such as a half-written last line.

    Raises:
        NotFiniteError: A number is NaN or infinite.
    """
    try:
        content = strict_json.loads(line.decode())
        head = msgspec.convert(content, _EventKeys)
    except strict_json.NotFiniteError:
        raise
    except ValueError:
        return None
    details = {key: value for key, value in content.items() if key not in _HEAD_KEYS}
    return Event(
        name=head.event,
        time_s=head.time_s,
        rank=head.rank,
        host_time_s=head.host_time_s,
        details=details,
    )


def read_events(path: Path) -> list[Event]:
    """Return all events of a file except heartbeats; [] if the file cannot be read.

    Lines without an event are skipped.

    Raises:
        NotFiniteError: A number in it is NaN or infinite.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError:  # it does not exist, or, on a shared file system, no longer
        return []
    events = filter(None, map(parse_event, lines))
    return [event for event in events if event.name is not EventName.BEAT]


def read_events_by_rank(folder: Path) -> dict[int, list[Event]]:
    """Return rank → its events, with times by the launcher's clock, from an attempt's folder."""
    by_rank: dict[int, list[Event]] = {}
    for event in read_events(folder / RANKS_EVENTS):
        by_rank.setdefault(event.rank, []).append(event)
    for path in folder.glob("rank-*.events.jsonl"):
        if events := read_events(path):
            # all of the rank's, also if it has lost its connection
            by_rank[rank_of_file(path)] = events
    return {rank: convert_to_launcher_clock(by_rank[rank]) for rank in sorted(by_rank)}


def rank_of_file(path: Path) -> int:
    """Return the rank that wrote a file, from a file name such as `rank-3.events.jsonl`."""
    return int(path.name.split(".")[0].removeprefix("rank-"))


def read_new_events(path: Path, offset: int) -> tuple[list[Event], int]:
    """Return new events of a file, heartbeats included, and the offset for the next call.

    Args:
        path: The file.
        offset: Byte from which to read. A half-written last line is left for the next call.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read()
    except OSError:
        return [], offset
    complete = text[: text.rfind(b"\n") + 1]
    events: list[Event | None] = []
    for line in complete.splitlines():
        with contextlib.suppress(strict_json.NotFiniteError):
            events.append(parse_event(line))
    return [event for event in events if event is not None], offset + len(complete)


def convert_to_launcher_clock(events: Iterable[Event]) -> list[Event]:
    """Return a rank's events with their times converted to the launcher's clock.

    The offset is in the rank's first event. Without an offset the times are not changed.
    """
    events = list(events)
    offset_s = next((e.details["offset_s"] for e in events if "offset_s" in e.details), 0.0)
    return [
        replace(
            event,
            time_s=round(event.time_s + offset_s, 6),
            host_time_s=event.time_s if event.host_time_s is None else event.host_time_s,
        )
        for event in events
    ]


def first_times(events: Iterable[Event]) -> dict[str, float]:
    """Return name of an event → time of its first occurrence, in seconds since the epoch."""
    return {event.name: event.time_s for event in reversed([*events])}


def write_events(path: Path, events: Iterable[Event]) -> None:
    """Write events to a file, completely or not at all."""
    atomic.write_text(path, "".join(event.line for event in events))
