"""Fashion-MNIST: where its files are looked for. The genuine data is a test of the workflow."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tfscaling.datasets import catalogue, downloads, fashion_mnist, idx, mnist

RANDOM = np.random.default_rng(3)
ARRAYS = {
    "x_train": RANDOM.integers(0, 256, (3, 28, 28), np.uint8),
    "y_train": RANDOM.integers(0, 10, 3, np.uint8),
    "x_test": RANDOM.integers(0, 256, (2, 28, 28), np.uint8),
    "y_test": RANDOM.integers(0, 10, 2, np.uint8),
}
PARTS = idx.encode(ARRAYS)


def write(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for part, content in PARTS.items():
        (folder / f"{part}.gz").write_bytes(gzip.compress(content))
    return folder


def test_the_parts_are_named_as_those_of_mnist_and_are_not_mnist() -> None:
    assert fashion_mnist.MD5.keys() == mnist.MD5.keys() == set(idx.PARTS.values())
    assert not set(fashion_mnist.MD5.values()) & set(mnist.MD5.values())


def test_what_is_at_hand_comes_before_downloads() -> None:
    assert list(fashion_mnist.SOURCES) == [
        "path",
        "/usr/share/datasets/fashion-mnist",
        "keras",
        "Debian package dataset-fashion-mnist",
    ]


def test_the_installed_package_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion_mnist, "FOLDER", write(tmp_path / "fashion-mnist"))
    assert fashion_mnist.from_installed(None) == PARTS


def test_the_unpacked_package_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "usr/share/datasets/fashion-mnist")

    @contextmanager
    def unpacked(package: str) -> Iterator[Path]:
        assert package == "dataset-fashion-mnist"
        yield tmp_path

    monkeypatch.setattr(downloads, "debian_package", unpacked)
    assert fashion_mnist.from_debian(None) == PARTS


def test_kerass_arrays_become_the_published_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "keras_arrays", {"fashion_mnist": ARRAYS}.__getitem__)
    assert fashion_mnist.from_keras(None) == PARTS


def test_files_that_are_not_the_published_ones_are_refused(tmp_path: Path) -> None:
    folder, output = write(tmp_path / "copy"), tmp_path / "out.npz"
    with pytest.raises(
        catalogue.DatasetError, match="MD5 of train-images-idx3-ubyte, train-labels"
    ):
        catalogue.fetch("fashion_mnist", folder, output, tmp_path / "out.json")
    assert not output.exists()
