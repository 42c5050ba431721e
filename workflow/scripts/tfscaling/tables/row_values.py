"""Values of table rows: their points, metrics and qualities, and groups of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal, TypeGuard, TypeVar

import pandas as pd

from tfscaling.record.metrics import METRICS, OF_RESULTS, QUALITY, Metric, quality_metric
from tfscaling.study.config_types import LINE_AXES, POINT_AXES, Quality
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_types import Cells

_T = TypeVar("_T")
_Cells = TypeVar("_Cells", bound=Cells)
_Key = TypeVar("_Key", bound=Hashable)

#: What the column `quality` of a row has.
QUALITY_TEXTS = ("quality_metric", "quality_direction", "quality_unit")
QUALITY_COLUMNS = (*QUALITY_TEXTS, "quality_best")


def is_known(cell: _T | None) -> TypeGuard[_T]:
    """Whether a cell has a value: neither None nor NaN, the one number that is not itself."""
    return cell is not None and cell is not pd.NA and cell == cell


def is_projected(row: Cells) -> bool:
    """Return whether a point or run has times and costs that are projected from short runs."""
    return "projected_from_steps" in row and is_known(row["projected_from_steps"])


def quality_of(row: Cells) -> Quality:
    """Return the quality that the columns of a row describe."""
    metric, direction, unit, best = (row[name] for name in QUALITY_COLUMNS)
    # NaN equals nothing, and would be a new entry of the cache each time
    return _quality(metric, direction, *(v if is_known(v) else None for v in (unit, best)))


def qualities_of(rows: Iterable[Cells]) -> dict[str, Quality]:
    """Return the quality for each metric that these rows are compared by."""
    found = (quality_of(row) for row in rows if isinstance(row["quality_metric"], str))
    return {quality.metric: quality for quality in found}


def qualities_in(table: pd.DataFrame) -> dict[str, Quality]:
    """Return the quality for each metric in a table of points or runs."""
    return qualities_of(table[[*QUALITY_COLUMNS]].to_dict("records"))


def metric_of(name: str, row: Cells) -> Metric:
    """Return the metric of a column; for the column `quality` the row's metric."""
    return quality_metric(quality_of(row)) if name == QUALITY else METRICS[name]


def counted_by(name: str) -> str:
    """Return the column that counts the runs of a point with a valid value of this metric.

    Runs that resumed from a checkpoint give results like others, but no times, rates or costs.
    """
    return "runs" if name in (*OF_RESULTS, QUALITY) else "runs_timed"


@functools.cache
def _quality(
    metric: str, direction: Literal["higher", "lower"], unit: str | None, best: float | None
) -> Quality:
    return Quality(metric=metric, direction=direction, unit=unit, best=best)


def point_of(row: Cells) -> Point:
    """Return the point of a row, from the columns of the axes."""
    return _point(*map(row.__getitem__, POINT_AXES))


def points_of(table: pd.DataFrame) -> list[Point]:
    """Return the point of each row."""
    return [_point(*axes) for axes in table[[*POINT_AXES]].itertuples(index=False, name=None)]


def by_point(rows: Iterable[_Cells]) -> dict[Point, list[_Cells]]:
    """Group rows by their point, in their order."""
    return grouped(rows, point_of)


def line_of(row: Cells) -> tuple[Any, ...]:
    """Return the axes that the points of a line share: all but the nodes."""
    return tuple(row[axis] for axis in LINE_AXES)


def grouped(rows: Iterable[_T], key: Callable[[_T], _Key]) -> dict[_Key, list[_T]]:
    """Group rows by a key, in their order."""
    groups: dict[_Key, list[_T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def lacking_energy_parts(row: Cells, rows: Iterable[Cells]) -> str:
    """Return the parts, such as `GPUs`, whose energy other rows include and this row lacks."""

    def parts(each: Cells) -> list[str]:
        return str(each["energy_of"]).split(" and ") if is_known(each["energy_of"]) else []

    every = dict.fromkeys(part for each in rows for part in parts(each))
    return " and ".join(part for part in every if part not in parts(row))


def columns_of(point: Point) -> dict[str, str | int]:
    """Return the columns of the axes: `tasks_per_node` is text, as a value of it can be "2+1"."""
    return {**point.axes, "tasks_per_node": str(point.tasks_per_node)}


def axes_of(row: Cells, axes: Iterable[str] = POINT_AXES) -> dict[str, Any]:
    """Return the axes and devices of a row by their columns.

    Args:
        row: A row of any table with these columns.
        axes: The axes; an `AxesRow` has no platform.
    """
    return {name: row[name] for name in (*axes, "devices")}


@functools.cache
def _point(*axes: Any) -> Point:
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
