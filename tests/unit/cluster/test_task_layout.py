"""Ranks to nodes, addresses to jobs."""

from __future__ import annotations

from typing import Any

import pytest
from tfscaling.cluster.task_layout import (
    ClusterError,
    Slot,
    addresses,
    place_tasks,
    tasks_of_jobs,
)


def places(tasks_on_host: dict[str, int], *distribution: Any) -> str:
    """Slots as ``a0 a1 b0``: node and local index of each rank."""
    slots = place_tasks(tasks_on_host, *distribution)
    assert all(list(tasks_on_host)[slot.node_index] == slot.host for slot in slots)
    return " ".join(f"{slot.host}{slot.local_index}" for slot in slots)


@pytest.mark.parametrize(
    ("counts", "distribution", "expected"),
    [
        ({"a": 2, "b": 2}, (), "a0 a1 b0 b1"),
        ({"b": 1, "a": 2}, (), "b0 a0 a1"),
        ({"a": 3, "b": 1}, ("block", 1), "a0 a1 a2 b0"),
        ({"a": 0, "b": 1}, (), "b0"),
        ({}, (), ""),
        ({"a": 2, "b": 2}, ("cyclic", 1), "a0 b0 a1 b1"),
        ({"a": 3, "b": 1, "c": 2}, ("cyclic", 1), "a0 b0 c0 a1 c1 a2"),
        ({"a": 4, "b": 4}, ("plane", 2), "a0 a1 b0 b1 a2 a3 b2 b3"),
        ({"a": 3, "b": 5}, ("plane", 2), "a0 a1 b0 b1 a2 b2 b3 b4"),
    ],
)
def test_place_tasks(counts: dict[str, int], distribution: Any, expected: str) -> None:
    assert places(counts, *distribution) == expected


def test_a_plane_without_a_size_is_refused() -> None:
    with pytest.raises(ClusterError, match="SLURM_DIST_PLANESIZE is 0"):
        place_tasks({"a": 1}, "plane", 0)


def test_addresses() -> None:
    slots = [Slot("a", 0, 0), Slot("b", 1, 0), Slot("b", 1, 1)]
    assert addresses(slots, [12000, 12007]) == ["a:12000", "b:12000", "b:12007"]
    with pytest.raises(ClusterError, match="SLURM_STEP_RESV_PORTS reserves 1 ports .*12000.* 2 "):
        addresses(slots, [12000])


def test_tasks_go_to_the_jobs_in_the_order_of_their_names() -> None:
    jobs = {"worker": 2, "ps": 1, "evaluator": 0, "chief": 1}
    assert tasks_of_jobs(jobs, 4) == [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)]
    with pytest.raises(ClusterError, match="'ps': 1.* 4 tasks, but the nodes run 5 tasks"):
        tasks_of_jobs(jobs, 5)
