"""Events of ranks with their times, one JSON object per line.

Ranks send events to their launcher, which writes one file for all ranks; a rank without a
connection writes a file itself. So events of a rank that dies are kept.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from tfscaling.files import atomic, strict_json
from tfscaling.record import clock

#: In an attempt's folder: the events of all ranks that have a connection, as they came.
OF_RANKS = "ranks.events.jsonl"


class RankActivity(enum.Enum):
    """The present activity of a running rank, as its events show it."""

    #: It imports, loads data or builds a model: that may wait, and may stop the heartbeats.
    LOADING = enum.auto()
    #: It looks for the other ranks, without a heartbeat until all have come.
    MEETING = enum.auto()
    #: It may wait for more than the other ranks: a program, a pipeline of data, a server.
    WAITING = enum.auto()
    #: It trains or evaluates, and waits for other ranks only.
    TRAINING = enum.auto()
    ENDED = enum.auto()


class EventName(enum.StrEnum):
    """The events of a rank, in the order of the built-in trainer.

    Attributes:
        activity: What a rank of the trainer does after the event.
        next_step: The same in words for the console; empty if the event begins nothing new.
    """

    activity: RankActivity
    next_step: str

    def __new__(
        cls, name: str, activity: RankActivity = RankActivity.TRAINING, next_step: str = ""
    ) -> Self:
        """Make a member from its name in files and its attributes."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.activity, member.next_step = activity, next_step
        return member

    START = "start", RankActivity.LOADING, "importing TensorFlow"
    IMPORTED = "imported", RankActivity.MEETING, "connecting the ranks"
    RENDEZVOUS = "rendezvous", RankActivity.LOADING, "reading the data"
    DATA = "data", RankActivity.LOADING, "building the model"
    BUILT = "built", RankActivity.TRAINING, "first step, with compilation"
    FIRST_STEP = "first_step", RankActivity.TRAINING, "training"
    #: Within an epoch; only so that the rank's events do not stop.
    PROGRESS = "progress"
    EPOCH = "epoch"
    EPOCH_EVALUATED = "epoch_evaluated"
    #: How long checkpoints took the rank, `read_s` and `written_s`.
    CHECKPOINTED = "checkpointed"
    TRAINED = "trained", RankActivity.TRAINING, "evaluation"
    EVALUATED = "evaluated", RankActivity.TRAINING, "timing the computation alone"
    #: After the steps of computation alone; then the rank reads counters by the GPUs' driver.
    PROBED = "probed", RankActivity.WAITING
    END = "end", RankActivity.ENDED
    FAILED = "failed"
    PROGRAM_STARTED = "program_start"
    PROGRAM_ENDED = "program_end"
    #: A program has used CPU time or written something since the last event.
    WORKING = "working"
    #: A heartbeat. It is no progress of the run: only `read_new` returns it.
    BEAT = "beat"


class _EventKeys(msgspec.Struct):
    """The keys that every event has in a file."""

    event: EventName
    time_s: float
    rank: int = 0
    host_time_s: float | None = None


_HEAD_KEYS = frozenset(_EventKeys.__struct_fields__)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a rank; in files its details are keys next to the others."""

    name: EventName
    time_s: float
    """By the rank's clock, or by the launcher's (`on_launcher_clock`)."""
    rank: int = 0
    host_time_s: float | None = None
    """What the wall clock of the host showed; None if that is `time_s`."""
    details: Mapping[str, Any] = {}

    @property
    def line(self) -> str:
        """The event as a line of a file."""
        head = {"time_s": self.time_s, "host_time_s": self.host_time_s, "rank": self.rank}
        known = {key: value for key, value in head.items() if value is not None}
        return strict_json.dumps({**known, "event": self.name, **self.details}) + "\n"


class EventLog:
    """Sends a rank's events to the launcher, or else appends them to a file; thread-safe.

    `post` sends a line and returns False once the connection is lost: the file then has all events.
    """

    def __init__(self, path: Path, rank: int, post: Callable[[str], bool] | None = None) -> None:
        self._path, self._rank, self._post = path, rank, post
        self._posted: list[str] = []
        self._lock = threading.Lock()

    def add(self, name: EventName, time_s: float | None = None, **details: Any) -> float:
        """Write one event, now or at `time_s`, and return its time.

        The time is this process's, which no step of the wall clock changes (`clock.now`).
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
            # closed each time: network file systems show others then what it has
            with self._path.open("a") as file:
                file.writelines((*self._posted, text))
            self._posted.clear()
        return moment


def parse(line: bytes) -> Event | None:
    """Return the event in a line; None if it has none, such as a half-written last line.

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


def read(path: Path) -> list[Event]:
    """Return all events of a file except heartbeats; lines without an event are skipped.

    Raises:
        NotFiniteError: A number in it is NaN or infinite.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError:  # it does not exist, or, on a shared file system, no longer
        return []
    events = filter(None, map(parse, lines))
    return [event for event in events if event.name is not EventName.BEAT]


def read_by_rank(folder: Path) -> dict[int, list[Event]]:
    """Return rank → its events with times of the launcher's clock, from an attempt's folder."""
    by_rank: dict[int, list[Event]] = {}
    for event in read(folder / OF_RANKS):
        by_rank.setdefault(event.rank, []).append(event)
    for path in folder.glob("rank-*.events.jsonl"):
        if events := read(path):
            # all of the rank's, also if it has lost its connection
            by_rank[rank_of_file(path)] = events
    return {rank: on_launcher_clock(by_rank[rank]) for rank in sorted(by_rank)}


def rank_of_file(path: Path) -> int:
    """Return the rank that wrote a file, from the file's name."""
    return int(path.name.split(".")[0].removeprefix("rank-"))


def read_new(path: Path, offset: int) -> tuple[list[Event], int]:
    """Return the complete events of a file from byte `offset` on, and the next offset."""
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
            events.append(parse(line))
    return [event for event in events if event is not None], offset + len(complete)


def on_launcher_clock(events: Iterable[Event]) -> list[Event]:
    """Convert the times of a rank's events to the launcher's clock.

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
    """Return event → time of its first occurrence, in seconds since the epoch."""
    return {event.name: event.time_s for event in reversed([*events])}


def write(path: Path, events: Iterable[Event]) -> None:
    """Write events to a complete file or nothing."""
    atomic.write_text(path, "".join(event.line for event in events))
