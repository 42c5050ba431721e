"""Signals to the driver: SIGTERM, and any signal after Ctrl-C, are handled in a thread.

Python runs a handler in the main thread, and not before its present call returns. Snakemake's main
thread holds locks that its handler of SIGTERM takes, and may be in a call that never returns.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_PythonHandler = Callable[[int, FrameType | None], Any]


def handle_signals_in_thread(
    stop_submissions: Callable[[], object], abandon_jobs: Callable[[], str]
) -> None:
    """Make SIGTERM, and any signal after Ctrl-C, take effect whatever the main thread does.

    - The first Ctrl-C (SIGINT) keeps its handler: Snakemake cancels its jobs, which may take long.
    - SIGTERM, if no Ctrl-C came before, runs Snakemake's handler in a thread.
    - A signal after Ctrl-C ends this process at once, with one line. Snakemake cannot do more, such
      as unlock the folder: it would wait for its threads.

    A signal without a Python function as its handler is left as it is, such as SIGINT of nohup.

    Args:
        stop_submissions: Called after Snakemake's handler of SIGTERM.
        abandon_jobs: Returns a sentence about jobs that may still run, and how to cancel them.
    """
    handlers: dict[signal.Signals, _PythonHandler] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler
    if not handlers:
        return
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    # the interpreter writes the number of each signal, in whichever thread it arrives
    signal.set_wakeup_fd(write_fd)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    if terminate := handlers.get(signal.SIGTERM):
        signal.signal(signal.SIGTERM, lambda *_: None)
    if interrupt := handlers.get(signal.SIGINT):
        signal.signal(signal.SIGINT, _call_once(interrupt))

    def terminate_in_thread() -> None:
        if terminate:
            terminate(signal.SIGTERM, None)
            stop_submissions()

    def watch() -> None:
        is_interrupted = False
        while received := os.read(read_fd, 1):
            number = received[0]
            if number not in handlers:
                continue
            if is_interrupted:
                _end(signal.Signals(number), abandon_jobs)
            elif number == signal.SIGINT:
                is_interrupted = True
            else:  # in a thread, because it may wait for a lock
                threading.Thread(target=terminate_in_thread, daemon=True).start()

    threading.Thread(target=watch, daemon=True).start()


def _call_once(handler: _PythonHandler) -> _PythonHandler:
    """Return a handler that calls this one at the first signal and ignores further ones."""
    is_called = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal is_called
        if not is_called:
            is_called = True
            handler(number, frame)

    return handle


def _end(number: signal.Signals, abandon_jobs: Callable[[], str]) -> None:
    """End this process; print one line about jobs that may still run."""
    try:
        left = abandon_jobs()
    except Exception as error:  # whatever it is, the process ends
        left = f"what may still run is not known: {error}"
    line = f"Ended by {number.name} after Ctrl-C. Start once with --unlock, then again. {left}\n"
    os.write(2, line.encode())  # print may wait for a lock
    os._exit(128 + number)
