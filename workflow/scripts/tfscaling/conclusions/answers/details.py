"""What a headline reports about the leader of an answer: its metrics, with margins to limits."""

from __future__ import annotations

from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.goals import TIME
from tfscaling.estimation.intervals import median_interval
from tfscaling.estimation.samples import Samples
from tfscaling.record.metrics import FINISH_TIME, QUALITY
from tfscaling.tables.display import (
    duration_text,
    format_metric,
    format_three_digits,
    format_value,
)
from tfscaling.tables.row_values import is_known, metric_of

#: Columns that the answer to a question with limits reports besides its goal and its limits.
_DETAIL_COLUMNS = ("cost_usd", QUALITY, "rank_memory_gb", "gpu_memory_gb")


def leader_details_text(samples: Samples, answer: Answer) -> str:
    """Return metrics of an answer's leader in words, with margins to limits, for the headline.

    Args:
        samples: Values of the runs.
        answer: The answer.

    Returns:
        "" for a question without limits, or without a leader.
    """
    if answer.leader is None or not answer.limits:
        return ""
    leader, limits = answer.leader, answer.limits
    texts, row = [], leader.row
    for name in dict.fromkeys([TIME, answer.goal, *limits, *_DETAIL_COLUMNS]):
        if not is_known(row[name]):
            continue
        metric, shown = metric_of(name, row), format_metric(name, row)
        has_ends = f"{name}_low" in row
        interval = None if has_ends else median_interval(samples.values_in_unit(leader.point, name))
        if interval:
            shown = f"{format_value(row[name], metric.digits, *interval)} {metric.unit}".rstrip()
        text = f"{metric.title} {shown}"
        if limit := limits.get(name):
            side = "below" if limit.at_least is None else "above"
            margin = abs(limit.value - row[name])
            is_finish = name == FINISH_TIME
            shown = duration_text(margin) if is_finish else format_three_digits(margin)
            text += f", {shown} {side} its limit"
        texts.append(text)
    return "; ".join(texts)
