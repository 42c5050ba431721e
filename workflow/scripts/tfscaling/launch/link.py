"""A rank's connection to its launcher, for events, heartbeats, the launcher's clock and the report.

The launcher sends a challenge, and the rank proves with it that it has the attempt's secret, which
itself is never sent. Each message after that is a letter, a length and a content. `rank_messages`
has the launcher's side. A rank without a connection writes files instead.
"""

from __future__ import annotations

import fcntl
import hmac
import select
import socket
import struct
import termios
import threading
import time

from tfscaling.record import clock
from tfscaling.record.clock import Offset

#: Environment variable by which a rank finds its launcher: HOST:PORT, a space, and the attempt's
#: secret.
VARIABLE = "TFSCALING_LAUNCHER"
MAGIC, CHALLENGE_BYTES = b"tfscale1", 32
#: A rank's first message: the magic number, its rank, and its proof.
HELLO = struct.Struct("!8sI32s")
#: Beginning of a message: its letter and the length of its content. And the answer to TIME: the
#: launcher's time.
HEAD, MOMENT = struct.Struct("!cI"), struct.Struct("!d")
EVENT, TIME, REPORT, COORDINATOR = b"E", b"T", b"R", b"C"
YES, NO = b"\1", b"\0"
#: Longest waits in seconds, for a connection and for an answer. A firewall that drops packets
#: delays each rank's start by the first.
_CONNECT_S, _ANSWER_S = 2.0, 30.0
#: Seconds without an acknowledgement after which the kernel gives up the connection.
_LOST_S = 15
#: The kernel's number of bytes that wait for an acknowledgement (tcp(7), SIOCOUTQ), and the pause
#: between two queries.
_QUEUED_BYTES, _DELIVERY_POLL_S = struct.Struct("i"), 0.002


def compute_proof(secret: str, challenge: bytes, rank: int) -> bytes:
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
        address: `HOST:PORT SECRET`, the value of the environment variable `VARIABLE`.
        rank: The rank.
    """
    try:
        return LauncherConnection(address, rank)
    except (OSError, ValueError, OverflowError):
        return None


class LauncherConnection:
    """A rank's TCP connection to its launcher. Several threads may call `post`.

    Args:
        address: `HOST:PORT SECRET`, the value of the environment variable `VARIABLE`.
        rank: The rank.

    Attributes:
        is_open: Whether the connection still works; False once it is lost.

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
        self._socket.sendall(HELLO.pack(MAGIC, rank, compute_proof(secret, challenge, rank)))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def measure_offset(self) -> Offset | None:
        """Return this clock's offset from the launcher's clock; None if it cannot be measured."""
        try:
            return clock.measure_offset(self._request_time_s)
        except OSError:
            self.is_open = False
            return None

    def _request_time_s(self) -> float:
        """Request the launcher's time; return it in seconds since the epoch."""
        self._send(TIME)
        return float(MOMENT.unpack(self._receive(MOMENT.size))[0])

    def post(self, event: str) -> bool:
        """Send an event without waiting for an answer; return whether the connection still works.

        If it does not, earlier events may be lost, too.

        Args:
            event: The event as a line of JSON.
        """
        if self.is_open:
            try:
                self._send(EVENT, event.encode())
            except OSError:
                self.is_open = False
        return self.is_open

    def send_report(self, content: bytes) -> None:
        """Send the rank's report and wait for the acknowledgement.

        Args:
            content: The report as JSON.

        Raises:
            OSError: The launcher has not acknowledged the report.
        """
        self._send(REPORT, content)
        self._receive(len(YES))

    def wait_for_coordinator(self) -> bool:
        """Wait until rank 0, the coordinator, has ended; return whether it succeeded.

        Raises:
            OSError: The connection is lost.
        """
        self._send(COORDINATOR)
        self._socket.settimeout(None)
        return self._receive(len(YES)) == YES

    def wait_until_delivered(self) -> bool:
        """Wait until the launcher's host has acknowledged everything that was sent.

        Returns:
            False if the connection is lost, or if nothing was acknowledged for `_LOST_S` seconds.
        """
        until_s = time.monotonic() + _LOST_S
        while self.is_open and time.monotonic() < until_s:
            try:
                (waiting,) = _QUEUED_BYTES.unpack(
                    fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(_QUEUED_BYTES.size))
                )
                self._socket.getpeername()  # fails if the connection is lost
                if not waiting:
                    # the kernel discards what it could not send
                    return not self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            except OSError:
                break
            time.sleep(_DELIVERY_POLL_S)
        self.is_open = False
        return False

    def wait_for_give_up(self, limit_s: float) -> bool:
        """Wait at most `limit_s` seconds for the message that the launcher ends hanging ranks.

        Returns:
            True as soon as the message has come; False after `limit_s`, or if the connection is
            lost.
        """
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
        """Send a message: its letter, such as EVENT, and its content."""
        with self._lock:
            self._socket.sendall(HEAD.pack(kind, len(content)) + content)

    def _receive(self, size: int) -> bytes:
        """Wait for `size` bytes and return them.

        Raises:
            OSError: The connection is closed before.
        """
        received = b""
        while len(received) < size:
            if not (part := self._socket.recv(size - len(received))):
                raise ConnectionResetError("the launcher has closed the connection")
            received += part
        return received
