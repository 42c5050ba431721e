"""Tasks, GPUs and batch sizes of a shape."""

from __future__ import annotations

from typing import Any

import pytest
from tfscaling.study.config_types import Recipe
from tfscaling.study.geometry import Geometry, resolve_batch_sizes


@pytest.mark.parametrize(
    ("shape", "totals"),
    [
        (Geometry(1, 1, 0), (1, 0, 0)),
        (Geometry(3, 1, 4), (3, 12, 4)),
        (Geometry(3, 2, 4), (6, 12, 2)),
        (Geometry(2, 4, 4), (8, 8, 1)),
        (Geometry(2, 3, 0), (6, 0, 0)),
        (Geometry(2, "2+1", 2), (3, 4, 1)),
        (Geometry(3, "4+4+1", 0), (9, 0, 0)),
    ],
)
def test_totals_and_shares(shape: Geometry, totals: tuple[int, int, int]) -> None:
    assert (shape.tasks, shape.gpus, shape.gpus_per_task) == totals


def test_uneven_tasks_of_the_nodes() -> None:
    assert Geometry(2, "2+1", 4).tasks_on_nodes == (2, 1)
    assert Geometry(2, "2+1", 4).tasks_per_node_max == 2


@pytest.mark.parametrize(
    ("nodes", "tasks", "problem"),
    [
        (2, 3, None),
        (2, "2+1", None),
        (3, "2+2+1", None),
        (2, "2+2", "2+2 is"),
        (3, "2+1", "2+1 is for 2 nodes"),
        (2, "1+2", "1+2: only the last node"),
        (3, "2+1+2", "2+1+2: only the last node"),
        (3, "3+2+1", "3+2+1: only the last node"),
    ],
)
def test_uneven_tasks_that_slurm_cannot_give_are_refused(
    nodes: int, tasks: int | str, problem: str | None
) -> None:
    found = Geometry(nodes, tasks, 0).placement_problem()
    assert found is None if problem is None else problem in str(found)


def recipe(key: str, value: int) -> Recipe:
    sizes: dict[str, Any] = {key: value}
    return Recipe(learning_rate=0.1, epochs=1, **sizes)


@pytest.mark.parametrize(
    ("key", "value", "shape", "replicas", "expected"),
    [
        ("per_replica_batch_size", 64, Geometry(1, 1, 0), 1, (64, 64)),
        ("per_replica_batch_size", 64, Geometry(3, 1, 4), 12, (64, 768)),
        ("per_worker_batch_size", 64, Geometry(3, 1, 4), 12, (16, 192)),
        ("per_worker_batch_size", 64, Geometry(2, 2, 4), 8, (32, 256)),
        ("per_worker_batch_size", 64, Geometry(2, 1, 0), 2, (64, 128)),
        ("global_batch_size", 1536, Geometry(3, 1, 4), 12, (128, 1536)),
        ("global_batch_size", 64, Geometry(1, 1, 0), 1, (64, 64)),
        # with a coordinator and a parameter server only two of four tasks train
        ("per_worker_batch_size", 64, Geometry(4, 1, 0), 2, (64, 128)),
    ],
)
def test_batch_sizes_per_replica_and_in_total(
    key: str, value: int, shape: Geometry, replicas: int, expected: tuple[int, int]
) -> None:
    assert resolve_batch_sizes(recipe(key, value), shape, replicas) == expected


@pytest.mark.parametrize(
    ("key", "value", "shares"), [("per_worker_batch_size", 66, 4), ("global_batch_size", 100, 12)]
)
def test_a_batch_that_cannot_be_split_evenly_is_refused(key: str, value: int, shares: int) -> None:
    expected = f"{key} {value} is not divisible by {shares} replicas"
    with pytest.raises(ValueError, match=expected):
        resolve_batch_sizes(recipe(key, value), Geometry(3, 1, 4), 12)


def test_only_a_fixed_global_batch_is_strong_scaling() -> None:
    keys = ("per_replica_batch_size", "per_worker_batch_size", "global_batch_size")
    assert [recipe(key, 64).batch_scaling for key in keys] == ["weak", "weak", "strong"]


def test_a_number_of_nodes_that_no_cluster_has_costs_nothing() -> None:
    shape = Geometry(10**12, 2, 1)
    assert (shape.tasks, shape.tasks_per_node_max, shape.gpus_per_task) == (2 * 10**12, 2, 0)
    assert shape.placement_problem() is None
