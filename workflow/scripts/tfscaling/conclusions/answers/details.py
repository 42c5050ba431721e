"""Metrics of a configuration that the answer to a question with limits reports, in words."""

from __future__ import annotations

from collections.abc import Container, Iterable

from tfscaling.estimation.intervals import median_interval
from tfscaling.estimation.samples import Samples
from tfscaling.record.metrics import FINISH_TIME, QUALITY
from tfscaling.study.config_types import Limit
from tfscaling.tables.display import (
    duration_text,
    format_metric,
    format_three_digits,
    format_value,
)
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, metric_of, point_of

#: Columns that the answer to a question with limits reports besides its goal and its limits.
DETAIL_COLUMNS = ("cost_usd", QUALITY, "rank_memory_gb", "gpu_memory_gb")


def describe_metrics(
    samples: Samples, row: PointRow, names: Iterable[str], limited: Container[str] = ()
) -> dict[str, str]:
    """Return metric → its title, median with interval, and unit; without unknown ones.

    Args:
        samples: Values of the runs.
        row: The configuration.
        names: The metrics.
        limited: Metrics with a limit. A cost among them is given for one run, like its limit; other
            small costs are given for 1,000 runs.
    """
    found = {}
    for name in names:
        if not is_known(row[name]):
            continue
        metric = metric_of(name, row)
        shown = format_metric(name, row, is_for_many=name not in limited)
        has_ends = f"{name}_low" in row
        values = [] if has_ends else samples.values_in_unit(point_of(row), name)
        if interval := median_interval(values):
            shown = f"{format_value(row[name], metric.digits, *interval)} {metric.unit}".rstrip()
        found[name] = f"{metric.title} {shown}"
    return found


def margin_text(name: str, value: float, limit: Limit | None) -> str:
    """Return how far a value is from its limit, such as `, 4.50 below its limit`; "" without one.

    Args:
        name: The metric.
        value: The value, which keeps the limit.
        limit: The limit; None without one.
    """
    if limit is None:
        return ""
    side = "below" if limit.at_least is None else "above"
    margin = abs(limit.value - value)
    text = duration_text(margin) if name == FINISH_TIME else format_three_digits(margin)
    return f", {text} {side} its limit"
