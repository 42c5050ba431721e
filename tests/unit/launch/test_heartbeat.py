"""A hung rank is told from a working one, wherever the training is."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import SCRIPTS, wait_until
from tfscaling.launch import heartbeat
from tfscaling.launch.heartbeat import Heartbeat, Stall, StallDetector
from tfscaling.launch.rank_messages import RankMessageServer
from tfscaling.record.events import RankActivity

TIMEOUT_S = 60.0
#: What a rank uses in a heartbeat's interval: nearly nothing, and one CPU.
IDLE_S, BUSY_S = 0.001, heartbeat.INTERVAL_S
#: What ranks wait for a CPU in an interval on a busy machine: one that could run half of the time,
#: and one whose threads hang and wake up for a moment.
STARVED_S, WOKEN_S = heartbeat.INTERVAL_S / 2, heartbeat.INTERVAL_S / 20


class Run:
    """Ranks by the watch of a launcher, second by second; each beats, works or has events."""

    def __init__(
        self,
        ranks: int = 2,
        doing: RankActivity = RankActivity.WAITING,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.ranks = range(ranks)
        self.now_s, self.progress = 1000.0, 0
        self.watch = StallDetector(timeout_s, self.now_s, ranks)
        self.beats = {rank: Heartbeat(1, 3.0, 1_000_000) for rank in range(ranks)}
        self.doing = dict.fromkeys(range(ranks), doing)
        self.blocked: set[int] = set()

    def others(self, *silent: int, cpu_s: float = BUSY_S) -> dict[int, float]:
        """What all ranks but these use in each interval."""
        return dict.fromkeys({*self.ranks} - {*silent}, cpu_s)

    def go(
        self,
        seconds: float,
        cpu_s: dict[int, float] | None = None,
        io: int = 0,
        events: bool = False,
        cpu_wait_s: float = 0.0,
    ) -> Stall | None:
        """Ranks of `cpu_s` beat and use so much in each interval; the first finding ends it."""
        for _ in range(int(seconds / heartbeat.INTERVAL_S)):
            for rank, used_s in (cpu_s or {}).items():
                beat = self.beats[rank]
                self.beats[rank] = Heartbeat(
                    beat.number + 1,
                    beat.cpu_s + used_s,
                    beat.io_bytes + io,
                    rank in self.blocked,
                    beat.cpu_wait_s + cpu_wait_s,
                )
            self.progress += events
            for _ in range(int(heartbeat.INTERVAL_S)):
                self.now_s += 1
                self.watch.update(self.now_s, self.progress, self.beats)
                if found := self.watch.find_stall(lambda: self.doing):
                    return found
        return None


@pytest.mark.parametrize(
    "shown",
    [
        {"cpu_s": {0: IDLE_S, 1: BUSY_S}},
        {"io": 200_000},
        {"events": True},
        {"cpu_wait_s": STARVED_S},
    ],
    ids=[
        "one works and the other waits for it",
        "slow reading",
        "events without CPU time",
        "a busy machine",
    ],
)
def test_ranks_that_do_something_are_not_taken_for_hung(shown: dict[str, Any]) -> None:
    assert Run().go(5 * TIMEOUT_S, **{"cpu_s": {0: IDLE_S, 1: IDLE_S}, **shown}) is None


def test_ranks_that_all_wait_are_hung() -> None:
    run = Run()
    assert run.go(TIMEOUT_S / 2, {0: BUSY_S, 1: BUSY_S}) is None
    found = run.go(3 * TIMEOUT_S, {0: IDLE_S, 1: IDLE_S})
    assert found is not None and found.rank is None
    assert "60 s" in found.message


def test_ranks_that_hang_on_a_busy_machine_are_hung() -> None:
    run = Run(doing=RankActivity.TRAINING, timeout_s=600)
    run.go(60, {0: BUSY_S, 1: BUSY_S})
    assert run.go(600, {0: IDLE_S, 1: IDLE_S}, cpu_wait_s=STARVED_S) is None
    found = run.go(70, {0: IDLE_S, 1: IDLE_S}, cpu_wait_s=WOKEN_S)
    assert found is not None and "50 s" in found.message


def test_a_starved_rank_whose_threads_end_is_not_taken_for_hung() -> None:
    run = Run(doing=RankActivity.TRAINING, timeout_s=600)
    for _ in range(3):
        assert run.go(100, {0: IDLE_S, 1: IDLE_S}, cpu_wait_s=20 * STARVED_S) is None
        for rank, beat in run.beats.items():  # the waits of ended threads are no longer counted
            run.beats[rank] = beat._replace(cpu_wait_s=beat.cpu_wait_s / 10)
        assert run.go(300, {0: IDLE_S, 1: IDLE_S}, cpu_wait_s=STARVED_S) is None


def test_short_waits_of_a_hanging_rank_do_not_add_up_for_hours() -> None:
    run = Run(doing=RankActivity.LOADING, timeout_s=3600)
    run.go(60, {0: BUSY_S, 1: BUSY_S})
    found = run.go(2 * 3600, {0: IDLE_S / 10, 1: IDLE_S / 10}, cpu_wait_s=WOKEN_S)
    assert found is not None and "3600 s" in found.message


@pytest.fixture
def many(dice: random.Random) -> tuple[int, int]:
    """A number of ranks, and one of them."""
    ranks = dice.randint(2, 9)
    return ranks, dice.randrange(ranks)


def test_a_rank_that_stops_beating_is_named_though_another_works(many: tuple[int, int]) -> None:
    """As the others poll a GPU in a collective, or an asynchronous training goes on without it."""
    ranks, stopped = many
    run = Run(ranks)
    assert run.go(TIMEOUT_S, run.others(), events=True) is None
    found = run.go(3 * TIMEOUT_S, run.others(stopped), events=True)
    assert found is not None and found.rank == stopped
    assert f"{heartbeat.SILENT_S:g} s" in found.message


def test_a_rank_whose_heartbeats_come_by_files_may_be_late() -> None:
    run = Run(doing=RankActivity.TRAINING, timeout_s=600)
    by_files_s = 2 * heartbeat.FILES_INTERVAL_S
    run.beats[1] = run.beats[1]._replace(interval_s=by_files_s)
    run.go(10, {0: BUSY_S})
    assert run.go(2 * by_files_s - 15, {0: BUSY_S}) is None
    found = run.go(30, {0: BUSY_S})
    assert found is not None and found.rank == 1


def test_a_rank_that_has_ended_need_not_beat(many: tuple[int, int]) -> None:
    ranks, ended = many
    run = Run(ranks)
    run.doing[ended] = RankActivity.ENDED
    assert run.go(5 * TIMEOUT_S, run.others(ended)) is None
    found = run.go(3 * TIMEOUT_S, run.others(ended, cpu_s=IDLE_S))
    assert found is not None and found.rank is None


def test_by_default_a_rank_that_hangs_is_found_within_a_minute(many: tuple[int, int]) -> None:
    """Silent, or all wait for one another; the platform's limit is for code of others."""
    ranks, silent = many
    for named in (silent, None):
        run = Run(ranks, RankActivity.TRAINING, timeout_s=600)
        run.go(300, run.others())
        found = run.go(60, run.others(cpu_s=IDLE_S) if named is None else run.others(silent))
        assert found is not None and found.rank == named


#: What the second of two ranks does, whether its disk blocks it, and which ranks beat.
MAY_WAIT: dict[str, tuple[RankActivity | None, bool, tuple[int, ...]]] = {
    "loads": (RankActivity.LOADING, False, (0, 1)),
    "waits": (RankActivity.WAITING, False, (0, 1)),
    "waits for its disk": (RankActivity.TRAINING, True, (0, 1)),
    "loads and keeps Python's lock": (RankActivity.LOADING, False, (0,)),
    "has not started": (None, False, (0,)),
}


@pytest.mark.parametrize(("doing", "is_blocked", "beating"), MAY_WAIT.values(), ids=MAY_WAIT)
def test_code_of_others_and_disks_may_take_until_the_platforms_limit(
    doing: RankActivity | None, is_blocked: bool, beating: tuple[int, ...]
) -> None:
    run = Run(doing=RankActivity.TRAINING, timeout_s=600)
    if doing is None:
        del run.doing[1], run.beats[1]
    else:
        run.doing[1] = doing
    run.blocked = {1} if is_blocked else set()
    assert run.go(590, dict.fromkeys(beating, IDLE_S)) is None
    assert run.go(30, dict.fromkeys(beating, IDLE_S)) is not None


def test_a_rank_that_waits_for_a_late_one_need_not_beat_and_is_not_named() -> None:
    """TensorFlow stops the heart while it looks for the others."""
    run = Run(doing=RankActivity.MEETING, timeout_s=600)
    run.doing[1] = RankActivity.LOADING
    run.go(10, {0: BUSY_S, 1: BUSY_S})
    assert run.go(1200, {1: BUSY_S}) is None
    found = run.go(1200, {1: IDLE_S})
    assert found is not None and found.rank is None


def test_a_rank_that_was_silent_when_others_complained_is_known() -> None:
    run = Run()
    run.go(TIMEOUT_S, {0: BUSY_S, 1: BUSY_S}, events=True)
    assert run.watch.recently_silent_ranks(run.doing) == set()
    run.go(10, {0: IDLE_S})
    assert run.watch.recently_silent_ranks(run.doing) == set()
    run.go(5, {0: IDLE_S}, events=True)
    assert run.watch.recently_silent_ranks(run.doing) == {1}
    # srun lets the rank go on, to end it
    run.go(10, {0: IDLE_S, 1: IDLE_S}, events=True)
    assert run.watch.recently_silent_ranks(run.doing) == {1}
    # not one that waits for others to come, or loads: neither need beat
    for doing in (RankActivity.MEETING, RankActivity.LOADING):
        assert run.watch.recently_silent_ranks({**run.doing, 1: doing}) == set()
    # but a rank that went on with the others is no cause of what comes later
    run.go(90, {0: BUSY_S, 1: BUSY_S}, events=True)
    assert run.watch.recently_silent_ranks(run.doing) == set()


def test_work_without_an_event_ends_at_the_longer_limit() -> None:
    run, limit_s = Run(), heartbeat.BUSY_FACTOR * TIMEOUT_S
    assert run.go(limit_s - 10, {0: BUSY_S, 1: BUSY_S}) is None
    found = run.go(30, {0: BUSY_S, 1: BUSY_S})
    assert found is not None and found.rank is None
    assert "600 s" in found.message


def test_ranks_without_heartbeats_are_judged_by_their_events() -> None:
    run = Run(0)
    assert run.go(3 * TIMEOUT_S, events=True) is None
    assert run.go(3 * TIMEOUT_S) is not None


def test_a_launcher_that_was_stopped_with_its_ranks_does_not_end_them() -> None:
    """As by `scontrol suspend`, or on a laptop that slept."""
    run = Run()
    run.go(TIMEOUT_S, {0: BUSY_S, 1: BUSY_S})
    run.now_s += 100 * TIMEOUT_S
    assert run.go(TIMEOUT_S, {0: BUSY_S, 1: BUSY_S}) is None


RANK = """
import pathlib, sys, time
from tfscaling.launch import heartbeat
from tfscaling.record.events import EventLog
heartbeat.FILES_INTERVAL_S = 0.05
folder = pathlib.Path(sys.argv[1])
log = EventLog(folder / "rank-3.events.jsonl", 3)
heartbeat.HeartbeatThread(log, lambda: (folder / "orphaned").touch()).start()
until = time.monotonic() + 600
while time.monotonic() < until:
    exec(sys.argv[2])
"""


def beats_of(folder: Path, doing: str) -> tuple[Heartbeat, Heartbeat]:
    """Two heartbeats, twenty apart, of a process that does this."""
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK, str(folder), doing],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
    )
    try:
        first = heard(folder, 3)
        return first, heard(folder, first.number + 20)
    finally:
        rank.kill()
        rank.wait()


def heard(folder: Path, number: int) -> Heartbeat:
    """The first heartbeat of rank 3 from this number on, as the launcher reads it."""
    messages = RankMessageServer(folder)

    def has_come() -> bool:
        messages.update(files=True)
        return 3 in messages.beats and messages.beats[3].number >= number

    wait_until(has_come)
    return messages.beats[3]


def test_bytes_that_are_read_are_counted(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 1_000_000)
    doing = "(folder / 'data').read_bytes(); time.sleep(0.01)"
    first, last = beats_of(tmp_path, doing)
    assert last.io_bytes - first.io_bytes >= 1_000_000


#: Threads that compute on one CPU, without Python's lock.
THREADS_ON_ONE_CPU = """
import hashlib, os, threading
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
def compute():
    while True:
        hashlib.sha256(bytes(1 << 22))
for _ in range(3):
    threading.Thread(target=compute, daemon=True).start()
compute()
"""


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="Linux without statistics of its scheduler"
)
def test_threads_that_wait_for_a_cpu_are_counted(tmp_path: Path) -> None:
    first, last = beats_of(tmp_path, THREADS_ON_ONE_CPU)
    # not by time: one of the threads must wait, however fast they are
    assert last.cpu_wait_s > first.cpu_wait_s
    with subprocess.Popen([sys.executable, "-c", THREADS_ON_ONE_CPU]) as program:
        assert wait_until(lambda: heartbeat.tree_usage(program.pid).cpu_wait_s > 0)
        program.kill()


def test_a_rank_notices_that_its_parent_has_ended(tmp_path: Path) -> None:
    """The parent is a shell that ends; the rank has no other sign of it."""
    ends = 'beat=$1; shift; "$@" & while [ ! -s "$beat" ]; do sleep 0.05; done'
    doing = "time.sleep(0.1); (folder / 'orphaned').exists() and sys.exit()"
    rank = [sys.executable, "-c", RANK, str(tmp_path), doing]
    subprocess.run(
        ["sh", "-c", ends, "sh", str(tmp_path / "rank-3.events.jsonl"), *rank],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        check=True,
    )
    assert wait_until((tmp_path / "orphaned").exists)
