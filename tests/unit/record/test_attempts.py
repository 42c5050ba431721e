"""Attempts: their folders, and the record of a run that resumed."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import generator
import msgspec
import pytest
from builders import a_record, rank_events, write_events
from msgspec.structs import replace
from tfscaling.record import attempts, run_record
from tfscaling.record.attempts import Beginning, Cause, FailureReport, UserLine
from tfscaling.record.rank_report import ResumePoint
from tfscaling.record.run_record import RunRecord


def test_attempts_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        attempts.attempt_folder(tmp_path, number).mkdir()
    (tmp_path / "attempt=x").mkdir()
    assert attempts.attempt_numbers(tmp_path) == [1, 2, 10]


def test_a_finished_attempt_keeps_its_record_the_first_log_and_an_archive_of_the_others(
    tmp_path: Path,
) -> None:
    kept = {attempts.RECORD, attempts.FIRST_LOG}
    logs = {f"rank-{number}.log" for number in (1, 2, 10)}
    for name in (*kept, *logs, "rank-1.events.jsonl", "launch.log", "rank-x"):
        (tmp_path / name).write_text(name)
    (tmp_path / "rank-0.files").mkdir()
    (tmp_path / "link").symlink_to("rank-0.files")
    attempts.remove_temporary_files(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {*kept, attempts.LOGS, "rank-0.files"}
    with tarfile.open(tmp_path / attempts.LOGS) as archive:
        assert set(archive.getnames()) == logs
    attempts.remove_temporary_files(tmp_path)  # again, after an interruption
    assert (tmp_path / attempts.LOGS).exists()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "rank_died: gone"),
        ({"rank": 0}, "rank_died: rank 0: gone"),
        ({"rank": 2, "host": "n1"}, "rank_died: rank 2 on n1: gone"),
        ({"rank": 2, "log": "a/rank-2.log"}, "rank_died: rank 2: gone; log: a/rank-2.log"),
        ({"message": "gone; log: a.log", "log": "a.log"}, "rank_died: gone; log: a.log"),
        ({"place": UserLine(file="net.py", line=3)}, "rank_died: net.py:3: gone"),
    ],
)
def test_a_cause_in_words_has_rank_host_line_and_log_if_they_are_known(
    fields: dict[str, Any], sentence: str
) -> None:
    assert Cause(**{"kind": "rank_died", "message": "gone", **fields}).sentence == sentence


def attempt(run: Path, number: int, began_with: int, reached: int | None) -> Path:
    """The folder of an attempt that went on from a checkpoint of so many steps, or from none."""
    folder = run / f"attempt={number}"
    folder.mkdir()
    run_record.write_json(
        folder / attempts.BEGINNING,
        Beginning(
            folder=str(run / attempts.CHECKPOINTS),
            attempt=number,
            first_attempt=1,
            checkpoint=f"steps={began_with}" if began_with else None,
            steps=began_with,
        ),
    )
    if reached is not None:
        (folder / attempts.POSITION).write_text(f"{reached}\n")
    return folder


def test_steps_that_were_trained_twice_are_counted_over_all_attempts(tmp_path: Path) -> None:
    """The second attempt repeats 4 steps of the first, the third 3 of the second."""
    first = attempt(tmp_path, 1, 0, 14)
    write_events(first, 0, rank_events(0, {"start": 10.0, "imported": 12.0, "built": 30.0}))
    cause = Cause(kind="cancelled", message="the launcher received SIGTERM")
    report = FailureReport(axes={}, attempt=1, cause=cause)
    run_record.write_json(first / run_record.FAILURE, report)
    attempt(tmp_path, 2, 10, 13)
    attempt(tmp_path, 3, 10, None)
    since = ResumePoint(epoch=2, step=4, examples=80, trained_s=7.5, steps_per_epoch=6)
    ranks = [generator.training_report(resumed_from=since)]
    record = replace(msgspec.convert(a_record(), RunRecord), attempt=3)
    found = attempts.add_resumption(record, tmp_path, ranks).resumed
    assert found is not None
    assert (found.epoch, found.step, found.trained_before_s) == (2, 4, 7.5)
    assert found.steps_repeated == 4 + 3
    assert [(each.attempt, each.steps) for each in found.attempts] == [(1, 14), (2, 3)]
    assert found.attempts[0].duration_s == pytest.approx(20.0)
    assert "received SIGTERM" in found.attempts[0].cause
    assert found.attempts[1].duration_s is None


def test_a_run_that_began_with_its_first_step_did_not_go_on(tmp_path: Path) -> None:
    attempt(tmp_path, 1, 0, 3)
    attempt(tmp_path, 2, 0, None)
    record = replace(msgspec.convert(a_record(), RunRecord), attempt=2)
    assert attempts.add_resumption(record, tmp_path, [generator.training_report()]) == record


def a_run(nodes: int, failed: int, lost_s: float, usd: float | None) -> dict[str, Any]:
    """A row of runs.csv, with the cells of its failed attempts as texts or numbers."""
    cells = {"nodes": nodes, "failed_attempts": failed, "lost_time_s": lost_s, "wall_time_s": 90.0}
    return cells | {"lost_cost_usd": "" if usd is None else str(usd)}


def test_what_failed_attempts_took_is_summed_over_runs() -> None:
    """A run without failed attempts needs no price."""
    runs = [a_run(2, 1, 900.0, 1.25), a_run(4, 2, 450.0, 2.5), a_run(1, 0, 0.0, None)]
    found = attempts.sum_node_hours(runs)
    assert (found.failed_attempts, found.lost_cost_usd) == (3, 3.75)
    assert found.lost_node_hours == pytest.approx(1.0)
    assert found.node_hours == pytest.approx(1.0 + 7 * 90 / 3600)
    assert attempts.sum_node_hours([*runs, a_run(1, 1, 1.0, None)]).lost_cost_usd is None
    assert attempts.sum_node_hours([]) == attempts.SpentNodeHours()
