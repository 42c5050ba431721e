"""Which GPUs of its node a task uses: the entries for its CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfscaling.cluster import nvidia_smi
from tfscaling.cluster.task_layout import ClusterError, is_count

#: The variable in which CUDA is told which GPUs there are for a process.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"[0-9]+|(GPU|MIG)-.+")


@dataclass(frozen=True)
class GpuRequest:
    """What the caller wants to be done about GPUs; None means: find out.

    Attributes:
        gpus_per_node: number of GPUs of each node.
        gpus_per_task: number of GPUs of each task.
        assign: whether tasks are to be given GPUs; if not, they are only counted.

    Raises:
        ClusterError: a number that is no whole number, or negative.
    """

    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    assign: bool = True

    def __post_init__(self) -> None:
        for name in ("gpus_per_node", "gpus_per_task"):
            value = getattr(self, name)
            if value is not None and not is_count(value):
                raise ClusterError(f"{name} is {value!r}; expected a whole number, 0 or more")


@dataclass(frozen=True)
class GpuAllocation:
    """The GPUs of one task.

    Attributes:
        gpus_per_task: number of GPUs of this task.
        gpus: what its CUDA_VISIBLE_DEVICES shall list; None: leave the variable as it is, because
            no assignment is wanted or no GPU is known of.
    """

    gpus_per_task: int
    gpus: tuple[str, ...] | None


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the entries of CUDA_VISIBLE_DEVICES as CUDA reads them, or None if it is not set.

    CUDA stops at the first entry that is no device: an empty value, ``-1`` and Slurm's
    ``NoDevFiles`` mean no GPU.
    """
    if VISIBLE_GPUS not in environ:
        return None
    entries: list[str] = []
    for entry in environ[VISIBLE_GPUS].split(","):
        if not _DEVICE.fullmatch(entry.strip()):
            break
        entries.append(entry.strip())
    return tuple(entries)


def gpus_here(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs that this process and its children may use, as CUDA names them.

    Those that CUDA_VISIBLE_DEVICES lists, each once, or else those that nvidia-smi lists; None if
    neither tells.

    Raises:
        ClusterError: CUDA_VISIBLE_DEVICES lists a GPU twice, or nvidia-smi is there, but fails.
    """
    visible = visible_gpus(environ)
    if visible is None:
        count = count_with_nvidia_smi(environ)
        return None if count is None else tuple(map(str, range(count)))
    if len(set(visible)) < len(visible):
        raise ClusterError(f"{VISIBLE_GPUS} is {environ[VISIBLE_GPUS]!r}; expected each GPU once")
    return visible


def count_with_nvidia_smi(environ: Mapping[str, str]) -> int | None:
    """Return the number of GPUs of this node that nvidia-smi lists; None if it is missing.

    Raises:
        ClusterError: nvidia-smi is there, but fails.
    """
    try:
        found = nvidia_smi.gpus(environ)
    except nvidia_smi.NvidiaSmiError as error:
        raise ClusterError(
            f"{VISIBLE_GPUS} is not set and nvidia-smi failed ({error});"
            " expected a list of GPUs: set gpus_per_node, 0 for a node without GPUs"
        ) from error
    return None if found is None else len(found)


def allocate(
    environ: Mapping[str, str],
    request: GpuRequest,
    *,
    local_index: int,
    tasks_on_node: int,
    tasks_on_fullest_node: int,
    bound: bool | None = None,
) -> GpuAllocation:
    """Divide the GPUs of a node among its tasks, in order.

    The GPUs are those that CUDA_VISIBLE_DEVICES lists, or else those that nvidia-smi lists, or
    else none.  All tasks get the same number: GPUs per node // tasks of the fullest node.

    Args:
        environ: CUDA_VISIBLE_DEVICES, and PATH to find nvidia-smi.
        request: numbers that replace those.
        local_index: position of this task among the tasks of its node.
        tasks_on_node: number of tasks of its node.
        tasks_on_fullest_node: number of tasks of the node that has most.
        bound: whether Slurm gave this task GPUs of its own, and it sees no others; None: judge by
            the number that it sees.

    Raises:
        ClusterError: more GPUs are asked for than there are, or fewer are there than tasks.
    """
    visible = visible_gpus(environ)
    if bound is None:
        bound = _seem_bound(visible or (), request, tasks_on_node, tasks_on_fullest_node)
    if visible and bound:
        per_task = _per_task_if_bound(visible, request, tasks_on_fullest_node)
        gpus = _entries(visible, 0, per_task) if request.assign else None
        return GpuAllocation(per_task, gpus)

    per_node = request.gpus_per_node
    tasks = tasks_on_fullest_node
    known = visible is not None or per_node is not None or request.gpus_per_task == 0
    if per_node is None:
        found = len(visible or ()) if known else count_with_nvidia_smi(environ)
        known = found is not None
        per_node = found or 0
        # Nodes may have been given fewer GPUs where they run fewer tasks.
        tasks = tasks if per_node >= tasks else tasks_on_node
    per_task = per_node // tasks if request.gpus_per_task is None else request.gpus_per_task
    if request.gpus_per_task is None and 0 < per_node < tasks and request.assign:
        raise ClusterError(
            f"gpus_per_node is {per_node} (default: as CUDA_VISIBLE_DEVICES or nvidia-smi list),"
            f" but {tasks} tasks run on a node; expected at least {tasks}, or gpus_per_task=0"
        )
    if per_task * tasks > per_node:
        raise ClusterError(
            f"gpus_per_task is {per_task}, for {tasks} tasks on a node, but there are"
            f" {per_node} GPUs per node; expected at most {per_node // tasks}"
        )
    if not request.assign or not known:
        return GpuAllocation(per_task, None)
    on_node = visible if visible is not None else tuple(map(str, range(per_node)))
    return GpuAllocation(per_task, _entries(on_node, local_index * per_task, per_task))


def _seem_bound(
    visible: tuple[str, ...], request: GpuRequest, tasks_on_node: int, tasks_on_fullest_node: int
) -> bool:
    """Whether a task sees so few GPUs that they cannot be those of the whole node."""
    if request.gpus_per_node is None:
        return len(visible) < tasks_on_node
    return len(visible) < request.gpus_per_node == len(visible) * tasks_on_fullest_node


def _per_task_if_bound(
    visible: tuple[str, ...], request: GpuRequest, tasks_on_fullest_node: int
) -> int:
    if request.gpus_per_task is not None:
        return request.gpus_per_task
    if request.gpus_per_node is not None:
        return request.gpus_per_node // tasks_on_fullest_node
    return len(visible)


def _entries(on_node: tuple[str, ...], start: int, count: int) -> tuple[str, ...]:
    if start + count > len(on_node):
        raise ClusterError(
            f"{VISIBLE_GPUS} is {','.join(on_node)!r}, but this task is to use {count} GPUs from"
            f" number {start} on; expected at least {start + count} entries"
            " (or auto_set_gpu off, or other gpus_per_node and gpus_per_task)"
        )
    return on_node[start : start + count]
