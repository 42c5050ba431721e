"""GPUs of a node divided among its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_programs import fake_nvidia_smi, listing
from tfscaling.cluster.gpu_allocation import (
    GpuAllocation,
    GpuRequest,
    allocate,
    count_with_nvidia_smi,
    gpus_here,
    visible_gpus,
)
from tfscaling.cluster.task_layout import ClusterError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", ("0",)),
        ("0,1,2", ("0", "1", "2")),
        (" 2, 3 ", ("2", "3")),
        ("0,-1,1", ("0",)),
        ("3,1,", ("3", "1")),
        ("GPU-8932f937,GPU-a1", ("GPU-8932f937", "GPU-a1")),
        ("MIG-GPU-1/1/0", ("MIG-GPU-1/1/0",)),
    ],
)
def test_visible_gpus_are_those_that_cuda_sees(
    value: str | None, expected: tuple[str, ...] | None
) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert visible_gpus(environ) == expected


def test_gpus_here_are_those_that_the_variable_lists_or_else_all(tmp_path: Path) -> None:
    two = fake_nvidia_smi(tmp_path, listing(2))
    assert gpus_here(two) == ("0", "1")
    assert gpus_here({**two, "CUDA_VISIBLE_DEVICES": "1"}) == ("1",)
    assert gpus_here({**two, "CUDA_VISIBLE_DEVICES": ""}) == ()
    assert gpus_here({"PATH": "/nonexistent"}) is None
    with pytest.raises(ClusterError, match="CUDA_VISIBLE_DEVICES is '1,1'; expected each GPU once"):
        gpus_here({**two, "CUDA_VISIBLE_DEVICES": "1,1"})


def test_nvidia_smi_missing_means_nothing_known(tmp_path: Path) -> None:
    assert count_with_nvidia_smi({"PATH": str(tmp_path)}) is None


def test_nvidia_smi_is_counted(tmp_path: Path) -> None:
    assert count_with_nvidia_smi(fake_nvidia_smi(tmp_path, listing(2))) == 2


def test_nvidia_smi_failing_is_an_error_that_says_what_to_set(tmp_path: Path) -> None:
    environ = fake_nvidia_smi(tmp_path, "echo cannot talk to the driver >&2; exit 9")
    with pytest.raises(ClusterError, match="exit status 9: cannot talk to the driver.*gpus_per_no"):
        count_with_nvidia_smi(environ)


def gpus_of_tasks(
    visible: str | None,
    tasks: int,
    fullest: int | None = None,
    bound: bool | None = None,
    **request: Any,
) -> list[tuple[str, ...] | None]:
    """The GPUs of each task of a node that has no nvidia-smi."""
    environ = {"PATH": "/nonexistent"}
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible
    allocations = [
        allocate(
            environ,
            GpuRequest(**request),
            local_index=local_index,
            tasks_on_node=tasks,
            tasks_on_fullest_node=fullest or tasks,
            bound=bound,
        )
        for local_index in range(tasks)
    ]
    for allocation in allocations:
        if allocation.gpus is not None:
            assert allocation.gpus_per_task == len(allocation.gpus)
    return [allocation.gpus for allocation in allocations]


NONE: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("visible", "tasks", "options", "expected"),
    [
        pytest.param("0,1,2,3", 1, {}, [("0", "1", "2", "3")], id="all_to_one_task"),
        pytest.param("0,1,2,3", 2, {}, [("0", "1"), ("2", "3")], id="divided"),
        pytest.param("0,1,2", 2, {}, [("0",), ("1",)], id="remainder_is_left"),
        pytest.param("2,3", 2, {}, [("2",), ("3",)], id="given_devices_not_counted_from_0"),
        pytest.param("GPU-a,GPU-b", 2, {}, [("GPU-a",), ("GPU-b",)], id="uuids"),
        pytest.param("0,1,2,3", 2, {"fullest": 4}, [("0",), ("1",)], id="as_on_the_fullest_node"),
        pytest.param("0,1", 2, {"fullest": 4}, [("0",), ("1",)], id="fewer_gpus_for_fewer_tasks"),
        pytest.param("0,1,2,3", 2, {"gpus_per_node": 2}, [("0",), ("1",)], id="per_node_given"),
        pytest.param("0,1,2,3", 2, {"gpus_per_task": 1}, [("0",), ("1",)], id="per_task_given"),
        pytest.param("0,1", 2, {"gpus_per_task": 0}, [NONE, NONE], id="zero_per_task"),
        pytest.param("0,1", 2, {"gpus_per_node": 0}, [NONE, NONE], id="zero_per_node"),
        pytest.param(None, 2, {"gpus_per_node": 4}, [("0", "1"), ("2", "3")], id="not_set_given"),
        pytest.param(None, 2, {"gpus_per_node": 0}, [NONE, NONE], id="not_set_zero_per_node"),
        pytest.param(None, 2, {"gpus_per_task": 0}, [NONE, NONE], id="not_set_zero_per_task"),
        pytest.param(None, 2, {}, [None, None], id="not_set_nothing_known"),
        pytest.param("", 2, {}, [NONE, NONE], id="empty"),
        pytest.param("-1", 2, {}, [NONE, NONE], id="minus_one"),
        pytest.param("0,1", 2, {"assign": False}, [None, None], id="no_assignment"),
        pytest.param("", 2, {"gpus_per_node": 2, "assign": False}, [None, None], id="cpu_trick"),
        pytest.param("1", 2, {}, [("1",), ("1",)], id="fewer_than_tasks_so_bound"),
        pytest.param("0,1", 4, {}, [("0", "1")] * 4, id="two_for_four_tasks_so_bound"),
        pytest.param("", 2, {"bound": True}, [NONE, NONE], id="bound_but_none_visible"),
        pytest.param("0", 2, {"bound": False, "gpus_per_task": 0}, [NONE] * 2, id="shared_zero"),
        pytest.param("2,3", 2, {"bound": True}, [("2", "3")] * 2, id="bound_two_each"),
        pytest.param("2,3", 1, {"bound": True, "fullest": 2}, [("2", "3")], id="bound_uneven"),
        pytest.param("2,3", 2, {"gpus_per_node": 4}, [("2", "3")] * 2, id="bound_by_numbers"),
        pytest.param("2,3", 2, {"bound": True, "gpus_per_task": 1}, [("2",)] * 2, id="bound_less"),
        pytest.param("2", 2, {"bound": True, "gpus_per_task": 0}, [NONE] * 2, id="bound_zero"),
    ],
)
def test_allocate(visible: str | None, tasks: int, options: Any, expected: Any) -> None:
    assert gpus_of_tasks(visible, tasks, **options) == expected


def test_allocate_counts_with_nvidia_smi_if_the_variable_is_not_set(tmp_path: Path) -> None:
    environ = fake_nvidia_smi(tmp_path, listing(4))
    allocation = allocate(
        environ, GpuRequest(), local_index=1, tasks_on_node=2, tasks_on_fullest_node=2
    )
    assert allocation == GpuAllocation(2, ("2", "3"))


@pytest.mark.parametrize(
    ("visible", "options", "message"),
    [
        ("0,1", {"gpus_per_task": 2}, "gpus_per_task is 2, for 2 tasks .* 2 GPUs per node.* 1$"),
        (None, {"gpus_per_task": 1}, "there are 0 GPUs per node"),
        (None, {"gpus_per_node": 2, "gpus_per_task": 2}, "there are 2 GPUs per node"),
        ("0,1", {"gpus_per_node": 8}, "CUDA_VISIBLE_DEVICES is '0,1'.*at least 4 entries"),
        ("", {"gpus_per_node": 2}, "CUDA_VISIBLE_DEVICES is ''.*at least 1 entries"),
        ("3", {"bound": True, "gpus_per_task": 2}, "CUDA_VISIBLE_DEVICES is '3'.*at least 2"),
        ("0", {"bound": False}, "gpus_per_node is 1 .* but 2 tasks run on a node; expected at lea"),
        (None, {"gpus_per_node": 1}, "gpus_per_node is 1 .* but 2 tasks run on a node"),
        ("0", {"gpus_per_node": -1}, "gpus_per_node is -1; expected a whole number"),
        ("0", {"gpus_per_task": 1.5}, "gpus_per_task is 1.5; expected a whole number"),
        ("0", {"gpus_per_task": True}, "gpus_per_task is True; expected a whole number"),
    ],
)
def test_more_gpus_than_there_are_is_refused(visible: Any, options: Any, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        gpus_of_tasks(visible, 2, **options)
