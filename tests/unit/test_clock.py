"""A rank knows how far its clock is off the launcher's, and how well it knows that."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from builders import run_python
from tfscaling import clock


def test_the_same_clock_is_not_off() -> None:
    with clock.served("127.0.0.1") as address:
        found = clock.measure({clock.VARIABLE: address})
    assert found is not None
    assert abs(found.offset_s) <= found.uncertainty_s < 0.1


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.25, 12.0])
def test_a_clock_that_is_off_is_measured(ahead_s: float) -> None:
    """A process whose clock is ahead asks; its offset takes it back."""
    code = (
        "import sys, time; from tfscaling import clock; real = time.time\n"
        "time.time = lambda: real() + float(sys.argv[1])\n"
        "print(clock.measure({clock.VARIABLE: sys.argv[2]}).offset_s)"
    )
    with clock.served("127.0.0.1") as address:
        done = run_python(code, str(ahead_s), address)
    assert float(done.stdout) == pytest.approx(-ahead_s, abs=0.05), done.stderr


def test_many_ranks_ask_at_once() -> None:
    with clock.served("127.0.0.1") as address:
        host, _, port = address.rpartition(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(20)]
        assert clock.measure({clock.VARIABLE: address}) is not None
        for connection in idle:
            connection.close()


def test_without_a_clock_the_offset_is_unknown() -> None:
    assert clock.measure({}) is None
    with clock.served("127.0.0.1") as address:
        pass
    assert clock.measure({clock.VARIABLE: address}) is None
    assert clock.measure({clock.VARIABLE: "127.0.0.1:none"}) is None


def test_a_launcher_that_hangs_up_gives_no_offset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        listener.settimeout(5)
        threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        start_s = time.time()
        assert clock.measure({clock.VARIABLE: address}) is None
        assert time.time() - start_s < 5
