"""Rates of a node: matrix products, and sending to the next rank."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from builders import run_python
from tfscaling.cluster.resolver import Cluster
from tfscaling.launch.launchers import ReservedPorts
from tfscaling.train import node_rates

THREADS = """
import os, sys
from tfscaling.train import node_rates
assert "numpy" not in sys.modules
assert node_rates.compute(int(sys.argv[1]), duration_s=0.05) > 0
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("threads", sorted({1, min(2, len(os.sched_getaffinity(0)))}))
def test_matrices_are_multiplied_by_the_threads_that_are_asked_for(threads: int) -> None:
    done = run_python(THREADS, str(threads))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == threads


MEET_S = 60.0


def ring(ports: ReservedPorts) -> list[Cluster]:
    """The ranks of a job on this machine, one for each port."""
    jobs = {"worker": tuple(f"127.0.0.1:{port}" for port in ports.numbers)}
    return [Cluster(jobs, "worker", k, k, None, "TF_CONFIG") for k in range(len(ports.numbers))]


def test_each_rank_sends_to_the_next_and_their_ports_are_free_then() -> None:
    with ReservedPorts(3) as ports:
        ranks = ring(ports)
        for _ in range(2):
            with ThreadPoolExecutor(3) as pool:
                found = list(pool.map(lambda rank: node_rates.send(rank, MEET_S, 0.05), ranks))
            assert all(rate > 0 for rate in found)


def test_a_stranger_is_sent_away() -> None:
    with ReservedPorts(2) as ports:
        first, second = ring(ports)
        found: list[float] = []
        waiting = threading.Thread(
            target=lambda: found.append(node_rates.send(first, MEET_S, 0.05))
        )
        waiting.start()
        with node_rates._connected(second, 0, time.monotonic() + MEET_S) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
        found.append(node_rates.send(second, MEET_S, 0.05))
        waiting.join()
    assert len(found) == 2 and min(found) > 0


def test_a_rank_that_begins_late_finds_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before it has been refused, the one after it has sent all that it has to."""
    refused, sent = threading.Event(), threading.Event()
    call, send = socket.create_connection, node_rates._sent

    def calling(address: tuple[str, int], timeout: float) -> socket.socket:
        try:
            return call(address, timeout)
        except ConnectionRefusedError:
            if address[1] == ports.numbers[2]:
                refused.set()
            raise

    def sending(*given: Any) -> float:
        rate = send(*given)
        sent.set()
        return rate

    monkeypatch.setattr(socket, "create_connection", calling)
    monkeypatch.setattr(node_rates, "_sent", sending)
    with ReservedPorts(3) as ports, ThreadPoolExecutor(3) as pool:
        *early, late = ring(ports)
        begun = [pool.submit(node_rates.send, rank, MEET_S, 0.05) for rank in early]
        assert refused.wait(60) and sent.wait(60)
        assert not any(rank.done() for rank in begun)
        begun.append(pool.submit(node_rates.send, late, MEET_S, 0.05))
        assert all(rank.result(600) > 0 for rank in begun)


def test_a_host_that_does_not_answer_yet_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    name = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    errors: list[OSError] = [name, OSError(errno.EHOSTUNREACH, "No route"), TimeoutError()]
    call = socket.create_connection

    def calling(address: tuple[str, int], timeout: float) -> socket.socket:
        if errors:
            raise errors.pop()
        return call(address, timeout)

    monkeypatch.setattr(socket, "create_connection", calling)
    with ReservedPorts(2) as ports, ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda rank: node_rates.send(rank, MEET_S, 0.05), ring(ports)))
    assert min(found) > 0 and not errors


def test_a_rank_that_does_not_come_is_named_with_its_host() -> None:
    with ReservedPorts(2) as ports:
        jobs = {"worker": (f"n1:{ports.numbers[0]}", f"localhost:{ports.numbers[1]}")}
        alone = Cluster(jobs, "worker", 0, 0, None, "slurm")
        with pytest.raises(TimeoutError, match="1 on localhost .*[Rr]efused"):
            node_rates.send(alone, 0.2, 0.05)
