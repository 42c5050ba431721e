"""IDX files in folders and archives of arrays; the format itself is tested with MNIST."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from tfscaling.datasets import idx

RANDOM = np.random.default_rng(2)
ARRAYS = {
    "x_train": RANDOM.integers(0, 256, (3, 28, 28), np.uint8),
    "y_train": RANDOM.integers(0, 10, 3, np.uint8),
    "x_test": RANDOM.integers(0, 256, (2, 28, 28), np.uint8),
    "y_test": RANDOM.integers(0, 10, 2, np.uint8),
}


def test_arrays_become_the_four_files_and_come_back() -> None:
    parts = idx.encode(ARRAYS)
    assert list(parts) == list(idx.PARTS.values())
    for name, array in idx.decode(parts).items():
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_plain_and_gzipped_files_may_be_mixed(tmp_path: Path) -> None:
    for number, (part, content) in enumerate(idx.encode(ARRAYS).items()):
        if number % 2:
            (tmp_path / f"{part}.gz").write_bytes(gzip.compress(content))
        else:
            (tmp_path / part).write_bytes(content)
    assert idx.from_path(tmp_path) == idx.encode(ARRAYS)


def test_an_archive_without_an_array_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", x_train=ARRAYS["x_train"])
    with pytest.raises(KeyError, match="y_train"):
        idx.from_path(tmp_path / "some.npz")
