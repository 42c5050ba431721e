"""Tables as data frames, CSV files and Parquet files, and their conversion to typed rows."""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pandas as pd

from tfscaling.files import atomic
from tfscaling.files.program_errors import InputError
from tfscaling.record.metrics import NAN
from tfscaling.tables.row_types import (
    Column,
    EpochRow,
    PointRow,
    RunRow,
    columns,
    enumeration,
    field_columns,
)
from tfscaling.tables.row_values import is_known

_Row = TypeVar("_Row", bound=msgspec.Struct)


def rows_of(table: pd.DataFrame, columns: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries with these columns, or with all."""
    chosen = table if columns is None else table[list(columns)]
    return typing.cast(list[dict[str, Any]], chosen.to_dict("records"))


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
        name: pd.Series(map(_escape_formula, texts[name]), texts.index, dtype=object)
        for name in map(str, texts)
    }
    with atomic.whole(path) as temporary:
        table.assign(**written).to_csv(temporary, index=False, lineterminator="\n")


def _escape_formula(cell: object) -> object:
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
