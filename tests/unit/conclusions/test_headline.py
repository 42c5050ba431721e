"""The headline: which point, against which other, and how sure that is."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pandas as pd
import pytest
from measured import NOTHING_PLANNED, around, measured, nothing_measured, went_on
from tfscaling.conclusions import decision, headline
from tfscaling.conclusions.evidence import Study
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.data_warnings import LIMITED, SERIOUS, DataWarning
from tfscaling.tables.significance import (
    INCONCLUSIVE,
    NOT_COMPARED,
    NOT_MEASURED,
    SUPPORTED,
    TOO_FEW,
)


def study(*arguments: Any) -> Study:
    comparison, runs, _ = measured(*arguments)
    return Study(comparison, runs, NOTHING_PLANNED)


def table(made: Study) -> pd.DataFrame:
    return headline.table(made)


def said(made: Study) -> tuple[str, str]:
    """(badge, text and how sure it is) of the only work."""
    (row,) = table(made).to_dict("records")
    assert row["work"] == ""
    return row["badge"], f"{row['text']} {row['sure']}".strip()


def test_one_run_each_is_too_few_to_be_sure() -> None:
    badge, text = said(study({("east", 1): [10.0], ("east", 2): [15.0], ("east", 4): [20.5]}))
    assert badge == TOO_FEW
    assert "1 node." in text and "4 nodes take 2.05 times as long" in text


def test_the_fastest_with_runs_enough_is_compared_with_the_fewest_nodes() -> None:
    badge, text = said(study({("east", 1): around(30.0), ("east", 2): around(10.0)}))
    assert badge == SUPPORTED
    assert text.startswith("Fastest: 2 nodes. 1 node takes 3.00 times (")


def test_points_that_differ_little_are_not_told_apart() -> None:
    times = {("east", 1): around(10.0, 0.2), ("east", 2): around(10.1, 0.2)}
    badge, text = said(study(times))
    assert badge == INCONCLUSIVE
    assert text.startswith("Fastest so far: 1 node.") and "1 other configuration may" in text


def test_a_point_that_no_other_is_shown_to_beat_may_have_its_like() -> None:
    """The headline claims what the decision does."""
    near = study({("east", 1): around(10.48, 0.05), ("east", 2): around(10.0, 0.05)})
    far = study({("east", 1): around(11.0, 0.05), ("east", 2): around(10.0, 0.05)})
    for made, is_best in ((near, False), (far, True)):
        time = decision.of_choices(decision.decide(made)).iloc[0]
        assert (time["support"], time["is_best"]) == (SUPPORTED, is_best)
        assert bool(time["bound"] == 0) is is_best
        _, text = said(made)
        assert ("No other configuration is as fast" in text) is is_best


def test_runs_without_times_are_not_counted_as_runs() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.0)}
    badge, text = said(Study(*went_on(measured(times), 1, 2, runs=4)))
    assert badge == TOO_FEW and "2 runs each with times: too few" in text
    times["east", 4] = around(20.0)
    badge, text = said(Study(*went_on(measured(times), 1, runs=4)))
    assert badge == TOO_FEW and "1 other configuration has too few" in text


def test_the_cheapest_within_the_indifference_is_said_to_be_within_it() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.2), ("east", 4): around(10.0)}
    badge, text = said(study(times))
    assert badge == SUPPORTED and text.startswith("2 nodes: within ")


def test_platforms_are_named_where_they_differ() -> None:
    times = {("east", 1): around(30.0), ("west", 1): around(20.0)}
    assert said(study(times))[1].startswith("Fastest: 1 node on west. 1 node on east takes 1.50")


def with_queue(waits_s: dict[int, float]) -> Study:
    """Two nodes are twice as fast; runs of so many nodes waited so long in the queue."""
    _, runs, planned = measured({("east", 1): around(40), ("east", 2): around(20)})
    runs["time_with_queue_s"] = runs["execution_time_s"] + runs["nodes"].map(waits_s)
    return Study(comparison_table(runs, planned), runs, planned, decision_time="time_with_queue_s")


def test_with_its_wait_another_point_may_end_first() -> None:
    found = with_queue({1: 5.0, 2: 100.0})
    choices = {choice.goal: choice for choice in decision.decide(found)}
    assert choices["time_with_queue_s"].point.nodes == 1
    assert choices["execution_time_s"].point.nodes == 2
    _, text = said(found)
    assert "queue" in text and "1 node." in text
    by_run = dataclasses.replace(found, decision_time="execution_time_s")
    assert "time_with_queue_s" not in {choice.goal for choice in decision.decide(by_run)}


def test_a_point_whose_wait_is_not_known_takes_no_part() -> None:
    choices = {c.goal: c for c in decision.decide(with_queue({1: 5.0}))}
    assert choices["time_with_queue_s"].point.nodes == 1
    assert "queue" in choices["time_with_queue_s"].text


def test_a_single_point_is_compared_with_none() -> None:
    badge, text = said(study({("east", 1): around(30.0)}))
    assert badge == NOT_COMPARED and "1 node, 30.0" in text


def test_a_configuration_without_a_valid_run_is_named_and_leaves_the_answer_open() -> None:
    made = study({("east", 1): around(200.0), ("east", 2): around(100.0), ("east", 4): []})
    badge, text = said(made)
    assert badge == INCONCLUSIVE
    assert "2 nodes" in text and "4 nodes, no valid run (6 failed)" in text


def test_the_only_configuration_that_may_be_compared_is_not_called_the_fastest() -> None:
    """One node takes half the time and does half the work."""
    made = study({("east", 1): [5.0], ("east", 2): [9.5]})
    made.comparison["examples_trained"] = made.comparison["nodes"] * 30_000
    badge, text = said(made)
    assert badge == NOT_COMPARED and "astest" not in text
    assert "1 node, does not do the same work" in text


def of_target(qualities: dict[int, list[float | None]]) -> Study:
    """Configurations of so many nodes: when each run reached test accuracy 0.85, if it did."""
    nodes = [*qualities]
    made = measured({("east", n): around(240.0 / n) for n in nodes})
    runs, planned = made[1], msgspec.structs.replace(made[2], targets={"test_accuracy": 0.85})
    reached_s = [qualities[n][r - 1] for n, r in zip(runs["nodes"], runs["repeat"], strict=True)]
    runs["time_to_target_s"] = reached_s
    runs["target_reached"] = [each is not None for each in reached_s]
    runs["quality"] = [0.4 if each is None else 0.9 for each in reached_s]
    return Study(comparison_table(runs, planned), runs, planned)


def test_with_a_target_the_headline_is_about_the_target() -> None:
    made = of_target({1: around(200.0), 2: around(99.0), 4: [None] * 6})
    badge, text = said(made)
    assert badge == SUPPORTED
    assert "test accuracy 0.85: 2 nodes." in text
    assert "4 nodes, miss the target in 6 of 6 runs (0.4" in text


def test_where_a_target_is_missed_in_some_runs_the_answer_is_open() -> None:
    made = of_target({1: around(200.0), 2: around(99.0), 4: [*around(50.0, runs=5), None]})
    badge, text = said(made)
    assert badge == INCONCLUSIVE and "4 nodes, reached the target in 5 of 6 runs" in text


def test_where_no_run_reaches_the_target_the_time_is_compared_and_the_target_named() -> None:
    badge, text = said(of_target({1: [None] * 6, 2: [None] * 6}))
    assert badge == SUPPORTED and "miss the target in 6 of 6 runs" in text


def test_logical_devices_are_called_that() -> None:
    made = study({("east", 1): [10.0], ("east", 2): [15.0]})
    made.comparison[["gpus_per_node", "devices"]] = 2, "logical"
    made.runs[["gpus_per_node", "devices"]] = 2, "logical"
    assert "1 node with 2 logical devices." in said(made)[1]


@pytest.mark.parametrize(
    ("gpus", "line"), [(0, "1 node with CPU only. 4 nodes with CPU only take 2.05 times"),
                       (2, "1 node with 2 GPUs. 4 nodes with 2 GPUs each take 2.05 times")]
)  # fmt: skip
def test_the_line_is_named_where_points_have_other_devices(gpus: int, line: str) -> None:
    made = study({("east", 1): [10.0], ("east", 4): [20.5]})
    slower = study({("east", 1): [11.0], ("east", 4): [30.0]})
    tables = []
    for own, other in ((made.comparison, slower.comparison), (made.runs, slower.runs)):
        other[["gpus_per_node", "devices"]] = (0, "cpu") if gpus else (2, "physical")
        own[["gpus_per_node", "devices"]] = (gpus, "physical") if gpus else (0, "cpu")
        tables.append(pd.concat([own, other], ignore_index=True))
    assert said(Study(*tables, NOTHING_PLANNED))[1].startswith(f"Fastest so far: {line}")


def test_where_no_run_counts_it_says_what_they_are() -> None:
    made = study({("east", 1): [10.0, 10.1], ("east", 2): [20.0]})
    stale = made.runs.assign(status=["stale", "stale", "stale", "failed"])
    none = made.comparison.assign(runs=0, status="stale", execution_time_s=float("nan"))
    badge, text = said(Study(none, stale, NOTHING_PLANNED))
    assert badge == NOT_MEASURED
    assert "3 stale" in text and "1 failed" in text


def test_where_nothing_is_measured_it_says_so() -> None:
    comparison, runs = nothing_measured()
    assert said(Study(comparison, runs, NOTHING_PLANNED)) == (NOT_MEASURED, "No valid run yet.")
    empty = Study(comparison.iloc[:0], runs.iloc[:0], NOTHING_PLANNED)
    assert said(empty)[0] == NOT_MEASURED


def test_every_work_has_a_headline_of_its_own() -> None:
    made = study({("east", 1): [10.0], ("east", 2): [15.0]})
    tables = [pd.concat([t, t.assign(recipe="strong")]) for t in (made.comparison, made.runs)]
    found = table(Study(*tables, NOTHING_PLANNED))
    assert found["work"].tolist() == ["mnist_cnn, weak", "mnist_cnn, strong"]


@pytest.mark.parametrize(("severity", "is_said"), [(SERIOUS, True), (LIMITED, False)])
def test_the_text_is_short_lines_with_the_serious_warnings(severity: str, is_said: bool) -> None:
    made = study({("east", 1): [10.0], ("east", 2): [15.0]})
    warning = DataWarning("kind", severity, "A long text.", "one machine for all", (), 1)
    text = headline.with_warnings(headline.page(table(made), made), [warning] * 9)
    assert max(map(len, text.splitlines())) <= 100
    assert ("one machine for all" in text) == is_said and "A long text" not in text
