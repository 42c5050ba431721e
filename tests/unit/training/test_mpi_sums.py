"""Sums over the ranks of an MPI job, as real ranks have them: on one node, on several, with one
rank that is killed."""

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
from tfscaling.jobs import process_management

RANKS = 3


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
            codes = [process.wait(timeout=120) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    assert codes == [0, 0, -9]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rank_has_the_sum_of_all(layout: str, ranks: list[dict[str, Any]]) -> None:
    expected = []
    for count in COUNTS:
        for dtype in DTYPES:
            for time in range(TIMES):
                total = np.sum([given(rank, count, dtype, time) for rank in range(RANKS)], axis=0)
                expected.append([total[0], total[-1], total.sum()])
    for rank in ranks:
        np.testing.assert_allclose(rank[layout], expected, rtol=1e-6)
        assert rank[layout] == ranks[0][layout]


def test_ranks_of_this_machine_share_memory_that_has_no_name(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["ranks_of_node"] == RANKS
        assert rank["named_memory"] == []
        assert rank["library"].startswith("MPICH Version: ")


def test_ranks_that_wait_for_one_that_was_killed_fail(ranks: list[dict[str, Any]]) -> None:
    assert [("error" in rank) for rank in ranks] == [True, True, False]
