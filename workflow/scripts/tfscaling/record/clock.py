"""One clock for all ranks of a run: the launcher's.

Times of a process are read from its `now`: the wall clock's time when the process began, and from
there on the monotonic clock's. Nobody can set the monotonic clock, so that a step of a host's wall
clock (chrony on a node that has just booted) changes no duration.

Each rank asks the launcher for its time when it starts and writes down how far its own time is off,
and how well that is known. Source: F. Cristian, "Probabilistic clock synchronization" (1989): the
answer belongs to the middle of the exchange, so half the shortest round trip bounds the error.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Where a rank finds the launcher's clock: HOST:PORT.
VARIABLE = "TFSCALING_CLOCK"
_EXCHANGES = 8
_TIMEOUT_S = 2.0
#: An answer that is further off is not believed.
_OFFSET_MAX_S = 86400.0
_MAGIC = b"tfsclock"
#: A question is the magic number and eight bytes of the asker's, an answer repeats both.
_QUESTION = struct.Struct("!8s8s")
_ANSWER = struct.Struct("!8s8sd")
_READINGS = 8


def _origin_s() -> float:
    """What is added to the monotonic clock to give this process's time.

    The quickest of several pairs of readings counts: during a slower pair the process may have lost
    its processor.
    """
    readings = []
    for _ in range(_READINGS):
        before_s, wall_s, after_s = time.monotonic(), time.time(), time.monotonic()
        readings.append((after_s - before_s, wall_s - (before_s + after_s) / 2))
    return min(readings)[1]


_ORIGIN_S = _origin_s()


def now() -> float:
    """This process's time in seconds since the epoch; steps of the wall clock do not change it."""
    return at(time.monotonic())


def at(monotonic_s: float) -> float:
    """This process's time when `time.monotonic()` was `monotonic_s`."""
    return _ORIGIN_S + monotonic_s


@dataclass(frozen=True)
class Offset:
    """`offset_s` added to this process's time gives the launcher's, within `uncertainty_s`."""

    offset_s: float
    uncertainty_s: float

    def over(self, later: Offset | None) -> Offset:
        """This offset with an uncertainty that holds until it was measured again.

        Monotonic clocks of two hosts drift, and a clock that is slewed to the right time drifts by
        as much as it was wrong.
        """
        if later is None:
            return self
        moved_s = abs(later.offset_s - self.offset_s)
        return Offset(self.offset_s, max(self.uncertainty_s, moved_s + later.uncertainty_s))


@contextlib.contextmanager
def served(host: str) -> Iterator[str]:
    """Answer with this process's time as long as the context lasts; gives HOST:PORT for the ranks.

    With a loopback address, only that address is served. Otherwise all addresses are, because the
    name of a host may resolve to a different address on the host itself (127.0.1.1, a second
    network). A client gets nothing but the time.
    """
    with _listener(host) as listener:
        thread = threading.Thread(target=_serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield f"{host}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(_TIMEOUT_S)


def _listener(host: str) -> socket.socket:
    if host in ("localhost", "127.0.0.1"):
        return socket.create_server(("127.0.0.1", 0))
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # the kernel knows IPv6, and has none switched on
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # closed: the run is over
            return
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            magic, own = _QUESTION.unpack(_receive(connection, _QUESTION.size, deadline_s))
            if magic != _MAGIC:
                return
            connection.sendall(_ANSWER.pack(_MAGIC, own, now()))


def measure(environ: Mapping[str, str]) -> Offset | None:
    """This process's offset from the launcher's clock; None without a clock or a right answer.

    A run is not lost for that: its times are then the host's own.
    """
    host, _, port = environ.get(VARIABLE, "").rpartition(":")
    if not host:
        return None
    deadline_s = time.monotonic() + _TIMEOUT_S
    try:
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found = min(
                (_exchange(connection, deadline_s) for _ in range(_EXCHANGES)),
                key=lambda exchange: exchange.uncertainty_s,
            )
    except (OSError, ValueError, OverflowError):
        return None
    return found if abs(found.offset_s) <= _OFFSET_MAX_S else None


def _exchange(connection: socket.socket, deadline_s: float) -> Offset:
    own = os.urandom(8)
    before_s = now()
    connection.sendall(_QUESTION.pack(_MAGIC, own))
    magic, repeated, launcher_s = _ANSWER.unpack(_receive(connection, _ANSWER.size, deadline_s))
    after_s = now()
    if (magic, repeated) != (_MAGIC, own):
        raise ValueError("the answer is not from a launcher")
    return Offset(launcher_s - (before_s + after_s) / 2, (after_s - before_s) / 2)


def _receive(connection: socket.socket, size: int, deadline_s: float) -> bytes:
    """Read exactly `size` bytes. Raises OSError if they do not come in time."""
    received = b""
    while len(received) < size:
        connection.settimeout(max(1e-3, deadline_s - time.monotonic()))
        if not (part := connection.recv(size - len(received))):
            raise OSError("the connection is closed")
        received += part
    return received
