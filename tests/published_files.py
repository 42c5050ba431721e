"""Arrays as the files in which their publishers distribute them."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def idx(array: np.ndarray) -> bytes:
    """The IDX file of an array of unsigned bytes."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + np.ascontiguousarray(array, np.uint8).tobytes()


def idx_files(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """The four files of MNIST."""
    return {file: idx(arrays[name]) for name, file in IDX_FILES.items()}


def cifar10_batches(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name of the batch → its images and labels."""
    images = [*np.array_split(arrays["x_train"], 5), arrays["x_test"]]
    labels = [*np.array_split(arrays["y_train"], 5), arrays["y_test"]]
    return dict(zip(CIFAR10_BATCHES, zip(images, labels, strict=True), strict=True))


def cifar10_files(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """The six files of CIFAR-10's binary version: rows of a label and three planes of an image."""
    return {
        f"{name}.bin": np.column_stack(
            [labels, images.transpose(0, 3, 1, 2).reshape(len(images), 3072)]
        ).tobytes()
        for name, (images, labels) in cifar10_batches(arrays).items()
    }


def are_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    """Whether arrays of bytes are those."""
    return found.keys() == expected.keys() and all(
        array.dtype == np.uint8 and np.array_equal(array, expected[name])
        for name, array in found.items()
    )
