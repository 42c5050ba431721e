"""CIFAR-10's formats: the published binary and Python versions, PNG files, .npz."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tfscaling.datasets import npz

#: MD5 sums of the Python version's files, which are pickles: only exactly these are opened.
PICKLE_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_BATCHES = tuple(PICKLE_MD5)
_PIXELS = 3 * 32 * 32
#: Images (examples, 32, 32, 3) and labels (examples,), both uint8.
Batch = tuple[np.ndarray, np.ndarray]
#: What the pickle of an array names.
_OF_ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"),  # as NumPy 1 has it
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a folder with the binary version, the Python version or PNG files, or an .npz.

    uint8: x_train (50000, 32, 32, 3), y_train (50000,), x_test (10000, 32, 32, 3),
    y_test (10000,), in the published order: data_batch_1 to data_batch_5.
    """
    if path.is_file():
        arrays = npz.read(path)
        labels = {name: arrays[name].ravel() for name in ("y_train", "y_test")}
        return arrays | labels  # Keras's labels have a second axis
    readers: dict[str, Callable[[Path], list[Batch]]] = {
        "data_batch_1.bin": _binary,
        "data_batch_1": _pickles,
        "data_batch_1.png": _pictures,
    }
    for first, read_batches in readers.items():
        if (path / first).is_file():
            *training, test = read_batches(path)
            return {
                "x_train": np.concatenate([images for images, _ in training]),
                "y_train": np.concatenate([labels for _, labels in training]),
                "x_test": test[0],
                "y_test": test[1],
            }
    raise FileNotFoundError(f"{path} holds none of {', '.join(readers)}")


def _images(planes: np.ndarray) -> np.ndarray:
    """Rows of the red, the green and the blue plane as images (examples, 32, 32, 3)."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _binary(folder: Path) -> list[Batch]:
    """Files of 10,000 rows, each one byte of label and the 3 x 32 x 32 bytes of the image."""
    batches = []
    for name in _BATCHES:
        rows = np.fromfile(folder / f"{name}.bin", np.uint8).reshape(-1, 1 + _PIXELS)
        batches.append((_images(rows[:, 1:]), rows[:, 0].copy()))
    return batches


class _Arrays(pickle.Unpickler):
    """Takes arrays of NumPy and plain values, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OF_ARRAYS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of an array")


def _pickles(folder: Path) -> list[Batch]:
    batches = []
    for name, md5 in PICKLE_MD5.items():
        content = (folder / name).read_bytes()
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
            raise ValueError(f"MD5 of {name} does not match the published file")
        batch = _Arrays(io.BytesIO(content), encoding="bytes").load()
        batches.append((_images(batch[b"data"]), np.array(batch[b"labels"], np.uint8)))
    return batches


def _pictures(folder: Path) -> list[Batch]:
    """As in the npm package: a PNG per batch with one image a row; labels as JSON."""
    from PIL import Image

    # `lables`, as the package spells it
    files = [folder / "train_lables.json", folder / "test_lables.json"]
    labels = np.concatenate([np.array(json.loads(file.read_text()), np.uint8) for file in files])
    batches, position = [], 0
    for name in _BATCHES:
        with Image.open(folder / f"{name}.png") as picture:
            images = np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3)
        batches.append((images, labels[position : position + len(images)]))
        position += len(images)
    return batches
