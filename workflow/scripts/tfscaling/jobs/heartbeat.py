"""Signs of life of a rank that do not depend on where its training is.

A thread of each rank writes every few seconds how much CPU time the process has used and how many
bytes it has read and written so far. From that the launcher tells:

- a rank that is stopped or cut off (SIGSTOP, a host that froze, a lost file system): its heartbeat
  does not come;
- ranks that all wait for one another or for a rank that hangs: heartbeats come, but no process uses
  CPU time or reads anything;
- a rank that evaluates, compiles, reads data or computes a long chunk of steps: it uses CPU time or
  reads. So does a rank whose GPU computes: TensorFlow polls the GPU meanwhile.

It cannot tell work from a loop that goes on for ever, or from threads that poll while a GPU waits
in a collective: for these there is only the longer limit of `Watch`. And a rank in which one call
into C keeps Python's lock for as long as the limit looks stopped; TensorFlow and NumPy's file
functions release it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

INTERVAL_S = 5.0
#: How often the launcher reads the heartbeats.
READ_INTERVAL_S = 1.0
#: A rank works if it uses at least this share of one CPU, or reads and writes so much. Ranks that
#: wait in a collective on CPUs use less than a hundredth of this.
CPU_SHARE_MIN, IO_BYTES_PER_S_MIN = 0.02, 10_000
#: Ranks that work but pass no event are given up after so many times the limit.
BUSY_FACTOR = 10
#: A launcher that was itself stopped meanwhile has not watched: at most this counts between looks.
_LOOK_MAX_S = 5.0
_LATELY_S = 60.0


@dataclass(frozen=True)
class Beat:
    """Of a rank since it began: number of this heartbeat, CPU time, bytes read and written."""

    number: int
    cpu_s: float
    io_bytes: int


def path(folder: Path, rank: int) -> Path:
    """Where a rank leaves its last heartbeat."""
    return folder / f"rank-{rank}.heartbeat"


class Usage(NamedTuple):
    """CPU time, and bytes read and written, of the processes that do a rank's work."""

    cpu_s: float
    io_bytes: int


def own_usage() -> Usage:
    """That of this process, without the thread that asks."""
    return Usage(time.process_time() - time.thread_time(), _io_bytes())


class Heart:
    """Beats in a thread of its own until the process ends.

    `orphaned` is called, once, when the process that started this one has ended. `usage` gives what
    a beat tells.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        orphaned: Callable[[], object],
        usage: Callable[[], Usage] = own_usage,
    ) -> None:
        self._path, self._orphaned, self._usage = path(folder, rank), orphaned, usage
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def _beat(self) -> None:
        number = 0
        while True:
            number += 1
            beat = [number, *self._usage()]
            # opened and closed each time: network file systems show a file to others when it is
            # closed. A full disk ends the rank at its next event, not here
            with contextlib.suppress(OSError), self._path.open("w") as file:
                file.write(json.dumps(beat) + "\n")
            if os.getppid() != self._parent:
                self._orphaned()
                return
            time.sleep(INTERVAL_S)


def tree_usage(pid: int) -> Usage:
    """That of a process and all its descendants, those that ended and were waited for included."""
    processes = tree(pid)
    return Usage(sum(map(_cpu_s, processes)), sum(map(_io_bytes, processes)))


def tree(pid: int) -> list[int]:
    """A process and all its descendants, each after its parent."""
    found = [pid]
    for process in found:  # which grows meanwhile
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread that just ended
                found += map(int, children.read_text().split())
    return found


def _cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that it waited for; 0 if it has ended."""
    try:
        # the name, in parentheses, may have blanks and parentheses itself
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def _io_bytes(pid: int | str = "self") -> int:
    """Bytes that a process has read and written, pipes included; 0 where Linux tells nothing."""
    try:
        counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        return int(counts["rchar"]) + int(counts["wchar"])
    except (OSError, ValueError, KeyError):
        return 0


def read_one(folder: Path, rank: int) -> Beat | None:
    """A rank's last heartbeat; None if it has none, or just writes it."""
    try:
        return Beat(*json.loads(path(folder, rank).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def read(folder: Path) -> dict[int, Beat]:
    """Rank → its last heartbeat, of those that have one to read."""
    ranks = [int(file.stem.removeprefix("rank-")) for file in folder.glob("rank-*.heartbeat")]
    beats = {rank: read_one(folder, rank) for rank in ranks}
    return {rank: beat for rank, beat in beats.items() if beat is not None}


@dataclass(frozen=True)
class Stall:
    """Ranks that do not get on: what is said, and which rank it is if that is known."""

    message: str
    rank: int | None


class Watch:
    """Tells from events and heartbeats when ranks hang; `timeout_s` is the limit.

    Hung is: a rank that has begun to beat and is silent for the limit; no event of any rank, and no
    rank at work, for the limit; no event of any rank for `BUSY_FACTOR` times the limit.
    """

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self.timeout_s = timeout_s
        self._looked_s = now_s
        self._watched_s = 0.0  # all times below are on this clock
        self._progress: object = None
        self._moved_s = self._worked_s = 0.0
        self._beat_s: dict[int, float] = {}
        self._missed_s: dict[int, float] = {}
        self._beats: dict[int, Beat] = {}
        self._counted: dict[int, Beat] = {}

    def see(self, now_s: float, progress: object, beats: Mapping[int, Beat]) -> None:
        """Take in what there is; `now_s` is of a monotonic clock.

        `progress` changes with every event, `beats` are the ranks' last heartbeats.
        """
        self._watched_s += min(now_s - self._looked_s, _LOOK_MAX_S)
        self._looked_s = now_s
        if progress != self._progress:
            self._progress, self._moved_s = progress, self._watched_s
            for rank, at_s in self._beat_s.items():
                # TensorFlow's own heartbeats make ranks complain ten seconds after a peer stopped
                if self._watched_s - at_s > 1.5 * INTERVAL_S:
                    self._missed_s[rank] = self._watched_s
        for rank, beat in beats.items():
            self._hear(rank, beat)

    def stall(self, ended: Callable[[], Collection[int]]) -> Stall | None:
        """What is wrong, or None; `ended` gives the ranks that have done all their work."""
        return self._silent(ended) or self._idle(ended) or self._busy()

    def lately_silent(self) -> set[int]:
        """Ranks that had missed heartbeats when an event of another came, in the last minute.

        If others complained, it was about these. One that was stopped may beat again since: Slurm
        continues ranks to end them.
        """
        return {r for r, at_s in self._missed_s.items() if self._watched_s - at_s <= _LATELY_S}

    def _hear(self, rank: int, beat: Beat) -> None:
        if beat == self._beats.get(rank):
            return
        self._beats[rank], self._beat_s[rank] = beat, self._watched_s
        counted = self._counted.setdefault(rank, beat)
        if (
            beat.cpu_s - counted.cpu_s >= CPU_SHARE_MIN * self.timeout_s
            or beat.io_bytes - counted.io_bytes >= IO_BYTES_PER_S_MIN * self.timeout_s
        ):
            self._counted[rank], self._worked_s = beat, self._watched_s

    def _silent(self, ended: Callable[[], Collection[int]]) -> Stall | None:
        silent = [r for r, at_s in self._beat_s.items() if self._past(at_s)]
        silent = sorted(set(silent) - set(ended())) if silent else []
        if not silent:
            return None
        rank = min(silent, key=self._beat_s.__getitem__)
        return Stall(f"rank {rank} gave no sign of life for {self.timeout_s:g} s", rank)

    def _idle(self, ended: Callable[[], Collection[int]]) -> Stall | None:
        if not self._past(max(self._moved_s, self._worked_s)):
            return None
        # of ranks that wait for a silent one, none is the cause
        silent = [r for r, at_s in self._beat_s.items() if self._watched_s - at_s > 3 * INTERVAL_S]
        silent = sorted(set(silent) - set(ended()))
        rank = min(silent, key=self._beat_s.__getitem__, default=None)
        return Stall(f"no rank made progress for {self.timeout_s:g} s", rank)

    def _busy(self) -> Stall | None:
        limit_s = BUSY_FACTOR * self.timeout_s
        if self._watched_s - self._moved_s <= limit_s:
            return None
        return Stall(f"ranks used CPU time but made no progress for {limit_s:g} s", None)

    def _past(self, at_s: float) -> bool:
        return self._watched_s - at_s > self.timeout_s
