"""What to do next, with the runs, time and money that it takes."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pytest
from measured import around, measured, resumed_from
from tfscaling.conclusions import next_steps
from tfscaling.conclusions.evidence import Study
from tfscaling.study.config_types import Limit, Question
from tfscaling.study.manifest import Manifest
from tfscaling.tables.comparison import comparison_table


def steps(times: Any, statuses: tuple[str, ...] = (), **platforms: Any) -> pd.DataFrame:
    comparison, runs, planned = measured(times, **platforms)
    runs["wall_time_s"] = runs["execution_time_s"] * 2
    for number, status in enumerate(statuses):
        runs.loc[number, "status"] = status
    return steps_in((comparison, runs, planned))


def steps_in(made: tuple[pd.DataFrame, pd.DataFrame, Manifest]) -> pd.DataFrame:
    study = Study(*made)
    return next_steps.table(study)


def test_too_few_runs_take_so_many_repeats_more() -> None:
    (row,) = steps({("east", 1): [60.0, 90.0], ("east", 2): [30.0, 30.0]}).to_dict("records")
    assert row["kind"] == "repeats"
    # four more of a median of 150 s on one node, and of 60 s on two, at one dollar an hour
    assert (row["runs"], row["duration_s"]) == (8, 840.0)
    hours = (4 * 150 + 4 * 2 * 60) / 3600
    assert (row["node_hours"], row["cost_usd"]) == pytest.approx((hours, hours))


def test_what_is_not_decided_takes_twice_as_many_runs() -> None:
    found = steps({("east", 1): around(10.0, 0.2), ("east", 2): around(10.1, 0.2)})
    assert (found["kind"].tolist(), found["runs"].tolist()) == (["repeats"], [12])


def test_repeats_are_of_all_configurations_as_in_the_plan() -> None:
    """`repeats` of the grid also adds runs of a configuration whose runs failed."""
    times = {("east", 1): around(10.0, 0.2), ("east", 2): around(10.1, 0.2), ("east", 4): []}
    found = steps(times).set_index("kind")
    assert found.loc["repeats", "runs"] == 18
    text = str(found.loc["repeats", "text"])
    assert "without 6 runs of configurations that have no time yet" in text


@pytest.mark.parametrize(
    ("settings", "slower", "kinds"),
    [
        ({}, 1.01, ["shared", "repeats"]),
        ({"exclusive": True}, 1.01, ["repeats"]),
        ({"launcher": "local", "devices": "logical", "partition": None}, 1.01, ["repeats"]),
        ({}, 2.0, []),  # the answer is supported
    ],
)
def test_runs_that_shared_nodes_are_to_have_them_alone(
    settings: dict[str, Any], slower: float, kinds: list[str]
) -> None:
    base = random.uniform(5, 50)
    times = {("east", 1): around(base, 0.2), ("east", 2): around(slower * base, 0.2)}
    comparison, runs, planned = measured(times, **settings)
    runs["wall_time_s"] = runs["execution_time_s"]
    runs["shared_with"] = 1
    assert steps_in((comparison, runs, planned))["kind"].tolist() == kinds


def test_runs_that_are_not_there_are_made_by_another_start() -> None:
    times = {("east", 1): around(10.0), ("east", 2): around(20.0)}
    found = steps(times, ("failed", "failed", "missing", "stale"))
    assert found["kind"].tolist()[:2] == ["unfinished", "stale"]
    assert found["runs"].tolist()[:2] == [3, 1]


def test_a_platform_without_a_price_is_named() -> None:
    times = {("east", 1): around(10.0), ("east", 2): around(20.0)}
    (step,) = steps(times, usd_per_node_hour=None).to_dict("records")
    assert step["kind"] == "price" and "`east`" in step["text"]
    assert (step["runs"], step["duration_s"], step["node_hours"]) == (0, 0.0, 0.0)


def test_runs_without_times_do_not_say_that_there_is_no_price_nor_how_long_a_run_takes() -> None:
    """The last attempt of a run that went on from a checkpoint did a part only."""
    made = measured({("east", 1): [60.0, 60.0], ("east", 2): [30.0, 30.0]})
    made[1]["wall_time_s"] = 2 * made[1]["execution_time_s"]
    made[1].loc[made[1]["repeat"] == 1, "wall_time_s"] = 1.0
    priced = steps_in(resumed_from(made, 1, 2, runs=1))
    assert priced.loc[priced["runs"] > 0, "duration_s"].tolist() == [4 * (120 + 60)]
    assert priced["kind"].tolist().count("resumed") == 1
    assert "price" not in set(steps_in(resumed_from(made, 1, 2))["kind"])


@pytest.mark.parametrize("known", [0, 6])
def test_what_another_start_does_not_settle_is_named_next_to_it(known: int) -> None:
    """A run of two nodes failed, and others report no quality: one start does not settle both."""
    runs = {("east", 1): around(20.0, runs=12), ("east", 2): around(10.0, runs=11)}
    _, table, planned = measured(runs)
    own = table.index[table["nodes"] == 2][known:]
    table.loc[own, ["quality", "test_accuracy"]] = None
    limits = {"test_accuracy": Limit(at_least=0.5)}
    study = Study(
        comparison_table(table, planned), table, planned, question=Question(limits=limits)
    )
    found = next_steps.table(study)
    assert {"unfinished", "open"} <= {*found["kind"]}
    (step,) = found.loc[found["kind"] == "open", "text"]
    assert "2 nodes" in step and "test accuracy" in step


def test_where_all_is_decided_nothing_is_to_be_done() -> None:
    assert steps({("east", 1): around(10.0), ("east", 2): around(20.0)}).empty


def test_next_to_what_the_grid_excludes_there_is_no_choice() -> None:
    comparison, runs, planned = measured({("east", 1): around(10.0), ("east", 2): around(20.0)})
    excluded = ["status", "runs", "runs_timed"]
    comparison.loc[comparison["nodes"] == 2, excluded] = "excluded", 0, 0
    own = runs[runs["nodes"] == 1]
    assert steps_in((comparison, own, planned)).empty


def test_a_sweep_in_which_a_configuration_failed_is_to_be_started_again() -> None:
    found = steps({("east", 1): around(10.0), ("east", 2): around(20.0), ("east", 4): []})
    assert found["runs"].tolist() == [6]


def test_repeats_are_no_advice_where_configurations_do_different_work() -> None:
    made = measured({("east", 1): [5.0], ("east", 2): [9.5]})
    made[0]["examples_trained"] = made[0]["nodes"] * 30_000
    found = steps_in(made)
    assert (found["kind"].tolist(), found["runs"].tolist()) == (["work"], [0])


def test_resumed_runs_are_named_though_enough_runs_were_made() -> None:
    made = measured({("east", 1): around(60.0), ("east", 2): around(30.0)})
    found = steps_in(resumed_from(made, 1, runs=4))
    assert found["kind"].tolist().count("resumed") == 1


def test_after_a_projection_short_runs_are_repeated() -> None:
    made = measured({("east", 1): [60.0, 60.0], ("east", 2): [30.0, 30.0]})
    made[1]["wall_time_s"] = 2 * made[1]["execution_time_s"]
    short = made[1]["nodes"] == 1
    made[1].loc[short, ["projected_from_steps", "projected_to_steps"]] = 100, 1000
    again = comparison_table(made[1], made[2]), *made[1:]
    (runs,) = {runs for runs in steps_in(again)["runs"] if runs}
    assert runs == 4


def test_the_page_lists_what_to_do_and_what_it_takes() -> None:
    made = measured({("east", 1): [60.0, 90.0], ("east", 2): [30.0, 30.0]})
    made[1]["wall_time_s"] = made[1]["execution_time_s"]
    study = Study(*made)
    page = next_steps.page(next_steps.table(study), study)
    assert page == (
        "# What to do next\n\n- Set `repeats: 6` in the grid to get intervals: 8 more runs, about "
        "7 minutes if run one at a time (0.15 node-hours, $0.15).\n"
    )
