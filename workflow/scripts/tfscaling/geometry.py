"""The shape of one run: nodes, tasks and devices, and the batch sizes that follow from it.

Layer 1 (plan).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

BATCH_SIZE_KEYS = ("per_replica_batch_size", "per_worker_batch_size", "global_batch_size")


@dataclass(frozen=True, slots=True)
class Geometry:
    """What Slurm is asked for: `gpus_per_node` GPUs on each node, shared by its tasks."""

    nodes: int
    tasks_per_node: int
    gpus_per_node: int

    @property
    def tasks(self) -> int:
        return self.nodes * self.tasks_per_node

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def gpus_per_task(self) -> int:
        return self.gpus_per_node // self.tasks_per_node


class StrategyGeometry(Protocol):
    """What the plan asks of a distribution strategy; `strategies.STRATEGIES` holds them."""

    def replicas(self, geometry: Geometry) -> int:
        """Number of replicas that train, at least 1."""

    def refusal(self, geometry: Geometry) -> str | None:
        """Why the strategy cannot run with this geometry, or None."""


def batch_sizes(recipe: Mapping[str, Any], geometry: Geometry, replicas: int) -> tuple[int, int]:
    """(per-replica, global) batch size in examples.

    Raises ValueError when a batch cannot be split evenly over its replicas.
    """
    workers = geometry.tasks
    if (per_replica := recipe["per_replica_batch_size"]) is not None:
        return per_replica, per_replica * replicas
    if (per_worker := recipe["per_worker_batch_size"]) is not None:
        shares, name, total = replicas // workers, "per_worker_batch_size", per_worker
    else:
        workers, shares = 1, replicas
        name, total = "global_batch_size", recipe["global_batch_size"]
    if total % shares:
        raise ValueError(f"{name} {total} is not divisible by {shares} replicas")
    return total // shares, total * workers


def batch_scaling(recipe: Mapping[str, Any]) -> str:
    """`strong` if the global batch is fixed, else `weak`."""
    return "strong" if recipe["global_batch_size"] is not None else "weak"
