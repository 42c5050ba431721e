"""Which line of a user's code failed, from the end of a program's output."""

from __future__ import annotations

import itertools
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_BEGIN = "Traceback (most recent call last)"
#: What faulthandler writes; its frames stand in the other order.
_FATAL = "Fatal Python error: "
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+))?$')
#: What torch and others put before each line.
_PREFIX = re.compile(r"^\[rank\d+\]: ?")
_INSTALLED = ("site-packages", "dist-packages")
#: The file that users copy to observe a training, and a word that is in it.
_OBSERVER, _IN_OBSERVER = "observe.py", "TFSCALING_EVENTS"


class Blame(NamedTuple):
    """What failed: the exception's class, the whole of its first line, and where it was raised."""

    name: str
    error: str
    where: str


class _Frame(NamedTuple):
    file: str
    line: str
    function: str | None


def last(lines: Sequence[str], folder: Path) -> Blame | None:
    """The last traceback among the lines, or None.

    Its place is the innermost frame in the user's files: those below `folder`, or else those that
    no package installed; `observe.py`, which passes on what a data set raises, is none. Paths are
    relative to the folder.
    """
    plain = [_PREFIX.sub("", line) for line in lines]
    begins = [n for n, line in enumerate(plain) if _BEGIN in line or line.startswith(_FATAL)]
    if not begins:
        return None
    block = plain[begins[-1] :]
    frames = [(n, frame) for n, line in enumerate(block) if (frame := _frame(line))]
    if block[0].startswith(_FATAL):
        error, inner_first = block[0], _of_current_thread(block)
    else:
        after = block[(frames[-1][0] if frames else 0) + 1 :]
        error = next((line for line in after if line and not line.startswith(" ")), "")
        inner_first = [frame for _, frame in reversed(frames)]
    if not inner_first or not error:
        return None
    name = error.removeprefix(_FATAL).partition(":")[0].rpartition(".")[2]
    return Blame(name.strip(), error[:500], _where(_of_user(inner_first, folder), folder))


def _of_current_thread(block: Sequence[str]) -> list[_Frame]:
    """The frames of the thread that got the signal, the innermost first."""
    begin = next((n for n, line in enumerate(block) if line.startswith("Current thread")), 0)
    within = itertools.takewhile(str.strip, block[begin + 1 :])
    return [frame for line in within if (frame := _frame(line))]


def _frame(line: str) -> _Frame | None:
    found = _FRAME.search(line)
    return _Frame(found["file"], found["line"], found["function"]) if found else None


def _of_user(inner_first: Sequence[_Frame], folder: Path) -> _Frame:
    library = sysconfig.get_path("stdlib")
    own = [
        frame
        for frame in inner_first
        if not any(f"/{part}/" in frame.file for part in _INSTALLED)
        and not frame.file.startswith(("<", f"{library}/"))
        and not _is_observer(_absolute(frame, folder))
    ]
    below = [frame for frame in own if _absolute(frame, folder).is_relative_to(folder)]
    return (below or own or list(inner_first))[0]


def _is_observer(file: Path) -> bool:
    """Whether it is `workflow/observe/observe.py` or a copy: what it passes on is not its fault."""
    try:
        return file.name == _OBSERVER and _IN_OBSERVER in file.read_text(errors="replace")
    except OSError:
        return False


def _absolute(frame: _Frame, folder: Path) -> Path:
    return folder / frame.file  # a path that is absolute replaces the folder


def _where(frame: _Frame, folder: Path) -> str:
    path = _absolute(frame, folder)
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    function = frame.function if frame.function not in (None, "<module>") else None
    return f"{shown} line {frame.line}" + (f" in {function}" if function else "")
