#!/usr/bin/env python3
"""How often a slow node is named, and how wrong a size looks, with and without rotation.

node_effects.py [--trials N]: sweeps over several numbers of nodes of one allocation, the nodes
chosen by the rotation of the executor slurm-allocation or always the first ones, with known effects
of nodes. Prints a table; ends with 1 if a required rate is missed.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path += [
    str(ROOT / "workflow/scripts"),
    str(ROOT / "plugins/snakemake-executor-plugin-slurm-sweep"),
]

from snakemake_executor_plugin_slurm_allocation.rotation import Rotation  # noqa: E402
from tfscaling.tables.node_effects import estimate_node_effects, remove_slow_node_effects  # noqa: E402

#: Nodes, sizes, repeats, scatter, number of slow nodes, how many times as slow.
CELLS = (
    (6, (1, 2, 4), 2, 0.02, 1, 1.5),
    (6, (1, 2, 4), 3, 0.02, 1, 1.5),
    (6, (1, 2, 4), 4, 0.02, 1, 1.5),
    (6, (1, 2, 3, 4), 6, 0.02, 0, 1.0),
    (6, (1, 2, 3, 4), 6, 0.02, 1, 2.0),
    (6, (1, 2, 3, 4), 6, 0.02, 1, 1.2),
    (6, (1, 2, 4, 6), 6, 0.05, 1, 2.0),
    (8, (1, 2, 4, 8), 6, 0.02, 1, 2.0),
    (3, (1, 2, 3), 6, 0.02, 1, 2.0),
    (12, (1, 2, 4, 8), 12, 0.05, 1, 2.0),
    (8, (1, 2, 4), 6, 0.03, 2, 2.0),
)
#: Required: all intervals of a sweep hold, slow nodes named, a healthy node named, bias of a size.
COVERED, NAMED, FALSE, BIAS = 0.94, 0.95, 0.05, 0.03
#: With fewer repeats nodes need not be named.
REPEATS_TO_NAME = 6
#: More slow nodes than this are shown, and nothing is required.
SLOW_MAX = 1


def simulate(cell: tuple[int, tuple[int, ...], int, float, int, float], trials: int) -> list[float]:
    """Coverage, share named, share false, largest bias of a size with and without correction."""
    number, sizes, repeats, scatter, slow_nodes, factor = cell
    random = np.random.default_rng(7)
    nodes = [f"node{n:02}" for n in range(number)]
    covered, named, false = [], [], []
    corrected, plain = [], []
    for _ in range(trials):
        rotation = Rotation()
        slow = {str(n) for n in random.choice(nodes, slow_nodes, replace=False)}
        configurations, repeat_of, parts, times_s = [], [], [], []
        for repeat in range(repeats):
            for size in random.permutation(sizes):
                part = rotation.choose(nodes, nodes, int(size))
                own = factor if slow & set(part) else 1.0
                configurations.append(int(size))
                repeat_of.append(repeat)
                parts.append(part)
                times_s.append(100 / size * own * np.exp(random.normal(0, scatter)))
        effects = estimate_node_effects(configurations, repeat_of, parts, times_s)
        truth = {node: factor if node in slow else 1.0 for node in nodes}
        covered += [all(e.low <= truth[e.node] <= e.high for e in effects)]
        found = {each.node for each in effects if each.is_slow}
        named.append(slow <= found)
        false.append(bool(found - slow))
        healthy = np.array(remove_slow_node_effects(parts, times_s, effects))
        for size in sizes:
            own = np.array(configurations) == size
            corrected.append((size, np.median(healthy[own]) * size / 100 - 1))
            plain.append((size, np.median(np.array(times_s)[own]) * size / 100 - 1))

    def largest(found: list[tuple[int, float]]) -> float:
        return max(abs(float(np.mean([x for s, x in found if s == size]))) for size in sizes)

    shares = [float(np.mean(each)) for each in (covered, named, false)]
    return [*shares, largest(corrected), largest(plain)]


#: Of eight healthy nodes, those of each of six repeats, and the repeat from which on all runs take
#: `load` times as long: a sweep that was resumed on other nodes while the load had changed.
PARTS_OF_REPEATS = {
    "others from the fourth repeat on": (3, (*[(0, 4)] * 3, *[(4, 8)] * 3)),
    "others in the last repeat": (5, (*[(0, 4)] * 5, (4, 8))),
    "all nodes": (3, ((0, 8),) * 6),
    "others in each second repeat": (3, ((0, 4), (4, 8)) * 3),
}
LOADS = (1.05, 1.1, 1.2)


def simulate_load(name: str, load: float, trials: int, seed: int = 7) -> float:
    """Return how often a healthy node is named where the load changes between repeats."""
    changed, parts_of = PARTS_OF_REPEATS[name]
    random, nodes = np.random.default_rng(seed), [f"node{n}" for n in range(8)]
    named = 0
    for _ in range(trials):
        rotation = Rotation()
        rows: list[tuple[int, int, tuple[str, ...], float]] = []
        for repeat, (begin, end) in enumerate(parts_of):
            own = nodes[begin:end]
            for size in random.permutation((1, 2, 4)):
                time_s = 100 / size * (load if repeat >= changed else 1.0)
                time_s *= math.exp(random.normal(0, 0.02))
                part = rotation.choose(own, own, int(size))
                rows.append((int(size), repeat, part, time_s))
        named += any(each.is_slow for each in estimate_node_effects(*zip(*rows, strict=True)))
    return named / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    trials = parser.parse_args().trials
    print(f"{trials} sweeps per row; the median of a size against its true time\n")
    titles = (
        *("nodes", "sizes", "repeats", "scatter", "slow nodes", "intervals hold", "named"),
        *("healthy node named", "bias", "bias without correction"),
    )
    print(f"| {' | '.join(titles)} |")
    print("|--:" * len(titles) + "|")
    missed = False
    for cell in CELLS:
        covered, named, false, bias, plain = simulate(cell, trials)
        number, sizes, repeats, scatter, slow, factor = cell
        missed |= slow <= SLOW_MAX and false > FALSE
        if slow <= SLOW_MAX and repeats >= REPEATS_TO_NAME:
            missed |= covered < COVERED or named < NAMED or bias > BIAS
        words = f"{slow}, {factor:g} times" if slow else "none"
        values = (number, ", ".join(map(str, sizes)), repeats, f"{scatter:.0%}", words)
        rates = (
            *(f"{rate:.3f}" for rate in (covered, named, false)),
            f"{bias:.1%}",
            f"{plain:.0%}",
        )
        print(f"| {' | '.join(map(str, (*values, *rates)))} |", flush=True)
    print("\n| nodes of a repeat | load | healthy node named |\n|:--|--:|--:|")
    for name in PARTS_OF_REPEATS:
        for load in LOADS:
            rate = simulate_load(name, load, trials)
            missed |= rate > FALSE
            print(f"| {name} | {load:g} times | {rate:.3f} |", flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
