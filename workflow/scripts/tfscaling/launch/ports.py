"""TCP ports that stay ours from the choice until TensorFlow binds them."""

from __future__ import annotations

import socket
from types import TracebackType


class ReservedPorts:
    """Holds `count` free ports of this machine; a context manager.

    A port that is probed and closed can be taken by anyone before TensorFlow binds it. So each is
    kept bound, but not listening, with SO_REUSEADDR: Linux then neither hands it out for port 0 or
    for an outgoing connection nor lets a process without SO_REUSEADDR bind it, while TensorFlow's
    server, which sets SO_REUSEADDR, can bind it and listen.
    """

    def __init__(self, count: int) -> None:
        self._sockets: list[socket.socket] = []
        for _ in range(count):
            held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("", 0))
            self._sockets.append(held)

    @property
    def numbers(self) -> list[int]:
        return [held.getsockname()[1] for held in self._sockets]

    def __enter__(self) -> ReservedPorts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for held in self._sockets:
            held.close()
