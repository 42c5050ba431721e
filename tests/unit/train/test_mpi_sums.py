"""Sums by MPI between nodes and in shared memory within a node."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import uuid
from typing import Any

import mpi_sums_rank
import numpy as np
import pytest
from builders import SCRIPTS
from mpi_sums_rank import COUNTS, DTYPES, LAYOUTS, TIMES, given
from tfscaling.cluster import process_management
from tfscaling.train.mpi.sums import NodeMemory

RANKS = 5


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sums")
    with process_management.pmi_server(RANKS) as pmi:
        processes = [
            subprocess.Popen(
                [sys.executable, mpi_sums_rank.__file__, str(rank), str(RANKS), str(folder)],
                env={
                    **os.environ,
                    **process_management.pmi_variables(pmi, rank),
                    "PYTHONPATH": str(SCRIPTS),
                },
            )
            for rank in range(RANKS)
        ]
        try:
            codes = [process.wait(timeout=600) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    assert codes == [0, 0, 0, 0, -9]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rank_has_the_same_sum_of_all(layout: str, ranks: list[dict[str, Any]]) -> None:
    sums = iter(ranks[0][layout])
    for count in COUNTS:
        for dtype in DTYPES:
            for time in range(TIMES):
                of_ranks = [given(rank, count, dtype, time) for rank in range(RANKS)]
                total = np.frombuffer(bytes.fromhex(next(sums)), dtype)
                if layout == "one node":  # whoever adds it, and in whatever parts
                    np.testing.assert_array_equal(total, sum(of_ranks))
                np.testing.assert_allclose(total, sum(of_ranks), rtol=1e-5, atol=1e-2)
    assert all(rank[layout] == ranks[0][layout] for rank in ranks)


def test_ranks_of_this_machine_share_memory_that_has_no_name(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["ranks_of_node"] == RANKS
        assert rank["named_memory"] == []
        assert rank["library"].startswith("MPICH Version: ")


def test_ranks_that_wait_for_one_that_was_killed_fail(ranks: list[dict[str, Any]]) -> None:
    assert [("error" in rank) for rank in ranks] == [True, True, True, True, False]


class Ranks:
    """Two ranks of a node, in one process: what rank 0 tells the other."""

    def __init__(self, rank: int, told: queue.Queue[str]) -> None:
        self.rank, self.size, self._told = rank, 2, told

    def bcast(self, text: str | None) -> str:
        if text is None:
            return self._told.get(timeout=300)
        self._told.put(text)
        return text


#: A process of another user: takes what it gets from the socket, or offers separate memory.
STRANGER = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
address = "\\0" + sys.argv[3]
with socket.socket(socket.AF_UNIX) as own:
    if sys.argv[2] == "offers":
        own.bind(address)
        own.listen()
        print("ready", flush=True)
        connection, _ = own.accept()
        connection.recv(4)
        socket.send_fds(connection, [b"0"], [os.memfd_create("stranger")])
    else:
        own.connect(address)
        try:
            own.send((1).to_bytes(4, "big"))
            print(socket.recv_fds(own, 1, 1)[1], flush=True)
        except OSError:  # it is closed already
            print([], flush=True)
"""


def stranger(*words: str) -> subprocess.Popen[str]:
    call = [sys.executable, "-c", STRANGER, "65534", *words]
    return subprocess.Popen(call, stdout=subprocess.PIPE, text=True)


def memory_of(rank: int, told: queue.Queue[str]) -> NodeMemory:
    return NodeMemory(Ranks(rank, told), 4096)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_no_other_user_gets_the_memory_or_counts_as_a_rank() -> None:
    told: queue.Queue[str] = queue.Queue()
    made: queue.Queue[NodeMemory] = queue.Queue()
    threading.Thread(target=lambda: made.put(memory_of(0, told)), daemon=True).start()
    address = told.get(timeout=300)
    strangers = [stranger("takes", address.removeprefix("\0")) for _ in range(3)]
    assert [each.communicate()[0].strip() for each in strangers] == ["[]"] * 3
    assert made.empty()
    told.put(address)
    second = memory_of(1, told)
    made.get(timeout=300).allocate(8)[:] = 7
    assert (second.allocate(8) == 7).all()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_memory_that_another_user_offers_is_not_taken() -> None:
    address = f"tfscaling-{uuid.uuid4()}"
    with stranger("offers", address) as other:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        told: queue.Queue[str] = queue.Queue()
        told.put(f"\0{address}")
        with pytest.raises(ConnectionError, match="65534"):
            memory_of(1, told)
        other.kill()
