"""What a program said before it aborted, and whether it had lost a connection.

Libraries of communication end the process when an operation fails in a thread of their own: Python
raises nothing, and faulthandler's dump, which knows no reason, comes after their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SIGNAL, _DUMPED = "SIGABRT", "Aborted"
#: How a program's end is called: by its signal, by faulthandler, by a shell that ran it.
_NAMES = (f"killed by {_SIGNAL}", _DUMPED, "exit code 134")
_DUMP = f"Fatal Python error: {_DUMPED}"
_TERMINATE, _WHAT = re.compile(r"terminate called"), re.compile(r"what\(\):")
_WATCHDOG = re.compile(r"watchdog", re.IGNORECASE)
#: PyTorch's watchdog of NCCL, NCCL, PyTorch's sockets, Gloo, UCX, JAX. The names of the libraries
#: tell nothing here: an invalid access to a GPU's memory ends a program in NCCL's watchdog, too.
_LOST_CONNECTION = re.compile(
    r"Watchdog caught collective operation timeout|collective timeout from"
    r"|watchdog got stuck for|Heartbeat monitor timed out"
    r"|nccl(?:Remote|System)Error|unhandled system error"
    r"|remote process exited or there was a network error"
    r"|c10::Dist(?:Network|Store)Error|gloo::(?:Io|Timeout)Exception"
    r"|connection (?:was )?(?:likely )?(?:closed|reset|refused|aborted|timed out)|socket closed"
    r"|broken pipe|timed out waiting \d+ ?ms for (?:recv|send)"
    r"|transport retry count exceeded|stopped sending heartbeats",
    re.IGNORECASE,
)
_WORDS_MAX = 500


def is_abort(error: str | None) -> bool:
    """Whether an error of this name is an abort."""
    return error in _NAMES


def has_lost_connection(lines: Iterable[str]) -> bool:
    """Whether one of the lines tells of a lost connection."""
    return any(_LOST_CONNECTION.search(line) for line in lines)


def reason(ended: str, lines: Sequence[str]) -> str:
    """Why a program, or a process of it, aborted, by the end of its output; "" if it did not say.

    `ended` is how the program itself ended.
    """
    if not is_abort(ended) and not any(_SIGNAL in line or _DUMP in line for line in lines):
        return ""
    thrown = [said for kind in (_TERMINATE, _WHAT) if (said := _last(kind, lines))]
    found = " ".join(thrown) if _last(_WHAT, lines) else ""
    found = found or _last(_WATCHDOG, lines) or _last(_LOST_CONNECTION, lines) or "".join(thrown)
    return found[:_WORDS_MAX]


def _last(kind: re.Pattern[str], lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if kind.search(line)), "")
