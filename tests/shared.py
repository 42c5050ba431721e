"""What several processes of one test session need, and one of them makes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The session's folder `name`: the first of the pytest-xdist workers to ask fills it.

    The others wait until `make` has returned.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, finished = root / name, root / f"{name}.finished"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            make(folder)
            finished.touch()
    return folder


@contextmanager
def first_alone(finished: Path) -> Iterator[None]:
    """Let the first of the pytest-xdist workers be alone in the context; it leaves this file.

    The others enter when it has left, all at once.
    """
    with finished.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            yield
            finished.touch()
            return
    yield
