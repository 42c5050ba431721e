"""Effects of nodes are found, by the simulation of benchmarks/node_effects.py with fewer sweeps."""

from __future__ import annotations

import node_effects as simulation
import pytest
from tfscaling.tables.node_effects import node_effects

SLOW_NODE = (6, (1, 2, 3, 4), 6, 0.02, 1, 2.0)


def test_a_slow_node_is_named_and_sizes_are_right_without_it() -> None:
    held, named, false, bias, plain = simulation.simulate(SLOW_NODE, trials=20)
    assert named == 1.0 and held >= 0.8 and false <= 0.2
    assert bias < simulation.BIAS < plain


def test_nodes_that_all_runs_have_cannot_be_told() -> None:
    times_s = [10.0, 10.1, 9.9, 10.0, 5.0, 5.1, 4.9, 5.0]
    parts = [["a"]] * 4 + [["a", "b"]] * 4
    assert node_effects([1] * 4 + [2] * 4, [1, 2, 3, 4] * 2, parts, times_s) == []


def rotated(repeats: int) -> tuple[list[int], list[int], list[list[str]], list[float]]:
    """Three sizes on three nodes, of which `c` is slow: configurations, repeats, nodes, times."""
    nodes, rows = ("a", "b", "c"), []
    for repeat in range(repeats):
        for size in (1, 2, 3):
            part = [nodes[(repeat + n) % 3] for n in range(size)]
            time_s = (20.0 if "c" in part else 10.0) * (1 + 0.001 * ((repeat * size) % 4))
            rows.append((size, repeat, part, time_s))
    configurations, numbers, parts, times_s = map(list, zip(*rows, strict=True))
    return configurations, numbers, parts, times_s


@pytest.mark.parametrize("repeats", [5, 6, 9])
def test_a_node_has_its_factor(repeats: int) -> None:
    found = {each.node: each for each in node_effects(*rotated(repeats))}
    assert [node for node, each in found.items() if each.is_slow] == ["c"]
    assert found["c"].factor == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize("repeats", [2, 3, 4])
def test_a_few_runs_name_no_node(repeats: int) -> None:
    assert node_effects(*rotated(repeats)) == []


def test_a_node_that_cannot_be_separated_from_its_repeats_is_not_named() -> None:
    """One configuration: either node b is slow, or the load was higher in its repeats."""
    times_s = [10.0, 10.1, 9.9, 20.0, 20.1, 19.9]
    parts = [["a"]] * 3 + [["b"]] * 3
    assert node_effects([1] * 6, range(6), parts, times_s) == []


@pytest.mark.parametrize("name", simulation.PARTS_OF_REPEATS)
def test_a_load_that_changes_between_repeats_makes_no_node_slow(name: str) -> None:
    assert simulation.simulate_load(name, 1.2, trials=20) <= 0.1
