"""Errors of files, printed in one line with the remedy."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

_T = TypeVar("_T")

_ROOM = "make room and start the same command again"
_RIGHTS = "give the right and start the same command again"
#: Error of the operating system → what to do.
REMEDIES = {
    errno.ENOENT: "name a file that exists",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "name a folder",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: f"raise the limit of file sizes (ulimit -f), or {_ROOM}",
    errno.EROFS: "work in a folder that can be written",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EIO: "have the file system checked; then start the same command again",
    errno.ESTALE: "mount the file system again; then start the same command again",
}


class InputError(ValueError):
    """A file that the program was given is not what it should be; names the file and what is wrong.

    The programs of the workflow end with this one line.
    """


def read_json(path: Path, kind: type[_T]) -> _T:
    """Read a file as a type that msgspec supports. Raises InputError and OSError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from error


def remedy(error: OSError) -> str | None:
    """Return `FILE: what is wrong; what to do`, or None for an error that no file causes."""
    if error.errno not in REMEDIES:
        return None
    file = f"{error.filename}: " if error.filename else ""
    return f"{file}{error.strerror}; {REMEDIES[error.errno]}"


def exit_on_input_error(main: Callable[[], None]) -> None:
    """Run a program; an InputError or an error of files ends it by one line and exit status 1."""
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
    except OSError as error:
        if (text := remedy(error)) is None:
            raise
        sys.exit(text)
