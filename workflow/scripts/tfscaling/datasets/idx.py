"""MNIST's format, which Fashion-MNIST shares: four IDX files, or the .npz that Keras publishes."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

from tfscaling.datasets import npz

#: Array → the file that holds it.
FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a folder of IDX files (gzipped or not), in an .npz or in a folder with one.

    uint8: x_train (60000, 28, 28), y_train (60000,), x_test (10000, 28, 28), y_test (10000,).
    Raises FileNotFoundError, or ValueError if a file is of another format.
    """
    if path.is_file():
        return npz.read(path)
    if archives := list(path.glob("*.npz")):
        return npz.read(archives[0])
    return {name: decode(_content(path, file)) for name, file in FILES.items()}


def decode(content: bytes) -> np.ndarray:
    """An IDX file of unsigned bytes as an array; ValueError if it is none."""
    zero, kind, dimensions = struct.unpack_from(">HBB", content)
    if zero or kind != 8:
        raise ValueError("not an IDX file of unsigned bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _content(folder: Path, file: str) -> bytes:
    # some mirrors write train-images.idx3-ubyte
    names = (file, file.replace("-idx", ".idx"))
    for name in names:
        if (plain := folder / name).is_file():
            return plain.read_bytes()
        if (packed := folder / f"{name}.gz").is_file():
            return gzip.decompress(packed.read_bytes())
    raise FileNotFoundError(f"{folder} holds none of {', '.join(names)} (or .gz)")
