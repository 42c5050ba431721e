"""Where each task of a cluster runs: ranks to nodes, ranks to jobs.  Pure functions.

A *rank* counts all tasks of a step, a *local index* the tasks of one node, an *index* the
tasks of one job (``ps``, ``worker``, ...).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


class ClusterError(ValueError):
    """The environment does not describe a cluster.

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
        ClusterError: a plane without a size.
    """
    most = max(tasks_on_host.values(), default=0)
    block = {"block": most, "cyclic": 1, "plane": plane_size}[distribution]
    if most and block < 1:
        raise ClusterError(f"SLURM_DIST_PLANESIZE is {plane_size}; expected 1 or more")
    return list(_deal(tasks_on_host, most, block))


def _deal(tasks_on_host: Mapping[str, int], most: int, block: int) -> Iterator[Slot]:
    """Deal ranks in rounds of ``block`` per node, skipping nodes that have theirs."""
    for start in range(0, most, max(block, 1)):
        for node_index, (host, count) in enumerate(tasks_on_host.items()):
            for local_index in range(start, min(start + block, count)):
                yield Slot(host, node_index, local_index)


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


def tasks_of_jobs(jobs: Mapping[str, int], num_tasks: int) -> list[tuple[str, int]]:
    """Return job and index of each rank, shape [tasks].

    Ranks go to the jobs in the order of TensorFlow's resolver: by name, so chief < ps < worker.

    Args:
        jobs: number of tasks of each job.
        num_tasks: number of tasks that the nodes run.

    Raises:
        ClusterError: the jobs have other tasks than the nodes.
    """
    if sum(jobs.values()) != num_tasks:
        raise ClusterError(
            f"jobs is {dict(jobs)!r}, in all"
            f" {sum(jobs.values())} tasks, but the nodes run {num_tasks} tasks"
            " (SLURM_STEP_TASKS_PER_NODE); expected equal numbers"
        )
    return [(job, index) for job in sorted(jobs) for index in range(jobs[job])]
