"""Files of ranks that appear later than the ranks end, as on a shared file system."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import rank_events, write_events
from generator import training_report
from tfscaling.launch import rank_files
from tfscaling.launch.rank_messages import IncompleteError, RankMessageServer
from tfscaling.record import run_record

PASSED = {"start": 1.0, "imported": 2.0, "end": 3.0}


def write(folder: Path, *ranks: int) -> None:
    for rank in ranks:
        run_record.write_json(rank_files.report_path(folder, rank), training_report(rank))
        write_events(folder, rank, rank_events(rank, PASSED))


def cut(path: Path) -> Callable[[], object]:
    """Shows the first half of a file; returns what shows it whole."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return lambda: path.write_bytes(whole)


@pytest.mark.parametrize("of", [rank_files.report_path, rank_files.events_path])
def test_a_file_that_is_still_cut_is_waited_for(
    tmp_path: Path, of: Callable[[Path, int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 0, 1)
    show_whole = cut(of(tmp_path, 1))
    monkeypatch.setattr(time, "sleep", lambda _: show_whole())  # after the first look
    (messages := RankMessageServer(tmp_path)).wait_for_files(range(2), 30.0)
    assert [len(messages.events[rank]) for rank in range(2)] == [len(rank_events(0, PASSED))] * 2


MISSING: dict[str, Callable[[Path], object]] = {
    "report": lambda folder: rank_files.report_path(folder, 1).unlink(),
    "events": lambda folder: rank_files.events_path(folder, 1).unlink(),
    "cut report": lambda folder: cut(rank_files.report_path(folder, 1)),
    "cut events": lambda folder: cut(rank_files.events_path(folder, 1)),
    "no end": lambda folder: write_events(folder, 1, rank_events(1, {"start": 1.0, "built": 2.0})),
}


@pytest.mark.parametrize("name", MISSING)
def test_ranks_whose_files_never_come_are_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, 0, 1, 2)
    MISSING[name](tmp_path)
    with pytest.raises(IncompleteError) as caught:
        RankMessageServer(tmp_path).wait_for_files(range(4), 0.0)
    assert caught.value.ranks == [1, 3]
    text = str(caught.value)
    assert ("rank-1.json" if "report" in name else "events") in text
    assert "rank-3.json" in text and "rank-3.events.jsonl" in text
    assert "rank 0" not in text and "rank 2" not in text


def test_bytes_in_a_log_that_are_no_text_do_not_hide_the_cause(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"fine\n\xff\xfe broken\n")
    lines = rank_files.last_lines(tmp_path / "log")
    assert lines[0] == "fine"
    assert lines[1].endswith(" broken")
