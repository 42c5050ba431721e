"""The choice of nodes in an allocation: jobs of every size use all nodes equally often.

So differences between nodes are not taken for differences between sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Rotation:
    """Chooses the nodes of each job, so that jobs of each size use all nodes equally often.

    Attributes:
        of_size: (number of nodes of a job, node) → number of jobs of this size that used the node.
        in_all: Node → number of jobs of any size that used it.
    """

    of_size: Counter[tuple[int, str]] = field(default_factory=Counter)
    in_all: Counter[str] = field(default_factory=Counter)

    def choose(self, nodes: Sequence[str], free: Collection[str], size: int) -> tuple[str, ...]:
        """Choose the free nodes that jobs of this size used least, adjacent ones where possible.

        The chosen nodes are counted as used.

        Args:
            nodes: All nodes in Slurm's order, which follows the topology. The last one counts as
                adjacent to the first.
            free: Nodes without a job.
            size: Number of nodes of the job.

        Raises:
            ValueError: Fewer than `size` nodes are free.
        """
        if len(free) < size:
            raise ValueError(f"{size} nodes requested, {len(free)} are free")
        ring = [node for node in nodes if node in free]
        rings = [tuple((ring + ring)[n : n + size]) for n in range(len(ring))]
        places = {node: place for place, node in enumerate(nodes)}

        def badness(chosen: tuple[str, ...]) -> tuple[int, int, int, int]:
            """Return the sort key of a choice; lower is better."""
            gaps = [(places[b] - places[a]) % len(nodes) for a, b in pairwise(chosen)]
            uses = [self.of_size[size, node] for node in chosen]
            return max(uses), sum(uses), sum(gaps), sum(self.in_all[node] for node in chosen)

        chosen = min(rings, key=badness)
        self.add(chosen)
        return chosen

    def add(self, nodes: Collection[str]) -> None:
        """Count one more use of these nodes, by this or an earlier start of Snakemake."""
        self.of_size.update((len(nodes), node) for node in nodes)
        self.in_all.update(nodes)
