"""Tables of conclusions for people: one row per point or line, with notes from templates/."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from tfscaling.conclusions.sentences import render
from tfscaling.tables.display import NAMING, TextTable, all_share, cell, naming, rounded
from tfscaling.tables.table_rows import Row, rows_of


def notes(name: str, **values: object) -> tuple[str, ...]:
    """The paragraphs of templates/<name>_notes.j2, each on one line."""
    text = render(f"{name}_notes", **values)
    return tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())


def text_table(
    title: str,
    table: pd.DataFrame,
    cells: Callable[[Row], dict[str, str]],
    notes: Sequence[str],
    if_empty: str,
    *,
    names: Sequence[str] = NAMING,
    each: str = "points",
    above: Sequence[str] = (),
) -> TextTable:
    """One row per row of `table`: the columns of `names` that differ, then its `cells`.

    What is the same in all rows is named above. An empty table has the note `if_empty` alone.
    """
    if table.empty:
        return TextTable(title, pd.DataFrame(), (if_empty,))
    axes, fixed = naming(table, names)
    rows = [{axis: cell(axis, row) for axis in axes} | cells(row) for row in rows_of(table)]
    before = " ".join(filter(None, (*above, all_share(fixed, each))))
    return TextTable(title, pd.DataFrame(rows, dtype=object), tuple(notes), before)


def with_spread(row: Row, name: str, digits: int, ends: tuple[str, str] = ("low", "high")) -> str:
    """The value of a column, rounded, with the columns of its ends in brackets."""
    low, high = (row[f"{name}_{end}"] for end in ends)
    return rounded(row[name], digits, low, high)


def text_of(value: object) -> str:
    """A cell of text; empty for none."""
    return value if isinstance(value, str) else ""
