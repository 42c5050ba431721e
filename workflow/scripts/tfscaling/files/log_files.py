"""The ends of log files: a program may write gigabytes, and only their end explains a failure."""

from __future__ import annotations

from pathlib import Path

#: Size of the end of a log that is read.
END_BYTES = 1 << 16


def read_end(log: Path) -> str:
    """Return the last `END_BYTES` bytes of a log as text, without a first line that is cut.

    Raises:
        OSError: The log cannot be read.
    """
    with log.open("rb") as file:
        begin = max(0, log.stat().st_size - END_BYTES)
        file.seek(begin)
        text = file.read(END_BYTES).decode(errors="replace")
    _, newline, complete = text.partition("\n")
    return complete if begin and newline else text


def last_lines(log: Path, count: int) -> tuple[str, ...]:
    """Return up to `count` lines at the end of a log, of at most `END_BYTES` bytes together.

    Args:
        log: The log.
        count: Highest number of lines.

    Returns:
        The lines; () if the log does not exist.

    Raises:
        OSError: The log exists, but cannot be read.
    """
    try:
        return tuple(read_end(log).splitlines()[-count:])
    except FileNotFoundError:
        return ()
