"""IDX files: the format of MNIST and of the datasets made in its image."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

#: Array → the file that holds it, the same names for every dataset of this kind.
PARTS = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def decode(parts: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """x_train (60000, 28, 28), y_train (60000,), x_test (10000, 28, 28), y_test (10000,), uint8."""
    return {name: decode_idx(parts[part]) for name, part in PARTS.items()}


def encode(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """The four files of the four arrays."""
    return {part: encode_idx(arrays[name]) for name, part in PARTS.items()}


def decode_idx(content: bytes) -> np.ndarray:
    """An IDX file of unsigned bytes as an array; ValueError if it is none."""
    zero, kind, dimensions = struct.unpack_from(">HBB", content)
    if zero or kind != 8:
        raise ValueError("not an IDX file of unsigned bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def encode_idx(array: np.ndarray) -> bytes:
    """The IDX file of an array of unsigned bytes."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + np.ascontiguousarray(array, np.uint8).tobytes()


def from_path(path: Path | None) -> dict[str, bytes]:
    """From a folder with the IDX files, gzipped or not, or from the .npz that Keras keeps."""
    if path is None:
        raise FileNotFoundError("no path is configured")
    if path.is_file():
        with np.load(path) as stored:
            return encode(stored)
    return {part: _read_file(path, part) for part in PARTS.values()}


def _read_file(folder: Path, part: str) -> bytes:
    # some mirrors write train-images.idx3-ubyte
    names = (part, part.replace("-idx", ".idx"))
    for name in names:
        if (plain := folder / name).is_file():
            return plain.read_bytes()
        if (packed := folder / f"{name}.gz").is_file():
            return gzip.decompress(packed.read_bytes())
    raise FileNotFoundError(f"{folder} holds none of {', '.join(names)} (or .gz)")
