"""The state of each configuration before it is compared, with the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from measured import around, measured
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.answers.candidates import judge_candidates
from tfscaling.conclusions.evidence import Study
from tfscaling.study.config_types import Limit, Question
from tfscaling.tables.comparison import comparison_table

TIME, TO_TARGET = "execution_time_s", "time_to_target_s"
NODES = 2


def judged(
    goal: str,
    times_s: Sequence[float],
    row: dict[str, Any] | None = None,
    statuses: Sequence[str] = (),
    limits: dict[str, Limit] | None = None,
    **runs_of_each: Sequence[Any],
) -> Candidate:
    """The candidate with two nodes, next to one that was measured completely.

    Args:
        goal: The metric.
        times_s: The times of its runs.
        row: Columns of its row of the comparison that are replaced.
        statuses: Statuses of its first runs, without values.
        limits: Limits of the question.
        **runs_of_each: Column → values of its runs.
    """
    count = max(len(times_s), 6)
    _, runs, planned = measured({("east", 1): around(90.0, runs=count), ("east", NODES): times_s})
    own = runs.index[runs["nodes"] == NODES]
    for place, status in zip(own, statuses, strict=False):
        runs.loc[place, ["status", "execution_time_s", "cost_usd", "quality"]] = status, *[None] * 3
    for name, values in runs_of_each.items():
        if isinstance(values[0], str):
            runs[name] = runs[name].astype(object)
        runs.loc[own[: len(values)], name] = list(values)
    comparison = comparison_table(runs, planned)
    for name, value in (row or {}).items():
        comparison.loc[comparison["nodes"] == NODES, name] = value
    question = Question(limits=limits or {})
    study = Study(comparison, runs, planned, question=question)
    (task,) = study.tasks
    asked = Answer(task.name, goal, "", 0.05, limits=question.limits_for(goal, "test_accuracy"))
    return {each.row.nodes: each for each in judge_candidates(study, task, asked)}[NODES]


NO = math.nan


@pytest.mark.parametrize(
    ("goal", "row", "state", "reason"),
    [
        (TIME, {}, State.COMPARED, ""),
        ("cost_usd", {}, State.COMPARED, ""),
        (TIME, {TIME: NO, "runs_timed": 0}, State.OPEN, "no time that counts"),
        ("cost_usd", {"cost_usd": NO}, State.OPEN, "no price"),
        ("cost_usd", {"cost_usd": NO, "runs_timed": 1}, State.OPEN, "no price"),
        ("cost_usd", {"cost_usd": NO, "runs_timed": 0}, State.OPEN, "no time that counts"),
        ("energy_kwh", {}, State.OPEN, "no energy"),
        ("core_hours", {"core_hours": NO}, State.OPEN, "no core-hours"),
        ("time_with_queue_s", {}, State.OPEN, "no measured wait in a queue"),
        ("quality", {"quality": NO}, State.OPEN, "no test accuracy"),
        (
            "quality", {"quality": NO, "projected_from_steps": 10}, State.OPEN,
            "no test accuracy, which is not projected from short runs",
        ),
        (TO_TARGET, {"runs_timed": 5, "runs_at_target": 6}, State.OPEN, "no time that counts of"),
        (
            TO_TARGET, {"runs_at_target": 3}, State.INFEASIBLE,
            "reached the target in 3 of 6 runs",
        ),
        (TO_TARGET, {"runs_at_target": 4}, State.UNDECIDED, "reached the target in 4 of 6 runs"),
        (TO_TARGET, {"runs_at_target": None}, State.OPEN, "reports no test accuracy"),
        (TO_TARGET, {"runs_at_target": 6}, State.OPEN, "no known time to the target"),
        (
            "cost_to_target_usd", {"runs_at_target": 6, TO_TARGET: 50.0}, State.OPEN, "no price",
        ),
        (
            TO_TARGET, {"runs_at_target": 4, "runs_diverged": 2}, State.INFEASIBLE,
            "reached the target in 4 of 8 runs",
        ),
    ],
)  # fmt: skip
def test_a_configuration_without_the_goal_says_what_it_lacks(
    goal: str, row: dict[str, Any], state: State, reason: str
) -> None:
    found = judged(goal, around(30.0), row)
    assert found.state is state and found.reason.startswith(reason)
    assert bool(found.reason) is bool(reason)


@pytest.mark.parametrize(
    ("runs", "state"), [(1, State.TOO_FEW), (5, State.TOO_FEW), (6, State.COMPARED)]
)
def test_fewer_runs_than_an_interval_needs_are_not_compared(runs: int, state: State) -> None:
    found = judged(TIME, around(30.0, runs=runs))
    assert (found.state, found.runs, found.kept_runs) == (state, runs, None)


@pytest.mark.parametrize(
    ("parts", "state"), [("GPUs", State.COMPARED), ("GPUs and processors", State.OPEN)]
)
def test_energies_are_compared_with_the_same_parts(parts: str, state: State) -> None:
    """Two of three configurations have the energy of GPUs."""
    _, runs, planned = measured({("east", n): around(30.0) for n in (1, 2, 4)})
    runs["energy_kwh"] = runs["execution_time_s"] / 30.0
    runs["energy_of"] = runs["nodes"].map({1: "GPUs", 2: parts, 4: "GPUs"})
    study = Study(comparison_table(runs, planned), runs, planned)
    (task,) = study.tasks
    asked = Answer(task.name, "energy_kwh", "", 0.05)
    found = {each.row.nodes: each for each in judge_candidates(study, task, asked)}
    assert [found[n].state for n in (1, 2, 4)] == [State.COMPARED, state, State.COMPARED]


@pytest.mark.parametrize(
    ("statuses", "state", "is_begun"),
    [
        (["missing"] * 6, State.NOT_RUN, False),
        (["failed"] * 6, State.OPEN, True),
        (["missing"] * 5 + ["unfinished"], State.OPEN, True),
        (["does_not_fit"] * 3, State.EXCLUDED, True),
        (["diverged"] * 2, State.COMPARED, True),
    ],
)
def test_what_was_not_run_failed_or_cannot_run_is_told_apart(
    statuses: list[str], state: State, is_begun: bool
) -> None:
    assert judged(TIME, around(30.0), statuses=statuses).state is state


LIMIT = {"cost_usd": Limit(at_most=0.02)}  # 36 s on two nodes at one dollar an hour


@pytest.mark.parametrize(
    ("times_s", "statuses", "state", "kept"),
    [
        ([30.0] * 6, [], State.COMPARED, 6),
        ([30.0] * 8, [], State.COMPARED, 8),
        ([30.0] * 5, [], State.UNDECIDED, None),
        ([30.0] * 6, ["diverged"], State.UNDECIDED, None),
        ([30.0] * 6, ["does_not_fit"], State.UNDECIDED, None),
        ([30.0] * 7, ["failed"], State.COMPARED, 6),
        ([40.0] * 6, [], State.INFEASIBLE, None),
        ([40.0] * 3 + [30.0] * 3, [], State.INFEASIBLE, None),
        ([40.0] * 2 + [30.0] * 4, [], State.UNDECIDED, None),
    ],
)
def test_a_limit_is_kept_missed_or_open(
    times_s: list[float], statuses: list[str], state: State, kept: int | None
) -> None:
    found = judged(TIME, times_s, statuses=statuses, limits=LIMIT)
    assert (found.state, found.kept_runs) == (state, kept)
    assert found.missed == (("cost_usd",) if state is State.INFEASIBLE else ())
    assert found.undecided == (("cost_usd",) if state is State.UNDECIDED else ())
    assert ("at most 0.02" in found.reason) is (state is not State.COMPARED)


def test_of_several_limits_those_that_are_missed_are_the_reason() -> None:
    limits = {**LIMIT, "test_accuracy": Limit(at_least=0.95), TIME: Limit(at_most=100)}
    found = judged(TIME, [40.0] * 6, limits=limits)
    assert (found.state, found.missed) == (State.INFEASIBLE, ("cost_usd", "quality"))
    assert "at least 0.95" in found.reason and "at most 100" not in found.reason
    few = judged(TIME, [30.0, 40.0], limits=limits)
    assert few.missed == () and {"cost_usd", "quality"} <= {*few.undecided}


@pytest.mark.parametrize("is_projected", [False, True])
def test_a_limit_of_what_was_not_measured_is_open(is_projected: bool) -> None:
    row = {"projected_from_steps": 10} if is_projected else {}
    limits = {"test_accuracy": Limit(at_least=0.5)}
    found = judged(TIME, around(30.0), row, limits=limits, quality=[NO] * 6)
    assert found.state is State.OPEN and found.reason.startswith("reports no test accuracy")
    assert ("short runs" in found.reason) is is_projected


@pytest.mark.parametrize("known", [1, 6, 11, 21])
@pytest.mark.parametrize("goal", [TIME, "quality"])
def test_a_quality_that_some_runs_do_not_report_is_open(known: int, goal: str) -> None:
    """A run may report none because its values are not finite."""
    quality = [0.9] * known + [NO] * (22 - known)
    limits = {"test_accuracy": Limit(at_least=0.5)} if goal == TIME else {}
    found = judged(goal, around(30.0, runs=22), limits=limits, quality=quality)
    assert found.state is State.OPEN and found.kept_runs is None
    assert found.reason.startswith(f"reports test accuracy in {known} of 22 runs")
    every = judged(goal, around(30.0, runs=22), limits=limits, quality=[0.9] * 22)
    assert every.state is State.COMPARED


@pytest.mark.parametrize("known", [1, 6, 11, 21])
def test_an_energy_that_some_runs_do_not_report_is_open(known: int) -> None:
    """A sensor that fails for the longest runs would make the others look frugal."""
    energy, parts = [0.2] * known + [NO] * (22 - known), ["GPUs"] * 22
    found = judged("energy_kwh", around(30.0, runs=22), energy_kwh=energy, energy_of=parts)
    assert found.state is State.OPEN
    assert found.reason == f"reports energy in {known} of 22 runs"
    every = judged("energy_kwh", around(30.0, runs=22), energy_kwh=[0.2] * 22, energy_of=parts)
    assert every.state is State.COMPARED


def test_another_metric_with_a_limit_that_some_runs_lack_is_open() -> None:
    limits = {"rank_memory_gb": Limit(at_most=8)}
    memory = [2.0] * 11 + [NO]
    found = judged(TIME, around(30.0, runs=12), limits=limits, rank_memory_gb=memory)
    assert found.state is State.OPEN and "in 11 of 12 runs" in found.reason
    missed = judged(TIME, around(30.0, runs=12), limits=limits, rank_memory_gb=[9.0] * 6 + [NO] * 6)
    assert missed.state is State.INFEASIBLE


def test_runs_without_a_time_need_no_value_for_a_limit_of_time() -> None:
    """They resumed from a checkpoint; their quality counts."""
    times_s = [30.0] * 12
    known_s, usd = [30.0] * 11 + [NO], [0.017] * 11 + [NO]
    found = judged(TIME, times_s, limits=LIMIT, execution_time_s=known_s, cost_usd=usd)
    assert (found.state, found.kept_runs) == (State.COMPARED, 11)
