"""Answers by campaigns: the goal finish_time_s, and limits of it and of campaign_cost_usd."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pytest
from measured import around, measured
from seeds import drawn_seed
from tfscaling.conclusions import campaign, decision, headline
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import State
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL
from tfscaling.estimation.samples import INCONCLUSIVE, SUPPORTED
from tfscaling.record.metrics import CAMPAIGN_COST, FINISH_TIME
from tfscaling.study.config_types import Campaign, Limit, Question, Spot
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.display import duration_text

SEED = drawn_seed()
START = "2026-12-01T09:00+01:00"


def study(
    times: dict[int, list[float]],
    campaign: dict[str, Any],
    queue_s: dict[int, float] | None = None,
    **question: Any,
) -> Study:
    """A study of one platform: number of nodes → times of runs, and waits in the queue."""
    _, runs, planned = measured({("east", n): own for n, own in times.items()})
    if queue_s:
        runs["queue_time_s"] = [queue_s[nodes] for nodes in runs["nodes"]]
    asked = Question(campaign=Campaign(**campaign), **question)
    return Study(comparison_table(runs, planned), runs, planned, question=asked)


def answer_of(made: Study) -> Answer:
    (answer,) = answer_questions(made)
    return answer


def date(seconds: float) -> str:
    """The date so long after START."""
    moment = datetime.datetime.fromisoformat(START) + datetime.timedelta(seconds=seconds)
    return moment.isoformat(timespec="minutes")


def test_waits_and_limits_of_time_decide_which_is_done_first() -> None:
    """The fastest training waits longest, or has no checkpoint before its time limit."""
    dice = random.Random(SEED)
    time_s = dice.uniform(4000, 6000)
    times = {1: around(4 * time_s, runs=8), 4: around(time_s, runs=8)}
    three = {**times, 2: around(2 * time_s, runs=8)}
    number = {"trainings": dice.randint(2, 20)}
    calm = answer_of(study(times, number, goal=FINISH_TIME))
    queued = answer_of(study(times, number, {1: 0.0, 4: 9 * time_s}, goal=FINISH_TIME))
    for found, nodes in ((calm, 4), (queued, 1)):
        assert found.support == SUPPORTED and found.is_best, SEED
        assert found.recommended and found.recommended.row.nodes == nodes, SEED
        assert not found.is_open and found.comparisons == 1
    limited = answer_of(
        study(three, {**number, "time_limit": f"{2.5 * time_s:.0f} s"}, goal=FINISH_TIME)
    )
    slow = next(each for each in limited.candidates if each.row.nodes == 1)
    assert limited.recommended and limited.recommended.row.nodes == 4, SEED
    assert slow.state == State.EXCLUDED and "no checkpoints" in slow.reason, SEED


def test_equal_configurations_are_not_decided_by_chance() -> None:
    dice = random.Random(SEED)
    scatter = dice.uniform(0.1, 0.3)
    times = {n: around(1000.0, scatter, 6) for n in (1, 2)}
    found = answer_of(study(times, {"trainings": dice.randint(2, 9)}, goal=FINISH_TIME))
    assert found.support == INCONCLUSIVE and not found.is_near_best
    assert len(found.not_shown_worse) == 1
    assert found.bound is not None and found.bound > scatter / 3, SEED


def test_too_few_runs_leave_the_answer_open() -> None:
    few = random.Random(SEED).randint(2, RUNS_FOR_INTERVAL - 1)
    times = {1: around(1000.0), 2: around(300.0, runs=few), 4: around(700.0)}
    made = study(times, {}, goal=FINISH_TIME)
    found = answer_of(made)
    lacking = next(each for each in found.candidates if each.row.nodes == 2)
    assert lacking.state == State.OPEN and str(RUNS_FOR_INTERVAL) in lacking.reason
    assert found.support == INCONCLUSIVE and found.is_open
    none = answer_of(study({n: around(300.0, runs=few) for n in (1, 2)}, {}, goal=FINISH_TIME))
    assert none.recommended is None and none.repeats == RUNS_FOR_INTERVAL


@pytest.mark.parametrize("is_date", [False, True])
def test_a_limit_is_kept_missed_or_undecided(is_date: bool) -> None:
    """By date, and by duration: the same states."""
    dice = random.Random(SEED)
    time_s, number = dice.uniform(2000, 9000), dice.randint(10, 20)
    times = {1: around(4 * time_s), 2: around(2 * time_s), 4: around(time_s)}

    def states(trainings_s: float) -> list[State]:
        limit_s = 60 * round(number * trainings_s / 60)
        limit = Limit(at_most=date(limit_s) if is_date else limit_s)
        made = study(times, {"trainings": number, "start": START}, limits={FINISH_TIME: limit})
        found = {each.row.nodes: each.state for each in answer_of(made).candidates}
        return [found[nodes] for nodes in times]

    missed, kept, undecided = State.INFEASIBLE, State.COMPARED, State.UNDECIDED
    assert states(3.8 * time_s) == [missed, kept, kept], SEED
    assert states(time_s) == [missed, missed, undecided], SEED
    assert states(0.5 * time_s) == [missed] * 3, SEED


def test_goal_and_limit_are_on_headline_and_decision() -> None:
    dice = random.Random(SEED)
    times = {1: around(9000.0, runs=8), 2: around(5000.0, runs=8)}
    number = dice.randint(3, 9)
    campaign_keys = {"trainings": number, "start": START}
    limit = Limit(at_most=date(number * 5000.0 * 3))
    made = study(times, campaign_keys, goal=FINISH_TIME, limits={FINISH_TIME: limit})
    found = answer_of(made)
    row = next(row for point, row in campaign.campaign_rows(made).items() if point.nodes == 2)
    assert found.recommended and found.recommended.point.nodes == 2, SEED
    done = f"{datetime.datetime.fromisoformat(row.done or ''):%A %Y-%m-%d %H:%M}"
    assert done in found.recommended.value
    (shown,) = headline.table(made).to_dict("records")
    assert done in f"{shown['text']} {shown['sure']}"
    decided = decision.table(made).set_index("goal")
    assert done in str(decided.loc[FINISH_TIME, "text"])
    assert decided.loc[FINISH_TIME, "nodes"] == 2
    assert {"execution_time_s", "cost_usd"} <= {*decided.index}


def test_other_goals_keep_the_limit() -> None:
    """The cheapest configuration is done too late."""
    times = {1: around(4000.0, runs=11), 2: around(2400.0, runs=11)}
    limit, number = Limit(at_most="12.5 h"), {"trainings": 12}
    made = study(times, number, goal="cost_usd", limits={FINISH_TIME: limit})
    found = answer_of(made)
    late = next(each for each in found.candidates if each.row.nodes == 1)
    assert (late.state, late.missed) == (State.INFEASIBLE, (FINISH_TIME,))
    assert found.recommended and found.recommended.point.nodes == 2
    (shown,) = headline.table(made).to_dict("records")
    assert duration_text(limit.value) in shown["sure"]


def test_configurations_whose_campaigns_never_end_are_excluded_by_name() -> None:
    """A job ends before a training does, and the next one begins again."""
    times = {1: around(4000.0, runs=8), 2: around(3000.0, runs=8)}
    made = study(
        times, {"trainings": 3, "time_limit": "10 min"}, limits={FINISH_TIME: Limit(at_most="4 d")}
    )
    found = answer_of(made)
    assert [each.state for each in found.candidates] == [State.INFEASIBLE] * 2
    (missed,) = found.missed_limits
    assert (missed.missed, missed.undecided) == (2, 0)
    (shown,) = headline.table(made).to_dict("records")
    assert missed.text in f"{shown['text']} {shown['sure']}" and "nan" not in missed.value


@pytest.mark.parametrize("status", ["diverged", "does_not_fit"])
@pytest.mark.parametrize("metric", [FINISH_TIME, CAMPAIGN_COST])
def test_runs_without_a_result_keep_no_limit_of_a_campaign(metric: str, status: str) -> None:
    times = {1: around(1000.0, runs=10), 2: around(600.0, runs=9)}  # a run on two nodes has no time
    limits = {metric: Limit(at_most=1e6)}

    def state(status_of_last: str) -> State:
        _, runs, planned = measured({("east", n): own for n, own in times.items()})
        runs["status"] = runs["status"].replace("failed", status_of_last)
        asked = Question(campaign=Campaign(trainings=3), limits=limits)
        made = Study(comparison_table(runs, planned), runs, planned, question=asked)
        return next(e.state for e in answer_of(made).candidates if e.row.nodes == 2)

    assert (state("failed"), state(status)) == (State.COMPARED, State.UNDECIDED)


def costs(times: dict[int, list[float]], limit: float, **campaign: Any) -> Answer:
    """The answer with a limit of the cost of all trainings in US dollars, one for a node-hour."""
    limits = {CAMPAIGN_COST: Limit(at_most=limit)}
    return answer_of(study(times, campaign, limits=limits))


def test_a_limit_of_the_cost_is_kept_missed_or_undecided() -> None:
    dice = random.Random(SEED)
    time_s, number = dice.uniform(2000, 9000), dice.randint(10, 20)
    # one training costs 1, 4 and 16 times the price of `time_s`
    times = {nodes: around(nodes * time_s) for nodes in (1, 2, 4)}
    of_one = time_s / 3600

    def verdicts(costs_of: float) -> list[str]:
        found = costs(times, number * costs_of * of_one, trainings=number)
        by_nodes = {each.row.nodes: each for each in found.candidates}
        return [
            "missed" if each.missed else "undecided" if each.undecided else "kept"
            for each in map(by_nodes.__getitem__, times)
        ]

    assert verdicts(2.2) == ["kept", "missed", "missed"], SEED
    assert verdicts(4.0) == ["kept", "undecided", "missed"], SEED
    assert verdicts(0.5) == ["missed"] * 3, SEED


def test_a_limit_of_the_cost_counts_repeated_work() -> None:
    """A training that costs less than its share of the limit is interrupted too often."""
    dice = random.Random(SEED)
    number = dice.randint(10, 30)
    times = {1: around(3600.0, runs=8), 2: around(1900.0, runs=8)}
    limit = 2.5 * number
    plain = costs(times, limit, trainings=number)
    assert plain.recommended and plain.recommended.row.nodes == 2, SEED
    spot = Spot(interruptions_per_hour=4.0)
    often = costs(times, limit, trainings=number, spot=spot)
    assert often.recommended is None, SEED
    assert {each.state for each in often.candidates} == {State.INFEASIBLE}, SEED
    saved = costs(times, limit, trainings=number, spot=spot, checkpoint_every="1 min")
    assert saved.recommended is not None, SEED


def test_the_headline_has_the_cost_and_its_limit() -> None:
    times = {1: around(3600.0, runs=11), 4: around(1800.0, runs=11)}
    made = study(times, {"trainings": 10}, limits={CAMPAIGN_COST: Limit(at_most=17)})
    found = answer_of(made)
    assert found.recommended and found.recommended.row.nodes == 1
    (missed,) = found.missed_limits
    assert "at most 17 US dollars" in missed.text and missed.missed == 1
    rows = {row.nodes: row for row in campaign.campaign_rows(made).values()}
    assert rows[4].cost_text in missed.value
    (shown,) = headline.table(made).to_dict("records")
    assert missed.text in shown["sure"]
    assert f"ost of all trainings {rows[1].cost_text} US dollars" in shown["text"]
    assert f"{17 - rows[1].cost_usd:.3g} below its limit" in shown["text"]


def test_without_enough_runs_a_limit_of_the_cost_is_open() -> None:
    few = random.Random(SEED).randint(2, RUNS_FOR_INTERVAL - 1)
    found = costs({1: around(1000.0, runs=few), 2: around(900.0)}, 99.0)
    lacking = next(each for each in found.candidates if each.row.nodes == 1)
    assert (lacking.state, lacking.unknown_metric) == (State.OPEN, CAMPAIGN_COST)
    assert f"{few} runs with times, {RUNS_FOR_INTERVAL} are needed" in lacking.reason


def test_endless_campaigns_miss_every_cost_and_free_ones_keep_it() -> None:
    """Also of nodes that cost nothing: then a campaign that ends costs nothing."""
    times = {1: around(4000.0, runs=8), 4: around(1500.0, runs=8)}
    _, runs, planned = measured(
        {("east", n): own for n, own in times.items()}, usd_per_node_hour=0.0
    )
    asked = Question(
        campaign=Campaign(trainings=3, time_limit="1 h"), limits={CAMPAIGN_COST: Limit(at_most=1)}
    )
    made = Study(comparison_table(runs, planned), runs, planned, question=asked)
    states = {each.row.nodes: each.state for each in answer_of(made).candidates}
    assert states == {1: State.INFEASIBLE, 4: State.COMPARED}


def test_of_equally_early_campaigns_the_cheapest_is_taken() -> None:
    """One training is cheaper on four nodes; a time limit makes their campaign more expensive."""
    times = {4: around(1100.0, 0.005, 12), 5: around(900.0, 0.005, 12)}
    limits = {"trainings": 10, "time_limit": "1000 s", "checkpoint_every": "900 s"}
    calm, limited = (
        answer_of(study(times, {"trainings": 10} | each, goal=FINISH_TIME, indifference=0.95))
        for each in ({}, limits)
    )
    assert calm.is_near_best and limited.is_near_best
    assert calm.recommended and calm.recommended.row.nodes == 4
    assert limited.recommended and limited.recommended.row.nodes == 5
    assert calm.choice_reason == limited.choice_reason == "the lowest cost"
    cost = limited.recommended.row["campaign_cost_usd"]
    assert f"{cost:.3g} (" in decision.answer_sentence(limited)
