"""Reading TF_CONFIG, TensorFlow's own description of a cluster.

Source: the TensorFlow guide "Distributed training", section on setting up TF_CONFIG.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfscaling.cluster.task_layout import ClusterError

_ADDRESS = re.compile(r".+:([0-9]{1,5})")
_INDEX = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class TfConfig:
    """A checked TF_CONFIG.

    Attributes:
        jobs: the addresses ``host:port`` of each job, jobs in the order of their names.
        job: the job of this task.
        index: its index in its job.
        rank: its position among all tasks, in the order of ``jobs``.
    """

    jobs: dict[str, tuple[str, ...]]
    job: str
    index: int
    rank: int


def read_tf_config(text: str, jobs: Mapping[str, int] | None = None) -> TfConfig:
    """Read and check the JSON text of TF_CONFIG.

    A cluster of one task needs no ``task``.

    Args:
        text: the value of TF_CONFIG.
        jobs: number of tasks of each job that the cluster must have; None: any.

    Raises:
        ClusterError: no JSON, a wrong structure, or a task that its cluster does not have.
    """
    try:
        config = json.loads(text)
    except ValueError as cause:  # JSONDecodeError, or a number of thousands of digits
        raise _error(text, f"JSON ({cause})") from cause
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        raise _error(text, 'an object with "cluster" and "task"')
    cluster = _read_cluster(text, config["cluster"])
    sizes = {name: len(tasks) for name, tasks in cluster.items()}
    if jobs is not None and sizes != {name: count for name, count in jobs.items() if count}:
        raise _error(text, f"a cluster of {dict(jobs)!r} tasks, as jobs says, not of {sizes!r}")

    all_tasks = [address for tasks in cluster.values() for address in tasks]
    task = config.get("task")
    if task is None and len(all_tasks) == 1:
        task = {"type": next(iter(cluster)), "index": 0}
    if not isinstance(task, dict):
        raise _error(text, 'a "task" with "type" and "index"')
    job, given = task.get("type"), task.get("index")
    # TensorFlow takes an index written as text, too
    index = int(str(given)) if _INDEX.fullmatch(str(given)) else -1
    if not isinstance(job, str) or index not in range(len(cluster.get(job, ()))):
        raise _error(text, f"a task of its cluster, not type {job!r} with index {given!r}")
    return TfConfig(cluster, job, index, all_tasks.index(cluster[job][index]))


def _read_cluster(text: str, cluster: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    result: dict[str, tuple[str, ...]] = {}
    for name, tasks in sorted(cluster.items()):
        if not isinstance(tasks, list) or not all(map(_is_address, tasks)):
            raise _error(text, f'a list of "host:port" for job {name!r}, not {tasks!r}')
        if tasks:
            result[name] = tuple(tasks)
    addresses = [address for tasks in result.values() for address in tasks]
    if not addresses:
        raise _error(text, "at least one task in its cluster")
    if len(set(addresses)) != len(addresses):
        raise _error(text, "each address once")
    return result


def _is_address(value: object) -> bool:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return match is not None and 1 <= int(match[1]) <= 65535


def _error(text: str, expected: str) -> ClusterError:
    return ClusterError(f"TF_CONFIG is {text!r}; expected {expected}")
