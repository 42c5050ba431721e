"""What an answer reports about its leader: margins to limits, start-up, and a cheaper choice."""

from __future__ import annotations

from collections.abc import Mapping

from tfscaling.conclusions.answers.answer_types import (
    AllTrainings,
    Answer,
    Candidate,
    StartUp,
    TradeOff,
)
from tfscaling.conclusions.answers.goals import TIME
from tfscaling.record.metrics import QUALITY
from tfscaling.study.config_types import Limit
from tfscaling.tables.display import rounded, three_digits, value
from tfscaling.tables.estimates import Samples, median_interval
from tfscaling.tables.row_values import is_known, metric_of

#: Phases before the steady state, which more nodes do not divide.
STARTUP = (
    *("import_time_s", "rendezvous_time_s", "data_time_s", "build_time_s", "first_step_time_s"),
)

#: What the answer to a question with limits reports, besides its goal and its limits.
_REPORTED = ("cost_usd", QUALITY, "rank_memory_gb", "gpu_memory_gb")


#: A trade-off is reported from this saving on, and up to this ratio of times.
_SAVING_MIN, _TIMES_MAX = 0.1, 3.0


def report_leader(
    samples: Samples, leader: Candidate, goal: str, limits: Mapping[str, Limit]
) -> str:
    """Return time, goal, price, quality and memory in words, with the margins to their limits.

    Args:
        samples: The values of the runs.
        leader: The configuration that is reported.
        goal: The metric that is to be best.
        limits: Limits of the question by column.
    """
    texts, row = [], leader.row
    for name in dict.fromkeys([TIME, goal, *limits, *_REPORTED]):
        if not is_known(row[name]):
            continue
        metric, shown = metric_of(name, row), value(name, row)
        has_ends = f"{name}_low" in row
        interval = None if has_ends else median_interval(samples.measured(leader.point, name))
        if interval:
            shown = f"{rounded(row[name], metric.digits, *interval)} {metric.unit}".rstrip()
        text = f"{metric.title} {shown}"
        if limit := limits.get(name):
            side = "below" if limit.at_least is None else "above"
            text += f", {three_digits(abs(limit.value - row[name]))} {side} its limit"
        texts.append(text)
    return "; ".join(texts)


def find_startup(asked: Answer) -> StartUp | None:
    """Return the leader's start-up and the fastest training; None up to half of the time."""
    taken = asked.leader
    if taken is None or asked.goal != TIME or not is_known(taken.row.train_time_s):
        return None
    spent_s = sum(number for name in STARTUP if is_known(number := taken.row[name]))
    share = spent_s / taken.row.execution_time_s if is_known(taken.row.execution_time_s) else 0.0
    training = [each for each in asked.compared if each.row.train_time_s > 0]
    if share <= 0.5 or not training:
        return None
    fastest = min(training, key=lambda each: each.row.train_time_s)
    return StartUp(share, fastest, taken.row.train_time_s / fastest.row.train_time_s)


def find_trade_off(asked: Answer) -> TradeOff | None:
    """Return the fastest configuration that costs clearly less than the leader by its median.

    Cost is money where all have a price, else node-hours. None if the goal is not a time, or if
    every other configuration is nearly as expensive or takes more than three times as long.
    """
    taken = asked.leader
    if taken is None or asked.goal not in (TIME, "time_to_target_s"):
        return None
    others = [each for each in asked.compared if each is not taken]
    rows = [each.row for each in (taken, *others)]
    goal, money = asked.goal, "cost_usd" if asked.goal == TIME else "cost_to_target_usd"
    is_priced = all(row[money] > 0 for row in rows)  # not if one is unknown
    for each in others:
        time = each.row[goal] / taken.row[goal]
        nodes = each.row.nodes / taken.row.nodes
        cost = each.row[money] / taken.row[money] if is_priced else nodes * time
        if 1 <= time <= _TIMES_MAX and cost <= 1 - _SAVING_MIN:
            return TradeOff(each, time, cost, is_priced)
    return None


def sum_trainings(leader: Candidate, number: int) -> AllTrainings | None:
    """Return what this many trainings take with the leader.

    None for a single training, and if its time is not known.
    """
    row = leader.row
    if number == 1 or not is_known(row.execution_time_s):
        return None
    names = ("execution_time_s", "node_hours", "cost_usd")
    ends = {name: (row[f"{name}_low"], row[f"{name}_high"]) for name in names}
    return AllTrainings(
        number,
        number * row.execution_time_s,
        number * row.node_hours,
        number * row.cost_usd if is_known(row.cost_usd) else None,
        {name: (number * a, number * b) for name, (a, b) in ends.items() if is_known(a)},
    )
