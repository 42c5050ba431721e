"""The headline: which point, against which other, and how sure that is."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import msgspec
import pytest
from builders import valid_config
from measured import NOTHING_PLANNED, around, measured, nothing_measured, resumed_from
from tfscaling.conclusions import headline
from tfscaling.conclusions.answers.answer import answer_questions as answers
from tfscaling.conclusions.answers.answer import answers_by_goal
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.decision import answer_sentence
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.headline import HeadlineRow
from tfscaling.estimation.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.estimation.run_counts import KEPT_RUNS, miss_rate_text
from tfscaling.estimation.samples import (
    INCONCLUSIVE,
    NOT_COMPARED,
    NOT_MEASURED,
    SUPPORTED,
    TOO_FEW,
)
from tfscaling.stages.write_proposal import make_requests
from tfscaling.study.config_types import POINT_AXES, Limit, Question
from tfscaling.study.platforms import device_kind
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.data_warnings import LIMITED, SERIOUS, DataWarning
from tfscaling.tables.display import format_metric
from tfscaling.tables.table_files import to_rows


def study(*arguments: Any) -> Study:
    comparison, runs, _ = measured(*arguments)
    return Study(comparison, runs, NOTHING_PLANNED)


def answer(made: Study) -> tuple[str, Answer]:
    """(badge, the answer) of the only question."""
    (row,) = to_rows(HeadlineRow, headline.table(made))
    (found,) = answers(made)
    assert row.question == ""
    return row.badge, found


def nodes(*rows: Candidate | None) -> list[int]:
    assert None not in rows
    return [each.row.nodes for each in rows if each is not None]


def text(made: Study) -> str:
    (row,) = to_rows(HeadlineRow, headline.table(made))
    return f"{row.text} {row.sure}".strip()


def test_one_run_each_is_too_few_to_be_sure() -> None:
    badge, found = answer(study({("east", 1): [10.0], ("east", 2): [15.0], ("east", 4): [20.5]}))
    assert badge == TOO_FEW and nodes(found.leader, found.rival) == [1, 4]
    assert found.rival and found.rival.difference
    assert found.rival.difference.ratio == pytest.approx(2.05)


def test_the_fastest_with_runs_enough_is_compared_with_the_fewest_nodes() -> None:
    badge, found = answer(study({("east", 1): around(30.0), ("east", 2): around(10.0)}))
    assert badge == SUPPORTED and nodes(found.leader, found.rival) == [2, 1]
    assert found.rival and found.rival.difference
    assert found.rival.difference.ratio == pytest.approx(3.0, rel=0.01)


def test_runs_without_times_are_not_counted_as_runs() -> None:
    times = {("east", 1): around(30.0), ("east", 2): around(10.0)}
    badge, found = answer(Study(*resumed_from(measured(times), 1, 2, runs=4)))
    assert badge == TOO_FEW and found.point is None
    times["east", 4] = around(20.0)
    badge, found = answer(Study(*resumed_from(measured(times), 1, runs=4)))
    assert badge == TOO_FEW and nodes(*found.with_few_runs) == [1]


def test_platforms_are_named_where_they_differ() -> None:
    times = {("east", 1): around(30.0), ("west", 1): around(20.0)}
    _, found = answer(study(times))
    assert found.leader and found.rival and found.rival.difference
    assert (found.leader.row.platform, found.rival.row.platform) == ("west", "east")
    assert found.rival.difference.ratio == pytest.approx(1.5, rel=0.01)
    assert "on west" in text(study(times)) and "on east" in text(study(times))


def test_a_rival_on_the_same_platform_does_not_repeat_its_name() -> None:
    times = {("east", 1): around(90.0), ("west", 1): around(20.0), ("west", 2): around(40.0)}
    _, runs, planned = measured(times)
    planned = msgspec.structs.replace(planned, runs=())
    has_gpus = runs["platform"] == "west"
    runs.loc[has_gpus, "gpus_per_node"] = 1
    runs.loc[has_gpus, "devices"] = device_kind(1, "physical")
    made = Study(comparison_table(runs, planned), runs, NOTHING_PLANNED)
    found = answer(made)[1]
    assert nodes(found.leader, found.rival) == [1, 2]
    assert text(made).count("on west") == 1 and ". 2 nodes take" in text(made)


def with_queue(waits_s: dict[int, float]) -> Study:
    """Two nodes are twice as fast; runs of so many nodes waited so long in the queue."""
    _, runs, planned = measured({("east", 1): around(40), ("east", 2): around(20)})
    runs["time_with_queue_s"] = runs["execution_time_s"] + runs["nodes"].map(waits_s)
    asked = Question(goal="time_with_queue_s")
    return Study(comparison_table(runs, planned), runs, planned, question=asked)


def test_with_its_wait_another_point_may_end_first() -> None:
    found = with_queue({1: 5.0, 2: 100.0})
    choices = {choice.goal: choice for choice in answers_by_goal(found)}
    assert choices["time_with_queue_s"].point.nodes == 1
    assert choices["execution_time_s"].point.nodes == 2
    assert nodes(answer(found)[1].leader) == [1] and "queue" in text(found)
    by_run = dataclasses.replace(found, question=Question())
    assert "time_with_queue_s" not in {choice.goal for choice in answers_by_goal(by_run)}


def test_a_point_whose_wait_is_not_known_takes_no_part() -> None:
    choices = {c.goal: c for c in answers_by_goal(with_queue({1: 5.0}))}
    assert choices["time_with_queue_s"].point.nodes == 1
    (out,) = choices["time_with_queue_s"].not_covered
    assert "queue" in out.reason and out.is_open


def test_a_configuration_without_a_valid_run_is_named_and_leaves_the_answer_open() -> None:
    made = study({("east", 1): around(200.0), ("east", 2): around(100.0), ("east", 4): []})
    badge, found = answer(made)
    assert badge == INCONCLUSIVE and nodes(found.leader) == [2]
    assert nodes(*found.not_covered) == [4]
    assert "4 nodes" in text(made)


def test_the_only_configuration_that_may_be_compared_is_not_called_the_fastest() -> None:
    """One node takes half the time and does half the work."""
    made = study({("east", 1): [5.0], ("east", 2): [9.5]})
    made.comparison["examples_trained"] = made.comparison["nodes"] * 30_000
    badge, found = answer(made)
    assert badge == NOT_COMPARED and "astest" not in text(made)
    assert nodes(*found.not_covered) == [1]


TARGET = {"test_accuracy": Limit(at_least=0.85)}


def kept(value: float) -> list[float]:
    """Values of enough runs to show that a limit or target is kept."""
    return around(value, runs=KEPT_RUNS)


def of_target(qualities: dict[int, list[float | None]], goal: Any = "time_to_target_s") -> Study:
    """Configurations of so many nodes: when each run reached test accuracy 0.85, if it did."""
    nodes = [*qualities]
    number = len(qualities[nodes[0]])
    made = measured({("east", n): around(240.0 / n, runs=number) for n in nodes})
    runs, planned = made[1], msgspec.structs.replace(made[2], targets={"test_accuracy": 0.85})
    reached_s = [qualities[n][r - 1] for n, r in zip(runs["nodes"], runs["repeat"], strict=True)]
    runs["time_to_target_s"] = reached_s
    runs["target_reached"] = [each is not None for each in reached_s]
    runs["quality"] = [0.4 if each is None else 0.9 for each in reached_s]
    asked = Question(goal=goal, limits=TARGET)
    return Study(comparison_table(runs, planned), runs, planned, question=asked)


def test_with_a_target_the_headline_is_about_the_target() -> None:
    made = of_target({1: kept(200.0), 2: kept(99.0), 4: [None] * KEPT_RUNS})
    badge, found = answer(made)
    assert (badge, found.goal) == (SUPPORTED, "time_to_target_s")
    assert nodes(found.leader, *found.not_covered) == [2, 4]
    assert "test accuracy 0.85" in text(made) and "0 of 11" in text(made)


@pytest.mark.parametrize("others", [[2], [2, 4]])
@pytest.mark.parametrize("runs", [6, KEPT_RUNS])
@pytest.mark.parametrize("missed", [6, 3])
def test_the_only_configuration_that_reaches_the_target_is_recommended(
    others: list[int], runs: int, missed: int
) -> None:
    """The others miss it in at least half of their runs, and would be faster."""
    partly = [None] * math.ceil(runs * missed / 6) + [90.0] * (runs - math.ceil(runs * missed / 6))
    made = of_target({1: around(200.0, runs=runs), **dict.fromkeys(others, partly)})
    badge, found = answer(made)
    assert nodes(found.leader, *found.not_covered) == [1, *others]
    assert found.is_only_feasible
    assert badge == (SUPPORTED if runs >= KEPT_RUNS else INCONCLUSIVE)
    assert found.repeats == (None if badge == SUPPORTED else KEPT_RUNS)


@pytest.mark.parametrize("missed", [1, 5])
def test_a_configuration_that_may_reach_the_target_keeps_the_answer_open(missed: int) -> None:
    partly = [None] * missed + [90.0] * (KEPT_RUNS - missed)
    for others in ([2], [2, 4]):
        made = of_target({1: kept(200.0), **dict.fromkeys(others, partly)})
        badge, found = answer(made)
        assert nodes(found.leader) == [1] and badge == INCONCLUSIVE
        assert found.bound is None and not found.is_only_feasible
        assert found.repeats == 2 * KEPT_RUNS, "further runs may settle it"
        assert "may be" not in text(made), "by how much is not known"


def of_two_recipes(**question: Any) -> Study:
    """Two nodes train twice the examples, by another recipe."""
    made = of_target({1: kept(200.0), 2: kept(99.0)})
    for table in (made.comparison, made.runs):
        on_two = table["nodes"] == 2
        table.loc[on_two, "recipe"], table.loc[on_two, "examples_trained"] = "large", 120_000
    asked = {"goal": "time_to_target_s", "limits": TARGET, **question}
    return dataclasses.replace(made, question=Question(**asked))


def test_each_recipe_is_a_question_of_its_own_unless_it_is_chosen() -> None:
    apart = of_two_recipes()
    assert [found.question for found in answers(apart)] == [
        "mnist_cnn, weak", "mnist_cnn, large",
    ]  # fmt: skip
    (row,) = to_rows(HeadlineRow, headline.table(apart))
    assert (row.question, row.badge) == ("", NOT_COMPARED)
    together = of_two_recipes(choose=(*POINT_AXES,))
    badge, found = answer(together)
    assert (badge, found.goal) == (SUPPORTED, "time_to_target_s")
    assert found.leader and found.leader.row.recipe == "large" and "large" in text(together)


def test_a_question_without_a_choice_has_no_headline_next_to_one_that_has() -> None:
    """1 and 2 nodes train one recipe, 4 nodes another one."""
    made = study({("east", n): around(200.0 / n) for n in (1, 2, 4)})
    for each in (made.comparison, made.runs):
        each.loc[each["nodes"] == 4, "recipe"] = "large"
    assert len(answers(made)) == 2
    assert [row.question for row in to_rows(HeadlineRow, headline.table(made))] == [
        "mnist_cnn, weak"
    ]


def test_recipes_are_compared_by_any_goal_among_those_that_keep_the_quality() -> None:
    """Two nodes, of the other recipe, are faster; where they miss the quality, one is taken."""
    made = of_two_recipes(goal="execution_time_s", choose=(*POINT_AXES,))
    badge, found = answer(made)
    assert (badge, nodes(found.leader)) == (SUPPORTED, [2])
    low = made.runs["quality"].where(made.runs["nodes"] == 1, 0.8)
    runs = made.runs.assign(quality=low)
    missing = Study(comparison_table(runs, made.manifest), runs, NOTHING_PLANNED,
                    question=made.question)  # fmt: skip
    badge, found = answer(missing)
    assert (badge, nodes(found.leader)) == (SUPPORTED, [1]) and found.is_only_feasible


def test_a_question_of_recipes_without_a_run_at_the_target_names_none() -> None:
    made = of_two_recipes(choose=(*POINT_AXES,))
    for table in (made.comparison, made.runs):
        table["time_to_target_s"] = math.nan
    made.comparison["runs_at_target"] = 0
    badge, found = answer(made)
    assert (badge, found.leader) == (NOT_COMPARED, None)


def test_axes_that_are_not_chosen_are_questions_of_their_own() -> None:
    made = of_two_recipes(choose=("recipe",))
    assert len(answers(made)) == 2 and set(headline.table(made)["badge"]) == {NOT_COMPARED}


@pytest.mark.parametrize(
    ("goal", "taken"), [("cost_usd", 1), ("node_hours", 1), ("execution_time_s", 2)]
)
def test_the_headline_is_about_the_goal_that_is_asked_for(goal: Any, taken: int) -> None:
    """Two nodes are faster, and more expensive."""
    made = study({("east", 1): around(30.0), ("east", 2): around(20.0)})
    badge, found = answer(dataclasses.replace(made, question=Question(goal=goal)))
    assert (badge, found.goal, nodes(found.leader)) == (SUPPORTED, goal, [taken])
    assert found.rival and found.rival.difference and (found.rival.difference.ratio or 0) > 1.3


def test_only_configurations_within_the_limits_are_recommended() -> None:
    """Four nodes are the fastest and cost most, two may cost too much, one costs least."""
    made = study({("east", 1): kept(40.0), ("east", 2): kept(30.0), ("east", 4): kept(25.0)})
    usd = {n: made.comparison.set_index("nodes")["cost_usd"][n] for n in (1, 2, 4)}
    badge, found = answer(made_with(made, {"cost_usd": Limit(at_most=usd[2])}))
    assert nodes(found.leader) == [1] and badge == INCONCLUSIVE
    given = {each.row.nodes: each.is_open for each in found.not_covered}
    assert given == {2: True, 4: False}
    badge, found = answer(made_with(made, {"cost_usd": Limit(at_most=1.2 * usd[2])}))
    assert nodes(found.leader) == [2] and badge == SUPPORTED
    limits = {"cost_usd": Limit(at_most=1.2 * usd[1])}
    badge, found = answer(made_with(made, limits))
    assert nodes(found.leader) == [1] and badge == SUPPORTED and found.is_only_feasible
    (limit,) = found.missed_limits
    assert (limit.missed, limit.undecided, limit.nearest.row.nodes) == (2, 0, 2)
    assert found.leader is not None
    cost = format_metric("cost_usd", found.leader.row, is_for_many=False)
    assert cost in text(made_with(made, limits))


@pytest.mark.parametrize("third_s", [30.0, 70.0])
def test_what_is_worse_needs_no_verdict_about_a_limit(third_s: float) -> None:
    made = study({("east", n): kept(s) for n, s in ((1, 40.0), (2, 60.0), (3, third_s))})
    badge, found = answer(made_with(made, {"execution_time_s": Limit(at_most=60)}))
    given = {each.row.nodes: each.is_open for each in found.not_covered}
    assert (badge, given.pop(2)) == (SUPPORTED, False) and not any(given.values())


def made_with(made: Study, limits: dict[str, Limit]) -> Study:
    return dataclasses.replace(made, question=Question(limits=limits))


def test_each_limit_names_the_nearest_of_those_that_keep_the_other_limits() -> None:
    """One node is cheap and late, four nodes are in time and too expensive."""
    made = study({("east", 1): around(40.0), ("east", 2): around(30.0), ("east", 4): around(25.0)})
    usd = made.comparison.set_index("nodes")["cost_usd"]
    limits = {"cost_usd": Limit(at_most=usd[1] * 1.1), "execution_time_s": Limit(at_most=28)}
    _, found = answer(made_with(made, limits))
    assert found.leader is None
    given = found.missed_limits
    assert [(each.missed, each.nearest.row.nodes) for each in given] == [(2, 4), (2, 1)]


@pytest.mark.parametrize("runs", [6, 8, KEPT_RUNS])
@pytest.mark.parametrize("goal", ["execution_time_s", "time_to_target_s"])
def test_fewer_runs_than_show_that_limits_are_kept_support_nothing(runs: int, goal: Any) -> None:
    made = of_target({n: around(s, runs=runs) for n, s in ((1, 200.0), (2, 99.0))}, goal)
    badge, found = answer(made)
    assert nodes(found.leader) == [2] and (badge == SUPPORTED) == (runs == KEPT_RUNS)
    assert found.leader and found.leader.kept_runs == runs
    assert f"{miss_rate_text(runs, 2)}" in text(made)
    assert found.repeats == (None if runs == KEPT_RUNS else KEPT_RUNS)


@pytest.mark.parametrize("lacking", [("energy_kwh",), ("energy_kwh", "test_accuracy")])
def test_a_limit_of_what_a_configuration_does_not_report_leaves_it_open(
    lacking: tuple[str, ...],
) -> None:
    made = study({("east", 1): around(40.0), ("east", 2): around(30.0)})
    if "test_accuracy" in lacking:
        made = dataclasses.replace(made, runs=made.runs.assign(test_accuracy=math.nan))
    limits = {"execution_time_s": Limit(at_most=60), **{name: Limit(at_most=1) for name in lacking}}
    badge, found = answer(made_with(made, limits))
    assert (badge, found.leader, found.is_open) == (INCONCLUSIVE, None, True)
    assert [each.state for each in found.candidates] == [State.OPEN] * 2
    assert all(each.reason.startswith("reports no energy") for each in found.candidates)


@pytest.mark.parametrize("runs", [1, 3, 5])
@pytest.mark.parametrize("goal", ["execution_time_s", "cost_usd"])
def test_a_baseline_that_keeps_an_efficiency_by_definition_is_not_the_only_choice(
    runs: int, goal: Any
) -> None:
    """More runs of the others settle what too few leave undecided."""
    times = {("east", n): around(s, runs=runs) for n, s in {1: 100, 2: 52, 4: 28}.items()}
    comparison, table, planned = measured(times)
    limits = {"scaling_efficiency": Limit(at_least=0.7)}
    question = Question(goal=goal, limits=limits)
    made = Study(comparison, table, planned, question=question)
    badge, found = answer(made)
    assert badge == TOO_FEW and nodes(found.leader) == [1] and found.recommended is None
    assert [each.state for each in found.candidates[1:]] == [State.UNDECIDED] * 2
    assert found.repeats == RUNS_FOR_INTERVAL
    assert found.best_so_far == found.only_so_far != ""
    assert "test" not in found.only_so_far  # neither fastest nor cheapest
    assert found.only_so_far in text(made)
    assert found.only_so_far in answer_sentence(found)
    (request,) = make_requests(made, valid_config())
    assert request.so_far.lower() == found.only_so_far.lower()


@pytest.mark.parametrize(("missed", "support"), [(0, TOO_FEW), (1, TOO_FEW), (3, NOT_COMPARED)])
def test_with_few_runs_a_configuration_that_may_reach_the_target_is_a_rival(
    missed: int, support: str
) -> None:
    times = {("east", 1): around(100.0, runs=3), ("east", 2): around(52.0, runs=3)}
    _, table, planned = measured(times)
    reached = (table["nodes"] == 1) | (table["repeat"] > missed)
    table["target_reached"] = reached
    table["time_to_target_s"] = table["execution_time_s"].where(reached)
    planned = msgspec.structs.replace(planned, targets={"test_accuracy": 0.85})
    limits = {"test_accuracy": Limit(at_least=0.85)}
    question = Question(goal="time_to_target_s", limits=limits)
    made = Study(comparison_table(table, planned), table, planned, question=question)
    badge, found = answer(made)
    assert badge == support
    assert found.repeats == (RUNS_FOR_INTERVAL if support == TOO_FEW else None)
    assert nodes(found.leader) == [1 if missed else 2]
    assert bool(found.only_so_far) == (missed == 1)


def test_where_no_configuration_keeps_the_limits_none_is_recommended() -> None:
    made = study({("east", 1): around(40.0), ("east", 2): around(30.0)})
    made = made_with(made, {"execution_time_s": Limit(at_most="10 s")})
    badge, found = answer(made)
    assert (badge, found.leader) == (NOT_COMPARED, None) and "limits" in text(made)
    assert nodes(*found.not_covered) == [1, 2] and not found.is_open


def test_where_nothing_is_measured_it_says_so() -> None:
    comparison, runs = nothing_measured()
    badge, found = answer(Study(comparison, runs, NOTHING_PLANNED))
    assert badge == NOT_MEASURED and not found.is_measured and found.runs_by_status == {}
    empty = Study(comparison.iloc[:0], runs.iloc[:0], NOTHING_PLANNED)
    assert answers(empty) == ()
    assert headline.table(empty)["badge"].tolist() == [NOT_MEASURED]


@pytest.mark.parametrize("statuses", [("missing", "missing"), ("missing", "failed")])
def test_runs_are_counted_by_their_statuses_once_one_has_begun(statuses: tuple[str, ...]) -> None:
    comparison, runs = nothing_measured()
    runs["status"] = statuses
    has_counts = any(map(str.isdigit, text(Study(comparison, runs, NOTHING_PLANNED))))
    assert has_counts == ("failed" in statuses)


@pytest.mark.parametrize(("severity", "is_said"), [(SERIOUS, True), (LIMITED, False)])
def test_the_text_is_a_line_for_each_question_and_one_with_the_serious_warnings(
    severity: str, is_said: bool
) -> None:
    made = study({("east", 1): [10.0], ("east", 2): [15.0]})
    warning = DataWarning("kind", severity, "A long text.", "one machine for all", (), 1)
    page = headline.add_warnings(headline.page(headline.table(made), made), [warning] * 9)
    assert len(page.splitlines()) == 1 + is_said
    assert ("one machine for all" in page) == is_said and "A long text" not in page


def test_the_headline_has_the_nodes_the_ratio_its_interval_and_the_confidence() -> None:
    made = study({("east", 1): around(30.0), ("east", 2): around(10.0)})
    page = headline.page(headline.table(made), made)
    numbers = re.findall(r"\d[\d.]*\b", page)
    fastest = re.findall(
        r"[\d.]+", format_metric("execution_time_s", answer(made)[1].candidates_with_value[0].row)
    )
    (confidence,) = re.findall(r"\d+", f"{CONFIDENCE:.0%}")
    assert numbers == ["2", *fastest, "1", "3.00", "2.96", "3.04", confidence]


@pytest.mark.parametrize("usd_per_node_hour", [None, 3.5])
def test_the_headline_names_the_fastest_configuration_that_costs_clearly_less(
    usd_per_node_hour: float | None,
) -> None:
    """Node-hours: 8 nodes 80, 4 nodes 42, 2 nodes 41, 1 node 40 s."""
    times_s = {1: 40.0, 2: 20.5, 4: 10.5, 8: 10.0}
    runs = {("east", nodes): around(time_s) for nodes, time_s in times_s.items()}
    comparison, table, _ = measured(runs, usd_per_node_hour=usd_per_node_hour)
    made = Study(comparison, table, NOTHING_PLANNED)
    found = answer(made)[1].trade_off
    assert found and found.cheaper.row.nodes == 4 and found.is_priced == bool(usd_per_node_hour)
    assert (found.time, found.cost) == pytest.approx((1.05, 0.525), abs=0.01)
    assert re.search(r"\b4[78]% (less|fewer)", text(made))
    assert ("node-hours" in text(made)) == (not found.is_priced)


@pytest.mark.parametrize(
    "times_s", [{1: 10.0, 2: 15.0}, {1: 21.0, 2: 10.5}, {1: 40.0, 8: 10.0}], ids=str
)
def test_no_cheaper_configuration_is_named_that_saves_little_or_takes_far_longer(
    times_s: dict[int, float],
) -> None:
    made = study({("east", nodes): around(time_s) for nodes, time_s in times_s.items()})
    assert answer(made)[1].trade_off is None
