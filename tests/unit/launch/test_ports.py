"""Reserved ports stay ours, and TensorFlow's server can still take them."""

from __future__ import annotations

import errno
import socket

import pytest
from builders import run_python
from tfscaling.launch.ports import ReservedPorts


def bind(port: int, reuse: bool = False) -> socket.socket:
    other = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if reuse:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        other.bind(("127.0.0.1", port))
    except OSError:
        other.close()
        raise
    return other


def test_as_many_different_ports_as_asked_that_stay_the_same() -> None:
    with ReservedPorts(20) as ports:
        assert len(set(ports.numbers)) == 20
        assert min(ports.numbers) >= 1024
        assert ports.numbers == ports.numbers


def test_nobody_else_can_bind_a_held_port() -> None:
    with ReservedPorts(1) as ports, pytest.raises(OSError, match="in use") as caught:
        bind(ports.numbers[0])
    assert caught.value.errno == errno.EADDRINUSE


def test_the_system_never_hands_out_a_held_port() -> None:
    with ReservedPorts(50) as ports:
        handed_out: list[socket.socket] = []
        try:
            for _ in range(800):  # kept open, so that each is another one
                handed_out.append(bind(0))
            taken = {held.getsockname()[1] for held in handed_out}
        finally:
            for held in handed_out:
                held.close()
        assert len(taken) == 800
        assert taken.isdisjoint(ports.numbers)


def test_a_server_that_reuses_addresses_can_bind_and_serve_a_held_port() -> None:
    with ReservedPorts(1) as ports, bind(ports.numbers[0], reuse=True) as server:
        server.listen()
        with socket.create_connection(("127.0.0.1", ports.numbers[0]), timeout=300) as client:
            accepted, _ = server.accept()
            client.sendall(b"hello")
            with accepted:
                assert accepted.recv(5) == b"hello"


def test_a_connection_to_a_held_port_is_refused_rather_than_left_hanging() -> None:
    with ReservedPorts(1) as ports, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports.numbers[0]), timeout=300)


def test_a_port_is_free_afterwards() -> None:
    with ReservedPorts(1) as ports:
        (port,) = ports.numbers
    with bind(port) as other:
        assert other.getsockname()[1] == port


def test_ports_are_free_after_an_error() -> None:
    ports = ReservedPorts(1)
    (port,) = ports.numbers
    with pytest.raises(RuntimeError, match="launch failed"), ports:
        raise RuntimeError("launch failed")
    with bind(port) as other:
        assert other.getsockname()[1] == port


SERVER = """
import sys
import tensorflow as tf
cluster = tf.train.ClusterSpec({"worker": ["127.0.0.1:" + sys.argv[1]]})
server = tf.distribute.Server(cluster, job_name="worker", task_index=0)
print(server.target)
"""


def test_tensorflows_server_can_bind_a_port_while_it_is_held() -> None:
    with ReservedPorts(1) as ports:
        (port,) = ports.numbers
        done = run_python(SERVER, str(port), CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"grpc://127.0.0.1:{port}"
