"""What holds a point back is named only if it is certainly the largest part of a step."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import generator
import msgspec
import pandas as pd
import pytest
from builders import manifest_of, raw_config
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
    assert "the input is mnist, slowest on rank 1 on node1" in table.loc[2, "text"]
    assert "mnist" not in table.loc[1, "text"]


#: Rounds of 24 in which communication is the largest → what holds the point back.
@pytest.mark.parametrize(("other", "expected"), [(6, "input"), (8, "input or communication")])
def test_a_few_rounds_that_were_disturbed_change_no_answer(
    other: int, expected: str, tmp_path: Path
) -> None:
    turns = [COMMUNICATION] * (other // 2) + [INPUT] * (ROUNDS - other // 2)
    (row,) = what_holds_back.table(study_of(tmp_path, {2: turns})).to_dict("records")
    assert (row["held_back_by"], row["communication_largest"]) == (expected, other)
    assert row["input_share_low"] == pytest.approx(0.6 if expected == "input" else 0.2)


def test_a_part_that_leads_by_chance_is_not_named(tmp_path: Path) -> None:
    turns = [INPUT] * 8 + [COMMUNICATION] * 3 + [COMPUTATION]
    (row,) = what_holds_back.table(study_of(tmp_path, {2: turns})).to_dict("records")
    assert row["held_back_by"] == "input or communication"
    assert row["computation_largest"] == 2


#: Parts of each round in turns → whether computation is all that holds the point back.
@pytest.mark.parametrize(
    ("turns", "alone"),
    [
        ([(1, 38, 0, 1)], True),
        ([(0, 22, 0, 18)], False),
        # two rounds of five have less: so has the interval
        ([(1, 38, 0, 1)] * 3 + [(4, 34, 0, 2)] * 2, False),
    ],
    ids=["nearly all", "more than half", "most of the rounds"],
)
def test_nothing_but_computation_is_said_of_nearly_all_of_a_step(
    turns: list[Parts], alone: bool, tmp_path: Path
) -> None:
    (row,) = what_holds_back.table(study_of(tmp_path, {2: turns})).to_dict("records")
    assert row["held_back_by"] == "computation"
    assert ("nothing but" in row["text"]) is alone
    assert ("communication" in row["text"]) is (turns == [(0, 22, 0, 18)])


def test_the_page_has_a_row_for_each_point(tmp_path: Path) -> None:
    table = what_holds_back.table(study_of(tmp_path, {1: [COMPUTATION], 2: [INPUT]}))
    shown = what_holds_back.as_text(table)
    assert shown.cells["nodes"].tolist() == ["1", "2"]
    assert shown.cells["input"].tolist() == ["0% (0%–0%)", "60% (60%–60%)"]


def test_without_it_the_table_is_empty_and_says_how_to_measure_it(tmp_path: Path) -> None:
    planned = manifest_of(configuration.validate(raw_config()))
    runs, _ = tables_of(planned, tmp_path)
    table = what_holds_back.table(Study(comparison_table(runs, planned), runs, planned))
    assert isinstance(table, pd.DataFrame) and table.empty
    assert "attribution: true" in what_holds_back.as_text(table).notes[0]
