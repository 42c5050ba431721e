"""Rows of tables, their points, and the files and data frames that hold them."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeGuard, TypeVar

import msgspec
import pandas as pd

from tfscaling.files import atomic
from tfscaling.files.program_errors import InputError
from tfscaling.record.metrics import METRICS, NAN, OF_RESULTS, QUALITY, Metric, quality_metric
from tfscaling.study.config import LINE_AXES, POINT_AXES, Quality
from tfscaling.study.run_spec import Point
from tfscaling.tables.rows import (
    Cells,
    Column,
    EpochRow,
    PointRow,
    RunRow,
    columns,
    enumeration,
    field_columns,
)

_T = TypeVar("_T")
_Cells = TypeVar("_Cells", bound=Cells)
_Key = TypeVar("_Key", bound=Hashable)

#: Status of a point, or support of a statement about it, where the point has no valid run.
NOT_MEASURED = "not measured"
#: What of short runs is projected to the whole training, besides what is made of these.
OF_WHOLE = (
    *("execution_time_s", "time_with_queue_s", "train_time_s", "evaluation_time_s"),
    *("cost_usd", "node_hours"),
)
#: What the column `quality` of a row has.
QUALITY_TEXTS = ("quality_metric", "quality_direction", "quality_unit")
QUALITY_COLUMNS = (*QUALITY_TEXTS, "quality_best")


def rows_of(table: pd.DataFrame, columns: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries with these columns, or with all."""
    chosen = table if columns is None else table[list(columns)]
    return typing.cast(list[dict[str, Any]], chosen.to_dict("records"))


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
    return qualities_of(rows_of(table, QUALITY_COLUMNS))


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


_Row = TypeVar("_Row", bound=msgspec.Struct)


def frame(kind: type[_Row], rows: Sequence[_Row]) -> pd.DataFrame:
    """Make the table of these rows, with all columns of their type."""
    found: dict[str, pd.Series] = {}
    cells = [msgspec.structs.astuple(row) for row in rows]
    for place, field in enumerate(kind.__struct_fields__):
        values = [row[place] for row in cells]
        for name, column in field_columns(kind, field).items():
            own = values if name == field else [each.get(name) for each in values]
            found[name] = _series(own, column)
    return pd.DataFrame({name: found[name] for name in columns(kind)})


def _series(values: list[Any], column: Column) -> pd.Series:
    if column.is_whole:
        return pd.Series(values, dtype="Int64")
    if column.kind in ("integer", "number"):
        return pd.Series([NAN if value is None else value for value in values])
    if column.kind == "boolean":
        return pd.Series(values, dtype="boolean" if "null" in column.rules["type"] else bool)
    return pd.Series(values, dtype=object)


def typed(kind: type[_Row], table: pd.DataFrame) -> list[_Row]:
    """Convert a table to rows; a missing column or an empty cell is the default of its field."""
    parts: list[list[Any]] = []
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    defaults = (*[None] * (len(names) - len(defaults)), *defaults)
    for field, default in zip(names, defaults, strict=True):
        own = field_columns(kind, field)
        there = {name: _values(table[name], each) for name, each in own.items() if name in table}
        if field in there:
            member, values = enumeration(kind, field), there[field]
            if default is not None:
                values = [default if value is None else value for value in values]
            parts.append([member(value) for value in values] if member else values)
        elif there or field not in own:
            cells = zip(*there.values(), strict=True) if there else [()] * len(table)
            every = (zip(there, values, strict=True) for values in cells)
            parts.append([{name: v for name, v in row if v is not None} for row in every])
        else:
            parts.append([default] * len(table))
    return [kind(*values) for values in zip(*parts, strict=True)]


def _values(cells: pd.Series, column: Column) -> list[Any]:
    """Return the cells as values of a field; None, or NaN for numbers, where they are empty."""
    if column.kind == "number" and cells.dtype == float:
        return cells.tolist()
    values = [cell if is_known(cell) else None for cell in cells.tolist()]
    if column.kind == "integer" and cells.dtype != int:
        return [None if value is None else int(value) for value in values]
    return values


#: A text that begins so is a formula for a spreadsheet, which would run it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write the table, or nothing. A text that would be a formula begins with an apostrophe."""
    texts = table.select_dtypes([object, "str"])
    # as objects: numbers of a column that also has None stay what they are
    written = {
        name: pd.Series(map(_without_formula, texts[name]), texts.index, dtype=object)
        for name in map(str, texts)
    }
    with atomic.whole(path) as temporary:
        table.assign(**written).to_csv(temporary, index=False, lineterminator="\n")


def _without_formula(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def write_parquet(runs: pd.DataFrame, path: Path) -> None:
    """Write the table of runs; the type of a column does not depend on its values."""
    import pyarrow

    names = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}
    kinds = {kind: pyarrow.type_for_alias(name) for kind, name in names.items()}
    types = {name: kinds[column.kind] for name, column in columns(RunRow).items()}
    times = {}
    for name, column in columns(RunRow).items():
        if column.format == "date-time":
            types[name] = pyarrow.timestamp("ms", tz="UTC")
            times[name] = pd.to_datetime(runs[name], utc=True, format="ISO8601", errors="coerce")
    with atomic.whole(path) as temporary:
        typed = runs.assign(**times)
        typed.to_parquet(temporary, index=False, schema=pyarrow.schema(types.items()))


#: Texts in the tables of runs, epochs and points; `source` is one of published results.
_KNOWN = columns(RunRow) | columns(EpochRow) | columns(PointRow)
_TEXTS = (*(name for name, column in _KNOWN.items() if column.kind == "string"), "source")


def read_table(path: Path, needed: Collection[str] = ()) -> pd.DataFrame:
    """Read a table from its CSV: texts stay texts, whatever they look like.

    Empty cells are missing, but a reason and warnings are empty texts. An empty file has no column.
    Raises InputError with the file if it is no table, or lacks a column that is `needed`.
    """
    texts = dict.fromkeys(_TEXTS, "object")
    try:
        table = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    except pd.errors.EmptyDataError:
        table = pd.DataFrame()
    except ValueError as error:  # no table at all, or bytes that are no text
        raise InputError(f"{path}: {error}") from error
    if missing := [name for name in needed if name not in table]:
        raise InputError(f"{path}: columns {', '.join(missing)} are missing")
    return table.fillna({"reason": "", "warnings": ""})
