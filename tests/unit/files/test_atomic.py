"""Files are written whole, and no two writers share a temporary file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tfscaling.files import atomic


def test_the_file_appears_whole_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with atomic.replacement(path) as temporary:
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
    with atomic.replacement(path) as first, atomic.replacement(path) as second:
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


def test_a_folder_is_of_one_writer_whenever_it_exists(tmp_path: Path) -> None:
    path = tmp_path / "tables"

    def write(number: int) -> None:
        for _ in range(30):
            with atomic.folder_replacement(path) as folder:
                for name in "abc":
                    (folder / name).write_text(str(number))

    with ThreadPoolExecutor(4) as pool:
        for writing in [pool.submit(write, number) for number in range(4)]:
            writing.result()
    assert [*tmp_path.iterdir()] == [path]
    assert len({(path / name).read_text() for name in "abc"}) == 1


def test_a_folder_that_could_not_be_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "tables"
    with atomic.folder_replacement(path) as folder:
        (folder / "a").write_text("old")

    def fail() -> None:
        with atomic.folder_replacement(path) as folder:
            (folder / "a").write_text("new")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert [*tmp_path.rglob("*")] == [path, path / "a"]
    assert (path / "a").read_text() == "old"
