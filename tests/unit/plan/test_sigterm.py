"""SIGTERM ends a sweep, whatever its main thread does."""

from __future__ import annotations

import subprocess
import sys

import pytest
from builders import SCRIPTS

#: As Snakemake: a handler that takes the lock which the main thread holds while it selects jobs.
DRIVER = """
import os
import signal
import sys
import threading

sys.path.insert(0, sys.argv[1])
from tfscaling.plan.sweep_start import handle_sigterm_in_thread

lock, ended, begun = threading.Lock(), threading.Event(), threading.Event()


def end(number, frame):
    begun.set()
    with lock:
        handled.append(number)


handled = []
signal.signal(signal.SIGTERM, end)
handle_sigterm_in_thread(lambda: len(handled) and ended.set())
for _ in range(3):
    ended.clear()
    begun.clear()
    with lock:
        os.kill(os.getpid(), signal.SIGTERM)
        begun.wait()
    ended.wait()
print("ended")
"""


def test_the_handler_of_sigterm_takes_a_lock_that_the_main_thread_holds() -> None:
    words = [sys.executable, "-c", DRIVER, str(SCRIPTS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


@pytest.mark.parametrize("present", ["SIG_DFL", "SIG_IGN"])
def test_a_process_without_a_handler_keeps_what_it_has(present: str) -> None:
    code = f"""
import signal, sys
sys.path.insert(0, {str(SCRIPTS)!r})
from tfscaling.plan.sweep_start import handle_sigterm_in_thread
signal.signal(signal.SIGTERM, signal.{present})
handle_sigterm_in_thread()
print(signal.getsignal(signal.SIGTERM) == signal.{present})
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "True\n"
