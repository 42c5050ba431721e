"""A choice is made where the runs show it, and says so where they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pytest
from measured import NOTHING_PLANNED, around, measured, nothing_measured, went_on
from msgspec.structs import replace
from tfscaling.conclusions import decision
from tfscaling.conclusions.decision import Choice
from tfscaling.conclusions.evidence import Study
from tfscaling.spec import platforms
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.significance import (
    INCONCLUSIVE,
    NOT_COMPARED,
    NOT_MEASURED,
    SUPPORTED,
    TOO_FEW,
)
from tfscaling.tables.table_rows import point_of

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
        usd = planned.platforms[str(run["platform"])].price_usd(0)
        runs.loc[number, "time_to_target_s"] = seconds  # type: ignore[index]
        if seconds is not None:
            cost = platforms.run_cost_usd(usd, int(run["nodes"]), seconds)
            runs.loc[number, "cost_to_target_usd"] = cost  # type: ignore[index]
    return comparison_table(runs, planned), runs


def choice(tables: Tables, goal: str = "execution_time_s", indifference: float = 0.05) -> Choice:
    choices = decision.decide(Study(*tables, NOTHING_PLANNED, indifference=indifference))
    (found,) = [choice for choice in choices if choice.goal == goal]
    return found


def uncovered(found: Choice) -> list[tuple[Any, str, bool]]:
    """(nodes, reason, may change the answer) of each configuration that was not compared."""
    return [(each.row["nodes"], each.reason, each.is_open) for each in found.not_covered]


def how(found: Choice) -> str:
    """Why this one of the points near the best is taken."""
    assert found.contest is not None
    return found.contest.how


def taken(found: Choice) -> tuple[Any, Any]:
    """(platform, nodes) of the point to take."""
    assert found.point is not None
    return found.point.platform, found.point.nodes


def test_a_point_that_all_others_are_worse_than_is_to_be_used() -> None:
    tables = tables_of({("east", 1): around(30.0), ("east", 2): around(20.0),
                        ("east", 4): around(10.0)})  # fmt: skip
    found = choice(tables)
    assert (found.support, taken(found), found.is_best) == (SUPPORTED, ("east", 4), True)
    assert found.contest and found.contest.after and found.contest.after["nodes"] == 2
    assert (found.bound, found.indifference, found.comparisons) == (0.0, 0.05, 2)
    # 1 x 30, 2 x 20 and 4 x 10 node-seconds at one dollar an hour
    assert taken(choice(tables, "cost_usd")) == ("east", 1)


def test_the_greatest_accuracy_is_the_best() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(20.0)}
    accuracies = {("east", 1): around(0.98, 0.0001), ("east", 2): around(0.95, 0.0001)}
    assert taken(choice(tables_of(times, accuracies), "quality")) == ("east", 1)


def test_goals_in_their_order_without_those_of_a_target() -> None:
    goals = [
        choice.goal
        for choice in decision.decide(
            Study(*tables_of({("east", 1): around(30.0)}), NOTHING_PLANNED)
        )
    ]
    assert goals == ["execution_time_s", "cost_usd", "quality"]


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
    assert [point.nodes for point in found.alike] == [2]


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


def test_without_prices_fewer_nodes_are_taken() -> None:
    times = {("east", 2): around(10.1), ("east", 4): around(10.0)}
    found = choice(tables_of(times, **NO_PRICE))
    assert taken(found) == ("east", 2)
    assert how(found) == "the fewest nodes"


def test_costs_within_the_indifference_are_decided_by_nodes_alone() -> None:
    times = {("east", 1): around(20.1), ("east", 2): around(10.0)}
    found = choice(tables_of(times), "cost_usd")
    assert taken(found) == ("east", 1)
    assert how(found) == "the fewest nodes"


def test_points_of_as_many_nodes_are_decided_by_the_estimate() -> None:
    times = {("west", 1): around(10.1), ("east", 1): around(10.0)}
    found = choice(tables_of(times, **NO_PRICE))
    assert taken(found) == ("east", 1)
    assert how(found).startswith("the best estimate")


def diverging(tables: Tables, count: int, nodes: int, status: str = "diverged") -> Tables:
    """The same, where `count` runs of the point end otherwise."""
    comparison, runs = tables
    gone = (runs["nodes"] == nodes) & (runs["repeat"] <= count)
    runs.loc[gone, "status"] = status
    runs.loc[gone, ["execution_time_s", "cost_usd", "accuracy", "quality"]] = None
    place = comparison["nodes"] == nodes
    comparison.loc[place, "runs"] -= count
    return comparison, runs


@pytest.mark.parametrize("count", [1, 2])
def test_a_point_of_which_some_runs_diverged_is_not_taken_without_saying_so(count: int) -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.0)}
    found = choice(diverging(tables_of(times), count, 2))
    assert taken(found) == ("east", 2)
    assert "diverged" in found.text


@pytest.mark.parametrize("count", [3, 4, 6])
def test_a_point_of_which_half_the_runs_diverged_is_not_taken(count: int) -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.0)}
    found = choice(diverging(tables_of(times), count, 2))
    assert taken(found) == ("east", 1)
    assert uncovered(found) == [(2, f"{count} of 6 runs diverged", False)]


def test_failed_runs_of_the_point_to_take_are_named() -> None:
    times = {("east", 1): around(30.0, runs=7), ("east", 2): around(10.0, runs=7)}
    found = choice(diverging(tables_of(times), 1, 2, "failed"))
    assert (found.support, taken(found)) == (SUPPORTED, ("east", 2))
    assert "runs failed" in found.text


def test_a_point_that_does_other_work_is_no_choice_and_named_with_the_reason() -> None:
    comparison, runs = tables_of({("east", 1): around(30.0), ("east", 2): around(10.0)})
    comparison["same_work"] = comparison["nodes"] == 1
    comparison.loc[~comparison["same_work"], "examples_trained"] = 576
    found = choice((comparison, runs))
    assert (found.support, taken(found)) == (NOT_COMPARED, ("east", 1))
    ((nodes, reason, is_open),) = uncovered(found)
    assert (nodes, is_open) == (2, True) and "576" in reason and "60,000" in reason


def test_points_of_two_platforms_with_other_numbers_of_examples_are_no_rivals() -> None:
    """Each does the work of its own baseline."""
    comparison, runs = tables_of({("east", 1): around(30.0), ("west", 1): around(10.0)})
    comparison["same_work"] = True
    comparison["examples_trained"] = comparison["platform"].map({"east": 1024, "west": 576})
    found = choice((comparison, runs))
    assert taken(found) == ("east", 1)
    ((_, reason, _),) = uncovered(found)
    assert "576" in reason and "1,024" in reason


def test_costs_of_zero_are_decided_without_a_ratio() -> None:
    """A machine of one's own has no price per hour."""
    tables = tables_of({("east", 1): around(30.0), ("west", 1): around(10.0)})
    found = choice(priced(tables, east=0.0, west=2.0), "cost_usd")
    assert (found.support, taken(found)) == (SUPPORTED, ("east", 1))


@pytest.mark.parametrize("runs", [1, 5])
def test_below_six_runs_nothing_is_decided(runs: int) -> None:
    tables = tables_of({("east", 1): around(30.0, runs=runs), ("east", 2): around(9.0, runs=runs)})
    found = choice(tables)
    assert found.shown and found.shown["nodes"] == 2
    assert (found.support, found.point) == (TOO_FEW, None)


def test_a_rival_with_too_few_runs_is_named_and_leaves_the_choice_open() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.0), ("east", 4): [11.0]}
    found = choice(tables_of(times))
    assert (found.support, taken(found), found.is_decided) == (TOO_FEW, ("east", 2), False)
    assert [row["nodes"] for row in found.few] == [4]


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


def test_points_without_a_price_are_named_beside_the_cheapest() -> None:
    comparison, runs = tables_of({("east", 1): around(30.0), ("west", 1): around(20.0)})
    for table in (comparison, runs):
        table.loc[table["platform"] == "west", "cost_usd"] = None
    found = choice((comparison, runs), "cost_usd")
    assert taken(found) == ("east", 1)
    assert [(each.row["platform"], each.reason) for each in found.not_covered] == [
        ("west", "no price")
    ]


def test_points_without_times_have_a_price_all_the_same() -> None:
    """Runs that went on from a checkpoint have no times; their quality is compared."""
    tables = went_on(measured({("east", 1): around(30.0), ("east", 2): around(20.0)}), 1)[:2]
    for goal in ("execution_time_s", "cost_usd"):
        found = choice(tables, goal)
        assert taken(found) == ("east", 2)
        assert uncovered(found) == [(1, "no time that counts", True)]
    assert not choice(tables, "quality").not_covered
    found = choice(went_on(measured({("east", 1): around(30.0)}), 1)[:2], "cost_usd")
    assert found.support == NOT_MEASURED and uncovered(found)


def test_runs_without_times_are_not_said_to_be_short_of_the_target() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(20.0)}
    comparison, runs = to_target(times, {("east", 1): around(25.0), ("east", 2): around(10.0)})
    targets = {"test_accuracy": 0.97}
    planned = replace(measured(times)[2], targets=targets)
    tables = went_on((comparison, runs, planned), 1, runs=1)[:2]
    found = choice(tables, "time_to_target_s")
    assert taken(found) == ("east", 2)
    assert uncovered(found) == [(1, "no time that counts of every run", True)]


def test_only_runs_with_the_value_are_counted_where_there_are_too_few() -> None:
    tables = went_on(measured({("east", 1): around(30.0)}), 1, runs=4)[:2]
    assert ", of 2 runs" in choice(tables).text
    assert choice(tables, "quality").support == NOT_COMPARED  # its six runs count


def test_the_sooner_at_the_target_is_chosen_though_it_trains_longer() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(40.0)}
    tables = to_target(times, {("east", 1): around(25.0), ("east", 2): around(10.0)})
    assert taken(choice(tables)) == ("east", 1)
    found = choice(tables, "time_to_target_s")
    assert found.title == "Shortest time to test accuracy 0.97"
    assert taken(found) == ("east", 2)
    found = choice(tables, "cost_to_target_usd")
    assert taken(found) == ("east", 2)
    assert found.contest and found.contest.after and found.contest.after["nodes"] == 1


def test_points_alike_at_the_target_are_decided_by_the_cost_to_the_target() -> None:
    """To the end of training two nodes cost more, to the target less."""
    times = {("east", 1): around(30.0), ("west", 1): around(10.0)}
    reached = {("east", 1): around(9.1), ("west", 1): around(9.0)}
    found = choice(to_target(times, reached), "time_to_target_s")
    assert taken(found) == ("east", 1)  # 30 s at one dollar cost more than 10 s at two
    assert how(found) == "the lowest cost"


def test_a_point_of_which_only_some_runs_reach_the_target_is_no_choice_and_named() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.0)}
    some = {("east", 1): around(25.0), ("east", 2): [5.0] * 5 + [None]}
    found = choice(to_target(times, some), "time_to_target_s")
    assert (found.support, taken(found)) == (NOT_COMPARED, ("east", 1))
    assert uncovered(found) == [(2, "reached the target in 5 of 6 runs", True)]


def test_a_target_that_no_point_reaches_is_told() -> None:
    times = {("east", 1): around(30.0)}
    tables = to_target(times, {("east", 1): [None] * 6})
    for goal in ("time_to_target_s", "cost_to_target_usd"):
        found = choice(tables, goal)
        assert (found.support, found.point) == (NOT_MEASURED, None)
        assert uncovered(found) == [(1, "reached the target in 0 of 6 runs", False)]


def test_a_configuration_that_never_reaches_the_target_leaves_the_choice_supported() -> None:
    times = {("east", n): around(60.0 / n) for n in (1, 2, 4)}
    reached = {("east", 1): around(50.0), ("east", 2): around(25.0), ("east", 4): [None] * 6}
    found = choice(to_target(times, reached), "time_to_target_s")
    assert (found.support, taken(found)) == (SUPPORTED, ("east", 2))
    assert uncovered(found) == [(4, "reached the target in 0 of 6 runs", False)]


def test_a_target_reached_without_a_price_has_no_cost() -> None:
    times = {("east", 1): around(30.0)}
    tables = to_target(times, {("east", 1): around(20.0)}, **NO_PRICE)
    assert uncovered(choice(tables, "cost_to_target_usd")) == [(1, "no price", True)]


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
        for c in decision.decide(Study(comparison, runs, NOTHING_PLANNED))
        if c.goal == "execution_time_s"
    ]
    assert [(c.work, taken(c)) for c in found] == [
        ("mnist_cnn, weak", ("east", 1)),
        ("resnet50, weak", ("east", 2)),
    ]


def test_strategies_are_named_where_they_differ() -> None:
    comparison, runs = tables_of({("east", 1): around(30.0), ("east", 2): around(10.0)})
    for table in (comparison, runs):
        table.loc[table["nodes"] == 1, "strategy"] = "single"
    text = choice((comparison, runs)).text
    assert "2 nodes (multi_worker_mirrored)" in text
    assert "1 node (single)" in text


def test_a_choice_names_a_point_of_the_comparison() -> None:
    comparison, runs = tables_of({("east", 1): around(30.0)})
    assert choice((comparison, runs)).point == point_of(comparison.to_dict("records")[0])


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
    assert (time["work"], time["title"], time["support"]) == (
        "mnist_cnn, weak", "Shortest time", TOO_FEW
    )  # fmt: skip
    assert pd.isna(time["nodes"])
    assert (cost["platform"], cost["support"]) == ("east", TOO_FEW)
