"""Downloads by other programs, which are replaced here by small ones of the same manners."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tfscaling.datasets import downloads


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that comes before all others."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def pack(path: Path, **files: bytes) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_files_of_an_npm_package(programs: Path, tmp_path: Path) -> None:
    pack(tmp_path / "packed.tgz", one=b"1", two=b"22", three=b"333")
    # npm pack NAME --silent --pack-destination FOLDER
    program(programs, "npm", f'test "$2" = things@1.0 && cp {tmp_path}/packed.tgz "$5/"')
    files = downloads.npm_files("things@1.0", ["two", "one"])
    assert files == {"two": b"22", "one": b"1"}


def test_a_file_that_the_npm_package_lacks_is_named(programs: Path, tmp_path: Path) -> None:
    pack(tmp_path / "packed.tgz", one=b"1")
    program(programs, "npm", f'cp {tmp_path}/packed.tgz "$5/"')
    with pytest.raises(KeyError, match="package/two"):
        downloads.npm_files("things@1.0", ["two"])


def test_a_debian_package_is_unpacked_and_not_installed(programs: Path) -> None:
    program(programs, "apt-get", 'test "$1" = download && echo content >"$2_1.0_all.deb"')
    # dpkg-deb --extract PACKAGE FOLDER
    program(programs, "dpkg-deb", 'mkdir -p "$3/usr/share" && cp "$2" "$3/usr/share/file"')
    with downloads.debian_package("things") as content:
        assert (content / "usr/share/file").read_text() == "content\n"
    assert not content.exists()


def test_keras_is_asked_for_the_dataset_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keras.py").write_text(
        "class datasets:\n"
        "    class tiny:\n"
        "        load_data = lambda: (([1, 2], [3]), ([4], [5]))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    arrays = downloads.keras_arrays("tiny")
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "x_train": [1, 2],
        "y_train": [3],
        "x_test": [4],
        "y_test": [5],
    }
    assert isinstance(arrays["x_train"], np.ndarray)


def test_a_failure_is_told_with_the_programs_last_line() -> None:
    with pytest.raises(RuntimeError, match=r"^sh ended with 4: no such host$"):
        downloads.call(["sh", "-c", "echo noise >&2; echo no such host >&2; exit 4"], 10)


def test_a_program_that_says_nothing_still_has_its_exit_code() -> None:
    with pytest.raises(RuntimeError, match=r"^sh ended with 5: no message$"):
        downloads.call(["sh", "-c", "exit 5"], 10)


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"^sleep took longer than 0.2 s$"):
        downloads.call(["sleep", "60"], 0.2)


def test_a_program_that_is_not_there_is_named(programs: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        downloads.call(["nowhere"], 10)
