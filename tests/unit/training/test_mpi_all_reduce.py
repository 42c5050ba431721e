"""All-reduce by MPI: which tensors share a message, and the same model as TensorFlow's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tfscaling.training.mpi_all_reduce import BUCKET_BYTES, Part, buckets
from tfscaling.training.mpi_sums import aligned

SMALL = Part(1000, "float32")
LARGE = Part(BUCKET_BYTES + 4, "float32")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], []),
        ([SMALL, SMALL, SMALL], [[2, 1, 0]]),
        # the last layers' gradients are there first; a large one is not copied to join others
        ([SMALL, SMALL, LARGE, SMALL, SMALL], [[4, 3], [2], [1, 0]]),
        ([SMALL, SMALL._replace(dtype="float64")], [[1], [0]]),
        ([SMALL, SMALL._replace(bytes=math.inf), SMALL], [[2], [1], [0]]),
        ([Part(BUCKET_BYTES, "float32"), SMALL], [[1], [0]]),
    ],
)
def test_tensors_share_a_message_in_the_order_of_the_backward_pass(
    parts: list[Part], expected: list[list[int]]
) -> None:
    assert buckets(parts) == expected


@pytest.mark.parametrize("shape", [(), (3, 5), (1000,)])
def test_sums_lie_where_tensorflow_takes_them_without_a_copy(shape: tuple[int, ...]) -> None:
    like = np.ones(shape, np.float32)
    found = aligned(like)
    assert (found.shape, found.dtype) == (like.shape, like.dtype)
    assert found.ctypes.data % 64 == 0
    assert found.flags.c_contiguous


def test_mpi_trains_the_model_that_tensorflows_all_reduce_trains(
    trainings: dict[str, list[dict[str, Any]]], mpi_trainings: dict[str, list[dict[str, Any]]]
) -> None:
    """Also where the last batch is uneven; only the order of float summation may differ."""
    first, second = mpi_trainings["two_mpi_workers"]
    of_a_rank = {"interrupted", "uninterrupted"}  # have moments of its own
    assert first.keys() == second.keys()
    assert all(first[key] == second[key] for key in first.keys() - of_a_rank)
    (theirs, _) = trainings["two_workers"]
    for key in ("replicas", "examples_per_step", "examples_trained", "devices", "steps"):
        assert first[key] == theirs[key]
    for key in ("epochs", "test"):
        np.testing.assert_allclose(first[key], theirs[key], rtol=1e-5)
    for own, other in zip(first["weights"], theirs["weights"], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-3, atol=1e-5)
