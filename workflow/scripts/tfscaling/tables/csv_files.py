"""Tables as CSV files: whole or not there, and no text in them is a formula."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tfscaling.files import atomic

#: A text that begins so is a formula for a spreadsheet, which would run it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write(table: pd.DataFrame, path: Path) -> None:
    """Write the table, or nothing. A text that would be a formula begins with an apostrophe."""
    texts = table.select_dtypes(include=["object", "string"]).columns
    plain = table.assign(**{name: _without_formulas(table[name]) for name in texts})
    with atomic.whole(path) as temporary:
        plain.to_csv(temporary, index=False)


def _without_formulas(column: pd.Series) -> pd.Series:
    # `map` would make 1.0 of 1 beside a missing value
    return pd.Series([_plain(value) for value in column], column.index, dtype="object")


def _plain(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
