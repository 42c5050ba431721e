"""Children that end with the process that started them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# loaded before any fork; PyDLL keeps Python's lock, which a child of a fork cannot take anew
_C = ctypes.PyDLL(None)


def ending_with_parent(number: int) -> Callable[[], None]:
    """What a child does before its program starts, to get this signal when this thread ends."""
    parent = os.getpid()

    def prepare() -> None:
        _C.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(1)

    return prepare
