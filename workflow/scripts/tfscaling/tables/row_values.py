"""Access to the values of table rows: configuration, quality and metrics; groups of rows.

Tables, searches and conclusions read rows by these functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Literal, TypeGuard, TypeVar

import pandas as pd

from tfscaling.record.metrics import METRICS, QUALITY, RESULT_METRICS, Metric, quality_metric
from tfscaling.study.config_types import LINE_AXES, POINT_AXES, Quality
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_types import Cells

_T = TypeVar("_T")
_Cells = TypeVar("_Cells", bound=Cells)
_Key = TypeVar("_Key", bound=Hashable)

#: Columns of texts that describe the column `quality`.
QUALITY_TEXTS = ("quality_metric", "quality_direction", "quality_unit")
QUALITY_COLUMNS = (*QUALITY_TEXTS, "quality_best")


def is_known(cell: _T | None) -> TypeGuard[_T]:
    """Return whether a cell has a value: neither None nor NaN."""
    return cell is not None and cell is not pd.NA and cell == cell


def is_projected(row: Cells) -> bool:
    """Return whether the times and costs of a row are projected from short runs."""
    return "projected_from_steps" in row and is_known(row["projected_from_steps"])


def quality_of(row: Cells) -> Quality:
    """Return the quality of a row: metric, direction, unit and best value from its columns."""
    metric, direction, unit, best = (row[name] for name in QUALITY_COLUMNS)
    # NaN equals nothing, and would be a new entry of the cache each time
    return _cached_quality(metric, direction, *(v if is_known(v) else None for v in (unit, best)))


def qualities_by_metric(rows: Iterable[Cells]) -> dict[str, Quality]:
    """Return metric → quality, for all qualities that these rows have."""
    found = (quality_of(row) for row in rows if isinstance(row["quality_metric"], str))
    return {quality.metric: quality for quality in found}


def qualities_in_table(table: pd.DataFrame) -> dict[str, Quality]:
    """Return metric → quality, for all qualities in a table of configurations or runs."""
    return qualities_by_metric(table[[*QUALITY_COLUMNS]].to_dict("records"))


def metric_of(name: str, row: Cells) -> Metric:
    """Return the metric that a column has; for the column `quality`, the row's quality metric."""
    return quality_metric(quality_of(row)) if name == QUALITY else METRICS[name]


def run_count_column(name: str) -> str:
    """Return the column that has the number of runs over which a metric's median is computed.

    It is `runs` for results of a training, such as the loss, and `runs_timed` for times, rates and
    costs, which some valid runs lack (see `untimed_reason`).
    """
    return "runs" if name in (*RESULT_METRICS, QUALITY) else "runs_timed"


@functools.cache
def _cached_quality(
    metric: str, direction: Literal["higher", "lower"], unit: str | None, best: float | None
) -> Quality:
    """Return the quality with these facts; equal arguments give the same object.

    Args:
        metric: Name of the metric.
        direction: Which values are better.
        unit: Its unit; None without one.
        best: Its best possible value; None without one.
    """
    return Quality(metric=metric, direction=direction, unit=unit, best=best)


def point_of(row: Cells) -> Point:
    """Return the configuration of a row, from the columns of its axes."""
    return _cached_point(*map(row.__getitem__, POINT_AXES))


def points_of(table: pd.DataFrame) -> list[Point]:
    """Return the configuration of each row of a table."""
    return [
        _cached_point(*axes) for axes in table[[*POINT_AXES]].itertuples(index=False, name=None)
    ]


def without_points(table: pd.DataFrame, points: Collection[Point]) -> pd.DataFrame:
    """Return a table without the rows of some configurations.

    Args:
        table: The table, with the columns of the axes.
        points: The configurations to remove.
    """
    return table[[point not in points for point in points_of(table)]] if points else table


def group_by_point(rows: Iterable[_Cells]) -> dict[Point, list[_Cells]]:
    """Return configuration → its rows, in the order of the argument."""
    return group_by(rows, point_of)


def axes_without_nodes(row: Cells) -> tuple[Any, ...]:
    """Return the values of a row's axes except nodes: equal for the points of a line in a plot."""
    return tuple(row[axis] for axis in LINE_AXES)


def group_by(rows: Iterable[_T], key: Callable[[_T], _Key]) -> dict[_Key, list[_T]]:
    """Return the value of `key` → the rows that have it, in the order of the argument."""
    groups: dict[_Key, list[_T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def missing_energy_parts(row: Cells, rows: Iterable[Cells]) -> str:
    """Return the parts, such as `GPUs`, whose energy other rows include and this row lacks."""

    def parts(each: Cells) -> list[str]:
        return str(each["energy_of"]).split(" and ") if is_known(each["energy_of"]) else []

    every = dict.fromkeys(part for each in rows for part in parts(each))
    return " and ".join(part for part in every if part not in parts(row))


def axis_columns(point: Point) -> dict[str, str | int]:
    """Return axis → its cell in tables, for a configuration; tasks_per_node is a text, as "2+1"."""
    return {**point.axes, "tasks_per_node": str(point.tasks_per_node)}


def axes_and_devices(row: Cells, axes: Iterable[str] = POINT_AXES) -> dict[str, Any]:
    """Return column → value, for the axes and the devices of a row.

    Args:
        row: A row of any table with these columns.
        axes: The axes to return; an `AxesRow` has no platform.
    """
    return {name: row[name] for name in (*axes, "devices")}


@functools.cache
def _cached_point(*axes: Any) -> Point:
    """Return the configuration with these values of axes; equal values give the same object."""
    platform, model, strategy, recipe, nodes, gpus_per_node, tasks_per_node = axes
    tasks = str(tasks_per_node)
    return Point(
        platform=platform,
        model=model,
        strategy=strategy,
        recipe=recipe,
        nodes=int(nodes),
        gpus_per_node=int(gpus_per_node),
        tasks_per_node=int(tasks) if tasks.isdigit() else tasks,
    )
