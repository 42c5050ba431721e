"""What limits a point: the largest part of a step, a slow rank."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pandas as pd
import pytest
from measured import around, measured
from msgspec.structs import replace
from tfscaling.conclusions import bottlenecks, next_steps
from tfscaling.conclusions.evidence import Study
from tfscaling.record.phases import WALL_PHASES
from tfscaling.study.config_types import Recipe
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.tables import row_values
from tfscaling.tables.comparison import comparison_table
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
        runs.loc[own, "step_time_s"] = parts.sum(axis="columns")
        if nodes > 1:
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


def make_program_manifest(planned: Manifest) -> Manifest:
    """The manifest with a program as the training of each run."""

    def recipe(run: PlannedRun) -> Recipe:
        return replace(run.spec.recipe, program=("python", "train.py"))

    specs = [replace(run.spec, recipe=recipe(run)) for run in planned.runs]
    runs = zip(planned.runs, specs, strict=True)
    return replace(planned, runs=tuple(replace(run, spec=spec) for run, spec in runs))


def program_study(
    dice: random.Random, is_program: bool = True, repeats: int = 6, **changed: Any
) -> Study:
    """A program on 1, 2 and 4 replicas, whose steps wait for input and for others.

    The runs of a repeat share their load. `changed` gives columns of the runs on several replicas.
    """
    comparison, runs, planned = measured(
        {("east", n): around(10.0, runs=repeats) for n in (1, 2, 4)}
    )
    planned = make_program_manifest(planned) if is_program else planned
    load = {repeat: dice.uniform(1, 1.5) for repeat in runs["repeat"]}
    runs["replicas"] = runs["nodes"]
    runs["input_wait_s"] = 0.01 * runs["repeat"].map(load)
    of_a_step = 0.04 + 0.02 * (runs["nodes"] - 1) + 0.01
    runs["step_time_s"] = of_a_step * runs["repeat"].map(load)
    runs["throughput_examples_per_s"] = 8 * runs["replicas"] / runs["step_time_s"]
    several = runs["nodes"] > 1
    for name, value in changed.items():
        runs.loc[several, name] = value
    return Study(comparison, runs, planned)


def estimated(dice: random.Random, is_program: bool = True, **changed: Any) -> pd.DataFrame:
    """The table of `program_study`."""
    return bottlenecks.table(program_study(dice, is_program, **changed)).set_index("nodes")


def test_steps_of_a_program_are_split_by_its_steps_on_one_replica(dice: random.Random) -> None:
    table = estimated(dice)
    assert [*table.index] == [2, 4] and {*table["method"]} == {"estimated"}
    for nodes, communication_s in ((2, 0.02), (4, 0.06)):
        row, whole_s = table.loc[nodes], 0.05 + communication_s
        assert row["input_share"] == pytest.approx(0.01 / whole_s)
        assert row["computation_share"] == pytest.approx(0.04 / whole_s)
        ends = [row[f"communication_share{end}"] for end in ("", "_low", "_high")]
        assert ends == pytest.approx([communication_s / whole_s] * 3)
        assert pd.isna(row["stragglers_share"])
    assert table["held_back_by"].to_dict() == {2: "computation", 4: "communication"}


@pytest.mark.parametrize(
    "changed",
    [
        {"per_replica_batch_size": 1},
        {"throughput_examples_per_s": 10.0},  # the program divides its batch
        {"repeat": 99},
        {"step_time_s": math.nan},
        {"status": "failed"},
        {"is_program": False},  # such as a parameter server
    ],
)
def test_without_a_run_of_the_same_work_on_one_replica_nothing_is_estimated(
    dice: random.Random, changed: dict[str, Any]
) -> None:
    assert "estimated" not in [*estimated(dice, **changed)["method"]]


@pytest.mark.parametrize(("tasks", "is_empty"), [(1, True), (2, False)])
def test_replicas_are_compared_only_with_equal_numbers_of_tasks_per_node(
    tasks: int, is_empty: bool, dice: random.Random
) -> None:
    """Two tasks on the one node; `tasks` on each of the several: tasks share a node's CPUs."""
    study = program_study(dice)
    table, planned = study.runs, []
    for run in study.manifest.runs:
        own = 2 if run.spec.point.nodes == 1 else tasks
        table.loc[table["nodes"] == run.spec.point.nodes, "tasks_per_node"] = str(own)
        point = replace(run.spec.point, tasks_per_node=own)
        planned.append(replace(run, spec=replace(run.spec, point=point)))
    changed = Study(study.comparison, table, replace(study.manifest, runs=tuple(planned)))
    assert bottlenecks.table(changed).empty is is_empty


def explained(study: Study, repeat: int) -> Study:
    """The study without runs of the grid on one node; `explain` added the one of this repeat."""
    several = [run for run in study.manifest.runs if run.spec.point.nodes > 1]
    (one,) = (
        run for run in study.manifest.runs if (run.spec.point.nodes, run.spec.repeat) == (1, repeat)
    )
    one = replace(one, explains=tuple({run.spec.point: run for run in several}))
    planned = replace(study.manifest, runs=tuple(several), explaining=(one,))
    runs = study.runs[(study.runs["nodes"] > 1) | (study.runs["repeat"] == repeat)]
    grid = row_values.without_points(runs, planned.explaining_points)
    return Study(comparison_table(grid, planned), runs, planned)


def test_a_run_that_explain_adds_is_compared_with_all_repeats(dice: random.Random) -> None:
    study = explained(program_study(dice), dice.randint(1, 6))
    (one,) = study.explaining_rows
    assert one.nodes == 1 and {run.nodes for run in study.run_rows} == {2, 4}
    assert {row.nodes for row in study.points} == {2, 4}
    table = bottlenecks.table(study).set_index("nodes")
    assert table["runs"].tolist() == [6, 6] and {*table["method"]} == {"estimated"}
    assert table["communication_share_low"].isna().all()
    alone_s = one.step_time_s - one.input_wait_s
    for nodes in (2, 4):
        own = study.runs[study.runs["nodes"] == nodes]
        rest_s = (own["step_time_s"] - own["input_wait_s"] - alone_s).clip(lower=0)
        share = (rest_s / own["step_time_s"]).median()
        assert table.loc[nodes, "communication_share"] == pytest.approx(share)


@pytest.mark.parametrize("is_added", [True, False])
def test_runs_that_share_one_reference_share_its_error(dice: random.Random, is_added: bool) -> None:
    study = program_study(dice, repeats=24)
    study = explained(study, dice.randint(1, 24)) if is_added else study
    study.runs["input_wait_s"] = math.nan
    disturbed = study.runs["repeat"] <= 4
    for nodes, step_s, disturbed_s in ((1, 0.05, 0.05), (2, 0.07, 0.2)):
        own = study.runs["nodes"] == nodes
        study.runs.loc[own, "step_time_s"] = disturbed[own].map({True: disturbed_s, False: step_s})
    study.runs["throughput_examples_per_s"] = math.nan
    row = bottlenecks.table(study).set_index("nodes").loc[2]
    assert (row["computation_largest"], row["communication_largest"]) == (20, 4)
    assert row["held_back_by"] == "computation" + " or communication" * is_added
    assert pd.isna(row["computation_share_low"]) == is_added


@pytest.mark.parametrize("status", ["failed", "missing"])
def test_an_added_run_that_does_not_count_explains_nothing(
    dice: random.Random, status: str
) -> None:
    study = explained(program_study(dice), 1)
    study.runs.loc[study.runs["nodes"] == 1, "status"] = status
    assert bottlenecks.table(study).empty
    (step,) = (
        row for row in next_steps.table(study).to_dict("records") if row["kind"] == "unfinished"
    )
    assert step["runs"] == 1


def test_a_step_that_is_faster_on_several_replicas_communicates_in_no_time(
    dice: random.Random,
) -> None:
    table = estimated(dice, step_time_s=0.03, throughput_examples_per_s=math.nan)
    assert table["communication_share"].tolist() == [0.0, 0.0]


#: Phase → seconds of a run, and the part of the wall time to which it belongs.
PHASES_S = {
    "launch_time_s": "start", "import_time_s": "start", "preparation_time_s": "start",
    "rendezvous_time_s": "start", "data_time_s": "start", "build_time_s": "start",
    "first_step_time_s": "first_step", "train_time_s": "steps", "evaluation_time_s": "evaluation",
    "program_time_s": "rest", "checkpoint_time_s": "rest", "probe_time_s": "rest",
    "teardown_time_s": "rest",
}  # fmt: skip
OF_PROGRAMS = ("preparation_time_s", "program_time_s")
PARTS = ("start", "first_step", "steps", "evaluation", "rest")


def test_every_phase_of_the_wall_time_is_in_one_of_its_parts() -> None:
    listed = [name for names in bottlenecks.WALL_PARTS.values() for name in names]
    assert sorted(listed) == sorted(WALL_PHASES) == sorted(PHASES_S)


@pytest.mark.parametrize("is_program", [True, False])
def test_the_wall_time_of_the_middle_run_is_the_sum_of_its_parts(
    dice: random.Random, is_program: bool
) -> None:
    comparison, runs, planned = measured({("east", 2): around(10.0, runs=5)})
    unknown = ("evaluation_time_s", "first_step_time_s") if is_program else OF_PROGRAMS
    known = [name for name in PHASES_S if name not in unknown]
    for name in known:
        runs[name] = [dice.uniform(1, 9) for _ in range(len(runs))]
    (row,) = bottlenecks.table(Study(comparison, runs, planned)).to_dict("records")
    sums = runs[known].sum(axis=1).sort_values()
    assert row["wall_time_s"] == pytest.approx(sums.iloc[2])
    middle = runs.loc[sums.index[2]]
    for part in PARTS:
        own = [middle[name] for name in known if PHASES_S[name] == part]
        assert (row[f"{part}_s"] == pytest.approx(sum(own))) if own else pd.isna(row[f"{part}_s"])
    assert pd.isna(row["first_step_s"]) == pd.isna(row["evaluation_s"]) == is_program
    assert row["runs"] == 5 and pd.isna(row["step_time_s"])


def test_runs_without_times_of_steps_and_projected_ones_have_no_parts(dice: random.Random) -> None:
    comparison, runs, planned = measured({("east", 2): around(10.0)})
    runs["launch_time_s"] = runs["program_time_s"] = 5.0  # nothing was observed
    assert bottlenecks.table(Study(comparison, runs, planned)).empty
    runs["train_time_s"], runs["projected_from_steps"] = 5.0, 100
    assert bottlenecks.table(Study(comparison, runs, planned)).empty


def test_start_up_is_named_where_it_is_the_largest_part() -> None:
    comparison, runs, planned = measured({("east", n): around(10.0) for n in (1, 2, 4)})
    # on 2 nodes more than the steps with the first step alone, on 4 nodes already without it
    runs["train_time_s"], runs["first_step_time_s"] = 5.0, 3.0
    runs["launch_time_s"] = runs["nodes"].map({1: 1.0, 2: 3.0, 4: 7.0})
    table = bottlenecks.table(Study(comparison, runs, planned))
    shares = {row.nodes: row.startup_share for row in to_rows(bottlenecks.AttributionRow, table)}
    assert shares == {1: 0.0, 2: pytest.approx(6 / 11), 4: pytest.approx(10 / 15)}
    (note,) = (text for text in bottlenecks.as_text(table).notes if "55%" in text)
    assert "2 nodes 55%" in note and "4 nodes 67%" in note and "1 node" not in note


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
