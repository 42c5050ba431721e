"""Files of tables: complete or absent, and no text in a CSV file is a formula."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from tfscaling.files import atomic
from tfscaling.record import run_record
from tfscaling.tables.columns import Column, columns, data_package
from tfscaling.tables.rows import EpochRow, PointRow, RunRow

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


def write_parquet(runs: pd.DataFrame, path: Path) -> None:
    """Write the table of runs; the type of a column does not depend on its values."""
    import pyarrow

    kinds: dict[str, pyarrow.DataType] = {
        "string": pyarrow.string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
    }
    time = pyarrow.timestamp("ms", tz="UTC")
    found = columns(RunRow)
    types = {name: time if each.is_time else kinds[each.kind] for name, each in found.items()}
    times = {
        name: pd.to_datetime(runs[name], utc=True, format="ISO8601", errors="coerce")
        for name, column in found.items()
        if column.is_time
    }
    with atomic.whole(path) as temporary:
        typed = runs.assign(**times)
        typed.to_parquet(temporary, index=False, schema=pyarrow.schema(types.items()))


def write_data_package(path: Path, epoch_columns: Iterable[str]) -> None:
    """Write datapackage.json, the description of the tables next to it."""
    tables = {
        "runs": ("One row per run, with those that do not count.", columns(RunRow)),
        "epochs": ("One row per epoch of each run with a record.", of_epochs(epoch_columns)),
        "comparison": ("One row per point of the grid.", columns(PointRow)),
    }
    run_record.write_json(path, data_package(tables))


def of_epochs(names: Iterable[str]) -> dict[str, Column]:
    """The columns of epochs.csv; names besides its own are metrics that recipes name as quality."""
    own = "A metric that a recipe names as its quality, or the same in training; null elsewhere."
    quality = Column(own, rules={"type": ["number", "null"]})
    return {name: columns(EpochRow).get(name, quality) for name in names}
