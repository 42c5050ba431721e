"""Rates of a rank's node: how fast it computes, and how fast it sends to the next rank.

NumPy is loaded when the number of its threads is known.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time

from msgspec.structs import asdict as fields_of

from tfscaling.cluster.resolver import Cluster
from tfscaling.launch.rank_process import RankContext
from tfscaling.record.rank_report import CheckedRank, NodeRate

#: Durations of the two measurements.
COMPUTE_S, SEND_S = 1.0, 0.5
#: Longest wait of two ranks that have met, and longest attempt to meet.
_ANSWER_S, _CALL_S = 60.0, 10.0
_CALL_INTERVAL_S = 0.05
#: Of the matrices: enough work for the threads, and some products in the time.
_SIZE, _SIZE_OF_MANY, _MANY = 512, 2048, 8
_CHUNK = bytes(1 << 20)


def rates_of_node(context: RankContext, threads: int, meet_s: float) -> CheckedRank:
    """Measure with `threads` threads, at the same time as the other ranks.

    Neighbours may come `meet_s` later. Raises OSError if one does not.
    """
    cluster = context.cluster
    host, to_host = (_address(cluster, rank)[0] for rank in (cluster.rank, cluster.rank + 1))
    mb_per_s = send(cluster, meet_s)  # first: then all of them have begun
    context.events.add("sent", mb_per_s=mb_per_s)
    gflop_per_s = compute(threads)
    place = context.place()
    rate = NodeRate(
        rank=cluster.rank,
        host=host,  # as Slurm calls it
        gflop_per_s=gflop_per_s,
        cpu_mhz=place.host_facts.cpu_mhz,
        to_host=to_host,
        mb_per_s=mb_per_s,
    )
    return CheckedRank(**fields_of(place), rate=rate)


def compute(threads: int, duration_s: float = COMPUTE_S) -> float:
    """10^9 operations per second of matrix products in float32, over this time and not the best."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)  # read when NumPy is loaded
    import numpy as np

    size = _SIZE if threads < _MANY else _SIZE_OF_MANY
    matrix = np.random.default_rng(1).random((size, size), dtype=np.float32)
    out = matrix @ matrix
    products, begun_s = 0, time.perf_counter()
    while (taken_s := time.perf_counter() - begun_s) < duration_s:
        np.matmul(matrix, matrix, out=out)
        products += 1
    return 2e-9 * size**3 * products / taken_s


def send(cluster: Cluster, meet_s: float, duration_s: float = SEND_S) -> float:
    """Send to the next rank while the one before sends to this: 10^6 bytes per second.

    Each may come `meet_s` later. Raises OSError if the next one does not.
    """
    word = json.dumps(cluster.jobs).encode()  # of this job, and of no other
    until_s = time.monotonic() + meet_s
    with socket.create_server(("", _address(cluster, cluster.rank)[1])) as server:
        server.settimeout(meet_s)
        receiver = threading.Thread(target=_receive, args=(server, word), daemon=True)
        receiver.start()
        connection = _connected(cluster, cluster.rank + 1, until_s)
        found = _sent(connection, word, duration_s)
        # the one before may begin last of all
        receiver.join(max(_ANSWER_S, until_s - time.monotonic()))
    return found


def _address(cluster: Cluster, rank: int) -> tuple[str, int]:
    """Host and port of a rank; after the last comes the first."""
    addresses = [each for job in sorted(cluster.jobs) for each in cluster.jobs[job]]
    host, _, port = addresses[rank % len(addresses)].rpartition(":")
    return host, int(port)


def _sent(connection: socket.socket, word: bytes, duration_s: float) -> float:
    """The rate at which the other one has received; that one's port is free afterwards."""
    with connection:
        host, port = connection.getpeername()[:2]
        connection.sendall(word)
        begun_s = time.perf_counter()
        while time.perf_counter() - begun_s < duration_s:
            connection.sendall(_CHUNK)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile().readline()
        taken_s = time.perf_counter() - begun_s
    if not answer:
        raise ConnectionError(f"{host}:{port} has closed the connection")
    return 1e-6 * int(answer) / taken_s


def _connected(cluster: Cluster, rank: int, until_s: float) -> socket.socket:
    """A connection to this rank, which may not listen yet, on a host that may not answer yet.

    Raises TimeoutError, with the host, if there is none by `until_s` of the monotonic clock.
    """
    address, begun_s = _address(cluster, rank), time.monotonic()
    while True:
        try:
            left_s = max(_CALL_INTERVAL_S, until_s - time.monotonic())
            connection = socket.create_connection(address, min(left_s, _CALL_S))
        except OSError as error:
            if time.monotonic() >= until_s:
                number = rank % cluster.num_tasks
                text = f"rank {number} on {address[0]} was not reached at port {address[1]} in"
                taken_s = time.monotonic() - begun_s
                raise TimeoutError(f"{text} {taken_s:.0f} s: {error}") from error
            time.sleep(_CALL_INTERVAL_S)
        else:
            connection.settimeout(_ANSWER_S)
            return connection


def _receive(server: socket.socket, word: bytes) -> None:
    """Count what the rank before sends and tell it; others are sent away."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connection.settimeout(_ANSWER_S)
        with connection, connection.makefile("rb") as incoming:
            try:
                if not hmac.compare_digest(incoming.read(len(word)), word):
                    continue
                received, buffer = 0, bytearray(1 << 20)
                while count := incoming.readinto(buffer):
                    received += count
                connection.sendall(f"{received}\n".encode())
            except OSError:
                continue
            return
