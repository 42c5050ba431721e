"""A rank's connection to its launcher, for events, heartbeats, the launcher's clock and the report.

The launcher sends a challenge, and the rank proves with it that it has the attempt's secret, which
itself is never sent. Each message after that is a letter, a length and a content. The other side is
`rank_messages`. A rank without a connection writes files instead.
"""

from __future__ import annotations

import hmac
import select
import socket
import struct
import threading

from tfscaling.record import clock
from tfscaling.record.clock import Offset

#: Where a rank finds its launcher: HOST:PORT, a space, and the secret of the attempt.
VARIABLE = "TFSCALING_LAUNCHER"
MAGIC, CHALLENGE_BYTES = b"tfscale1", 32
#: What a rank sends first: the magic number, its rank, and its proof.
HELLO = struct.Struct("!8sI32s")
#: What begins a message, and the answer to a question about the time.
HEAD, MOMENT = struct.Struct("!cI"), struct.Struct("!d")
EVENT, TIME, REPORT, COORDINATOR = b"E", b"T", b"R", b"C"
YES, NO = b"\1", b"\0"
#: A firewall that drops packets delays each rank's start by the first.
_CONNECT_S, _ANSWER_S = 2.0, 30.0
#: Without an acknowledgement for this long the connection is lost.
_LOST_S = 15


def proof(secret: str, challenge: bytes, rank: int) -> bytes:
    """Return the HMAC-SHA-256 by which a rank proves to the launcher that it has the secret.

    Args:
        secret: The attempt's secret, in hexadecimal digits.
        challenge: Random bytes from the launcher.
        rank: The rank.
    """
    return hmac.digest(bytes.fromhex(secret), challenge + rank.to_bytes(4, "big"), "sha256")


def connect(address: str, rank: int) -> LauncherConnection | None:
    """Return a connection from a rank to its launcher; None if it fails.

    Args:
        address: `HOST:PORT SECRET`, the value of the variable VARIABLE.
        rank: The rank.
    """
    try:
        return LauncherConnection(address, rank)
    except (OSError, ValueError, OverflowError):
        return None


class LauncherConnection:
    """A rank's TCP connection to its launcher. Several threads may call `post`.

    Args:
        address: `HOST:PORT SECRET`, the value of the variable VARIABLE.
        rank: The rank.

    Attributes:
        is_open: False once the connection is lost.

    Raises:
        OSError: The launcher cannot be reached.
    """

    def __init__(self, address: str, rank: int) -> None:
        place, _, secret = address.partition(" ")
        host, _, port = place.rpartition(":")
        self.is_open, self._lock = True, threading.Lock()
        self._socket = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
        self._socket.settimeout(_ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LOST_S * 1000)
        challenge = self._receive(CHALLENGE_BYTES)
        self._socket.sendall(HELLO.pack(MAGIC, rank, proof(secret, challenge, rank)))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def offset(self) -> Offset | None:
        """Return this process's offset from the launcher's clock; None if it cannot be measured."""
        try:
            return clock.measure(self._launcher_s)
        except OSError:
            self.is_open = False
            return None

    def _launcher_s(self) -> float:
        """Return the launcher's time in seconds since the epoch."""
        self._send(TIME)
        return float(MOMENT.unpack(self._receive(MOMENT.size))[0])

    def post(self, event: str) -> bool:
        """Send an event and return whether the connection is open.

        False also means that earlier events may be lost.
        """
        if self.is_open:
            try:
                self._send(EVENT, event.encode())
            except OSError:
                self.is_open = False
        return self.is_open

    def report(self, content: bytes) -> None:
        """Send the rank's report and wait for the acknowledgement.

        Raises:
            OSError: The launcher has not acknowledged the report.
        """
        self._send(REPORT, content)
        self._receive(len(YES))

    def has_ended_well(self) -> bool:
        """Wait until rank 0, the coordinator, has ended; return whether it succeeded.

        Raises:
            OSError: The connection is lost.
        """
        self._send(COORDINATOR)
        self._socket.settimeout(None)
        return self._receive(len(YES)) == YES

    def is_given_up(self, limit_s: float) -> bool:
        """Wait `limit_s` seconds; return True as soon as the launcher ends hanging ranks."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        if not waiting.poll(limit_s * 1000):
            return False
        try:
            return self._receive(len(YES)) == YES
        except OSError:  # the launcher has ended, or is cut off
            self.is_open = False
            return False

    def _send(self, kind: bytes, content: bytes = b"") -> None:
        with self._lock:
            self._socket.sendall(HEAD.pack(kind, len(content)) + content)

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            if not (part := self._socket.recv(size - len(received))):
                raise ConnectionResetError("the launcher has closed the connection")
            received += part
        return received
