"""The ranks of an MPI job meet at the launcher's: the lines that MPICH's client sends."""

from __future__ import annotations

import socket

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
