"""Errors of input files, printed by the workflow's programs as one line with the remedy."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

_T = TypeVar("_T")

#: Remedies that several errors share.
_ROOM = "make room and start the same command again"
_RIGHTS = "give the right and start the same command again"
#: Number of an operating system's error → what the user can do.
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
    """An input file is missing or wrong; the message names the file and the problem.

    The programs of the workflow print this message as their only line.
    """


def read_json(path: Path, kind: type[_T]) -> _T:
    """Read a JSON file and return its content as an object of the type `kind`.

    Raises:
        InputError: If the file is not valid JSON of this type.
        OSError: If it cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from error


def describe_file_error(error: OSError) -> str | None:
    """Return `FILE: what is wrong; what to do` for an error in REMEDIES; None for other errors."""
    if error.errno not in REMEDIES:
        return None
    file = f"{error.filename}: " if error.filename else ""
    return f"{file}{error.strerror}; {REMEDIES[error.errno]}"


def exit_on_input_error(main: Callable[[], None]) -> None:
    """Call `main`; print an error of an input file as one line and exit with status 1.

    These are InputError and the OSErrors in REMEDIES. Other exceptions are passed on.
    """
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
    except OSError as error:
        if (text := describe_file_error(error)) is None:
            raise
        sys.exit(text)
