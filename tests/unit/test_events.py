"""Events of a rank: written as they happen, read even after the rank died while writing."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
from builders import run_python
from tfscaling import events
from tfscaling.events import EventLog


def test_events_are_in_the_file_at_once_and_carry_time_and_rank(tmp_path: Path) -> None:
    path, before = tmp_path / "rank-3.events.jsonl", time.time()
    log = EventLog(path, 3)
    returned = log.add("imported", host="node1")
    (event,) = events.read(path)  # the log is still open
    assert event == {"time_s": round(returned, 6), "rank": 3, "event": "imported", "host": "node1"}
    assert before - 0.001 <= event["time_s"] <= time.time() + 0.001


def test_an_event_can_be_dated_earlier(tmp_path: Path) -> None:
    path = tmp_path / "e"
    assert EventLog(path, 0).add("start", 12.5) == 12.5
    assert events.read(path)[0]["time_s"] == 12.5


def test_a_second_log_of_the_same_rank_appends(tmp_path: Path) -> None:
    for name in ("start", "imported"):
        EventLog(tmp_path / "e", 0).add(name)
    assert [event["event"] for event in events.read(tmp_path / "e")] == ["start", "imported"]


def test_a_killed_rank_leaves_what_it_reached(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from tfscaling.events import EventLog\n"
        "log = EventLog(pathlib.Path(sys.argv[1]), 0)\n"
        "log.add('start'); log.add('imported')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run_python(code, str(tmp_path / "e")).returncode == -9
    assert [event["event"] for event in events.read(tmp_path / "e")] == ["start", "imported"]


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "e"
    whole = json.dumps({"time_s": 1.0, "rank": 0, "event": "start"})
    path.write_text(f"{whole}\n{whole[:-9]}")
    assert events.read(path) == [json.loads(whole)]


def test_a_missing_file_has_no_events(tmp_path: Path) -> None:
    assert events.read(tmp_path / "missing") == []


def test_times_are_of_first_occurrences() -> None:
    seen = [{"event": "a", "time_s": 1.0}, {"event": "b", "time_s": 2.0}]
    assert events.times([*seen, {"event": "a", "time_s": 3.0}]) == {"a": 1.0, "b": 2.0}


def test_written_events_are_read_back(tmp_path: Path) -> None:
    lines = [{"time_s": 1.0, "rank": rank, "event": "start"} for rank in range(2)]
    events.write(tmp_path / "events.jsonl", lines)
    assert events.read(tmp_path / "events.jsonl") == lines


def test_what_is_no_number_is_neither_written_nor_read(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e", 0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.add("epoch", loss=math.nan)
    with pytest.raises(ValueError, match="not JSON compliant"):
        events.write(tmp_path / "all", [{"event": "epoch", "loss": math.inf}])
    (tmp_path / "old").write_text('{"event": "epoch", "loss": NaN}\n')
    with pytest.raises(ValueError, match="NaN"):
        events.read(tmp_path / "old")
