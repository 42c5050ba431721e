"""The geometry of a run: nodes, tasks and GPUs, and the batch sizes that follow from it.

The grid makes a `Geometry` of each configuration; Slurm's resources and TF_CONFIG follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfscaling.study.config_types import Recipe


@dataclass(frozen=True, slots=True)
class Geometry:
    """Nodes, tasks and GPUs of a run's job; each task is one rank.

    Attributes:
        nodes: Number of nodes.
        tasks_per_node: A number, or the numbers on each node: "2+1" puts two tasks on the first
            node and one on the second. (Slurm writes "2,1", but Snakemake passes wildcards in a
            list with commas.)
        gpus_per_node: GPUs or logical devices on each node, shared by its tasks; 0 trains on CPUs.
    """

    nodes: int
    tasks_per_node: int | str
    gpus_per_node: int

    @property
    def tasks_on_nodes(self) -> tuple[int, ...]:
        """Number of tasks on each node, the first node first."""
        if isinstance(self.tasks_per_node, int):
            return (self.tasks_per_node,) * self.nodes
        return tuple(int(count) for count in self.tasks_per_node.split("+"))

    @property
    def tasks(self) -> int:
        """Number of tasks on all nodes together."""
        even = isinstance(self.tasks_per_node, int)
        return self.nodes * self.tasks_per_node_max if even else sum(self.tasks_on_nodes)

    @property
    def tasks_per_node_max(self) -> int:
        """Number of tasks on the first node, which has the most."""
        # a number of nodes that no platform has must not become a tuple of that length
        tasks = self.tasks_per_node
        return tasks if isinstance(tasks, int) else max(self.tasks_on_nodes)

    @property
    def gpus(self) -> int:
        """Number of GPUs, or logical devices, on all nodes together."""
        return self.nodes * self.gpus_per_node

    @property
    def gpus_per_task(self) -> int:
        """Number of GPUs, or logical devices, of one task; 0 trains on CPUs."""
        return self.gpus_per_node // self.tasks_per_node_max

    def placement_problem(self) -> str | None:
        """Return why Slurm cannot place uneven tasks on the nodes; None if it can.

        Slurm fills node after node, so only the last node can have fewer tasks.
        """
        if isinstance(self.tasks_per_node, int):
            return None
        counts = self.tasks_on_nodes
        if len(counts) != self.nodes:
            return f"tasks_per_node {self.tasks_per_node} is for {len(counts)} nodes"
        if min(counts) < 1 or len(set(counts[:-1])) > 1 or counts[-1] > counts[0]:
            return f"tasks_per_node {self.tasks_per_node}: only the last node can have fewer tasks"
        if len(set(counts)) == 1:
            return f"tasks_per_node {self.tasks_per_node} is the same on each node: {counts[0]}"
        return None


def resolve_batch_sizes(recipe: Recipe, geometry: Geometry, replicas: int) -> tuple[int, int]:
    """Return (batch size per replica, global batch size), in examples per step.

    Args:
        recipe: The recipe, which sets one of the batch sizes.
        geometry: Nodes, tasks and GPUs of the run.
        replicas: Number of replicas on all workers together.

    Raises:
        ValueError: If the global batch cannot be split evenly.
    """
    workers = replicas // max(1, geometry.gpus_per_task)
    if isinstance(per_replica := recipe.per_replica_batch_size, int):
        return per_replica, per_replica * replicas
    if (total := recipe.per_worker_batch_size) is not None:
        name, shares = "per_worker_batch_size", replicas // workers
    else:
        name, shares, workers = "global_batch_size", replicas, 1
        total = recipe.global_batch_size
        assert total is not None, "recipes.check_recipes refuses recipes without a batch size"
    if total % shares:
        raise ValueError(f"{name} {total} is not divisible by {shares} replicas")
    return total // shares, total * workers
