"""All-reduces on two logical devices, and rates of a node."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from ranks import run_tensorflow
from tfscaling.cluster.resolver import Cluster
from tfscaling.launch.launchers import ReservedPorts
from tfscaling.train import all_reduce_timing
from tfscaling.train.all_reduce_timing import contribution, total_of


def test_a_product_of_matrices_has_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ})
    assert all_reduce_timing.compute(1, duration_s=0.05) > 0


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
                found = list(
                    pool.map(lambda rank: all_reduce_timing.send(rank, MEET_S, 0.05), ranks)
                )
            assert all(rate > 0 for rate in found)


def test_a_stranger_is_sent_away() -> None:
    with ReservedPorts(2) as ports:
        first, second = ring(ports)
        found: list[float] = []
        waiting = threading.Thread(
            target=lambda: found.append(all_reduce_timing.send(first, MEET_S, 0.05))
        )
        waiting.start()
        with all_reduce_timing._connected(second, 0, time.monotonic() + MEET_S) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
        found.append(all_reduce_timing.send(second, MEET_S, 0.05))
        waiting.join()
    assert len(found) == 2 and min(found) > 0


def test_a_rank_that_begins_late_finds_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before it has been refused, the one after it has sent all that it has to."""
    refused, sent = threading.Event(), threading.Event()
    call, send = socket.create_connection, all_reduce_timing._sent

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
    monkeypatch.setattr(all_reduce_timing, "_sent", sending)
    with ReservedPorts(3) as ports, ThreadPoolExecutor(3) as pool:
        *early, late = ring(ports)
        begun = [pool.submit(all_reduce_timing.send, rank, MEET_S, 0.05) for rank in early]
        assert refused.wait(60) and sent.wait(60)
        assert not any(rank.done() for rank in begun)
        begun.append(pool.submit(all_reduce_timing.send, late, MEET_S, 0.05))
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
        found = list(pool.map(lambda rank: all_reduce_timing.send(rank, MEET_S, 0.05), ring(ports)))
    assert min(found) > 0 and not errors


def test_a_rank_that_does_not_come_is_named_with_its_host() -> None:
    with ReservedPorts(2) as ports:
        jobs = {"worker": (f"n1:{ports.numbers[0]}", f"localhost:{ports.numbers[1]}")}
        alone = Cluster(jobs, "worker", 0, 0, None, "slurm")
        with pytest.raises(TimeoutError, match="1 on localhost .*[Rr]efused"):
            all_reduce_timing.send(alone, 0.2, 0.05)


CODE = """
import json, sys
from tfscaling.train import all_reduce_timing as all_reduce, strategies
names = strategies.configure(2, "logical", 1)
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy(names)
barrier = all_reduce.AllReduce(strategy, [((1,), "float32")]).call
found = {}
for name, shapes in {
    "small": [((5,), "float32")],
    "large": [((1 << 22,), "float32")],
    "list": [((3, 2), "float32"), ((), "float32")],
    "half": [((4,), "float16")],
    "rounded": [((1000,), "bfloat16")],
}.items():
    reduction = all_reduce.AllReduce(strategy, shapes)
    durations = reduction.durations(3, barrier)
    sums = [[v.numpy().tolist() for v in strategy.experimental_local_results(total)]
            for total in reduction.call()] if name not in ("large", "rounded") else None
    found[name] = [reduction.bytes, reduction.per_call, durations, sums]
for name, shape in {"float32": (5,), "bfloat16": (1000,)}.items():
    reduction = all_reduce.AllReduce(strategy, [(shape, name)])
    reduction._sum = lambda values: [tf.identity(value) for value in values]  # sums nothing
    try:
        reduction.durations(1, barrier)
    except all_reduce.WrongSumError as error:
        found["wrong " + name] = str(error)
shapes = all_reduce.gradient_shapes("mnist_cnn")
found["gradient"] = all_reduce.AllReduce(strategy, shapes).bytes, shapes
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done: subprocess.CompletedProcess[str] = run_tensorflow(CODE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "size", "per_call"), [("small", 20, 10), ("large", 1 << 24, 1), ("rounded", 2000, 10)]
)
def test_small_payloads_are_reduced_many_times_in_a_call(
    name: str, size: int, per_call: int, found: dict[str, Any]
) -> None:
    assert found[name][:2] == [size, per_call]


def test_every_repetition_but_the_warm_up_has_a_duration(found: dict[str, Any]) -> None:
    for name in ("small", "large", "list", "half", "rounded"):
        assert len(found[name][2]) == 3
        assert min(found[name][2]) > 0


def test_every_device_has_the_sum_of_both(found: dict[str, Any]) -> None:
    """(1 + j) + (2 + j) for element j, also after many all-reduces one after the other."""
    assert found["small"][3] == [[[3, 5, 7, 9, 11]] * 2]
    assert found["list"][3] == [[[[3, 5], [7, 9], [11, 13]]] * 2, [3, 3]]
    assert found["half"][3] == [[[1, 2, 3, 4]] * 2]  # each of one device alone
    assert (found["list"][0], found["half"][0]) == (6 * 4 + 4, 4 * 2)


def test_a_wrong_sum_is_an_error_that_says_what_is_wrong(found: dict[str, Any]) -> None:
    assert "5 of 5 elements" in found["wrong float32"]
    assert "500 of 1000 elements" in found["wrong bfloat16"]


def test_the_gradient_has_the_shapes_of_the_models_variables(found: dict[str, Any]) -> None:
    size, shapes = found["gradient"]
    assert size == 2_770_634 * 4
    assert [[3, 3, 1, 32], "float32"] in shapes


@pytest.mark.parametrize("replicas", [1, 2, 97, 300])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_right_sums_are_exact_and_one_without_a_replica_is_not(
    dtype: type[np.floating], replicas: int
) -> None:
    shape, size = (31, 10), np.dtype(dtype).itemsize
    parts = [contribution(shape, size, replica, replicas) for replica in range(replicas)]
    total = np.zeros(shape, dtype)
    for part in parts:
        assert (part.astype(dtype) == part).all()
        total += part.astype(dtype)
    expected = total_of(shape, size, replicas)
    assert total.tolist() == expected.tolist()
    for part in parts:
        assert (total - part.astype(dtype) != expected).any()
