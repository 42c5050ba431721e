"""A slow rank is named if it is slow in every run."""

from __future__ import annotations

from typing import Any

import pandas as pd
from measured import NOTHING_PLANNED, around, measured
from tfscaling.conclusions import findings, what_holds_back
from tfscaling.conclusions.evidence import Study


def runs_of(*slow: tuple[int, float], **columns: Any) -> pd.DataFrame:
    """Runs of one point with (slowest rank, straggler ratio) each."""
    _, runs, _ = measured({("east", 4): around(10.0, runs=len(slow))})
    runs["slowest_rank"] = [rank for rank, _ in slow]
    runs["straggler_ratio"] = [ratio for _, ratio in slow]
    runs["slowest_host"] = [f"node{rank}" for rank, _ in slow]
    return runs.assign(**columns)


def test_the_same_slow_rank_in_all_runs_is_named_with_its_host() -> None:
    ((point, text, support, _),) = what_holds_back.find(
        runs_of(*[(2, 3.0 + n / 10) for n in range(6)])
    )
    assert point.nodes == 4
    assert text.startswith("Rank 2 on node2 computes 3.00 to 3.50 times as long as the median rank")
    assert "in all 6 runs" in text
    assert support == "supported"


def test_a_single_run_names_it_without_a_claim() -> None:
    ((_, text, support, _),) = what_holds_back.find(runs_of((1, 2.0)))
    assert "Rank 1 on node1 computes 2.00 times as long" in text and "in its only run" in text
    assert support == "too few runs"


def test_another_rank_in_each_run_is_chance() -> None:
    assert not list(what_holds_back.find(runs_of(*[(n % 2, 3.0) for n in range(6)])))


def test_among_many_points_of_two_ranks_the_same_slow_rank_can_be_chance() -> None:
    """Six runs: one in 32 for each point."""
    comparison, runs, _ = measured({("east", n): around(10.0) for n in (2, 4, 8, 16)})
    slow = runs.assign(straggler_ratio=1.0, slowest_rank=range(len(runs)), slowest_host="a")
    for nodes, support in ((2, "inconclusive"), (4, "supported")):
        own = slow.copy()
        columns = ["straggler_ratio", "slowest_rank"]
        own.loc[own["nodes"] == nodes, columns] = [2.0, 1]
        ((point, _, found, comparisons),) = what_holds_back.find(own)
        assert (point.nodes, found, comparisons) == (nodes, support, 4)
    assert len(comparison) == 4


def test_a_rank_that_is_hardly_slower_is_not_named() -> None:
    assert not list(what_holds_back.find(runs_of(*[(2, ratio) for ratio in (3, 3, 3, 3, 3, 1.2)])))


def test_a_rank_that_moved_is_named_without_a_host() -> None:
    hosts = [f"node{n}" for n in range(6)]
    ((_, text, _, _),) = what_holds_back.find(runs_of(*[(2, 3.0)] * 6, slowest_host=hosts))
    assert "Rank 2 on 6 hosts" in text


def test_runs_without_such_a_measurement_have_none() -> None:
    assert not list(what_holds_back.find(runs_of((1, 2.0), straggler_ratio=None)))
    assert not list(what_holds_back.find(runs_of((1, 2.0), status="failed")))


def test_a_straggler_is_a_finding_about_its_point() -> None:
    comparison, _, _ = measured({("east", 4): around(10.0)})
    found = findings.table(Study(comparison, runs_of(*[(2, 3.0)] * 6), NOTHING_PLANNED))
    (row,) = found[found["topic"] == "stragglers"].to_dict("records")
    assert row["subject"] == "4 nodes"
    assert row["support"] == "supported"
