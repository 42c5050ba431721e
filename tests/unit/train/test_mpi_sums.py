"""Sums by MPI between nodes and in shared memory within a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mpi_sums_rank
import numpy as np
import pytest
import tensorflow as tf
from builders import SCRIPTS
from mpi_sums_rank import COUNTS, DTYPES, LAYOUTS, TIMES, given
from tfscaling.cluster import process_management
from tfscaling.train.mpi import sums as mpi_sums
from tfscaling.train.mpi.sums import NodeMemory, Results

COUNT = 100_000
ALONE = SimpleNamespace(rank=0, size=1, bcast=lambda value: value)


@pytest.fixture
def results() -> Results:
    return Results(NodeMemory(ALONE))


def given_by(results: Results) -> Callable[[np.ndarray], np.ndarray]:
    """A function that returns its argument as ranks get a sum."""

    def given(own: np.ndarray) -> np.ndarray:
        results.tell(own.nbytes)
        place = results.place(own.nbytes)
        place.to_write(own)[:] = own
        return place.result(own)

    return given


def address(tensor: Any) -> int:
    return int(np.asarray(memoryview(tensor)).ctypes.data)


def forwarded(total: Any) -> Any:
    """Operations that write to their only input's memory where they may."""
    return tf.nn.relu(tf.negative(tf.reshape(total, [10, -1]) + 1.0))


def updated(total: Any) -> Any:
    """A variable that takes the tensor as its own memory, and then changes."""
    variable.assign(total)
    variable.assign_add(tf.ones(COUNT))
    return variable.read_value()


variable = tf.Variable(tf.zeros(COUNT))


@pytest.mark.parametrize(
    ("use", "expected"), [(tf.identity, 1.0), (forwarded, 0.0), (updated, 2.0)]
)
def test_tensorflow_reads_a_result_where_it_lies_and_writes_elsewhere(
    use: Callable[[Any], Any], expected: float, results: Results
) -> None:
    given, found = given_by(results), []

    def noted(own: np.ndarray) -> np.ndarray:
        found.append(given(own))
        return found[-1]

    @tf.function
    def used(own: Any) -> Any:
        total = tf.numpy_function(noted, [own], tf.float32)
        total.set_shape(own.shape)
        return use(total)

    outcome = used(tf.ones(COUNT))
    assert (outcome.numpy() == expected).all()
    assert (found[0] == 1.0).all()
    is_where_it_was = address(outcome) == found[0].ctypes.data
    assert is_where_it_was == (use is tf.identity)


def test_memory_is_used_again_when_tensorflow_has_used_a_result(results: Results) -> None:
    given, places = given_by(results), set()

    @tf.function
    def used(own: Any) -> Any:
        return tf.numpy_function(given, [own], tf.float32)

    kept = used(tf.ones(COUNT))
    for turn in range(20):
        total = used(tf.fill(COUNT, float(turn)))
        places.add(address(total))
        del total
    assert address(kept) not in places
    assert (kept.numpy() == 1.0).all()
    assert len(places) <= 2  # TensorFlow gives an array back in the next call


def test_results_in_use_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_sums, "RESULTS_MAX", 2)
    given = given_by(Results(NodeMemory(ALONE)))
    kept = [given(np.full(COUNT, number)) for number in range(2)]
    with pytest.raises(MemoryError, match="2 sums of 800000 bytes"):
        given(np.ones(COUNT))
    del kept
    assert given(np.ones(COUNT)).sum() == COUNT


def test_there_is_memory_for_results_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_sums, "_MAPPED_BYTES", 1 << 16)
    given = given_by(Results(NodeMemory(ALONE)))
    kept = [given(np.full(10**power, float(power))) for power in range(7)]
    for power, found in enumerate(kept):
        assert len(found) == 10**power
        assert (found == power).all()


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


def test_a_result_stays_as_long_as_a_rank_has_a_view_of_it(ranks: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(ranks):
        kept = {str(turn): [RANKS * (turn + 1.0)] for turn in range(number, 3 * RANKS, RANKS)}
        assert rank["results"]["kept"] == kept
        assert not rank["results"]["writeable"]


def test_memory_of_results_that_no_rank_has_is_used_again(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        # each was kept by one rank
        assert rank["results"]["before"] == rank["results"]["after"] == 3 * RANKS


def test_ranks_of_this_machine_share_memory_that_has_no_name(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["ranks_of_node"] == RANKS
        assert rank["named_memory"] == []
        assert rank["library"].startswith("MPICH Version: ")


def test_ranks_that_wait_for_one_that_was_killed_fail(ranks: list[dict[str, Any]]) -> None:
    assert [("error" in rank) for rank in ranks] == [True, True, True, True, False]
