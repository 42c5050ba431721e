"""Events of a rank: written as they happen, read even after the rank died while writing."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from builders import run_python
from tfscaling.record import events
from tfscaling.record.events import Event, EventLog, EventName


def test_events_are_in_the_file_at_once_and_carry_time_and_rank(tmp_path: Path) -> None:
    path, before = tmp_path / "rank-3.events.jsonl", time.time()
    log = EventLog(path, 3)
    returned = log.add(EventName.IMPORTED, host="node1")
    (event,) = events.read_events(path)  # the log is still open
    assert event.host_time_s is not None
    assert before - 0.001 <= event.host_time_s <= time.time() + 0.001
    assert (event.name, event.rank, event.details) == (EventName.IMPORTED, 3, {"host": "node1"})
    assert event.time_s == round(returned, 6)


def test_a_killed_rank_leaves_what_it_reached(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from tfscaling.record.events import EventLog\n"
        "log = EventLog(pathlib.Path(sys.argv[1]), 0)\n"
        "log.add('start'); log.add('imported')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run_python(code, str(tmp_path / "e")).returncode == -9
    assert [event.name for event in events.read_events(tmp_path / "e")] == ["start", "imported"]


@pytest.mark.parametrize(
    "broken",
    [
        *(b"17", b'{"rank": 0}', b"\xff\xfe", b"\x00" * 40, b"[]", b""),
        b'{"event": "unknown", "time_s": 1.0}',
        b'{"event": "start", "time_s": "1.0"}',
        b'{"event": ["start"], "time_s": 1.0}',
        b'{"event": "start", "time_s": 1.0, "rank": "0"}',
    ],
)
def test_what_is_no_event_is_left_out(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "e"
    whole = Event(name=EventName.START, time_s=1.0, details={"host": "n1"})
    path.write_bytes(whole.line.encode() + broken)
    assert json.loads(whole.line) == {"time_s": 1.0, "rank": 0, "event": "start", "host": "n1"}
    assert events.read_events(path) == [whole]


def test_a_missing_file_has_no_events(tmp_path: Path) -> None:
    assert events.read_events(tmp_path / "missing") == []


def test_heartbeats_are_no_events_of_the_run_and_a_file_holds_all_of_its_rank(
    tmp_path: Path,
) -> None:
    """The rank with a file had posted its first event before it lost the connection."""
    posted: list[str] = []

    def post(text: str) -> bool:
        posted.append(text)
        return len(posted) == 1

    for rank in (0, 3):
        log = EventLog(tmp_path / f"rank-{rank}.events.jsonl", rank, post if rank else None)
        for name in (EventName.START, EventName.BEAT, EventName.END):
            log.add(name)
    (tmp_path / events.RANKS_EVENTS).write_text(posted[0])
    found = events.read_events_by_rank(tmp_path)
    assert {rank: [e.name for e in lines] for rank, lines in found.items()} == {
        0: ["start", "end"],
        3: ["start", "end"],
    }
    found_now, _ = events.read_new_events(tmp_path / "rank-3.events.jsonl", 0)
    assert [(e.name, e.rank) for e in found_now] == [("start", 3), ("beat", 3), ("end", 3)]


def test_threads_that_share_a_log_do_not_mix_their_lines(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e", 0)

    def write() -> None:
        for _ in range(200):
            log.add(EventName.PROGRESS, text="x" * 5000)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events.read_events(tmp_path / "e")) == 800


def test_events_on_the_launchers_clock_keep_what_the_host_said() -> None:
    lines = [
        Event(name=EventName.START, time_s=10.0, host_time_s=11.0, details={"offset_s": 2.5}),
        Event(name=EventName.IMPORTED, time_s=12.0),
    ]
    found = events.convert_to_launcher_clock(lines)
    assert [e.time_s for e in found] == [12.5, 14.5]
    assert [e.host_time_s for e in found] == [11.0, 12.0]
