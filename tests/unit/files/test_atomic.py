"""Files are written whole, and no two writers share a temporary file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tfscaling.files import atomic


def test_the_file_appears_whole_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with atomic.whole(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
    atomic.write_text(tmp_path / "other.txt", "all\n")
    assert path.read_text() == "half"
    assert sorted(os.listdir(tmp_path)) == ["other.txt", "table.csv"]


def test_processes_of_one_number_on_two_hosts_do_not_share_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the ranks of two containers, or of two nodes that write into one folder."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    path = tmp_path / "run.json"
    with atomic.whole(path) as first, atomic.whole(path) as second:
        first.write_text("first")
        second.write_text("second")
        assert first != second
    assert path.read_text() == "first"


def test_a_long_name_fits_with_what_is_added_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux has host names of up to 64 characters, and processes of up to 7 digits."""
    monkeypatch.setattr(atomic, "_HOST", "h" * 64)
    monkeypatch.setattr(os, "getpid", lambda: 4_194_304)
    path = tmp_path / ("n" * 255)
    atomic.write_text(path, "text")
    assert path.read_text() == "text"
