"""How fast a node computes and sends: ranks are threads here."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tfscaling.cluster.resolver import Cluster
from tfscaling.jobs.ports import ReservedPorts
from tfscaling.training import node_rates


def test_a_product_of_matrices_has_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ})
    assert node_rates.compute(1, duration_s=0.05) > 0


def test_each_rank_sends_to_the_next_and_their_ports_are_free_then() -> None:
    with ReservedPorts(3) as ports:
        jobs = {"worker": tuple(f"127.0.0.1:{port}" for port in ports.numbers)}
        ranks = [Cluster(jobs, "worker", k, k, None, "TF_CONFIG") for k in range(3)]
        for _ in range(2):
            with ThreadPoolExecutor(3) as pool:
                found = list(pool.map(lambda rank: node_rates.send(rank, 0.05), ranks))
            assert all(rate > 0 for rate in found)


def test_a_stranger_is_sent_away() -> None:
    import socket

    with ReservedPorts(2) as ports:
        jobs = {"worker": tuple(f"127.0.0.1:{port}" for port in ports.numbers)}
        first, second = (Cluster(jobs, "worker", k, k, None, "TF_CONFIG") for k in range(2))
        found: list[float] = []
        waiting = threading.Thread(target=lambda: found.append(node_rates.send(first, 0.05)))
        waiting.start()
        with node_rates._connected(("127.0.0.1", ports.numbers[0])) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
        found.append(node_rates.send(second, 0.05))
        waiting.join()
    assert len(found) == 2 and min(found) > 0
