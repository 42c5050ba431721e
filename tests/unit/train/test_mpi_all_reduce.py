"""All-reduce by MPI: which tensors share a message, and the same model as TensorFlow's own."""

from __future__ import annotations

import math
from typing import Any

import mpi_all_reduce_rank
import pytest
from mpi_all_reduce_rank import DTYPES, ROWS, WIDTH
from ranks import ranks_of
from tfscaling.study.geometry import Geometry
from tfscaling.train.mpi.strategy import BUCKET_BYTES, TensorSize, group_into_buckets

RANKS = 2
SMALL = TensorSize(1000, "float32")
LARGE = TensorSize(BUCKET_BYTES + 4, "float32")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], []),
        ([SMALL, SMALL, SMALL], [[2, 1, 0]]),
        # the last layers' gradients are there first; a large one is not copied to join others
        ([SMALL, SMALL, LARGE, SMALL, SMALL], [[4, 3], [2], [1, 0]]),
        ([SMALL, SMALL._replace(dtype="float64")], [[1], [0]]),
        ([SMALL, SMALL._replace(bytes=math.inf), SMALL], [[2], [1], [0]]),
        ([TensorSize(BUCKET_BYTES, "float32"), SMALL], [[1], [0]]),
    ],
)
def test_tensors_share_a_message_in_the_order_of_the_backward_pass(
    parts: list[TensorSize], expected: list[list[int]]
) -> None:
    assert group_into_buckets(parts) == expected


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks of an MPI job has of the other."""
    with ranks_of(mpi_all_reduce_rank) as ranks:
        folder = tmp_path_factory.mktemp("exchanged")
        ranks.start_job(folder, Geometry(RANKS, 1, 0), {"worker": RANKS})
        return ranks.found()


@pytest.fixture(params=["in shared memory", "by messages"])
def found(request: pytest.FixtureRequest, exchanged: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same of ranks of one node, and as if each had its own."""
    return [rank[request.param] for rank in exchanged]


def test_ranks_sum_in_one_order_in_loops_conditions_and_functions(
    exchanged: list[dict[str, Any]],
) -> None:
    """Also where each has something else first."""
    for rank in exchanged:
        assert rank["in turn"] == [12.0, 40.0, 800.0, 4000.0]


def test_tensors_of_all_types_are_summed(found: list[dict[str, Any]]) -> None:
    total = [float(2 * row + 1) for row in range(ROWS)]
    for rank in found:
        assert rank["sums"] == {name: [name, total] for name in DTYPES}


def test_tensorflow_may_write_to_a_sum(found: list[dict[str, Any]]) -> None:
    """A gradient is clipped, a moment divided: other ranks read other memory."""
    for rank in found:
        assert len(rank["overwritten"]) == 3 * 3 * 8
        assert all(rank["overwritten"])


@pytest.mark.parametrize(("name", "only"), [("slices", 1), ("none here", 0)])
def test_sparse_gradients_are_those_of_all_ranks_and_stay_sparse(
    found: list[dict[str, Any]], name: str, only: int
) -> None:
    """One of the two ranks has a row, the other has none."""
    for rank in found:
        assert rank[name] == {
            "dense": RANKS,
            "values": [[only + 1.0] * WIDTH],
            "indices": [only],
            "means": [[(only + 1.0) / RANKS] * WIDTH],
        }


def test_slices_of_places_that_all_ranks_look_up_are_added(found: list[dict[str, Any]]) -> None:
    """One device looks up positions once for all examples, and the words of each example."""
    for rank in found:
        assert rank["looked up"] == {
            "positions": [[0, 1, 2, 3], [3.0, 3.0, 3.0, 3.0, 0.0]],
            "biases": [[0, 1, 1, 0], [6.0, 6.0, 0.0, 0.0, 0.0]],
            "other places on each rank": [[0, 1, 2, 3, 1, 2, 3, 4], [1.0, 3.0, 3.0, 3.0, 2.0]],
            "words": [[1, 1, 1, 1], [0.0, 6.0, 0.0, 0.0, 0.0]],
            "a length": [[0, 1], [3.0, 3.0, 0.0, 0.0, 0.0]],
            "words of other numbers": [[1, 1, 1], [0.0, 5.0, 0.0, 0.0, 0.0]],
        }


def test_tensors_of_different_lengths_are_gathered(found: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(found):
        assert rank["gathered"] == {
            "rows": [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]],
            "columns": [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]],
            "signs": [False, True, True],
            # of the losses of both ranks
            "gradient": [[4.0 * number] * 2] * (number + 1),
        }
