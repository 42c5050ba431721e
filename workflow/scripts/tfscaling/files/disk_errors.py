"""What a program says when it cannot write or read its files: one line, and what to do."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

_ROOM = "make room and start the same command again"
_RIGHTS = "give the right and start the same command again"
#: Error of the operating system → what to do.
REMEDIES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: f"raise the limit of file sizes (ulimit -f), or {_ROOM}",
    errno.EROFS: "work in a folder that can be written",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EIO: "have the file system checked; then start the same command again",
    errno.ESTALE: "mount the file system anew; then start the same command again",
}


def remedy(error: OSError) -> str | None:
    """`FILE: what is wrong; what to do`, or None for an error that no disk or right causes."""
    if error.errno not in REMEDIES:
        return None
    file = f"{error.filename}: " if error.filename else ""
    kept = "finished runs are kept"
    return f"{file}{error.strerror}; {REMEDIES[error.errno]}: {kept}"


def told(main: Callable[[], None]) -> None:
    """Run a program; an error of disk or rights ends it by one line, with exit status 1."""
    try:
        main()
    except OSError as error:
        if (text := remedy(error)) is None:
            raise
        sys.exit(text)
