"""Fashion-MNIST: its four IDX files and where they can be had.

Checksums are of the uncompressed files published by Zalando Research.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfscaling.datasets import downloads, idx

MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
DEBIAN_PACKAGE = "dataset-fashion-mnist"
#: Where the Debian package puts the files.
FOLDER = Path("/usr/share/datasets/fashion-mnist")


def from_installed(_: Path | None) -> dict[str, bytes]:
    """From the installed Debian package."""
    return idx.from_path(FOLDER)


def from_keras(_: Path | None) -> dict[str, bytes]:
    """By Keras's own download."""
    return idx.encode(downloads.keras_arrays("fashion_mnist"))


def from_debian(_: Path | None) -> dict[str, bytes]:
    """From the Debian package, downloaded but not installed."""
    with downloads.debian_package(DEBIAN_PACKAGE) as content:
        return idx.from_path(content / FOLDER.relative_to("/"))


#: In the order in which they are tried; `path` is the user's own copy.
SOURCES: dict[str, Callable[[Path | None], dict[str, bytes]]] = {
    "path": idx.from_path,
    str(FOLDER): from_installed,
    "keras": from_keras,
    f"Debian package {DEBIAN_PACKAGE}": from_debian,
}
