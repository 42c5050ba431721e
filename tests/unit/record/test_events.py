"""Events of a rank: written as they happen, read even after the rank died while writing."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from builders import run_python
from tfscaling.record import events
from tfscaling.record.events import EventLog


def test_events_are_in_the_file_at_once_and_carry_time_and_rank(tmp_path: Path) -> None:
    path, before = tmp_path / "rank-3.events.jsonl", time.time()
    log = EventLog(path, 3)
    returned = log.add("imported", host="node1")
    (event,) = events.read(path)  # the log is still open
    assert before - 0.001 <= event.pop("host_time_s") <= time.time() + 0.001
    assert event == {"time_s": round(returned, 6), "rank": 3, "event": "imported", "host": "node1"}


def test_a_killed_rank_leaves_what_it_reached(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from tfscaling.record.events import EventLog\n"
        "log = EventLog(pathlib.Path(sys.argv[1]), 0)\n"
        "log.add('start'); log.add('imported')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run_python(code, str(tmp_path / "e")).returncode == -9
    assert [event["event"] for event in events.read(tmp_path / "e")] == ["start", "imported"]


@pytest.mark.parametrize("broken", [b"17", b'{"rank": 0}', b"\xff\xfe", b"\x00" * 40, b"[]", b""])
def test_what_is_no_event_is_left_out(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "e"
    whole = json.dumps({"time_s": 1.0, "rank": 0, "event": "start"})
    path.write_bytes(whole.encode() + b"\n" + broken)
    assert events.read(path) == [json.loads(whole)]


def test_a_missing_file_has_no_events(tmp_path: Path) -> None:
    assert events.read(tmp_path / "missing") == []


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
        for name in ("start", events.BEAT, "end"):
            log.add(name)
    (tmp_path / events.OF_RANKS).write_text(posted[0])
    found = events.of_ranks(tmp_path)
    assert {rank: [e["event"] for e in lines] for rank, lines in found.items()} == {
        0: ["start", "end"],
        3: ["start", "end"],
    }
    (beat,) = [
        e for e in events.new(tmp_path / "rank-3.events.jsonl", 0)[0] if e["event"] == "beat"
    ]
    assert beat["rank"] == 3


def test_threads_that_share_a_log_do_not_mix_their_lines(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e", 0)

    def write() -> None:
        for _ in range(200):
            log.add("progress", text="x" * 5000)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events.read(tmp_path / "e")) == 800


def test_events_on_the_launchers_clock_keep_what_the_host_said() -> None:
    lines = [
        {"time_s": 10.0, "host_time_s": 11.0, "event": "start", "offset_s": 2.5},
        {"time_s": 12.0, "event": "imported"},
    ]
    found = events.on_launcher_clock(lines)
    assert [e["time_s"] for e in found] == [12.5, 14.5]
    assert [e["host_time_s"] for e in found] == [11.0, 12.0]
