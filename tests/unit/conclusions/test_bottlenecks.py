"""What limits a point: the largest part of a step, a slow rank."""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd
import pytest
from measured import around, measured
from tfscaling.conclusions import bottlenecks
from tfscaling.conclusions.evidence import Study
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.row_values import points_of
from tfscaling.tables.table_files import to_rows

#: Milliseconds of a step: input, computation, stragglers, communication.
Parts = tuple[float, float, float, float]
INPUT: Parts = (24, 8, 2, 6)
COMPUTATION: Parts = (0, 36, 0, 4)
COMMUNICATION: Parts = (8, 8, 4, 20)
RUNS = 24


def table_of(of_nodes: dict[int, list[Parts]]) -> pd.DataFrame:
    """The table of RUNS runs at each of these numbers of nodes, which have these parts in turns."""
    comparison, runs, planned = measured({("east", n): around(10.0, runs=RUNS) for n in of_nodes})
    for nodes, turns in of_nodes.items():
        own = runs["nodes"] == nodes
        parts = pd.DataFrame(itertools.islice(itertools.cycle(turns), RUNS), runs.index[own]) / 1e3
        runs.loc[own, "replicas"] = nodes
        runs.loc[own, "input_wait_s"] = parts[0].where(parts[0] > 0)
        runs.loc[own, "compute_time_s"] = parts[1]
        runs.loc[own, "straggler_ratio"] = 1 + parts[2] / parts[1]
        runs.loc[own, "synchronisation_time_s"] = parts[2] + parts[3]
    return bottlenecks.table(Study(comparison, runs, planned)).set_index("nodes")


def test_each_point_has_the_parts_of_its_steps_and_what_holds_it_back() -> None:
    of_nodes = {1: [COMPUTATION], 2: [INPUT], 4: [COMMUNICATION, COMMUNICATION, INPUT]}
    table = table_of(of_nodes)
    assert table["held_back_by"].to_dict() == {
        1: "computation", 2: "input", 4: "communication or input",
    }  # fmt: skip
    assert table["runs"].tolist() == [RUNS] * 3
    shares = [table.loc[2, f"input_share{end}"] for end in ("", "_low", "_high")]
    assert shares == pytest.approx([0.6, 0.6, 0.6])
    assert (table.loc[4, "communication_largest"], table.loc[4, "input_largest"]) == (16, 8)


def test_a_single_replica_neither_waits_nor_communicates() -> None:
    row = table_of({1: [(10, 20, 0, 10)]}).loc[1]
    assert (row["input_share"], row["computation_share"]) == pytest.approx((0.25, 0.75))
    assert row[["stragglers_share", "communication_share"]].isna().all()


#: Runs of 24 in which communication is the largest → what holds the point back.
@pytest.mark.parametrize(("other", "expected"), [(6, "input"), (8, "input or communication")])
def test_a_few_runs_that_were_disturbed_change_no_answer(other: int, expected: str) -> None:
    turns = [COMMUNICATION] * other + [INPUT] * (RUNS - other)
    (row,) = table_of({2: turns}).to_dict("records")
    assert (row["held_back_by"], row["communication_largest"]) == (expected, other)
    assert row["input_share_low"] == pytest.approx(0.6 if expected == "input" else 0.2)


def runs_of(*slow: tuple[int, float], **columns: Any) -> pd.DataFrame:
    """Runs of one point with (slowest rank, straggler ratio) each."""
    _, runs, _ = measured({("east", 4): around(10.0, runs=len(slow))})
    runs["slowest_rank"] = [rank for rank, _ in slow]
    runs["straggler_ratio"] = [ratio for _, ratio in slow]
    runs["slowest_host"] = [f"node{rank}" for rank, _ in slow]
    return runs.assign(**columns)


def slow_ranks(runs: pd.DataFrame) -> list[Any]:
    return [*bottlenecks.find_slow_ranks(to_rows(RunRow, runs), {*points_of(runs)})]


def test_the_same_slow_rank_in_all_runs_is_named_with_its_host() -> None:
    ((point, text, support, _),) = slow_ranks(runs_of(*[(2, 3.0 + n / 10) for n in range(6)]))
    assert point.nodes == 4
    assert text.startswith("Rank 2 on node2 ") and "3.00 to 3.50" in text
    assert "in all 6 runs" in text
    assert support == "supported"


def test_a_single_run_names_it_without_a_claim() -> None:
    ((_, text, support, _),) = slow_ranks(runs_of((1, 2.0)))
    assert "Rank 1 on node1 " in text and "2.00 times" in text
    assert support == "too few runs"


def test_among_many_points_of_two_ranks_the_same_slow_rank_can_be_chance() -> None:
    """Six runs: one in 32 for each point."""
    comparison, runs, _ = measured({("east", n): around(10.0) for n in (2, 4, 8, 16)})
    slow = runs.assign(straggler_ratio=1.0, slowest_rank=range(len(runs)), slowest_host="a")
    for nodes, support in ((2, "inconclusive"), (4, "supported")):
        own = slow.copy()
        columns = ["straggler_ratio", "slowest_rank"]
        own.loc[own["nodes"] == nodes, columns] = [2.0, 1]
        ((point, _, found, comparisons),) = slow_ranks(own)
        assert (point.nodes, found, comparisons) == (nodes, support, 4)
    assert len(comparison) == 4
