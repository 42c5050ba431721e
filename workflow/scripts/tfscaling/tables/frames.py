"""Rows as the data frame of a file, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import pandas as pd

from tfscaling.record.metrics import NAN
from tfscaling.tables.columns import Column, columns, enumeration, of_field

_Row = TypeVar("_Row", bound=msgspec.Struct)


def frame(kind: type[_Row], rows: Sequence[_Row]) -> pd.DataFrame:
    """The table of these rows, with all columns of their type."""
    found: dict[str, pd.Series] = {}
    for field in kind.__struct_fields__:
        values = [getattr(row, field) for row in rows]
        for name, column in of_field(kind, field).items():
            own = values if name == field else [each.get(name) for each in values]
            found[name] = _series(own, column)
    return pd.DataFrame({name: found[name] for name in columns(kind)})


def _series(values: list[Any], column: Column) -> pd.Series:
    if column.is_whole:
        return pd.Series(values, dtype="Int64")
    if column.kind in ("integer", "number"):
        return pd.Series([NAN if value is None else value for value in values])
    if column.kind == "boolean" and not column.is_optional:
        return pd.Series(values, dtype=bool)
    return pd.Series(values, dtype="boolean" if column.kind == "boolean" else object)


def rows(kind: type[_Row], table: pd.DataFrame) -> list[_Row]:
    """The rows of a table; columns that an older table lacks have the default of their field.

    An empty cell is the default of its field, if it has one.
    """
    parts: list[list[Any]] = []
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    defaults = (*[None] * (len(names) - len(defaults)), *defaults)
    for field, default in zip(names, defaults, strict=True):
        own = of_field(kind, field)
        there = {name: _values(table[name], each) for name, each in own.items() if name in table}
        if field in there:
            member, values = enumeration(kind, field), there[field]
            if default is not None:
                values = [default if value is None else value for value in values]
            parts.append([member(value) for value in values] if member else values)
        elif there or field not in own:
            known = [
                {
                    name: value
                    for name, value in zip(there, values, strict=True)
                    if value is not None
                }
                for values in zip(*there.values(), strict=True)
            ]
            parts.append(known or [{} for _ in range(len(table))])
        else:
            parts.append([default] * len(table))
    return [kind(*values) for values in zip(*parts, strict=True)]


def _values(cells: pd.Series, column: Column) -> list[Any]:
    """The cells as values of a field; None, or NaN for numbers, where they are empty."""
    if column.kind == "number" and cells.dtype == float:
        return cells.tolist()
    if cells.hasnans:
        cells = cells.astype(object).where(cells.notna(), None)
    values = cells.tolist()
    if column.kind == "integer" and cells.dtype != int:
        return [None if value is None else int(value) for value in values]
    return values
