"""A choice is made where the runs show it, and says so where they do not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import study_folder, valid_config
from measured import NOTHING_PLANNED, around, measured, nothing_measured, resumed_from
from msgspec.structs import replace
from tfscaling.conclusions import decision, next_steps
from tfscaling.conclusions.answers.answer import answers_by_goal
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.evidence import OUT_OF_MEMORY, Study
from tfscaling.conclusions.goal_comparison import GoalComparison, choose_preferred, compare_by_goal
from tfscaling.estimation.samples import (
    INCONCLUSIVE,
    NOT_COMPARED,
    NOT_MEASURED,
    SUPPORTED,
    TOO_FEW,
)
from tfscaling.stages import write_tables as stages
from tfscaling.study import platforms
from tfscaling.study.config_types import Question, QuestionGoal
from tfscaling.tables import data_warnings
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.run_samples import read_samples
from tfscaling.tables.table_files import to_rows

TO_TARGET = "time_to_target_s"
NO_PRICE = {"usd_per_node_hour": None}
Tables = tuple[pd.DataFrame, pd.DataFrame]


def tables_of(*arguments: Any, **settings: Any) -> Tables:
    comparison, runs, _ = measured(*arguments, **settings)
    return comparison, runs


def to_target(
    times: Mapping[tuple[str, int], Sequence[float]],
    reached: Mapping[tuple[str, int], Sequence[float | None]],
    **settings: Any,
) -> Tables:
    """The same with a target accuracy of 0.97, reached by each run after so many seconds."""
    _, runs, planned = measured(times, **settings)
    planned = replace(planned, targets={"test_accuracy": 0.97})
    for number, run in runs.iterrows():
        seconds = reached[str(run["platform"]), int(run["nodes"])][int(run["repeat"]) - 1]
        usd = planned.platforms[str(run["platform"])].node_price_usd_per_hour(0)
        runs.loc[number, "time_to_target_s"] = seconds
        if seconds is not None:
            cost = platforms.run_cost_usd(usd, int(run["nodes"]), seconds)
            runs.loc[number, "cost_to_target_usd"] = cost
    runs["target_reached"] = runs["time_to_target_s"].notna()
    return comparison_table(runs, planned), runs


def choice(tables: Tables, goal: str = "execution_time_s", indifference: float = 0.05) -> Answer:
    asked = Question(indifference=indifference)
    choices = answers_by_goal(Study(*tables, NOTHING_PLANNED, question=asked))
    (found,) = [choice for choice in choices if choice.goal == goal]
    return found


def uncovered(found: Answer) -> list[tuple[Any, str, bool]]:
    """(nodes, reason, may change the answer) of each configuration that was not compared."""
    return [(each.row.nodes, each.reason, each.is_open) for each in found.not_covered]


def how(found: Answer) -> str:
    """Why this one of the points near the best is taken."""
    assert found.point is not None
    return found.choice_reason


def taken(found: Answer) -> tuple[Any, Any]:
    """(platform, nodes) of the point to take."""
    assert found.point is not None
    return found.point.platform, found.point.nodes


def test_a_point_that_all_others_are_worse_than_is_to_be_used() -> None:
    tables = tables_of({("east", 1): around(30.0), ("east", 2): around(20.0),
                        ("east", 4): around(10.0)})  # fmt: skip
    found = choice(tables)
    assert (found.support, taken(found), found.is_best) == (SUPPORTED, ("east", 4), True)
    assert found.next_best and found.next_best.row.nodes == 2
    assert (found.bound, found.indifference, found.comparisons) == (0.0, 0.05, 2)
    # 1 x 30, 2 x 20 and 4 x 10 node-seconds at one dollar an hour
    assert taken(choice(tables, "cost_usd")) == ("east", 1)


def test_the_greatest_accuracy_is_the_best() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(20.0)}
    accuracies = {("east", 1): around(0.98, 0.0001), ("east", 2): around(0.95, 0.0001)}
    assert taken(choice(tables_of(times, accuracies), "quality")) == ("east", 1)


def with_energy(parts: Mapping[int, str]) -> Tables:
    """Configurations with 1, 2 and 4 nodes that need 2, 3 and 1 kWh."""
    _, runs, planned = measured({("east", n): around(30.0) for n in (1, 2, 4)})
    kwh = runs["nodes"].map({1: 2.0, 2: 3.0, 4: 1.0})
    runs["energy_kwh"] = kwh * runs["execution_time_s"] / 30.0
    runs["energy_of"] = runs["nodes"].map(parts)
    return comparison_table(runs, planned), runs


def test_the_lowest_energy_is_named_where_it_is_measured() -> None:
    found = choice(with_energy(dict.fromkeys((1, 2, 4), "GPUs")), "energy_kwh")
    assert (found.support, taken(found), uncovered(found)) == (SUPPORTED, ("east", 4), [])
    alone = Study(*tables_of({("east", 1): [1.0]}), NOTHING_PLANNED)
    goals = {each.goal for each in answers_by_goal(alone)}
    assert "energy_kwh" not in goals


def test_energies_of_other_parts_are_not_compared() -> None:
    found = choice(with_energy({1: "GPUs", 2: "GPUs", 4: "GPUs and processors"}), "energy_kwh")
    assert taken(found) == ("east", 1) and found.support == INCONCLUSIVE
    assert [(nodes, is_open) for nodes, _, is_open in uncovered(found)] == [(4, True)]


def test_of_points_shown_to_be_within_the_indifference_the_cheapest_is_taken() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.2), ("east", 4): around(10.0)}
    found = choice(tables_of(times))
    assert (found.support, taken(found)) == (SUPPORTED, ("east", 2))
    assert found.bound is not None and 0.02 < found.bound <= found.indifference
    assert how(found) == "the lowest cost"
    # at no indifference only the best will do
    found = choice(tables_of(times), indifference=0.0)
    assert (found.support, found.indifference) == (
        SUPPORTED if found.bound == 0 else INCONCLUSIVE,
        0,
    )
    assert taken(found) == ("east", 4)


def test_points_that_cannot_be_told_apart_are_not_as_good() -> None:
    """They may differ by more than the indifference: cost decides nothing."""
    times = {("east", 1): around(30.0), ("east", 2): around(10.3, 0.1),
             ("east", 4): around(10.0, 0.1)}  # fmt: skip
    found = choice(tables_of(times))
    assert (found.support, taken(found)) == (INCONCLUSIVE, ("east", 4))
    assert found.bound is not None and found.bound > found.indifference
    assert [each.row.nodes for each in found.not_shown_worse] == [2]


def priced(tables: Tables, **usd_per_hour: float) -> Tables:
    """The same at other prices of a node-hour."""
    for table in tables:
        hourly = table["platform"].map(usd_per_hour)
        table["cost_usd"] = hourly * table["nodes"] * table["execution_time_s"] / 3600
    return tables


def test_the_cheapest_may_have_more_nodes() -> None:
    """Two nodes of the cheap platform cost less than one and a half of the dear one would."""
    tables = tables_of({("west", 1): around(10.0), ("west", 2): around(50.0),
                        ("east", 1): around(50.0), ("east", 2): around(10.1)})  # fmt: skip
    found = choice(priced(tables, east=1.0, west=3.0))
    assert taken(found) == ("east", 2)
    assert how(found) == "the lowest cost"


def diverging(tables: Tables, count: int, nodes: int, status: str = "diverged") -> Tables:
    """The same, where `count` runs of the point end otherwise."""
    comparison, runs = tables
    gone = (runs["nodes"] == nodes) & (runs["repeat"] <= count)
    runs.loc[gone, "status"] = status
    runs.loc[gone, ["execution_time_s", "cost_usd", "accuracy", "quality"]] = None
    place = comparison["nodes"] == nodes
    comparison.loc[place, "runs"] -= count
    return comparison, runs


def test_costs_of_zero_are_decided_without_a_ratio() -> None:
    """A machine of one's own has no price per hour."""
    tables = tables_of({("east", 1): around(30.0), ("west", 1): around(10.0)})
    found = choice(priced(tables, east=0.0, west=2.0), "cost_usd")
    assert (found.support, taken(found)) == (SUPPORTED, ("east", 1))


@pytest.mark.parametrize("runs", [1, 5])
def test_below_six_runs_nothing_is_decided(runs: int) -> None:
    tables = tables_of({("east", 1): around(30.0, runs=runs), ("east", 2): around(9.0, runs=runs)})
    found = choice(tables)
    assert found.leader and found.leader.row.nodes == 2
    assert (found.support, found.point) == (TOO_FEW, None)


def test_a_rival_with_too_few_runs_is_named_and_leaves_the_choice_open() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.0), ("east", 4): [11.0]}
    found = choice(tables_of(times))
    assert (found.support, taken(found), found.is_decided) == (TOO_FEW, ("east", 2), False)
    assert [each.row.nodes for each in found.with_few_runs] == [4]


def test_nothing_is_claimed_of_points_that_were_not_measured() -> None:
    found = choice(tables_of({("east", 1): around(30.0), ("east", 2): []}))
    assert (found.support, taken(found), found.comparisons) == (NOT_COMPARED, ("east", 1), 0)
    assert uncovered(found) == [(2, "no valid run (6 failed)", True)]


@pytest.mark.parametrize("status", ["failed", "missing", "unfinished", "stale"])
def test_no_choice_is_supported_while_a_configuration_has_no_valid_run(status: str) -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.0), ("east", 4): []}
    comparison, runs = tables_of(times)
    runs["status"] = runs["status"].replace("failed", status)
    for goal in ("execution_time_s", "cost_usd", "quality"):
        found = choice((comparison, runs), goal)
        assert found.support == INCONCLUSIVE and uncovered(found)[0][::2] == (4, True)
    found = choice((comparison, runs))
    assert found.is_decided and found.is_best and taken(found) == ("east", 2)
    comparison.loc[comparison["nodes"] == 4, "status"] = "excluded"
    runs = runs[runs["nodes"] != 4]
    assert choice((comparison, runs)).support == SUPPORTED


def test_without_prices_no_point_is_cheap() -> None:
    found = choice(tables_of({("east", 1): around(30.0)}, **NO_PRICE), "cost_usd")
    assert (found.support, found.point) == (NOT_MEASURED, None)
    assert uncovered(found) == [(1, "no price", True)]


@pytest.mark.parametrize(
    ("goal", "title"), [("core_hours", "core-hours"), ("gpu_hours", "GPU-hours")]
)
def test_without_hours_of_cores_or_gpus_these_are_named(goal: QuestionGoal, title: str) -> None:
    comparison, runs = tables_of({("east", 1): around(30.0)})
    study = Study(comparison, runs, NOTHING_PLANNED, question=Question(goal=goal))
    found = next(each for each in answers_by_goal(study) if each.goal == goal)
    assert uncovered(found) == [(1, f"no {title}", True)]


def test_points_without_times_have_a_price_all_the_same() -> None:
    """Runs that went on from a checkpoint have no times; their quality is compared."""
    tables = resumed_from(measured({("east", 1): around(30.0), ("east", 2): around(20.0)}), 1)[:2]
    for goal in ("execution_time_s", "cost_usd"):
        found = choice(tables, goal)
        assert taken(found) == ("east", 2)
        assert uncovered(found) == [(1, "no time that counts", True)]
    assert not choice(tables, "quality").not_covered
    found = choice(resumed_from(measured({("east", 1): around(30.0)}), 1)[:2], "cost_usd")
    assert found.support == NOT_MEASURED and uncovered(found)


def test_the_sooner_at_the_target_is_chosen_though_it_trains_longer() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(40.0)}
    tables = to_target(times, {("east", 1): around(25.0), ("east", 2): around(10.0)})
    assert taken(choice(tables)) == ("east", 1)
    found = choice(tables, "time_to_target_s")
    assert found.title.endswith("test accuracy 0.97")
    assert taken(found) == ("east", 2)
    found = choice(tables, "cost_to_target_usd")
    assert taken(found) == ("east", 2)
    assert found.next_best and found.next_best.row.nodes == 1


def test_points_alike_at_the_target_are_decided_by_the_cost_to_the_target() -> None:
    """To the end of training two nodes cost more, to the target less."""
    times = {("east", 1): around(30.0), ("west", 1): around(10.0)}
    reached = {("east", 1): around(9.1), ("west", 1): around(9.0)}
    found = choice(to_target(times, reached), "time_to_target_s")
    assert taken(found) == ("east", 1)  # 30 s at one dollar cost more than 10 s at two
    assert how(found) == "the lowest cost"


def test_a_configuration_that_never_reaches_the_target_leaves_the_choice_supported() -> None:
    for runs, support in ((6, INCONCLUSIVE), (11, SUPPORTED)):
        times = {("east", n): around(60.0 / n, runs=runs) for n in (1, 2, 4)}
        reached = {("east", n): around(s, runs=runs) for n, s in ((1, 50.0), (2, 25.0))}
        found = choice(to_target(times, {**reached, ("east", 4): [None] * runs}), TO_TARGET)
        assert (found.support, taken(found)) == (support, ("east", 2))
        assert found.recommended and found.recommended.kept_runs == runs
        ((nodes, reason, is_open),) = uncovered(found)
        assert (nodes, is_open) == (4, False) and f"0 of {runs}" in reason


@pytest.mark.parametrize("goal", ["time_to_target_s", "cost_to_target_usd"])
def test_a_target_reached_at_an_unknown_time_is_told(goal: str) -> None:
    comparison, runs = to_target({("east", 1): around(30.0)}, {("east", 1): [None] * 6})
    comparison["runs_at_target"] = comparison["runs"]
    ((_, reason, is_open),) = uncovered(choice((comparison, runs), goal))
    assert is_open and "time" in reason


def test_other_work_is_no_rival() -> None:
    comparison, runs = tables_of({("east", 1): around(30.0), ("east", 2): around(10.0)})
    for table in (comparison, runs):
        table.loc[table["nodes"] == 2, "model"] = "resnet50"
    found = [
        c
        for c in answers_by_goal(Study(comparison, runs, NOTHING_PLANNED))
        if c.goal == "execution_time_s"
    ]
    assert [(c.question, taken(c)) for c in found] == [
        ("mnist_cnn, weak", ("east", 1)),
        ("resnet50, weak", ("east", 2)),
    ]


def test_where_nothing_is_measured_nothing_is_chosen() -> None:
    assert decision.table(Study(*nothing_measured(), NOTHING_PLANNED)).empty


def test_the_table_has_the_point_to_take_and_how_many_are_like_it() -> None:
    tables = tables_of({("east", 1): around(30.0), ("east", 2): around(10.3, 0.1),
                        ("east", 4): around(10.0, 0.1), ("east", 8): [9.0]})  # fmt: skip
    rows = {
        row["goal"]: row
        for row in decision.table(Study(*tables, NOTHING_PLANNED)).to_dict("records")
    }
    assert list(rows) == ["execution_time_s", "cost_usd", "quality"]
    time, cost = rows["execution_time_s"], rows["cost_usd"]
    assert (time["question"], time["title"], time["support"]) == (
        "mnist_cnn, weak", "Shortest time", TOO_FEW
    )  # fmt: skip
    assert pd.isna(time["nodes"])
    assert (cost["platform"], cost["support"]) == ("east", TOO_FEW)


# contests: how often they are right is in test_claims

Times = dict[tuple[str, int], list[float]]


def contested(times: Times, indifference: float = 0.05) -> GoalComparison:
    comparison, runs, _ = measured(times)
    rows = to_rows(PointRow, comparison)
    return compare_by_goal("execution_time_s", rows, read_samples(runs), indifference)


def test_a_larger_indifference_decides_more() -> None:
    times = {("east", 1): around(10.4), ("east", 2): around(10.0)}
    strict, usual = contested(times, 0.01), contested(times, 0.10)
    assert (strict.chosen.nodes, usual.chosen.nodes) == (2, 1)
    assert [row.nodes for row in usual.near_best_others] == [2]
    assert usual.bound is not None and 0.04 < usual.bound <= 0.10


def test_a_contest_has_the_interval_of_each_other_point_and_agrees_with_it() -> None:
    times = {("east", n): around(t) for n, t in ((1, 30.0), (2, 20.0), (4, 10.0))}
    found = contested(times)
    assert found.differences is not None
    assert {point.nodes for point in found.differences} == {1, 2} and found.is_best
    ends = {point.nodes: each.interval for point, each in (found.differences or {}).items()}
    assert all(each is not None and each[0] > 1 for each in ends.values())
    near = contested({("east", 1): around(10.1, 0.3), ("east", 2): around(10.0, 0.3)})
    assert near.differences is not None
    ((_, one),) = near.differences.items()
    assert one.interval is not None and one.interval[0] < 1 and near.bound is not None
    assert 1 / one.interval[0] - 1 <= near.bound + 1e-12


def test_a_point_that_does_not_fit_in_memory_is_no_candidate_and_needs_no_runs() -> None:
    tables = tables_of(
        {("east", n): around(time_s) for n, time_s in ((1, 20.0), (2, 10.0), (4, 5.0))}
    )
    comparison, runs = diverging(tables, 6, nodes=4, status="does_not_fit")
    runs.loc[runs["nodes"] == 4, "execution_time_s"] = None
    found = choice((comparison, runs))
    assert taken(found) == ("east", 2) and not found.is_open
    assert uncovered(found) == [(4, f"{OUT_OF_MEMORY} (6 of 6 runs)", False)]
    steps = next_steps.table(Study(comparison, runs, NOTHING_PLANNED))
    assert not {"unfinished", "repeats"} & set(steps.get("kind", ()))


@pytest.mark.parametrize("diverged", [1, 2])
@pytest.mark.parametrize("ending", ["diverged", "does_not_fit"])
def test_a_point_of_which_a_run_never_ended_is_never_decided_for(
    diverged: int, ending: str
) -> None:
    times = {("east", n): around(t) for n, t in ((1, 200.0), (2, 100.0), (4, 60.0))}
    comparison, runs, _ = measured(times)
    gone = (runs["nodes"] == 4) & (runs["repeat"] <= diverged)
    runs.loc[gone, ["status", "execution_time_s"]] = ending, None
    found = choice((comparison, runs))
    assert (taken(found)[1], found.is_decided, found.is_best) == (4, False, False)
    assert found.bound is None and found.support == INCONCLUSIVE
    # where it is slower it hinders nothing
    runs.loc[runs["nodes"] == 4, "execution_time_s"] *= 5
    comparison.loc[comparison["nodes"] == 4, "execution_time_s"] *= 5
    found = choice((comparison, runs))
    assert (taken(found)[1], found.is_decided, found.is_best) == (2, True, True)


def row(**changes: Any) -> PointRow:
    return PointRow(**{"nodes": 2, "gpus_per_node": 1, "cost_usd": 1.0, **changes})


@pytest.mark.parametrize(
    ("near", "taken"),
    [
        ([row(), row(cost_usd=0.5, nodes=8)], 1),
        ([row(), row(nodes=1)], 1),
        ([row(), row(gpus_per_node=0)], 1),
        ([row(), row()], 0),
        ([row(cost_usd=math.nan, nodes=3), row(cost_usd=0.1, nodes=4)], 0),
    ],
)
def test_of_points_that_are_as_good_the_cheapest_then_the_smallest_is_taken(
    near: list[PointRow], taken: int
) -> None:
    assert choose_preferred("execution_time_s", near)[0] is near[taken]


# the page

GOLDEN = Path(__file__).with_name("decision_page.md")


def markdown(comparison: pd.DataFrame, runs: pd.DataFrame) -> str:
    study = Study(comparison, runs, NOTHING_PLANNED)
    return decision.page(decision.table(study), study)


def test_the_page_as_it_is_read() -> None:
    """Two points alike, one slow, one of three runs, one failed."""
    times = {("east", 1): around(60.0), ("east", 2): around(10.3, 0.1),
             ("east", 4): around(10.0, 0.1), ("east", 8): around(20.0, runs=3),
             ("east", 16): []}  # fmt: skip
    page = markdown(*tables_of(times))
    assert page == GOLDEN.read_text()


def test_the_stage_writes_the_conclusions_into_the_study(tmp_path: Path) -> None:
    comparison, runs, planned = measured({("east", 1): around(30.0), ("east", 2): around(10.0)})
    study = study_folder(
        tmp_path,
        valid_config((("export",), ["markdown"])),
        planned,
        comparison=comparison,
        runs=runs,
    )
    data_warnings.write_warnings(study.details / "warnings.json", [])
    stages.analyse(study)
    assert (study.details / "conclusions/decision.md").read_text() == markdown(comparison, runs)
    table = study.read_table("decision")
    assert table["goal"].tolist()[0] == "execution_time_s"
    assert table.set_index("goal").loc["execution_time_s", "nodes"] == 2
