"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

#: The host's name in characters that every file system accepts, shortened to fit a file name.
_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:32]


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a temporary file that takes the place of `path` when the block ends.

    Readers see the old file or the new one, never half of it, after a power cut too: its content
    is on the disk before its name. An exception leaves the old one; an OSError names `path`.
    The temporary file's name belongs to this call alone: processes of the same number on two hosts
    may write into a folder that they share.
    """
    unique = f"{_HOST}.{os.getpid()}.{secrets.token_hex(6)}"
    temporary = path.with_name(f".{path.name[:128]}.{unique}")
    try:
        yield temporary
        store(temporary)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno and error.filename in (None, str(temporary)):
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):  # as of a file system that is read-only now
            temporary.unlink(missing_ok=True)


def store(path: Path) -> None:
    """Write a file or folder to the disk: a full disk or quota raises here at the latest."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def link(source: Path, path: Path) -> None:
    """Give the file a second name, whole or not at all; its time of change is the same.

    A copy where the file system has no hard links. Raises FileNotFoundError if there is no file.
    """
    with whole(path) as temporary:
        try:
            os.link(source, temporary)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(source, temporary)


def restrict_folder(path: Path, withheld: int) -> None:
    """Make the folder if it is missing, and take the rights in `withheld` from it.

    Raises PermissionError if it has them and belongs to another user.
    """
    path.mkdir(exist_ok=True)
    mode = path.stat().st_mode & 0o7777
    if mode & withheld:
        path.chmod(mode & ~withheld)


def write_private_text(path: Path, text: str) -> None:
    """Write the complete text file or nothing; no other user can read it, whatever the umask is."""
    with whole(path) as temporary:
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)


def write_text(path: Path, text: str) -> None:
    """Write the whole text file or nothing."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
