"""A rank knows how far its clock is off the launcher's; a step of a wall clock changes no time."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest
from builders import run_python
from tfscaling.record import clock
from tfscaling.record.clock import Offset

#: A process whose wall clock is `sys.argv[1]` seconds ahead when this says so.
AHEAD = "import sys, time; real = time.time; time.time = lambda: real() + float(sys.argv[1])\n"
IMPORT = "from tfscaling.record import clock\nclock._TIMEOUT_S = 300.0\n"
#: Prints the offset and its uncertainty.
MEASURE = (
    "found = clock.measure({clock.VARIABLE: sys.argv[2]})\n"
    "print(found.offset_s, found.uncertainty_s)"
)
#: Two processes of one host read its clock less precisely than the clock measures the offset.
READING_S = 0.05


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may answer late."""
    monkeypatch.setattr(clock, "_TIMEOUT_S", 300.0)


def is_off(found: Offset | None, offset_s: float) -> bool:
    """Whether the offset is this one, as precisely as it says itself."""
    return found is not None and abs(found.offset_s - offset_s) <= found.uncertainty_s + READING_S


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.25, 12.0])
def test_a_clock_that_is_off_is_measured(ahead_s: float) -> None:
    with clock.served("127.0.0.1") as address:
        done = run_python(AHEAD + IMPORT + MEASURE, str(ahead_s), address)
    assert is_off(Offset(*map(float, done.stdout.split())), -ahead_s), done.stderr


def test_a_wall_clock_that_is_set_after_the_start_changes_neither_time_nor_offset() -> None:
    code = IMPORT + "import time\nbegun = time.monotonic()\nfirst = clock.now()\n" + AHEAD
    code += "print(clock.now() - first, time.monotonic() - begun)\n" + MEASURE
    with clock.served("127.0.0.1") as address:
        done = run_python(code, "120", address)
    times, offset = done.stdout.splitlines()
    passed_s, passed_at_most_s = map(float, times.split())
    assert 0 <= passed_s <= passed_at_most_s, done.stderr
    assert is_off(Offset(*map(float, offset.split())), 0.0)


def test_without_a_clock_the_offset_is_unknown() -> None:
    assert clock.measure({}) is None
    with clock.served("127.0.0.1") as address:
        pass
    assert clock.measure({clock.VARIABLE: address}) is None
    assert clock.measure({clock.VARIABLE: "127.0.0.1:none"}) is None
    assert clock.measure({clock.VARIABLE: "127.0.0.1:999999"}) is None


def measured_from(answer: Callable[[socket.socket], object]) -> Offset | None:
    """What a rank measures from a server that treats each connection so, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(300)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        found = clock.measure({clock.VARIABLE: f"127.0.0.1:{listener.getsockname()[1]}"})
        thread.join()
    return found


def replies(shift_s: float, *, right: bool = True) -> Callable[[socket.socket], object]:
    """A server that knows the words, with a time that is off."""

    def answer(connection: socket.socket) -> None:
        while question := connection.recv(16):
            own = question[8:] if right else b"another "
            connection.sendall(question[:8] + own + struct.pack("!d", clock.now() + shift_s))

    return answer


@pytest.mark.parametrize("shift_s", [1e7, -1e7, float("nan"), float("inf")])
def test_a_time_that_no_clock_has_is_not_believed(shift_s: float) -> None:
    assert measured_from(replies(shift_s)) is None


def test_only_an_answer_to_the_own_question_counts() -> None:
    assert is_off(measured_from(replies(5.0)), 5.0)
    assert measured_from(replies(5.0, right=False)) is None


def test_a_server_that_dribbles_does_not_hold_up_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_TIMEOUT_S", 0.5)
    sent = []

    def dribble(connection: socket.socket) -> None:
        for _ in range(1000):  # a whole answer would take minutes
            try:
                connection.sendall(b"t")
            except OSError:
                return
            sent.append(1)
            time.sleep(0.3)

    assert measured_from(dribble) is None
    assert len(sent) < 1000


def test_the_launcher_answers_its_ranks_only() -> None:
    with clock.served("127.0.0.1") as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=300) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n")
            assert connection.recv(100) == b""


@pytest.mark.parametrize(
    ("later", "uncertainty_s"),
    [(None, 0.001), (Offset(5.0, 0.0005), 0.001), (Offset(4.7, 0.002), 0.302)],
)
def test_the_uncertainty_of_a_run_has_the_drift_of_the_clocks_in_it(
    later: Offset | None, uncertainty_s: float
) -> None:
    found = Offset(5.0, 0.001).over(later)
    assert found.offset_s == 5.0
    assert found.uncertainty_s == pytest.approx(uncertainty_s)
