"""Heartbeats of ranks, and the detection of ranks that hang.

A thread of each rank reports every few seconds how much CPU time the process has used, how long its
threads have waited for a CPU, and how many bytes it has read and written so far, whatever its
training does. From that the launcher finds:

- a rank that is stopped or cut off (SIGSTOP, a host that froze, a lost file system): its heartbeat
  is missing;
- ranks that all wait for one another or for a rank that hangs: heartbeats come, but no process uses
  CPU time, waits for a CPU or reads anything. A rank that evaluates, compiles, reads data or
  computes a long chunk of steps does; if its GPU computes, TensorFlow polls the GPU meanwhile. On a
  machine with many busy processes a rank may get hardly any CPU time, but it could run: by Linux's
  scheduler, its threads wait for a CPU. Threads that hang sleep.

A rank that trains and is silent is given up after `SILENT_S`, and ranks that all wait for one
another after `IDLE_S`. Only the platform's limit counts where a rank may wait for a download, a
licence or a slow file system (imports, data, programs), and where one call may keep Python's lock,
and with it the heartbeats, for long: an import, a user's code that loads data or builds a model,
and the rendezvous, in which TensorFlow keeps it until the last rank has come (`RankActivity`).

Work cannot be distinguished from an endless loop, or from threads that poll while a GPU waits in a
collective: for these `StallDetector` has a longer limit. And a rank that trains looks stopped while
one call into C keeps Python's lock; TensorFlow's operations and NumPy's file functions release it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tfscaling.launch.link import LauncherConnection
from tfscaling.record.events import EventLog, EventName, RankActivity

#: Seconds between two heartbeats: of a rank with a connection, and of a rank without one. The
#: second is also how often the launcher reads the files of such ranks: one call to the shared file
#: system per rank and ten seconds.
INTERVAL_S, FILES_INTERVAL_S = 5.0, 20.0
#: Seconds between two checks of the heartbeats by the launcher.
READ_INTERVAL_S = 1.0
#: A rank works if it uses at least this share of one CPU, or this many bytes/s of I/O. Ranks that
#: wait in a collective on CPUs use less than a hundredth of this.
CPU_SHARE_MIN, IO_BYTES_PER_S_MIN = 0.02, 10_000
#: A rank also works if its threads wait for a CPU for this share of the time. Threads that hang
#: wake up briefly: at a load of 34 on 2 cores, an idle rank with a server of TensorFlow waits for
#: 0.008 of the time.
WAIT_SHARE_MIN = 0.2
#: A rank whose heartbeats are missing for this many seconds is stopped, or cut off.
SILENT_S = 40.0
#: Ranks that each wait only for another rank hang after this many seconds.
IDLE_S = 50.0
#: Ranks that work but have no event are given up after this many times the platform's limit.
BUSY_FACTOR = 10
#: States of a thread, as Linux names them, that waits for a disk or a file server; Lustre's client
#: waits in the second one.
_WAITS_FOR_DISK = ("D", "I")
#: Seconds that count, at most, between two updates of the detector: a launcher that was itself
#: stopped meanwhile has not watched.
_UPDATE_INTERVAL_MAX_S = 5.0
#: Seconds for which a missed heartbeat counts as recent.
_RECENT_S = 60.0


class Heartbeat(NamedTuple):
    """A heartbeat of a rank, with its resource usage since the rank began.

    Attributes:
        number: Number of the heartbeat, from 1.
        cpu_s: CPU time in seconds.
        io_bytes: Number of bytes read and written.
        blocked: Whether a thread waits for a disk or a file server.
        cpu_wait_s: Seconds that threads which could run have waited for a CPU, summed over the
            threads that have not ended.
        interval_s: Seconds within which a healthy rank sends its next heartbeat.
    """

    number: int
    cpu_s: float
    io_bytes: int
    blocked: bool = False
    cpu_wait_s: float = 0.0
    interval_s: float = INTERVAL_S


class Usage(NamedTuple):
    """Resource usage of the processes that do a rank's work, since they began.

    Attributes:
        cpu_s: CPU time in seconds.
        io_bytes: Number of bytes read and written.
        blocked: Whether one of their threads waits for a disk or a file server.
        cpu_wait_s: Seconds that their threads which could run have waited for a CPU, summed over
            the threads that have not ended; 0 on Linux without statistics of its scheduler.
    """

    cpu_s: float
    io_bytes: int
    blocked: bool = False
    cpu_wait_s: float = 0.0


def own_usage() -> Usage:
    """Return the usage of this process so far; CPU times of the calling thread are not counted."""
    cpu_s, own = time.process_time() - time.thread_time(), os.getpid()
    cpu_wait_s = _cpu_wait_s(own, except_thread=threading.get_native_id())
    return Usage(cpu_s, _io_bytes(), _is_blocked(own), cpu_wait_s)


class HeartbeatThread:
    """Thread of a rank that sends heartbeats until the process ends.

    Args:
        events: The rank's event log, to which heartbeats are added.
        on_orphaned: Called once, when the process that started this one has ended.
        usage: Returns the usage to report.
        link: The connection to the launcher, if any.
        on_given_up: Called when the launcher reports through `link` that it ends hanging ranks.
    """

    def __init__(
        self,
        events: EventLog,
        on_orphaned: Callable[[], object],
        usage: Callable[[], Usage] = own_usage,
        link: LauncherConnection | None = None,
        on_given_up: Callable[[], object] = lambda: None,
    ) -> None:
        self._events, self._on_orphaned, self._usage = events, on_orphaned, usage
        self._link, self._on_given_up = link, on_given_up
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _send_heartbeats(self) -> None:
        """Send heartbeats and call the callbacks until this process is orphaned.

        This is the thread's function.
        """
        number = 0
        while True:
            number += 1
            # a full disk ends the rank at its next event, not here
            with contextlib.suppress(OSError):
                self._events.add(EventName.BEAT, number=number, **self._usage()._asdict())
            if os.getppid() != self._parent:
                self._on_orphaned()
                return
            if self._link is None or not self._link.is_open:
                time.sleep(FILES_INTERVAL_S)
            elif self._link.wait_for_give_up(INTERVAL_S):
                self._on_given_up()


def tree_usage(pid: int) -> Usage:
    """Return the summed usage of process `pid`, all its descendants, and their ended children."""
    processes = process_tree(pid)
    return Usage(
        cpu_s=sum(map(_cpu_s, processes)),
        io_bytes=sum(map(_io_bytes, processes)),
        blocked=any(map(_is_blocked, processes)),
        cpu_wait_s=sum(map(_cpu_wait_s, processes)),
    )


def process_tree(pid: int) -> list[int]:
    """Return the process ids of process `pid` and all its descendants, each after its parent."""
    found = [pid]
    for process in found:  # which grows meanwhile
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread that just ended
                found += map(int, children.read_text().split())
    return found


def _cpu_s(pid: int) -> float:
    """Return the CPU time in seconds of a process and its ended children; 0 if it has ended."""
    try:
        # the name, in parentheses, may have blanks and parentheses itself
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def _cpu_wait_s(pid: int, except_thread: int | None = None) -> float:
    """Return the seconds that a process's present threads have waited for a CPU; 0 if unknown.

    Args:
        pid: The process.
        except_thread: A thread to leave out, by its number in Linux.
    """
    waited_ns = 0
    for task in Path(f"/proc/{pid}/task").glob("*"):
        if task.name != str(except_thread):
            with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that just ended
                waited_ns += int((task / "schedstat").read_text().split()[1])
    return waited_ns / 1e9


def _is_blocked(pid: int) -> bool:
    """Return whether a thread of the process is in uninterruptible sleep, as for a file server."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that just ended
            if stat.read_text().rpartition(")")[2].split()[0] in _WAITS_FOR_DISK:
                return True
    return False


def _io_bytes(pid: int | str = "self") -> int:
    """Return the bytes that a process has read and written, pipes included; 0 if unknown."""
    try:
        counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        return int(counts["rchar"]) + int(counts["wchar"])
    except (OSError, ValueError, KeyError):
        return 0


class Stall(NamedTuple):
    """A detected hang of ranks.

    Attributes:
        message: Which limit was exceeded, as a clause for the user.
        rank: The rank that causes the hang; None if unknown.
    """

    message: str
    rank: int | None


#: A healthy rank sends heartbeats during these activities.
_ACTIVITIES_WITH_HEARTBEATS = (RankActivity.WAITING, RankActivity.TRAINING)
#: A healthy rank may be without heartbeats during these activities.
_ACTIVITIES_WITHOUT_HEARTBEATS = (RankActivity.MEETING, RankActivity.ENDED)


class StallDetector:
    """Detects from events and heartbeats that ranks hang.

    Ranks hang in each of three cases. A rank has sent no heartbeats for too long. Or no rank has
    had an event, CPU time, a wait for a CPU or I/O for too long. Both limits depend on what the
    ranks do; they are usually not longer than `timeout_s`. Or no rank has had an event for
    `BUSY_FACTOR` times `timeout_s`, even if ranks use CPU time or wait for it.

    The launcher calls `update` about once a second, and then `find_stall`.

    Args:
        timeout_s: Longest time without progress in seconds: the platform's `stall_timeout_s`.
        now_s: Present time on a monotonic clock, in seconds.
        ranks: Number of ranks.
    """

    def __init__(self, timeout_s: float, now_s: float, ranks: int) -> None:
        self.timeout_s, self._ranks = timeout_s, ranks
        self._silent_s, self._idle_s = min(timeout_s, SILENT_S), min(timeout_s, IDLE_S)
        self._looked_s = now_s
        self._watched_s = 0.0  # all times below are on this clock
        self._progress: object = None
        self._moved_s = self._worked_s = 0.0
        self._beat_s: dict[int, float] = {}
        self._missed_s: dict[int, float] = {}
        self._beats: dict[int, Heartbeat] = {}
        self._counted: dict[int, Heartbeat] = {}
        #: Rank → begin of the present period of `_idle_s` in which its waits are counted, and the
        #: heartbeat's `cpu_wait_s` then.
        self._waits: dict[int, tuple[float, float]] = {}

    def update(self, now_s: float, progress: object, beats: Mapping[int, Heartbeat]) -> None:
        """Update the detector with the present state of the ranks.

        Args:
            now_s: Present time on a monotonic clock, in seconds.
            progress: A value that changes with every event except heartbeats.
            beats: Rank → its last heartbeat.
        """
        self._watched_s += min(now_s - self._looked_s, _UPDATE_INTERVAL_MAX_S)
        self._looked_s = now_s
        if progress != self._progress:
            self._progress, self._moved_s = progress, self._watched_s
            for rank, at_s in self._beat_s.items():
                # TensorFlow's own heartbeats make ranks complain ten seconds after a peer stopped
                if self._watched_s - at_s > 1.5 * self._beats[rank].interval_s:
                    self._missed_s[rank] = self._watched_s
        for rank, beat in beats.items():
            if beat == self._beats.get(rank):
                continue
            self._beats[rank], self._beat_s[rank] = beat, self._watched_s
            counted = self._counted.setdefault(rank, beat)
            has_waited = self._has_waited_for_a_cpu(rank, beat)
            if (
                has_waited
                or beat.cpu_s - counted.cpu_s >= CPU_SHARE_MIN * self._idle_s
                or beat.io_bytes - counted.io_bytes >= IO_BYTES_PER_S_MIN * self._idle_s
            ):
                self._counted[rank], self._worked_s = beat, self._watched_s

    def _has_waited_for_a_cpu(self, rank: int, beat: Heartbeat) -> bool:
        """Return whether the rank's threads have waited for `WAIT_SHARE_MIN` of a period.

        A period is at most `_idle_s` long. A new one begins when the sum of waits falls, because
        threads have ended.

        Args:
            rank: The rank.
            beat: Its new heartbeat.
        """
        begun_s, waited_s = self._waits.get(rank, (self._watched_s, beat.cpu_wait_s))
        has_waited = beat.cpu_wait_s - waited_s >= WAIT_SHARE_MIN * self._idle_s
        is_over = self._watched_s - begun_s >= self._idle_s
        if has_waited or is_over or beat.cpu_wait_s < waited_s:
            begun_s, waited_s = self._watched_s, beat.cpu_wait_s
        self._waits[rank] = begun_s, waited_s
        return has_waited

    def find_stall(self, activities: Callable[[], Mapping[int, RankActivity]]) -> Stall | None:
        """Return why the ranks hang, according to the last `update`; None if they do not hang.

        Args:
            activities: Returns rank → present activity, for ranks that have started. It is called
                only if a limit is exceeded.
        """
        if found := self._find_silent_rank(activities) or self._find_idle_ranks(activities):
            return found
        limit_s = BUSY_FACTOR * self.timeout_s
        if not self._has_passed(self._moved_s, limit_s):
            return None
        return Stall(
            f"ranks used or waited for CPU time but made no progress for {limit_s:g} s", None
        )

    def recently_silent_ranks(self, activities: Mapping[int, RankActivity]) -> set[int]:
        """Return the ranks that recently missed heartbeats while another rank reported an event.

        Recently means in the last `_RECENT_S` seconds. After a failure, such a rank is the likely
        cause, rather than the ranks that report errors. Its heartbeats may have resumed, because
        Slurm lets stopped ranks continue in order to end them.

        Args:
            activities: Rank → its activity before any failure. Ranks in a rendezvous are left out,
                because TensorFlow delays their heartbeats.
        """
        lately = {r for r, at_s in self._missed_s.items() if self._watched_s - at_s <= _RECENT_S}
        return {rank for rank in lately if activities.get(rank) in _ACTIVITIES_WITH_HEARTBEATS}

    def _find_silent_rank(
        self, activities: Callable[[], Mapping[int, RankActivity]]
    ) -> Stall | None:
        """Return the stall of a rank whose heartbeats are missing for too long, or None.

        Args:
            activities: Returns rank → present activity.
        """
        since_s = {
            r: at_s for r, at_s in self._beat_s.items() if self._has_passed(at_s, self._silent_s)
        }
        if not since_s:
            return None
        now = activities()
        for rank in sorted(since_s, key=since_s.__getitem__):
            soonest_s = max(self._silent_s, 2 * self._beats[rank].interval_s)
            limit_s = soonest_s if now.get(rank) in _ACTIVITIES_WITH_HEARTBEATS else self.timeout_s
            if now.get(rank) not in _ACTIVITIES_WITHOUT_HEARTBEATS and self._has_passed(
                since_s[rank], limit_s
            ):
                return Stall(f"rank {rank} gave no sign of life for {limit_s:g} s", rank)
        return None

    def _find_idle_ranks(
        self, activities: Callable[[], Mapping[int, RankActivity]]
    ) -> Stall | None:
        """Return the stall of ranks that all do nothing for too long, or None.

        They have no events, use no CPU time, wait for no CPU, and read and write nothing.

        Args:
            activities: Returns rank → present activity.
        """
        at_s = max(self._moved_s, self._worked_s)
        if not self._has_passed(at_s, self._idle_s):
            return None
        now = activities()
        wait_for_ranks = {RankActivity.TRAINING, RankActivity.ENDED}
        train = len(now) >= self._ranks and set(now.values()) <= wait_for_ranks
        is_blocked = any(beat.blocked for beat in self._beats.values())
        limit_s = self._idle_s if train and not is_blocked else self.timeout_s
        if not self._has_passed(at_s, limit_s):
            return None
        # of ranks that wait for a silent one, none is the cause
        silent = [
            rank
            for rank, at_s in sorted(self._beat_s.items())
            if self._watched_s - at_s > 3 * self._beats[rank].interval_s
            and now.get(rank) not in _ACTIVITIES_WITHOUT_HEARTBEATS
        ]
        rank = min(silent, key=self._beat_s.__getitem__, default=None)
        return Stall(f"no rank made progress for {limit_s:g} s", rank)

    def _has_passed(self, at_s: float, limit_s: float) -> bool:
        """Return whether more than `limit_s` have passed since `at_s`, on the detector's clock."""
        return self._watched_s - at_s > limit_s
