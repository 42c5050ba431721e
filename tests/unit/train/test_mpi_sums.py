"""Sums by MPI between nodes and in shared memory within a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import mpi_sums_rank
import numpy as np
import pytest
from builders import SCRIPTS
from mpi_sums_rank import COUNTS, DTYPES, LAYOUTS, TIMES, given
from tfscaling.cluster import process_management

RANKS = 5


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sums")
    with process_management.served(RANKS) as pmi:
        processes = [
            subprocess.Popen(
                [sys.executable, mpi_sums_rank.__file__, str(rank), str(RANKS), str(folder)],
                env={
                    **os.environ,
                    **process_management.variables(pmi, rank),
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
