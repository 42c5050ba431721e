"""Every published form of MNIST and CIFAR-10 gives the same arrays."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from published_files import IDX_FILES, are_same, cifar10_batches, idx_files
from published_files import idx as encode
from tfscaling.datasets import formats

RANDOM = np.random.default_rng(2)
ARRAYS = {
    "x_train": RANDOM.integers(0, 256, (3, 28, 28), np.uint8),
    "y_train": RANDOM.integers(0, 10, 3, np.uint8),
    "x_test": RANDOM.integers(0, 256, (2, 28, 28), np.uint8),
    "y_test": RANDOM.integers(0, 10, 2, np.uint8),
}
FILES = idx_files(ARRAYS)


def test_an_idx_file_is_a_header_with_the_shape_and_then_the_bytes() -> None:
    content = bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3])
    assert formats.parse_idx(content).tolist() == [[1, 2, 3]]
    assert encode(np.array([[1, 2, 3]], np.uint8)) == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8b\x08\x01" + bytes(8), "not an IDX file"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 1, 7]), "not an IDX file"),
        (b"<html>not found</html>", "not an IDX file"),
        (encode(np.zeros((2, 3), np.uint8))[:-1], "reshape"),
    ],
    ids=["gzip", "floats", "page", "too short"],
)
def test_a_file_of_another_format_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        formats.parse_idx(content)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


FORMS = {
    "plain": FILES,
    "gzipped": {f"{name}.gz": gzip.compress(content) for name, content in FILES.items()},
    "with dots": {name.replace("-idx", ".idx"): content for name, content in FILES.items()},
}


@pytest.mark.parametrize("files", FORMS.values(), ids=FORMS)
def test_a_folder_of_mnist_is_read_in_each_of_its_forms(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    assert are_same(formats.read_mnist(write(tmp_path, files)), ARRAYS)


def test_an_archive_of_mnist_is_read_or_refused_without_an_array(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "mnist.npz", **ARRAYS)  # type: ignore[arg-type]
    assert are_same(formats.read_mnist(tmp_path), ARRAYS)
    np.savez(tmp_path / "some.npz", x_train=ARRAYS["x_train"])
    with pytest.raises(KeyError, match="y_train"):
        formats.read_mnist(tmp_path / "some.npz")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    (tmp_path / IDX_FILES["y_test"]).unlink()
    with pytest.raises(FileNotFoundError, match="t10k-labels-idx1-ubyte"):
        formats.read_mnist(tmp_path)
    with pytest.raises(FileNotFoundError, match="data_batch_1"):
        formats.read_cifar10(tmp_path)


#: Images of each of the six batches; the genuine ones have 10,000.
SIZE = 4
CIFAR10 = {
    "x_train": RANDOM.integers(0, 256, (5 * SIZE, 32, 32, 3), np.uint8),
    "y_train": RANDOM.integers(0, 10, 5 * SIZE, np.uint8),
    "x_test": RANDOM.integers(0, 256, (SIZE, 32, 32, 3), np.uint8),
    "y_test": RANDOM.integers(0, 10, SIZE, np.uint8),
}


class Malice:
    """Its pickle calls what no array needs."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path.touch, (Path("touched"),)  # type: ignore[return-value]


def png_files() -> dict[str, bytes]:
    """As in the npm package: one image a row, its pixels in order."""
    files = {}
    for name, (images, _) in cifar10_batches(CIFAR10).items():
        content = io.BytesIO()
        Image.fromarray(images.reshape(SIZE, 32 * 32, 3)).save(content, "png")
        files[f"{name}.png"] = content.getvalue()
    files["train_lables.json"] = json.dumps(CIFAR10["y_train"].tolist()).encode()
    files["test_lables.json"] = json.dumps(CIFAR10["y_test"].tolist()).encode()
    return files


def pickled_files() -> dict[str, bytes]:
    """As in the Python version: planes in rows, labels in a list, keys that are bytes."""
    return {
        name: pickle.dumps(
            {b"labels": labels.tolist(), b"data": images.transpose(0, 3, 1, 2).reshape(SIZE, 3072)},
            protocol=2,
        )
        for name, (images, labels) in cifar10_batches(CIFAR10).items()
    }


@pytest.mark.parametrize("files", [pickled_files(), png_files()], ids=["python", "png"])
def test_the_python_version_and_the_pictures_are_read(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    assert are_same(formats.read_cifar10(write(tmp_path, files)), CIFAR10)


def test_a_pickle_of_anything_but_arrays_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {**pickled_files(), "data_batch_1": pickle.dumps(Malice())})
    with pytest.raises(pickle.UnpicklingError, match="no part of"):
        formats.read_cifar10(tmp_path)
    assert not Path("touched").exists()


def test_an_archive_of_arrays_is_read(tmp_path: Path) -> None:
    # Keras's labels have a second axis
    arrays: dict[str, Any] = {**CIFAR10, "y_train": CIFAR10["y_train"][:, None]}
    np.savez(tmp_path / "a.npz", **arrays)
    assert are_same(formats.read_cifar10(tmp_path / "a.npz"), CIFAR10)
