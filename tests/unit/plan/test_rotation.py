"""Which nodes of an allocation a job gets."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from snakemake_executor_plugin_slurm_allocation.rotation import Rotation

NODES = [f"node{n}" for n in range(8)]
#: Numbers of nodes, and sizes of jobs, whose nodes may serve three jobs more than others.
UNEVEN = {(10, 3), (11, 4), (11, 5), (11, 7), (12, 5), (12, 7)}


@given(st.integers(2, 12), st.integers(0, 2**16))
@example(11, 4698)
@settings(deadline=None)
def test_every_node_serves_every_size_about_equally_often(number: int, seed: int) -> None:
    nodes, rotation = [f"n{n}" for n in range(number)], Rotation()
    sizes = [size for size in range(1, number + 1) for _ in range(2 * number)]
    random.Random(seed).shuffle(sizes)
    used: Counter[tuple[int, str]] = Counter()
    for size in sizes:
        used.update((size, node) for node in rotation.choose(nodes, nodes, size))
    for size in range(1, number + 1):
        counts = [used[size, node] for node in nodes]
        assert max(counts) - min(counts) <= 2 + ((number, size) in UNEVEN)


def test_nodes_are_next_to_each_other() -> None:
    rotation = Rotation()
    for _ in range(20):
        places = sorted(NODES.index(node) for node in rotation.choose(NODES, NODES, 3))
        assert places in ([n % 8 for n in range(k, k + 3)] for k in range(8)) or places in (
            [0, 1, 7],
            [0, 6, 7],
        )


def test_only_free_nodes_are_chosen() -> None:
    free = ["node1", "node4", "node7"]
    assert set(Rotation().choose(NODES, free, 3)) == set(free)
    with pytest.raises(ValueError, match="3 are free"):
        Rotation().choose(NODES, free, 4)
