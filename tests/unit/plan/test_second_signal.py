"""A signal after Ctrl-C ends a driver soon and in one line, whatever the driver waits for."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from builders import SCRIPTS

#: As Snakemake: Ctrl-C cancels jobs, which may wait for Slurm for ever, and so may a thread.
DRIVER = """
import os
import signal
import sys
import threading

sys.path.insert(0, sys.argv[1])
from tfscaling.plan.sweep_start import end_at_second_signal, handle_sigterm_in_thread

forever, terminated = threading.Event(), threading.Event()
signal.signal(signal.SIGTERM, lambda *_: terminated.set())
handle_sigterm_in_thread()
end_at_second_signal(lambda: "jobs 7 8 may still run: scancel 7 8")
threading.Thread(target=forever.wait).start()
first, *others = map(int, sys.argv[2:])
try:
    os.kill(os.getpid(), first)
    terminated.wait()
    os.kill(os.getpid(), others.pop(0))
    forever.wait()
except KeyboardInterrupt:
    print("cancels", flush=True)
    for number in others:
        os.kill(os.getpid(), number)
    forever.wait()
"""
LEFT = "jobs 7 8 may still run: scancel 7 8"
INT, TERM = signal.SIGINT, signal.SIGTERM


def driven(*numbers: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", DRIVER, str(SCRIPTS), *(str(int(n)) for n in numbers)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("numbers", [(INT, INT), (INT, TERM), (TERM, INT, INT), (TERM, INT, TERM)])
def test_the_second_signal_ends_the_driver_in_one_line(numbers: tuple[int, ...]) -> None:
    done = driven(*numbers)
    name = signal.Signals(numbers[-1]).name
    assert done.returncode == 128 + numbers[-1], done.stderr
    assert done.stdout == "cancels\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Ended by {name} after Ctrl-C. ") and line.strip().endswith(LEFT)
    assert "--unlock" in line


@pytest.mark.parametrize("ignored", ["SIGINT", "SIGTERM"])
def test_an_ignored_signal_stays_ignored(ignored: str) -> None:
    """As by nohup, or in the background of a shell without job control."""
    code = f"""
import signal, sys
sys.path.insert(0, {str(SCRIPTS)!r})
from tfscaling.plan.sweep_start import end_at_second_signal
signal.signal(signal.{ignored}, signal.SIG_IGN)
end_at_second_signal(str)
print(signal.getsignal(signal.{ignored}) == signal.SIG_IGN)
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "True\n"
