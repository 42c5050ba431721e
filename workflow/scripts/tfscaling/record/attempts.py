"""The folders of a job's attempts, below that of the job: `attempt=1`, `attempt=2`, …"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from tfscaling.files import atomic

#: In an attempt's folder: the specification, as all ranks read it.
SPEC = "spec.json"
#: And of a finished run's last one the record, which has a second name in the run's folder.
RECORD = "record.json"
#: And a folder from which files move to the job's folder. The next attempt renames it, so that a
#: launcher that outlives its attempt can move nothing there any more.
_OUTBOX = "outbox"


class SupersededError(FileNotFoundError):
    """A newer attempt at the job has begun."""


def begin(folder: Path, number: int) -> None:
    """Make the folder of an attempt; earlier attempts can publish nothing from then on.

    Raises FileExistsError if the attempt exists.
    """
    path(folder, number).mkdir()
    (path(folder, number) / _OUTBOX).mkdir()
    *earlier, newest = numbers(folder) or [number]
    for each in earlier:
        with contextlib.suppress(FileNotFoundError):
            old = path(folder, each)
            os.rename(old / _OUTBOX, old / f"superseded_by={newest}")


def publish(source: Path, place: Path) -> None:
    """Give a file of an attempt a second name in the job's folder.

    Raises SupersededError, and changes nothing there, if a newer attempt has begun.
    """
    outbox = source.parent / _OUTBOX
    try:
        atomic.link(source, outbox / place.name)
        os.rename(outbox / place.name, place)
    except FileNotFoundError as error:
        if outbox.exists():
            raise
        raise SupersededError(f"{source.parent.name} is superseded by a newer attempt") from error


def reopen(attempt: Path) -> None:
    """Let files of the newest attempt be published again, also if an older version made it."""
    (attempt / _OUTBOX).mkdir(exist_ok=True)


def path(folder: Path, number: int) -> Path:
    """The folder of an attempt at the job of `folder`."""
    return folder / f"attempt={number}"


def numbers(folder: Path) -> list[int]:
    """The numbers of the attempts that were begun, rising; none if the folder is not there."""
    try:
        names = [re.fullmatch(r"attempt=(\d+)", each.name) for each in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name[1]) for name in names if name)
