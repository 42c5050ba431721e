"""Effects of nodes are found, by the simulation of benchmarks/node_effects.py with fewer sweeps."""

from __future__ import annotations

from collections import Counter

import node_effects as simulation
import numpy as np
import pytest
import scipy
from measured import around, measured
from tfscaling.tables.estimates import CONFIDENCE
from tfscaling.tables.node_effects import (
    PAIRS_MAX,
    node_effects,
    of_platforms,
    without_slow_nodes,
)
from tfscaling.tables.rows import RunRow
from tfscaling.tables.table_rows import typed

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


def two_hidden(nodes: int, seed: int, runs: int = 40) -> tuple[list[list[str]], list[float]]:
    """Runs that are slow with either of two nodes, one of which most of them have."""
    dice = np.random.default_rng(seed)
    names = [f"n{number:02}" for number in range(nodes)]
    parts, times_s = [], []
    for run in range(runs):
        others = dice.choice(names[2:], 4, replace=False).tolist()
        parts.append([*[[names[0]], [names[1]], [names[0]], [names[1]], []][run % 5], *others])
        times_s.append((20.0 if run % 5 < 4 else 10.0) * float(np.exp(dice.normal(0, 0.01))))
    return parts, times_s


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("nodes", "slow"), [(PAIRS_MAX, ["n00", "n01"]), (PAIRS_MAX + 1, [])], ids=["few", "many"]
)
def test_two_nodes_that_hide_each_other_are_found_among_few_nodes(
    nodes: int, slow: list[str], seed: int
) -> None:
    parts, times_s = two_hidden(nodes, seed)
    effects = node_effects([1] * len(times_s), parts, times_s)
    assert [each.node for each in effects if each.is_slow] == slow
    assert [each.runs for each in effects[:2]] == [16, 16]
    for each in effects[:2] if slow else ():
        assert each.low < 2.0 < each.high and each.factor == pytest.approx(2.0, rel=0.03)
    healthy = without_slow_nodes(parts, times_s, effects)
    assert min(healthy) == pytest.approx(10.0, rel=0.05)
    assert max(healthy) == pytest.approx(10.0 if slow else 20.0, rel=0.05)


def test_effects_are_those_of_the_valid_runs_of_each_platform() -> None:
    """Every third node of `east` is slow; `west` has the same names, and no slow node."""
    _, table, _ = measured({(name, 1): around(10.0, runs=12) for name in ("east", "west")})
    table["hosts"] = [["a", "b", "c"][number % 3] for number in range(len(table))]
    is_slow = (table["hosts"] == "c") & (table["platform"] == "east")
    table.loc[is_slow, "execution_time_s"] *= 2
    table.loc[table.index[[0, 1]], "status"] = "failed"
    table.loc[table.index[2], "hosts"] = ""
    found = of_platforms(typed(RunRow, table))
    slow = {
        name: [each.node for each in effects if each.is_slow] for name, effects in found.items()
    }
    assert slow == {"east": ["c"], "west": []}
    counted = Counter(zip(table["platform"][3:], table["hosts"][3:], strict=True))
    for name, effects in found.items():
        assert {(name, each.node): each.runs for each in effects} == {
            key: count for key, count in counted.items() if key[0] == name
        }


def test_the_interval_of_a_node_is_that_of_a_t_test_for_all_nodes_together() -> None:
    """The twelve runs are on `a`, `b` and `c` in turn; `c` is slow."""
    dice = np.random.default_rng(11)
    parts = [["a"], ["b"], ["c"]] * 4
    times_s = np.exp(dice.normal(0, 0.05, 12)) * np.where([part == ["c"] for part in parts], 2, 1)
    (found,) = (
        each for each in node_effects([1] * 12, parts, times_s.tolist()) if each.node == "c"
    )
    logs = np.log(times_s).reshape(4, 3)
    expected = scipy.stats.ttest_ind(logs[:, 2], logs[:, :2].ravel())
    low, high = np.exp(expected.confidence_interval(1 - (1 - CONFIDENCE) / (2 * 3)))
    assert found.is_slow and (found.low, found.high) == pytest.approx((low, high), rel=1e-6)
