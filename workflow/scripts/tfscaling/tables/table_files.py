"""Conversion between typed rows, data frames, CSV files and Parquet files."""

from __future__ import annotations

import io
import typing
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pandas as pd

from tfscaling.files import atomic
from tfscaling.files.outside_text import make_visible
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
#: Advice where the optional package that writes Parquet is missing.
PARQUET_ADVICE = "export: parquet needs pyarrow, which is not installed here: make setup PARQUET=1"


def row_dicts(table: pd.DataFrame, columns: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries: column → cell.

    Args:
        table: The table.
        columns: Names of the columns to return; None for all.
    """
    chosen = table if columns is None else table[list(columns)]
    return typing.cast(list[dict[str, Any]], chosen.to_dict("records"))


def to_frame(kind: type[_Row], rows: Sequence[_Row]) -> pd.DataFrame:
    """Return a data frame of typed rows, with all columns of their type."""
    found: dict[str, pd.Series] = {}
    index = pd.RangeIndex(len(rows))  # one for all columns: pandas need not compare theirs
    cells = [msgspec.structs.astuple(row) for row in rows]
    for place, field in enumerate(kind.__struct_fields__):
        values = [row[place] for row in cells]
        for name, column in field_columns(kind, field).items():
            own = values if name == field else [each.get(name) for each in values]
            found[name] = _series(own, column, index)
    return pd.DataFrame({name: found[name] for name in columns(kind)}, index=index)


def _series(values: list[Any], column: Column, index: pd.Index) -> pd.Series:
    """Return a column's values as a pandas series, with the type that its description needs.

    Args:
        values: The values.
        column: The description of the column.
        index: The index of the series.
    """
    if column.is_whole:
        return pd.Series(values, index, dtype="Int64")
    if column.kind in ("integer", "number"):
        return pd.Series([NAN if value is None else value for value in values], index)
    if column.kind == "boolean":
        is_optional = "null" in column.rules["type"]
        return pd.Series(values, index, dtype="boolean" if is_optional else bool)
    return pd.Series(values, index, dtype=object)


def to_rows(kind: type[_Row], table: pd.DataFrame) -> list[_Row]:
    """Return the rows of a data frame as objects of a row type.

    A missing column or an empty cell becomes the default of its field.
    """
    parts: list[list[Any]] = []
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    defaults = (*[None] * (len(names) - len(defaults)), *defaults)
    for field, default in zip(names, defaults, strict=True):
        own = field_columns(kind, field)
        there = {
            name: _field_values(table[name], each) for name, each in own.items() if name in table
        }
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


def _field_values(cells: pd.Series, column: Column) -> list[Any]:
    """Return the cells of a column as values of a field; empty ones as None, or NaN for numbers."""
    if column.kind == "number" and cells.dtype == float:
        return cells.tolist()
    values = [cell if is_known(cell) else None for cell in cells.tolist()]
    if column.kind == "integer" and cells.dtype != int:
        return [None if value is None else int(value) for value in values]
    return values


#: First characters of texts that a spreadsheet would execute as a formula; the last ones are wide
#: forms, which spreadsheets in East Asian languages read alike.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write the complete table to a CSV file; an error leaves no part of it.

    A text that a spreadsheet would execute gets a leading apostrophe.
    """
    texts = table.select_dtypes([object, "str"])
    # as objects: numbers of a column that also has None stay what they are
    written = {
        name: pd.Series(map(_escape_formula, texts[name]), texts.index, dtype=object)
        for name in map(str, texts)
    }
    with atomic.replacement(path) as temporary:
        table.assign(**written).to_csv(temporary, index=False, lineterminator="\n")


def _escape_formula(cell: object) -> object:
    """Return a cell with a leading apostrophe if it is a text that a spreadsheet would execute."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell


def write_parquet(runs: pd.DataFrame, path: Path) -> None:
    """Write the table of runs to a Parquet file; column types do not depend on the values.

    Raises:
        InputError: pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise InputError(PARQUET_ADVICE) from None

    names = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}
    kinds = {kind: pyarrow.type_for_alias(name) for kind, name in names.items()}
    types = {name: kinds[column.kind] for name, column in columns(RunRow).items()}
    times = {}
    for name, column in columns(RunRow).items():
        if column.format == "date-time":
            types[name] = pyarrow.timestamp("ms", tz="UTC")
            times[name] = pd.to_datetime(runs[name], utc=True, format="ISO8601", errors="coerce")
    with atomic.replacement(path) as temporary:
        typed = runs.assign(**times)
        typed.to_parquet(temporary, index=False, schema=pyarrow.schema(types.items()))


#: Columns of the tables of runs, epochs and configurations.
_KNOWN_COLUMNS = columns(RunRow) | columns(EpochRow) | columns(PointRow)
_TEXTS = (*(name for name, column in _KNOWN_COLUMNS.items() if column.kind == "string"), "source")


def read_table(path: Path, needed: Collection[str] = ()) -> pd.DataFrame:
    """Read a table from a CSV file; columns of texts remain texts even if they look like numbers.

    Empty cells are missing values, except in the columns `reason` and `warnings`. An empty file
    gives a table without columns. Control characters are written out: the table may be from another
    study.

    Args:
        path: The file.
        needed: Columns that the file must have.

    Raises:
        InputError: With the file, if it is no table or lacks a needed column.
    """
    texts = dict.fromkeys(_TEXTS, "object")
    try:
        text = make_visible(path.read_text(encoding="utf-8"))
        table = pd.read_csv(io.StringIO(text), dtype=texts, keep_default_na=False, na_values=[""])
    except pd.errors.EmptyDataError:
        table = pd.DataFrame()
    except ValueError as error:  # no table at all, or bytes that are no text
        raise InputError(f"{path}: {error}") from error
    if missing := [name for name in needed if name not in table]:
        raise InputError(f"{path}: columns {', '.join(missing)} are missing")
    return table.fillna({"reason": "", "warnings": ""})
