"""What limits a point: the largest part of a step, a slow rank."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import generator
import msgspec
import pandas as pd
import pytest
from builders import manifest_of, raw_config
from measured import around, measured
from rows import tables_of
from tfscaling.conclusions import what_holds_back
from tfscaling.conclusions.evidence import Study
from tfscaling.record import run_record
from tfscaling.record.run_record import Attribution, StepParts
from tfscaling.spec import configuration
from tfscaling.tables.comparison import comparison_table

#: Milliseconds of a step: input, computation, stragglers, communication.
Parts = tuple[float, float, float, float]
INPUT: Parts = (24, 8, 2, 6)
COMPUTATION: Parts = (0, 36, 0, 4)
COMMUNICATION: Parts = (8, 8, 4, 20)
ROUNDS = 12


def step_parts(
    input_s: float, computation_s: float, stragglers_s: float, rest_s: float
) -> StepParts:
    return StepParts(
        input_s=input_s,
        computation_s=computation_s,
        stragglers_s=stragglers_s,
        communication_s=rest_s,
    )


def study_of(folder: Path, of_nodes: dict[int, list[Parts]]) -> Study:
    """Two runs at each of these numbers of nodes, whose rounds have these parts in turns."""
    raw = raw_config(
        (("grid", 0, "nodes"), list(of_nodes)),
        (("grid", 0, "repeats"), 2),
        (("recipes", "weak", "attribution"), True),
    )
    planned = manifest_of(configuration.validate(raw))
    for run in planned.runs:
        record = generator.scattered(
            run.spec, 100.0, random.Random(run.spec.repeat), generator.prepared(run.spec.dataset)
        )
        turns = itertools.islice(itertools.cycle(of_nodes[run.spec.point.nodes]), ROUNDS)
        rounds = tuple(step_parts(*(ms / 1e3 for ms in parts)) for parts in turns)
        found = Attribution(rounds=rounds, input_rank=1, input_host="node1")
        metrics = msgspec.structs.replace(record.metrics, attribution=found)
        path = folder / run.spec.path / run_record.RECORD
        path.parent.mkdir(parents=True)
        run_record.write_json(path, msgspec.structs.replace(record, metrics=metrics))
    runs, _ = tables_of(planned, folder)
    return Study(comparison_table(runs, planned), runs, planned)


def test_each_point_has_the_parts_of_its_steps_and_what_holds_it_back(tmp_path: Path) -> None:
    of_nodes = {1: [COMPUTATION], 2: [INPUT], 4: [COMMUNICATION, COMMUNICATION, INPUT]}
    table = what_holds_back.table(study_of(tmp_path, of_nodes)).set_index("nodes")
    assert table["held_back_by"].to_dict() == {
        1: "computation", 2: "input", 4: "communication or input",
    }  # fmt: skip
    assert (table.loc[2, "runs"], table.loc[2, "rounds"]) == (2, 2 * ROUNDS)
    shares = [table.loc[2, f"input_share{end}"] for end in ("", "_low", "_high")]
    assert shares == pytest.approx([0.6, 0.6, 0.6])
    assert (table.loc[4, "communication_largest"], table.loc[4, "input_largest"]) == (16, 8)
    assert table.loc[2, ["input_rank", "input_host"]].tolist() == [1, "node1"]


#: Rounds of 24 in which communication is the largest → what holds the point back.
@pytest.mark.parametrize(("other", "expected"), [(6, "input"), (8, "input or communication")])
def test_a_few_rounds_that_were_disturbed_change_no_answer(
    other: int, expected: str, tmp_path: Path
) -> None:
    turns = [COMMUNICATION] * (other // 2) + [INPUT] * (ROUNDS - other // 2)
    (row,) = what_holds_back.table(study_of(tmp_path, {2: turns})).to_dict("records")
    assert (row["held_back_by"], row["communication_largest"]) == (expected, other)
    assert row["input_share_low"] == pytest.approx(0.6 if expected == "input" else 0.2)


def runs_of(*slow: tuple[int, float], **columns: Any) -> pd.DataFrame:
    """Runs of one point with (slowest rank, straggler ratio) each."""
    _, runs, _ = measured({("east", 4): around(10.0, runs=len(slow))})
    runs["slowest_rank"] = [rank for rank, _ in slow]
    runs["straggler_ratio"] = [ratio for _, ratio in slow]
    runs["slowest_host"] = [f"node{rank}" for rank, _ in slow]
    return runs.assign(**columns)


def test_the_same_slow_rank_in_all_runs_is_named_with_its_host() -> None:
    ((point, text, support, _),) = what_holds_back.slow_ranks(
        runs_of(*[(2, 3.0 + n / 10) for n in range(6)])
    )
    assert point.nodes == 4
    assert text.startswith("Rank 2 on node2 ") and "3.00 to 3.50" in text
    assert "in all 6 runs" in text
    assert support == "supported"


def test_a_single_run_names_it_without_a_claim() -> None:
    ((_, text, support, _),) = what_holds_back.slow_ranks(runs_of((1, 2.0)))
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
        ((point, _, found, comparisons),) = what_holds_back.slow_ranks(own)
        assert (point.nodes, found, comparisons) == (nodes, support, 4)
    assert len(comparison) == 4
