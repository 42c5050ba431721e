"""Which GPUs of its node a task uses: the entries for its CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from tfscaling.cluster.task_layout import ClusterError

#: The variable that tells CUDA which GPUs a process may use.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"[0-9]+|(GPU|MIG)-.+")
_TIMEOUT_S = 60
_QUERY = ("--query-gpu=name,uuid,driver_version", "--format=csv,noheader")


class NvidiaSmiError(ClusterError):
    """nvidia-smi is installed, but fails; says why."""


class Gpu(NamedTuple):
    """A GPU as the driver names it; parts of a GPU (MIG) are not listed."""

    name: str
    uuid: str
    driver_version: str


def listed_gpus(environ: Mapping[str, str]) -> tuple[Gpu, ...] | None:
    """Return the GPUs that nvidia-smi lists; None if `environ` has no nvidia-smi on its PATH.

    Raises NvidiaSmiError if nvidia-smi fails.
    """
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return None
    hint = "expected a list of its GPUs, or CUDA_VISIBLE_DEVICES"
    try:
        done = subprocess.run(
            [program, *_QUERY], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NvidiaSmiError(f"nvidia-smi failed ({error}); {hint}") from error
    output = (done.stdout + done.stderr).strip()
    if done.returncode and "No devices were found" not in output:
        raise NvidiaSmiError(f"nvidia-smi failed (exit status {done.returncode}: {output}); {hint}")
    fields = (line.split(", ") for line in done.stdout.splitlines())
    return tuple(Gpu(*words) for words in fields if len(words) == len(Gpu._fields))


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

    These are the GPUs in CUDA_VISIBLE_DEVICES, or else those that nvidia-smi lists; None if
    neither exists.

    Raises:
        ClusterError: CUDA_VISIBLE_DEVICES lists a GPU twice, or nvidia-smi fails.
    """
    visible = visible_gpus(environ)
    if visible is None:
        listed = listed_gpus(environ)
        return None if listed is None else tuple(str(number) for number in range(len(listed)))
    if len(set(visible)) < len(visible):
        raise ClusterError(f"{VISIBLE_GPUS} is {environ[VISIBLE_GPUS]!r}; expected each GPU once")
    return visible


def allocate(
    environ: Mapping[str, str],
    *,
    local_index: int,
    tasks_on_node: int,
    tasks_on_fullest_node: int,
    bound: bool | None = None,
) -> tuple[str, ...] | None:
    """Return what CUDA_VISIBLE_DEVICES of one task shall list; None if no GPU is known of.

    The GPUs of the node are those that CUDA_VISIBLE_DEVICES lists, or else those that nvidia-smi
    lists.  All tasks get the same number, in order: GPUs per node // tasks of the fullest node.

    Args:
        environ: CUDA_VISIBLE_DEVICES, and PATH to find nvidia-smi.
        local_index: position of this task among the tasks of its node.
        tasks_on_node: number of tasks of its node.
        tasks_on_fullest_node: number of tasks of the node that has most.
        bound: whether Slurm gave this task its own GPUs, and it sees no others; None: yes if it
            sees fewer than its node has tasks.

    Raises:
        ClusterError: the node has fewer GPUs than tasks.
    """
    visible = visible_gpus(environ)
    if visible and (len(visible) < tasks_on_node if bound is None else bound):
        return visible
    on_node = visible if visible is not None else gpus_here(environ)
    if not on_node:
        return on_node
    # Nodes may have been given fewer GPUs where they run fewer tasks.
    tasks = tasks_on_fullest_node if len(on_node) >= tasks_on_fullest_node else tasks_on_node
    each = len(on_node) // tasks
    if not each:
        raise ClusterError(
            f"{tasks} tasks run on a node with {len(on_node)} GPUs (as CUDA_VISIBLE_DEVICES or"
            f" nvidia-smi list); expected at least {tasks} GPUs"
        )
    return on_node[local_index * each : (local_index + 1) * each]
