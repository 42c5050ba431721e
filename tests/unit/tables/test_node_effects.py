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
    times_s = [10.0, 10.1, 9.9, 5.0, 5.1, 4.9]
    parts = [["a"]] * 3 + [["a", "b"]] * 3
    assert node_effects([1, 1, 1, 2, 2, 2], parts, times_s) == []


def test_a_node_has_its_factor() -> None:
    parts, times_s = [["a"], ["b"], ["c"]] * 4, [10.0, 10.1, 20.0, 10.1, 10.0, 20.2] * 2
    found = {each.node: each for each in node_effects([1] * 12, parts, times_s)}
    assert [node for node, each in found.items() if each.is_slow] == ["c"]
    assert found["c"].factor == pytest.approx(2, rel=0.01) and found["c"].runs == 4
