"""The ranks of an MPI job meet at the launcher's: the lines that MPICH's client sends."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading

import pytest
from tfscaling.cluster import process_management


class Client:
    """A rank's side of the protocol."""

    def __init__(self, address: str, rank: int) -> None:
        environ = process_management.pmi_variables(address, rank)
        host, port = environ["PMI_PORT"].split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=300)
        self.lines = self.socket.makefile("rw")
        assert self.ask(f"initack pmiid={environ['PMI_ID']}") == "cmd=initack rc=0"
        self.place = [self.lines.readline().strip() for _ in range(3)]

    def ask(self, command: str) -> str:
        self.lines.write(f"cmd={command}\n")
        self.lines.flush()
        return self.lines.readline().strip()

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


def test_two_jobs_on_this_machine_share_no_memory() -> None:
    """MPICH names the ranks' memory after the space of their job: a killed job leaves its own."""
    with process_management.pmi_server(1) as one, process_management.pmi_server(1) as other:
        clients = [Client(address, 0) for address in (one, other)]
        names = {client.ask("get_my_kvsname") for client in clients}
        for client in clients:
            client.close()
    assert len(names) == 2


@pytest.mark.timeout(300)
def test_a_rank_that_waits_is_let_go_when_the_job_ends() -> None:
    with process_management.pmi_server(2) as address:
        client = Client(address, 0)
        client.lines.write("cmd=barrier_in\n")
        client.lines.flush()
    assert client.lines.readline() == ""
    client.close()


#: A process of another user: opens connections, writes to the first one, and prints what it gets.
STRANGER = """
import encodings.idna, os, socket, sys
os.setuid(65534)
host, port = sys.argv[1].split(":")
held = [socket.create_connection((host, int(port)), timeout=300) for _ in range(int(sys.argv[2]))]
answer = b""
try:
    held[0].sendall(sys.argv[3].encode() + b"\\n")
    answer = held[0].recv(1000)
except ConnectionError:  # it is closed already
    pass
print("answer:", answer, flush=True)
sys.stdin.read()
"""
DEEDS = ["cmd=put key=r0 value=mine", "cmd=initack pmiid=0", "cmd=barrier_in", "cmd=get key=r0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("deed", DEEDS)
def test_no_other_user_is_answered_or_keeps_ranks_out(deed: str) -> None:
    ranks, connections = 2, random.randint(1, 200)
    with process_management.pmi_server(ranks) as address:
        before = threading.active_count()
        words = [sys.executable, "-c", STRANGER, address, str(connections), deed]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as stranger:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == "answer: b''\n"
            assert threading.active_count() == before
            clients = [Client(address, rank) for rank in range(ranks)]
            assert clients[0].ask("put key=r1 value=ours") == "cmd=put_result rc=0 msg=success"
            assert clients[1].ask("get key=r1").endswith("value=ours")
            assert "unknown_key" in clients[1].ask("get key=r0")
            for client in clients:
                client.close()
            stranger.communicate()
