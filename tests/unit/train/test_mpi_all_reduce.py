"""All-reduce by MPI: which tensors share a message, and the same model as TensorFlow's own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import loaded_python
import mpi_all_reduce_rank
import numpy as np
import pytest
from builders import SCRIPTS
from mpi_all_reduce_rank import DTYPES, EXCHANGES, ROWS, WIDTH
from tfscaling.launch.launchers import LAUNCHERS, Request
from tfscaling.spec.geometry import Geometry
from tfscaling.train.mpi.strategy import BUCKET_BYTES, Part, buckets
from tfscaling.train.mpi.sums import aligned

RANKS = 2
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


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks of an MPI job has of the other."""
    folder, geometry = tmp_path_factory.mktemp("exchanged"), Geometry(RANKS, 1, 0)
    own = {"PYTHONPATH": str(SCRIPTS), "CUDA_VISIBLE_DEVICES": "-1"}
    with ExitStack() as all_:
        request = Request([], geometry, {"worker": RANKS}, 1, folder, False, mpi="", held=all_)
        running = []
        for command in LAUNCHERS["local"](request):
            output = folder / f"{command.rank}.json"
            log = all_.enter_context(output.with_suffix(".log").open("w"))
            process = subprocess.Popen(
                [sys.executable, mpi_all_reduce_rank.__file__, str(output)],
                env=loaded_python.environ({**os.environ, **command.env, **own}),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            all_.callback(process.wait)
            all_.callback(process.kill)
            running.append((output, process))
        for output, process in running:
            # a deadlock is a failure
            assert process.wait(timeout=300) == 0, output.with_suffix(".log").read_text()
        return [json.loads(output.read_text()) for output, _ in running]


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


def test_nodes_exchange_16_bits_only_if_it_is_asked_for_and_of_bfloat16(
    exchanged: list[dict[str, Any]],
) -> None:
    for rank in exchanged:
        found = dict(zip(EXCHANGES, rank["in 16 bits"], strict=True))
        assert [pair for pair, is_rounded in found.items() if is_rounded] == [(True, "bfloat16")]


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


def test_tensors_of_different_lengths_are_gathered(found: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(found):
        assert rank["gathered"] == {
            "rows": [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]],
            "columns": [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]],
            "signs": [False, True, True],
            # of the losses of both ranks
            "gradient": [[4.0 * number] * 2] * (number + 1),
        }


def test_mpi_trains_the_model_that_tensorflows_all_reduce_trains(
    trainings: dict[str, list[dict[str, Any]]], mpi_trainings: dict[str, list[dict[str, Any]]]
) -> None:
    """Also where the last batch is uneven; only the order of float summation may differ."""
    first, second = mpi_trainings["two_mpi_workers"]
    of_a_rank = {
        "interrupted",
        "uninterrupted",
        "moments",
        "attribution",
    }  # moments and times of its own
    assert first.keys() == second.keys()
    assert all(first[key] == second[key] for key in first.keys() - of_a_rank)
    (theirs, _) = trainings["two_workers"]
    for key in ("replicas", "examples_per_step", "examples_trained", "devices", "steps"):
        assert first[key] == theirs[key]
    for key in ("epochs", "test"):
        np.testing.assert_allclose(first[key], theirs[key], rtol=1e-5)
    for own, other in zip(first["weights"], theirs["weights"], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-3, atol=1e-5)
