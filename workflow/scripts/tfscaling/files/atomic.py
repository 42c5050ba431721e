"""Files that are written completely or not at all, also after a power failure."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

#: The host's name, of up to 64 characters, for temporary file names, in characters that every file
#: system accepts.
_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Provide the path of a temporary file, which replaces `path` when the `with` block ends.

    Readers see the complete old file or the complete new one, also after a power failure. The old
    file stays if the block raises an exception. The temporary file's name is unique among hosts.

    Raises:
        OSError: The file cannot be written; the error names `path`.
    """
    temporary = _unique_sibling(path)
    try:
        yield temporary
        flush_to_disk(temporary)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno and error.filename in (None, str(temporary)):
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):  # as of a file system that is read-only now
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def folder_replacement(path: Path) -> Iterator[Path]:
    """Provide an empty folder that replaces the folder `path` when the `with` block ends.

    The old folder stays if the block raises an exception. If several processes replace `path` at
    the same time, the folder of the last one stays, without files from the others.

    Raises:
        OSError: The folder cannot be made or moved.
    """
    made, old = _unique_sibling(path), _unique_sibling(path)
    made.mkdir()
    try:
        yield made
        while True:
            try:
                os.rename(made, path)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                os.rename(path, old)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _unique_sibling(path: Path) -> Path:
    """Return a path next to `path` that no other process and no other host uses."""
    unique = f"{_HOST}.{os.getpid()}.{secrets.token_hex(6)}"
    return path.with_name(f".{path.name[:128]}.{unique}")


def flush_to_disk(path: Path) -> None:
    """Flush a file or folder to the disk.

    Raises:
        OSError: For example, the disk or quota is full.
    """
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def link(source: Path, path: Path) -> None:
    """Make `path` a hard link to the file `source`, or a copy if the file system has no hard links.

    An existing file at `path` is replaced. The modification time stays the same.

    Raises:
        FileNotFoundError: If `source` does not exist.
    """
    with replacement(path) as temporary:
        try:
            os.link(source, temporary)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(source, temporary)


def restrict_folder(path: Path, withheld: int) -> None:
    """Create a folder if it is missing, and remove permissions from it.

    Args:
        path: The folder.
        withheld: Permission bits to remove, such as 0o077.

    Raises:
        PermissionError: If the folder has these permissions and belongs to another user.
    """
    path.mkdir(exist_ok=True)
    mode = path.stat().st_mode & 0o7777
    if mode & withheld:
        path.chmod(mode & ~withheld)


def find_write_problem(path: Path) -> str:
    """Return why a file cannot be written, such as a full disk; "" if it can.

    The file itself is not written. Its folder must exist, else the result is "".
    """
    if not path.parent.is_dir():
        return ""
    temporary = _unique_sibling(path)
    try:
        try:
            temporary.write_bytes(bytes(1 << 14))
            flush_to_disk(temporary)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        return f"[Errno {error.errno}] {error.strerror}: '{path}'"
    return ""


def write_private_text(path: Path, text: str) -> None:
    """Write a text file, in UTF-8, that only its owner can read; a failure leaves the old file."""
    with replacement(path) as temporary:
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)


def write_text(path: Path, text: str) -> None:
    """Write a text file, in UTF-8; a failure leaves the old file."""
    with replacement(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
