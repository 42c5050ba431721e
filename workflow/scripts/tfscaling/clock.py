"""One clock for all ranks of a run: the launcher's. Layer 2 (job).

Each rank asks the launcher for its time when it starts and writes down how far its own host's clock
is off, and how well that is known. Source: F. Cristian, "Probabilistic clock synchronization"
(1989): the answer belongs to the middle of the exchange, so half the shortest round trip bounds the
error.
"""

from __future__ import annotations

import contextlib
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
_TIME = struct.Struct("!d")


@dataclass(frozen=True)
class Offset:
    """`offset_s` added to this host's time gives the launcher's, within `uncertainty_s`."""

    offset_s: float
    uncertainty_s: float


@contextlib.contextmanager
def served(host: str) -> Iterator[str]:
    """Answer with this host's time as long as the context lasts; gives HOST:PORT for the ranks."""
    with socket.create_server(("", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield f"{host}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(_TIMEOUT_S)


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # closed: the run is over
            return
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(_TIMEOUT_S)
        while connection.recv(1):
            connection.sendall(_TIME.pack(time.time()))


def measure(environ: Mapping[str, str]) -> Offset | None:
    """This host's offset from the launcher's clock; None without a clock or an answer.

    A run is not lost for that: its times are then the host's own.
    """
    host, _, port = environ.get(VARIABLE, "").rpartition(":")
    if not host:
        return None
    try:
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return min(
                (_exchange(connection) for _ in range(_EXCHANGES)),
                key=lambda found: found.uncertainty_s,
            )
    except (OSError, ValueError, struct.error):
        return None


def _exchange(connection: socket.socket) -> Offset:
    before_s = time.time()
    connection.sendall(b"?")
    answer = b""
    while len(answer) < _TIME.size:
        if not (part := connection.recv(_TIME.size - len(answer))):
            raise OSError("the launcher closed the connection")
        answer += part
    after_s = time.time()
    (launcher_s,) = _TIME.unpack(answer)
    return Offset(launcher_s - (before_s + after_s) / 2, (after_s - before_s) / 2)
