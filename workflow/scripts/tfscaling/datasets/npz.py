"""Prepared arrays in one .npz file, as every dataset is kept here and as some are published."""

from __future__ import annotations

from pathlib import Path

import numpy as np

#: The arrays of every dataset: images and labels, for training and for the test.
NAMES = ("x_train", "y_train", "x_test", "y_test")


def read(path: Path) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test and y_test; KeyError if one is missing."""
    with np.load(path) as stored:
        return {name: stored[name] for name in NAMES}
