"""Reading TF_CONFIG, TensorFlow's own description of a cluster.

Source: the TensorFlow guide "Distributed training", section on setting up TF_CONFIG.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfscaling.cluster.task_layout import ClusterError, is_count


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

    A cluster of one task needs no ``task``.  An ``evaluator`` may stand outside the cluster; its
    rank follows those of the cluster.

    Args:
        text: the value of TF_CONFIG.
        jobs: number of tasks of each job that the cluster must have; None: any.

    Raises:
        ClusterError: no JSON, a wrong structure, or a task that its cluster does not have.
    """
    config = _parse(text)
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
    job, index = task.get("type"), _index(task.get("index"))
    if index is None:
        given = task.get("index")
        raise _error(text, f"a whole number, 0 or more, as index of its task, not {given!r}")
    if job == "evaluator" and job not in cluster:
        return TfConfig(cluster, job, index, len(all_tasks) + index)
    if not isinstance(job, str) or job not in cluster or index >= len(cluster[job]):
        raise _error(text, f"a task of its cluster, not type {job!r} with index {index}")
    return TfConfig(cluster, job, index, all_tasks.index(cluster[job][index]))


def _parse(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except ValueError as cause:  # JSONDecodeError, or a number of thousands of digits
        raise _error(text, f"JSON ({cause})") from cause
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        raise _error(text, 'an object with "cluster" and "task"')
    return config


def _read_cluster(text: str, cluster: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    result: dict[str, tuple[str, ...]] = {}
    for name, tasks in sorted(cluster.items()):
        if not isinstance(tasks, list) or not all(_is_address(task) for task in tasks):
            raise _error(text, f'a list of "host:port" for job {name!r}, not {tasks!r}')
        if tasks:
            result[name] = tuple(tasks)
    addresses = [address for tasks in result.values() for address in tasks]
    if not addresses:
        raise _error(text, "at least one task in its cluster")
    if len(set(addresses)) != len(addresses):
        raise _error(text, "each address once")
    return result


def _index(value: object) -> int | None:
    """Return a task index; TensorFlow takes one written as text, too."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    return value if is_count(value) else None


def _is_address(value: object) -> bool:
    if not isinstance(value, str):
        return False
    host, _, port = value.rpartition(":")
    return (
        bool(host)
        and port.isascii()
        and port.isdigit()
        and len(port) <= 5
        and 1 <= int(port) <= 65535
    )


def _error(text: str, expected: str) -> ClusterError:
    return ClusterError(f"TF_CONFIG is {text!r}; expected {expected}")
