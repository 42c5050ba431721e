#!/usr/bin/env python3
"""The launcher's connections to ranks compared with multiprocessing.connection.

Prints after how many seconds each side served a rank, closed a peer or gave up a host. Peers
without the secret send nothing, or too slowly. The launcher closes them after 30 s. Four minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError, connection
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "workflow/scripts"))

from tfscaling.launch import link  # noqa: E402
from tfscaling.launch.link import LauncherConnection  # noqa: E402
from tfscaling.launch.rank_messages import RankMessageServer  # noqa: E402

KEY = bytes(32)
SILENT_PEERS = 200
#: Time limit of each read of a thread, in seconds, in the case with one byte per second.
READ_LIMIT_S = 2
LIBRARY, LAUNCHER = "multiprocessing.connection", "launcher"


def seconds_until_served(serve: Callable[[], object], wait_s: float) -> str:
    """Return after how many seconds `serve` returned in a thread, as text with the unit."""
    thread, start_s = threading.Thread(target=serve, daemon=True), time.monotonic()
    thread.start()
    thread.join(wait_s)
    took_s = time.monotonic() - start_s
    return f"not within {wait_s:g} s" if thread.is_alive() else f"{took_s:.1f} s"


def start(function: Callable[[], object]) -> None:
    """Run a function in a thread that does not keep this process alive."""
    threading.Thread(target=function, daemon=True).start()


def accept_each(listener: connection.Listener) -> None:
    """Accept and authenticate connections one after the other, for ever."""
    held = []
    while True:
        with contextlib.suppress(OSError, EOFError, AuthenticationError):
            held.append(listener.accept())


def accept_in_threads(listener: connection.Listener, held: list[str]) -> None:
    """Accept connections, and authenticate each in a thread, for ever."""

    def authenticate(peer: connection.Connection) -> None:
        held.append("peer")
        with contextlib.suppress(OSError, EOFError, AuthenticationError):
            connection.deliver_challenge(peer, KEY)
            connection.answer_challenge(peer, KEY)
        held.pop()

    while True:
        peer = listener.accept()
        start(lambda peer=peer: authenticate(peer))  # type: ignore[misc]


@contextlib.contextmanager
def launcher() -> Iterator[tuple[RankMessageServer, str]]:
    """Yield the launcher's server and its address with the secret."""
    with tempfile.TemporaryDirectory() as folder:
        server = RankMessageServer(Path(folder))
        with server.serve("127.0.0.1", 2) as address:
            yield server, address


def port_of(address: str) -> int:
    """Return the port of an address of the launcher."""
    return int(address.split()[0].rpartition(":")[2])


def silent_peer_first(wait_s: float) -> dict[str, str]:
    """Serve a rank after a peer that connects and sends nothing."""
    listener = connection.Listener(("127.0.0.1", 0), authkey=KEY)
    start(lambda: accept_each(listener))
    found = {}
    with socket.create_connection(listener.address):
        time.sleep(0.1)
        client = lambda: connection.Client(listener.address, authkey=KEY)  # noqa: E731
        found[LIBRARY] = seconds_until_served(client, wait_s)
    with launcher() as (_, address), socket.create_connection(("127.0.0.1", port_of(address))):
        served = lambda: LauncherConnection(address, 0).measure_offset()  # noqa: E731
        found[LAUNCHER] = seconds_until_served(served, wait_s)
    return found


def half_a_message(wait_s: float) -> dict[str, str]:
    """Serve a rank after a rank that has sent half of a message's length."""
    listener = connection.Listener(("127.0.0.1", 0))
    clients = [connection.Client(listener.address) for _ in range(2)]
    peers = [listener.accept() for _ in range(2)]
    os.write(clients[0].fileno(), b"\0\0")
    clients[1].send_bytes(b"a message")

    def serve() -> None:
        for peer in connection.wait(peers):
            assert isinstance(peer, connection.Connection)
            with contextlib.suppress(OSError):  # it is closed in the end
                peer.recv_bytes()

    found = {LIBRARY: seconds_until_served(serve, wait_s)}
    with launcher() as (_, address):
        LauncherConnection(address, 1)._socket.sendall(link.HEAD.pack(link.TIME, 0)[:2])
        served = lambda: LauncherConnection(address, 0).measure_offset()  # noqa: E731
        found[LAUNCHER] = seconds_until_served(served, wait_s)
    return found


def one_byte_per_second(wait_s: float) -> dict[str, str]:
    """Close a peer that sends one byte per second; the time limit of a read is two seconds."""
    listener = connection.Listener(("127.0.0.1", 0))
    with socket.create_connection(listener.address) as slow:
        peer = listener.accept()
        with socket.socket(fileno=os.dup(peer.fileno())) as same:
            limit = struct.pack("ll", READ_LIMIT_S, 0)
            same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

        def send() -> None:
            with contextlib.suppress(OSError):  # it is closed
                for byte in struct.pack("!i", 250) + bytes(250):
                    slow.send(bytes([byte]))
                    time.sleep(1)

        def authenticate() -> None:
            with contextlib.suppress(OSError, EOFError, AuthenticationError):
                connection.deliver_challenge(peer, KEY)

        start(send)
        found = {LIBRARY: f"closed: {seconds_until_served(authenticate, wait_s)}"}
    with (
        launcher() as (_, address),
        socket.create_connection(("127.0.0.1", port_of(address))) as slow,
    ):

        def trickle() -> None:
            slow.settimeout(1)
            with contextlib.suppress(OSError):
                while slow.send(b"\0"):
                    with contextlib.suppress(TimeoutError):
                        if not slow.recv(100):
                            return

        found[LAUNCHER] = f"closed: {seconds_until_served(trickle, wait_s)}"
    return found


def silent_peers(wait_s: float) -> dict[str, str]:
    """Count what many silent peers hold after the longest wait."""
    listener = connection.Listener(("127.0.0.1", 0), backlog=SILENT_PEERS)
    held: list[str] = []
    start(lambda: accept_in_threads(listener, held))
    with contextlib.ExitStack() as peers, launcher() as (server, address):
        for port in [listener.address[1], port_of(address)]:
            for _ in range(SILENT_PEERS):
                peers.enter_context(socket.create_connection(("127.0.0.1", int(port))))
        threads = threading.active_count()
        time.sleep(wait_s)
        return {
            LIBRARY: f"{len(held)} threads and connections ({threads} threads at first)",
            LAUNCHER: f"{len(server._strangers)} connections in one thread",
        }


def dropped_packets(wait_s: float) -> dict[str, str]:
    """Give up a host whose firewall drops packets, as a listener with a full queue does."""
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        place = listener.getsockname()
        client = lambda: connection.Client(place, authkey=KEY)  # noqa: E731
        rank = lambda: link.connect(f"127.0.0.1:{place[1]} {'0' * 64}", 0)  # noqa: E731
        found = {LIBRARY: seconds_until_served(client, wait_s)}
        return found | {LAUNCHER: seconds_until_served(rank, wait_s)}


def main() -> None:
    """Print the cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wait-s", type=float, default=35, help="longest wait of each case")
    wait_s = parser.parse_args().wait_s
    for case in (
        silent_peer_first,
        half_a_message,
        one_byte_per_second,
        silent_peers,
        dropped_packets,
    ):
        print((case.__doc__ or "").strip())
        with contextlib.redirect_stdout(io.StringIO()):  # the launcher's warnings
            found = case(wait_s)
        for side, result in found.items():
            print(f"  {side:27} {result}", flush=True)
    os._exit(0)  # threads of the standard library still wait


if __name__ == "__main__":
    main()
