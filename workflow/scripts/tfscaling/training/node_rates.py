"""How fast a rank's node computes and sends: a few seconds before a run."""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time

from msgspec.structs import asdict as fields_of

from tfscaling.cluster.resolver import Cluster
from tfscaling.jobs.rank_process import RankContext
from tfscaling.records.node_check import NodeRate
from tfscaling.records.rank_report import CheckedRank

#: So long each of the two is measured.
COMPUTE_S, SEND_S = 1.0, 0.5
#: So long ranks wait for their neighbours.
MEET_S = 60.0
#: Of the matrices: enough work for the threads, and some products in the time.
_SIZE, _SIZE_OF_MANY, _MANY = 512, 2048, 8
_CHUNK = bytes(1 << 20)


def run(context: RankContext, threads: int) -> CheckedRank:
    """Measure, with so many threads, while the other ranks do. Raises OSError if one is missing."""
    cluster = context.cluster
    host, to_host = (_address(cluster, rank)[0] for rank in (cluster.rank, cluster.rank + 1))
    mb_per_s = send(cluster)  # first: then all of them have begun
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


def send(cluster: Cluster, duration_s: float = SEND_S) -> float:
    """Send to the next rank while the one before sends to this: 10^6 bytes per second.

    Raises OSError if the next rank does not come.
    """
    word = json.dumps(cluster.jobs).encode()  # of this job, and of no other
    with socket.create_server(("", _address(cluster, cluster.rank)[1])) as server:
        server.settimeout(MEET_S)
        receiver = threading.Thread(target=_receive, args=(server, word), daemon=True)
        receiver.start()
        found = _sent(_address(cluster, cluster.rank + 1), word, duration_s)
        receiver.join(MEET_S)
    return found


def _address(cluster: Cluster, rank: int) -> tuple[str, int]:
    """Host and port of a rank; after the last comes the first."""
    addresses = [each for job in sorted(cluster.jobs) for each in cluster.jobs[job]]
    host, _, port = addresses[rank % len(addresses)].rpartition(":")
    return host, int(port)


def _sent(address: tuple[str, int], word: bytes, duration_s: float) -> float:
    """The rate at which the other one has received; that one's port is free afterwards."""
    with _connected(address) as connection:
        connection.sendall(word)
        begun_s = time.perf_counter()
        while time.perf_counter() - begun_s < duration_s:
            connection.sendall(_CHUNK)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile().readline()
        taken_s = time.perf_counter() - begun_s
    if not answer:
        raise ConnectionError(f"{address[0]}:{address[1]} has closed the connection")
    return 1e-6 * int(answer) / taken_s


def _connected(address: tuple[str, int]) -> socket.socket:
    deadline_s = time.monotonic() + MEET_S
    while True:
        try:
            connection = socket.create_connection(address, timeout=MEET_S)
        except ConnectionRefusedError:  # it does not listen yet
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
        else:
            return connection


def _receive(server: socket.socket, word: bytes) -> None:
    """Count what the rank before sends and tell it; others are sent away."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connection.settimeout(MEET_S)
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
