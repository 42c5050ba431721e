"""Synthetic data is the same everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tfscaling.datasets import catalogue


def test_synthetic_imagenet_has_its_checksum_and_shapes(tmp_path: Path) -> None:
    output, provenance = tmp_path / "a.npz", tmp_path / "a.json"
    assert catalogue.fetch("synthetic_imagenet", None, output, provenance) == "synthetic"
    assert json.loads(provenance.read_text())["source"] == "synthetic"
    arrays = catalogue.load(output)
    assert arrays.x_train.shape == (1536, 224, 224, 3)
    assert arrays.x_test.shape == (128, 224, 224, 3)
    assert arrays.x_train.dtype == np.uint8
    assert arrays.y_train.dtype == np.int32
    assert 0 <= arrays.y_train.min() < arrays.y_train.max() < 1000
    assert arrays.x_train[::64].mean() == pytest.approx(127.5, abs=0.5)
    # the prepared file serves as a copy
    assert catalogue.fetch("synthetic_imagenet", output, tmp_path / "b.npz", provenance) == "path"
