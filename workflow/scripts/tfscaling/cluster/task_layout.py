"""Where each task of a cluster runs: ranks to nodes, addresses to jobs.  Pure functions.

A *rank* counts all tasks of a step, a *local index* the tasks of one node, an *index* the
tasks of one job (``ps``, ``worker``, ...).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

_LAST_PORT = 65535


class ClusterError(ValueError):
    """The cluster cannot be told from what is given.

    The message names the variable or argument, its value, and what was expected.
    """


@dataclass(frozen=True)
class Slot:
    """The place of one task: its node and its position among the tasks of that node."""

    host: str
    node_index: int
    local_index: int


def place_tasks(
    tasks_on_host: Mapping[str, int], distribution: str = "block", plane_size: int = 1
) -> list[Slot]:
    """Give each rank its node.

    Args:
        tasks_on_host: number of tasks of each node, in Slurm's order of nodes.
        distribution: ``block`` fills one node after the other, ``cyclic`` deals the ranks out
            in turn, ``plane`` deals them out in blocks of ``plane_size`` (``srun -m``).

    Returns:
        The slot of each rank, shape [tasks].

    Raises:
        ClusterError: a count that is no whole number, or negative; an unknown distribution.
    """
    for host, count in tasks_on_host.items():
        if not is_count(count):
            raise ClusterError(
                f"tasks_per_node gives {count!r} tasks for node {host!r};"
                " expected a whole number, 0 or more"
            )
    if distribution == "block":
        block = max(tasks_on_host.values(), default=0)
    elif distribution == "cyclic":
        block = 1
    elif distribution == "plane" and plane_size >= 1:
        block = plane_size
    else:
        raise ClusterError(
            f"distribution {distribution!r} (plane size {plane_size}) of tasks over nodes is"
            " not known; expected block, cyclic, or plane with a size of 1 or more"
        )
    return list(_deal(tasks_on_host, block))


def _deal(tasks_on_host: Mapping[str, int], block: int) -> Iterator[Slot]:
    """Deal ranks in rounds of ``block`` per node, skipping nodes that have theirs."""
    for start in range(0, max(tasks_on_host.values(), default=0), max(block, 1)):
        for node_index, (host, count) in enumerate(tasks_on_host.items()):
            for local_index in range(start, min(start + block, count)):
                yield Slot(host, node_index, local_index)


def repeat_tasks(tasks_per_node: int | Mapping[str, int], hosts: Sequence[str]) -> dict[str, int]:
    """Return the number of tasks of each host, in the order of ``hosts``.

    Args:
        tasks_per_node: one number for all, or ``{host: number}``; hosts may be left out.
        hosts: the nodes in Slurm's order, which is the one that ranks follow, unlike the mapping's.

    Raises:
        ClusterError: a node that is not in ``hosts``; a host twice.
    """
    check_unique(hosts)
    if not isinstance(tasks_per_node, Mapping):
        return dict.fromkeys(hosts, tasks_per_node)
    unknown = sorted(set(tasks_per_node) - set(hosts))
    if unknown:
        raise ClusterError(
            f"tasks_per_node names {', '.join(unknown)}; expected nodes of SLURM_STEP_NODELIST:"
            f" {', '.join(hosts)}"
        )
    return {host: tasks_per_node[host] for host in hosts if host in tasks_per_node}


def check_unique(hosts: Sequence[str]) -> None:
    """Raise ClusterError if a host is there twice, which Slurm never writes for a step."""
    duplicates = [host for host, count in Counter(hosts).items() if count > 1]
    if duplicates:
        raise ClusterError(
            f"SLURM_STEP_NODELIST names {', '.join(duplicates)} more than once;"
            " expected each node of the step once"
        )


def addresses(slots: Sequence[Slot], ports: Sequence[int]) -> list[str]:
    """Give each rank its ``host:port``, shape [tasks].

    Args:
        slots: the slot of each rank.
        ports: the port of each local index.

    Raises:
        ClusterError: fewer ports than tasks on a node.
    """
    needed = max((slot.local_index + 1 for slot in slots), default=0)
    if needed > len(ports):
        raise ClusterError(
            f"SLURM_STEP_RESV_PORTS reserves {len(ports)} ports"
            f" ({', '.join(map(str, ports))}), but a node runs {needed} tasks;"
            f" expected one port per task: srun --resv-ports={needed}"
        )
    return [f"{slot.host}:{ports[slot.local_index]}" for slot in slots]


def port_range(port_base: int, tasks_on_a_node: int) -> range:
    """The ports of the tasks of a node: ``port_base`` and one more per task.

    Raises:
        ClusterError: a port outside 1 to 65535.
    """
    if not is_count(port_base) or not 1 <= port_base <= _LAST_PORT - max(tasks_on_a_node - 1, 0):
        raise ClusterError(
            f"port_base is {port_base!r}; expected a whole number from 1, with"
            f" {tasks_on_a_node} tasks on a node ending at or below {_LAST_PORT}"
        )
    return range(port_base, port_base + tasks_on_a_node)


def check_jobs(jobs: Mapping[str, int], num_tasks: int) -> dict[str, int]:
    """Return ``jobs`` in the order in which ranks are dealt to them, without empty jobs.

    The order is that of TensorFlow's resolver: by name, so chief < ps < worker.

    Args:
        jobs: number of tasks of each job.
        num_tasks: number of tasks there are.

    Raises:
        ClusterError: a count that is no whole number, or the wrong sum.
    """
    for job, count in jobs.items():
        if not isinstance(job, str) or not job or not is_count(count):
            raise ClusterError(
                f"jobs is {dict(jobs)!r}: expected a name and a whole number, 0 or more,"
                f" for each job, not {job!r}: {count!r}"
            )
    if sum(jobs.values()) != num_tasks:
        raise ClusterError(
            f"jobs is {dict(jobs)!r} (default: SLURM_STEP_NUM_TASKS workers), in all"
            f" {sum(jobs.values())} tasks, but the nodes run {num_tasks} tasks"
            " (SLURM_STEP_TASKS_PER_NODE or tasks_per_node); expected equal numbers"
        )
    return {job: jobs[job] for job in sorted(jobs) if jobs[job] > 0}


def split_jobs(
    task_addresses: Sequence[str], jobs: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Deal the addresses of all ranks to the jobs, in order; each value has shape [tasks]."""
    result = {}
    start = 0
    for job, count in jobs.items():
        result[job] = tuple(task_addresses[start : start + count])
        start += count
    return result


def task_of_rank(rank: int, jobs: Mapping[str, int]) -> tuple[str, int]:
    """Return job and index of a rank.

    Raises:
        ClusterError: the rank is outside [0, number of tasks).
    """
    start = 0
    for job, count in jobs.items():
        if start <= rank < start + count:
            return job, rank - start
        start += count
    raise ClusterError(
        f"SLURM_PROCID (own rank) is {rank}; expected 0 to {start - 1}, as there are {start} tasks"
    )


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number, 0 or more; True and 2.0 are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
