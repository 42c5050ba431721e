"""CIFAR-10: every published form gives the same arrays."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from published_files import assert_same, cifar10_batches, cifar10_files
from tfscaling.datasets import cifar10

#: Images of each of the six batches; the genuine ones have 10,000.
SIZE = 4
RANDOM = np.random.default_rng(4)
ARRAYS = {
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
    for name, (images, _) in cifar10_batches(ARRAYS).items():
        content = io.BytesIO()
        Image.fromarray(images.reshape(SIZE, 32 * 32, 3)).save(content, "png")
        files[f"{name}.png"] = content.getvalue()
    files["train_lables.json"] = json.dumps(ARRAYS["y_train"].tolist()).encode()
    files["test_lables.json"] = json.dumps(ARRAYS["y_test"].tolist()).encode()
    return files


def pickled_files() -> dict[str, bytes]:
    """As in the Python version: planes in rows, labels in a list, keys that are bytes."""
    return {
        name: pickle.dumps(
            {
                b"labels": labels.tolist(),
                b"data": images.transpose(0, 3, 1, 2).reshape(SIZE, 3072),
            },
            protocol=2,
        )
        for name, (images, labels) in cifar10_batches(ARRAYS).items()
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_a_row_is_the_label_and_then_the_red_the_green_and_the_blue_plane(tmp_path: Path) -> None:
    row = bytearray(1 + 3 * 1024)
    row[0] = 7
    for plane, value in enumerate((10, 20, 30)):
        row[1 + 1024 * plane + 32 * 2 + 5] = value
    arrays = cifar10.read(write(tmp_path, {**cifar10_files(ARRAYS), "test_batch.bin": bytes(row)}))
    assert arrays["y_test"].tolist() == [7]
    assert arrays["x_test"][0, 2, 5].tolist() == [10, 20, 30]
    assert arrays["x_test"].sum() == 60


@pytest.mark.parametrize("files", [cifar10_files(ARRAYS), png_files()], ids=["binary", "png"])
def test_the_binary_version_and_the_pictures_are_read(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    assert_same(cifar10.read(write(tmp_path, files)), ARRAYS)


def test_the_python_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = pickled_files()
    sums = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(cifar10, "PICKLE_MD5", sums)
    assert_same(cifar10.read(write(tmp_path, files)), ARRAYS)


def test_a_pickle_that_is_not_the_published_one_is_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {**pickled_files(), "data_batch_1": pickle.dumps(Malice())})
    with pytest.raises(ValueError, match="MD5 of data_batch_1"):
        cifar10.read(tmp_path)
    assert not Path("touched").exists()


def test_an_archive_of_arrays_is_read(tmp_path: Path) -> None:
    # Keras's labels have a second axis
    np.savez(tmp_path / "a.npz", **{**ARRAYS, "y_train": ARRAYS["y_train"][:, None]})
    assert_same(cifar10.read(tmp_path / "a.npz"), ARRAYS)


def test_a_folder_without_any_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"data_batch_1\.bin"):
        cifar10.read(tmp_path)


def test_a_pickle_of_the_right_checksum_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps(Malice())
    names = dict.fromkeys(
        cifar10.PICKLE_MD5, hashlib.md5(content, usedforsecurity=False).hexdigest()
    )
    monkeypatch.setattr(cifar10, "PICKLE_MD5", names)
    for name in names:
        Path(name).write_bytes(content)
    with pytest.raises(pickle.UnpicklingError, match="no part of"):
        cifar10.read(tmp_path)
    assert not Path("touched").exists()
