"""The limits of a question that exclude configurations, or may exclude them after more runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfscaling.conclusions.answers.candidate_types import Candidate
from tfscaling.conclusions.goal_comparison import rank_by_metric
from tfscaling.record.metrics import FINISH_TIME
from tfscaling.study.config_types import Limit
from tfscaling.tables.display import format_metric, limit_value_text
from tfscaling.tables.row_values import metric_of


@dataclass(frozen=True)
class MissedLimit:
    """A limit that excludes configurations of a question, or may exclude them.

    Attributes:
        text: The limit in words.
        missed: Number of configurations that miss it.
        undecided: Number of configurations that may miss it.
        nearest: The one of these configurations that answers show as the nearest to the limit;
            `find_missed_limits` chooses it.
        value: The limited metric of `nearest` as text, such as `cost 41.2 US dollars`; `cost
            unknown` if no configuration had a value for the choice.
    """

    text: str
    missed: int
    undecided: int
    nearest: Candidate
    value: str


def find_missed_limits(
    candidates: Sequence[Candidate], limits: Mapping[str, Limit]
) -> list[MissedLimit]:
    """Return the limits that configurations miss, or may miss.

    `MissedLimit.nearest` has the best value of the limited metric among the configurations that
    miss, or may miss, this limit and no other. If no configuration is of this kind, it is chosen
    among all that miss, or may miss, this limit. Without any value to compare, it is the first one.

    Args:
        candidates: The configurations.
        limits: Column of the tables → limit of the question.
    """
    found = []
    for name, limit in limits.items():
        failing = [each for each in candidates if name in each.missed + each.undecided]
        only = [each for each in failing if {*each.missed, *each.undecided} == {name}]
        near = rank_by_metric(name, [each.row for each in only or failing])
        if failing:
            row = (
                near[0] if near else failing[0].row
            )  # none may have a value, as an endless campaign
            metric = metric_of(name, row)
            side = "at least" if limit.at_most is None else "at most"
            unit = "" if name == FINISH_TIME else metric.unit
            text = f"{metric.title} {side} {limit_value_text(name, limit)} {unit}".rstrip()
            missed = sum(name in each.missed for each in failing)
            undecided = sum(name in each.undecided for each in failing)
            shown = format_metric(name, row, is_for_many=False) if near else "unknown"
            value = f"{metric.title} {shown}"
            (nearest,) = (each for each in failing if each.row is row)
            found.append(MissedLimit(text, missed, undecided, nearest, value))
    return found
