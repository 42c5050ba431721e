"""Comparison of clouds: the same configurations on platforms of two clouds.

The page shows the table; findings count which cloud wins how many configurations.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import ClassVar

import pandas as pd

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.samples import Difference
from tfscaling.record import metrics
from tfscaling.record.metrics import NAN, QUALITY
from tfscaling.study.config_types import POINT_AXES
from tfscaling.study.run_spec import Point
from tfscaling.tables.display import (
    MISSING,
    NAMING_COLUMNS,
    FormattedNumber,
    TextTable,
    format_value,
)
from tfscaling.tables.row_types import AxesRow, PointRow, columns
from tfscaling.tables.row_values import axes_and_devices, group_by, is_known, metric_of, point_of
from tfscaling.tables.table_files import to_frame

METRICS_COMPARED = ("execution_time_s", "loss", QUALITY, "cost_usd")
AXES = POINT_AXES[1:]
#: Kinds of `margin`: the other cloud's value divided by the winner's value, or their difference
#: where one value is zero.
RATIO_MARGIN, DIFFERENCE_MARGIN = "ratio", "difference"


class CloudRow(AxesRow):
    """One metric of one configuration, measured on platforms of two clouds, `a` and `b`.

    Attributes:
        metric: A name of METRICS, or the metric of the recipe's quality.
        value_a: Median on the platform of the first cloud.
        value_b: Median on the platform of the second cloud.
        winner: The cloud with the better median; `equal` for equal medians.
        margin_kind: Whether `margin` is a ratio or, if a value is zero, a difference.
        margin: How much worse the other cloud is: its value divided by the winner's value (for an
            accuracy, errors are divided), or the difference of both in the metric's unit.
        low: Lower end of the margin's interval; NaN without an interval.
        high: Upper end of the margin's interval.
        verdict: Level of support of the comparison: SUPPORTED, INCONCLUSIVE or TOO_FEW.
        comparisons: Number of comparisons whose error rate is controlled together, so that all
            verdicts are right with CONFIDENCE.
    """

    inherited_after: ClassVar[str] = "cloud_b"

    platform_a: str
    cloud_a: str
    platform_b: str
    cloud_b: str
    metric: str
    value_a: float
    value_b: float
    winner: str
    margin_kind: str
    margin: float
    low: float = NAN
    high: float = NAN
    verdict: str = ""
    comparisons: int = 0


COLUMNS = tuple(columns(CloudRow))


def table(study: Study) -> pd.DataFrame:
    """Return the table of comparisons between clouds, one `CloudRow` for each."""
    return to_frame(CloudRow, compare_clouds(study))


@functools.lru_cache(maxsize=1)  # findings count the same rows
def compare_clouds(study: Study) -> Sequence[CloudRow]:
    """Return a row for each metric of every configuration that was measured on two clouds.

    Configurations that `Study.excluded` names are left out.
    """
    pairs, samples = _pair_rows(study.compared_rows), study.samples
    #: Estimated together: a metric of points of the same two platforms and of one quality, which
    #: are ordered by place: (the better point, the other).
    together: dict[tuple[str, ...], dict[int, tuple[Point, Point]]] = {}
    for metric, (place, (a, b)) in itertools.product(METRICS_COMPARED, enumerate(pairs)):
        is_twice = metric == QUALITY and a["quality_metric"] in METRICS_COMPARED
        if not is_twice and (both := _sort_better_first(a, b, metric)):
            quality = a["quality_metric"] if metric == QUALITY else ""
            alike = together.setdefault((metric, a["platform"], b["platform"], quality), {})
            alike[place] = (point_of(both[0]), point_of(both[1]))
    comparisons = sum(
        all(samples.has_enough_runs(metric, point) for point in pair)
        for (metric, *_), alike in together.items()
        for pair in alike.values()
    )
    found: dict[tuple[int, int], CloudRow] = {}
    for (metric, *_), alike in together.items():
        differences = samples.compare_pairs(metric, [*alike.values()], max(1, comparisons))
        for place, one in zip(alike, differences, strict=True):
            if one is not None:
                order = place, METRICS_COMPARED.index(metric)
                found[order] = _cloud_row(*pairs[place], metric, one, comparisons)
    return [found[order] for order in sorted(found)]


def _pair_rows(points: Sequence[PointRow]) -> list[tuple[PointRow, PointRow]]:
    """Return pairs of rows that differ in nothing but platform and cloud, in platform order."""
    of_clouds = [row for row in points if isinstance(row["cloud"], str)]
    alike = group_by(of_clouds, lambda row: tuple(str(row[axis]) for axis in AXES))
    pairs = [
        (a, b)
        for group in alike.values()
        for a, b in itertools.combinations(group, 2)
        if a["cloud"] != b["cloud"]
    ]
    order = list(dict.fromkeys((a["platform"], b["platform"]) for a, b in pairs))
    return sorted(pairs, key=lambda pair: order.index((pair[0]["platform"], pair[1]["platform"])))


def _sort_better_first(a: PointRow, b: PointRow, metric: str) -> tuple[PointRow, PointRow] | None:
    """Return the two rows, the one with the better median first; None if a median is missing.

    Args:
        a: A configuration on one cloud.
        b: The same configuration on another cloud.
        metric: The metric.
    """
    if not (is_known(a[metric]) and is_known(b[metric])):
        return None
    higher = metric_of(metric, a).is_higher_better
    return (a, b) if (a[metric] > b[metric]) == higher else (b, a)


def _cloud_row(
    a: PointRow, b: PointRow, metric: str, difference: Difference, comparisons: int
) -> CloudRow:
    """Return the row that compares a configuration on two clouds by one metric.

    Args:
        a: The configuration on the first cloud.
        b: The configuration on the second cloud.
        metric: The metric.
        difference: How much worse the loser is than the winner.
        comparisons: Number of comparisons whose error rate is controlled together.
    """
    low, high = difference.interval or (NAN, NAN)
    better, _ = _sort_better_first(a, b, metric) or (a, b)
    return CloudRow(
        **axes_and_devices(a, AXES),
        platform_a=a.platform,
        cloud_a=str(a.cloud),
        platform_b=b.platform,
        cloud_b=str(b.cloud),
        metric=str(a.quality_metric) if metric == QUALITY else metric,
        value_a=a[metric],
        value_b=b[metric],
        winner="equal" if a[metric] == b[metric] else str(better.cloud),
        margin_kind=DIFFERENCE_MARGIN if difference.ratio is None else RATIO_MARGIN,
        margin=difference.gap if difference.ratio is None else difference.ratio,
        low=low,
        high=high,
        verdict=difference.support,
        comparisons=comparisons,
    )


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table for the page: one row per metric and configuration."""
    comparisons = table["comparisons"].max()
    return rendering.make_text_table(
        "Clouds: the same configuration on two clouds",
        table,
        CloudRow,
        _cells,
        rendering.render_notes(
            "clouds", comparisons=int(comparisons) if is_known(comparisons) else 0
        ),
        "No two clouds to compare.",
        names=["platform_a", "platform_b", "cloud_a", "cloud_b", *NAMING_COLUMNS[1:]],
        row_noun="rows",
    )


def _cells(row: CloudRow) -> dict[str, str]:
    """Return heading → text of each cell in a row of the page's table."""
    digits = metrics.metric_by_name(row.metric).digits
    margin = MISSING
    if is_known(row.margin):
        is_gap = row.margin_kind == DIFFERENCE_MARGIN
        text = format_value(row.margin, digits if is_gap else 2, row.low, row.high)
        margin = FormattedNumber(f"{'by ' * is_gap}{text}", row.margin)
    return {
        "metric": row.metric,
        "value_a": format_value(row.value_a, digits),
        "value_b": format_value(row.value_b, digits),
        "winner": row.winner,
        "margin": margin,
        "verdict": row.verdict,
    }
