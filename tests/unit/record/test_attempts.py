"""Folders of attempts."""

from __future__ import annotations

from pathlib import Path

from tfscaling.record import attempts


def test_attempts_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        attempts.path(tmp_path, number).mkdir()
    (tmp_path / "attempt=x").mkdir()
    assert attempts.numbers(tmp_path) == [1, 2, 10]


def test_a_job_that_did_not_begin_has_none(tmp_path: Path) -> None:
    assert attempts.numbers(tmp_path / "missing") == []
