"""Effects of nodes are found, by the simulation of benchmarks/node_effects.py with fewer sweeps."""

from __future__ import annotations

from collections import Counter

import node_effects as simulation
import numpy as np
import pytest
import scipy
from measured import around, measured
from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.tables.node_effects import (
    PAIRS_MAX,
    estimate_effects_by_platform,
    estimate_node_effects,
    remove_slow_node_effects,
)
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.table_files import to_rows

SLOW_NODE = (6, (1, 2, 3, 4), 6, 0.02, 1, 2.0)


def test_a_slow_node_is_named_and_sizes_are_right_without_it() -> None:
    held, named, false, bias, plain = simulation.simulate(SLOW_NODE, trials=20)
    assert named == 1.0 and held >= 0.8 and false <= 0.2
    assert bias < simulation.BIAS < plain


def test_nodes_that_all_runs_have_cannot_be_told() -> None:
    times_s = [10.0, 10.1, 9.9, 10.0, 5.0, 5.1, 4.9, 5.0]
    parts = [["a"]] * 4 + [["a", "b"]] * 4
    assert estimate_node_effects([1] * 4 + [2] * 4, [1, 2, 3, 4] * 2, parts, times_s) == []


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
    found = {each.node: each for each in estimate_node_effects(*rotated(repeats))}
    assert [node for node, each in found.items() if each.is_slow] == ["c"]
    assert found["c"].factor == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize("repeats", [2, 3, 4])
def test_a_few_runs_name_no_node(repeats: int) -> None:
    assert estimate_node_effects(*rotated(repeats)) == []


def test_a_node_that_cannot_be_separated_from_its_repeats_is_not_named() -> None:
    """One configuration: either node b is slow, or the load was higher in its repeats."""
    times_s = [10.0, 10.1, 9.9, 20.0, 20.1, 19.9]
    parts = [["a"]] * 3 + [["b"]] * 3
    assert estimate_node_effects([1] * 6, range(6), parts, times_s) == []


@pytest.mark.parametrize("name", simulation.PARTS_OF_REPEATS)
def test_a_load_that_changes_between_repeats_makes_no_node_slow(name: str) -> None:
    assert simulation.simulate_load(name, 1.2, trials=20) <= 0.1


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
    repeats = [run // 5 for run in range(len(times_s))]
    effects = estimate_node_effects([1] * len(times_s), repeats, parts, times_s)
    assert [each.node for each in effects if each.is_slow] == slow
    assert [each.runs for each in effects[:2]] == [16, 16]
    for each in effects[:2] if slow else ():
        assert each.low < 2.0 < each.high and each.factor == pytest.approx(2.0, rel=0.03)
    healthy = remove_slow_node_effects(parts, times_s, effects)
    assert min(healthy) == pytest.approx(10.0, rel=0.05)
    assert max(healthy) == pytest.approx(10.0 if slow else 20.0, rel=0.05)


def test_effects_are_those_of_the_valid_runs_of_each_platform() -> None:
    """Every third node of `east` is slow; `west` has the same names, and no slow node."""
    points = [(name, nodes) for name in ("east", "west") for nodes in (1, 2, 3)]
    _, table, _ = measured({point: around(10.0, runs=12) for point in points})
    places = (table["nodes"] + table["repeat"]) % 3
    table["hosts"] = [["a", "b", "c"][place] for place in places]
    is_slow = (table["hosts"] == "c") & (table["platform"] == "east")
    table.loc[is_slow, "execution_time_s"] *= 2
    table.loc[table.index[[0, 1]], "status"] = "failed"
    table.loc[table.index[2], "hosts"] = ""
    table.loc[table.index[3], "execution_time_s"] = 0.0
    found = estimate_effects_by_platform(to_rows(RunRow, table))
    slow = {
        name: [each.node for each in effects if each.is_slow] for name, effects in found.items()
    }
    assert slow == {"east": ["c"], "west": []}
    counted = Counter(zip(table["platform"][4:], table["hosts"][4:], strict=True))
    for name, effects in found.items():
        assert {(name, each.node): each.runs for each in effects} == {
            key: count for key, count in counted.items() if key[0] == name
        }


def test_the_interval_of_a_node_is_that_of_a_t_test_for_all_nodes_together() -> None:
    """In each of four repeats one run is on `a`, one on `b`, and one on `c`, which is slow."""
    dice = np.random.default_rng(11)
    parts, repeats = [["a"], ["b"], ["c"]] * 4, [run // 3 for run in range(12)]
    times_s = np.exp(dice.normal(0, 0.05, 12)) * np.where([part == ["c"] for part in parts], 2, 1)
    effects = estimate_node_effects([1] * 12, repeats, parts, times_s.tolist())
    (found,) = (each for each in effects if each.node == "c")
    logs = np.log(times_s).reshape(4, 3)
    logs -= logs.mean(axis=1, keepdims=True)
    has = np.array([-1, -1, 2]) / 3
    effect = float((logs * has).sum() / (4 * (has**2).sum()))
    freedom = 12 - 4 - 1  # means of repeats, and the effect
    variance = ((logs - effect * has) ** 2).sum() / freedom
    error = np.sqrt(variance / (4 * (has**2).sum()))
    half = scipy.stats.t.ppf(1 - (1 - CONFIDENCE) / 2 / (2 * 3), freedom) * error
    expected = np.exp([effect - half, effect + half])
    assert found.is_slow and (found.low, found.high) == pytest.approx(tuple(expected), rel=1e-6)
