"""SIGTERM, and any signal after Ctrl-C, take effect whatever the driver's main thread waits for."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from builders import SCRIPTS

#: As Snakemake: its handler of SIGTERM takes the lock that the main thread holds while it selects
#: jobs, and Ctrl-C cancels jobs, which may wait for ever. Words: where it waits, then signals.
DRIVER = """
import ctypes
import os
import signal
import sys
import threading

sys.path.insert(0, sys.argv[1])
from tfscaling.plan.driver_signals import handle_signals_in_thread

lock, begun, stopped = threading.Lock(), threading.Event(), threading.Event()
libc, mutex = ctypes.CDLL(None), (ctypes.c_char * 64)()


def end(number, frame):
    begun.set()
    with lock:
        print("terminates", flush=True)


def wait_for_ever():
    if sys.argv[2] == "call":  # no signal interrupts it, and no handler of Python's runs
        while True:
            libc.pthread_mutex_lock(mutex)
    threading.Event().wait()


signal.signal(signal.SIGTERM, end)
handle_signals_in_thread(stopped.set, lambda: "jobs 7 8 may still run: scancel 7 8")
threading.Thread(target=threading.Event().wait).start()
names = sys.argv[3:]
while names and names[0] == "SIGTERM":
    begun.clear(), stopped.clear()
    with lock:
        os.kill(os.getpid(), signal.SIGTERM)
        begun.wait()
    stopped.wait()
    del names[0]
if not names:
    os._exit(0)
try:
    os.kill(os.getpid(), signal.SIGINT)
    wait_for_ever()
except KeyboardInterrupt:
    print("cancels", flush=True)
others = [getattr(signal, name) for name in names[1:]]
threading.Timer(0.2, lambda: [os.kill(os.getpid(), number) for number in others]).start()
wait_for_ever()
"""
LEFT = "jobs 7 8 may still run: scancel 7 8"


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, str(SCRIPTS), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("waits", ["lock", "call"])
@pytest.mark.parametrize("terms", [0, 1, 3])
@pytest.mark.parametrize("second", ["SIGINT", "SIGTERM"])
def test_the_second_signal_ends_the_driver_in_one_line(second: str, terms: int, waits: str) -> None:
    done = run(DRIVER, waits, *["SIGTERM"] * terms, "SIGINT", second)
    assert done.returncode == 128 + signal.Signals[second], done.stderr
    assert done.stdout == "terminates\n" * terms + "cancels\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Ended by {second} after Ctrl-C. ") and line.endswith(LEFT)
    assert "--unlock" in line


def test_many_signals_after_ctrl_c_end_the_driver_once() -> None:
    done = run(DRIVER, "lock", "SIGINT", *["SIGINT"] * 5)
    assert (done.returncode, done.stdout) == (128 + signal.SIGINT, "cancels\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_sigterm_runs_a_handler_that_takes_a_lock_of_the_main_thread() -> None:
    done = run(DRIVER, "lock", *["SIGTERM"] * 3)
    assert (done.returncode, done.stdout) == (0, "terminates\n" * 3), done.stderr


@pytest.mark.parametrize("present", ["SIG_DFL", "SIG_IGN"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_without_a_function_stays_as_it_is(name: str, present: str) -> None:
    """As by nohup, or in the background of a shell without job control."""
    code = f"""
import signal, sys
sys.path.insert(0, sys.argv[1])
from tfscaling.plan.driver_signals import handle_signals_in_thread
signal.signal(signal.{name}, signal.{present})
handle_signals_in_thread(str, str)
print(signal.getsignal(signal.{name}) == signal.{present})
"""
    done = run(code)
    assert done.stdout == "True\n", done.stderr


def test_a_signal_to_a_forked_child_is_not_one_to_the_driver() -> None:
    """Else Ctrl-C, which goes to a process and its children, would count twice."""
    code = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from tfscaling.plan.driver_signals import handle_signals_in_thread
handle_signals_in_thread(str, str)
child = os.fork()
if child == 0:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        os._exit(3)
os.waitpid(child, 0)
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(0.5)
    print("cancels")
"""
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "cancels\n", "")
