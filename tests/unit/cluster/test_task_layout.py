"""Ranks to nodes, addresses to jobs."""

from __future__ import annotations

from typing import Any

import pytest
from tfscaling.cluster.task_layout import (
    ClusterError,
    Slot,
    addresses,
    check_jobs,
    check_unique,
    is_count,
    place_tasks,
    port_range,
    repeat_tasks,
    split_jobs,
    task_of_rank,
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


@pytest.mark.parametrize("distribution", [("plane", 0), ("arbitrary", 1), ("", 1)])
def test_unknown_distribution_is_refused(distribution: Any) -> None:
    with pytest.raises(ClusterError, match="expected block, cyclic, or plane"):
        place_tasks({"a": 1}, *distribution)


@pytest.mark.parametrize("count", [-1, 1.0, "2", True, None])
def test_count_that_is_no_whole_number_is_refused(count: Any) -> None:
    assert not is_count(count)
    with pytest.raises(ClusterError, match="tasks_per_node gives .* for node 'a'"):
        place_tasks({"a": count})


def test_repeat_tasks_keeps_the_order_of_the_hosts() -> None:
    assert list(repeat_tasks(2, ["b", "a"]).items()) == [("b", 2), ("a", 2)]
    assert list(repeat_tasks({"a": 1, "b": 3}, ["b", "a", "c"]).items()) == [("b", 3), ("a", 1)]


def test_repeat_tasks_refuses_unknown_nodes() -> None:
    with pytest.raises(ClusterError, match="tasks_per_node names x, y; expected nodes of .*: a, b"):
        repeat_tasks({"y": 1, "a": 1, "x": 1}, ["a", "b"])


def test_a_host_twice_is_refused() -> None:
    check_unique(["a", "b"])
    with pytest.raises(ClusterError, match="SLURM_STEP_NODELIST names b more than once"):
        check_unique(["a", "b", "b"])


def test_addresses() -> None:
    slots = [Slot("a", 0, 0), Slot("b", 1, 0), Slot("b", 1, 1)]
    assert addresses(slots, [12000, 12007]) == ["a:12000", "b:12000", "b:12007"]
    with pytest.raises(ClusterError, match="SLURM_STEP_RESV_PORTS reserves 1 ports .*12000.* 2 "):
        addresses(slots, [12000])


def test_port_range() -> None:
    assert list(port_range(8888, 3)) == [8888, 8889, 8890]
    assert list(port_range(65535, 1)) == [65535]


@pytest.mark.parametrize("port", [0, -1, 65535, 70000, "8888", 8888.0, True])
def test_ports_outside_the_range_are_refused(port: Any) -> None:
    with pytest.raises(ClusterError, match="port_base is .*; expected a whole number from 1"):
        port_range(port, 2)


def test_check_jobs_orders_by_name_and_drops_empty_jobs() -> None:
    jobs = check_jobs({"worker": 2, "ps": 1, "evaluator": 0, "chief": 1}, 4)
    assert list(jobs.items()) == [("chief", 1), ("ps", 1), ("worker", 2)]


@pytest.mark.parametrize("jobs", [{"ps": -1, "worker": 5}, {"worker": 4.0}, {"": 4}, {3: 4}])
def test_check_jobs_refuses_what_is_no_job(jobs: Any) -> None:
    with pytest.raises(ClusterError, match="expected a name and a whole number"):
        check_jobs(jobs, 4)


def test_check_jobs_refuses_the_wrong_sum() -> None:
    with pytest.raises(ClusterError, match="'ps': 1.* 4 tasks, but the nodes run 5 tasks"):
        check_jobs({"ps": 1, "worker": 3}, 5)


def test_split_jobs() -> None:
    assert split_jobs(["a:1", "a:2", "b:1"], {"ps": 1, "worker": 2}) == {
        "ps": ("a:1",),
        "worker": ("a:2", "b:1"),
    }


def test_task_of_rank() -> None:
    jobs = {"ps": 1, "worker": 2}
    tasks = [task_of_rank(rank, jobs) for rank in range(3)]
    assert tasks == [("ps", 0), ("worker", 0), ("worker", 1)]
    for rank in (-1, 3):
        with pytest.raises(ClusterError, match=f"SLURM_PROCID .* is {rank}; expected 0 to 2"):
            task_of_rank(rank, jobs)
