"""Tables of the page, to sort and filter in a browser.

A table is a `display.TextTable` whose cells know what they sort by.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from tfscaling.spec.config import AXES
from tfscaling.tables.display import MISSING, Number, TextTable, cell, headed, naming
from tfscaling.tables.table_rows import NOT_MEASURED, rows_of

#: Columns with more values than this are searched, not chosen from.
CHOICES_MAX = 24
#: Words that must not be overlooked, by how they are coloured; "ok" is what is expected.
TONES = {
    **dict.fromkeys(("supported", "within"), "good"),
    **dict.fromkeys(
        ("diverged", "failed", "missing", "stale", "unfinished", "outside", "serious"), "bad"
    ),
    **dict.fromkeys(
        ("incomplete", "excluded", "inconclusive", "too few runs", NOT_MEASURED, "not compared"),
        "doubt",
    ),
}
_JUDGED = {"status", "verdict", "support", "loss_verdict", "accuracy_verdict"}
#: Columns by whose values rows can be chosen, if they are few.
_CHOICES = {*AXES, "devices", *_JUDGED, "cloud", "metric", "winner", "source", "quality_metric"}
_CHOICES |= {"platform_a", "platform_b", "cloud_a", "cloud_b"}
_LONG = {"reason", "meaning", "what it means"}


@dataclass(frozen=True)
class Cell:
    """`order` is what the cell sorts by, None for its text and empty for a missing number."""

    text: str
    order: str | None = None
    tone: str | None = None
    href: str | None = None


@dataclass(frozen=True)
class Column:
    """`is_choice`: rows can be chosen by the column's values."""

    name: str
    is_number: bool
    is_choice: bool = False
    is_long: bool = False


@dataclass(frozen=True)
class Table:
    """A table below its heading; `caption` and `above` are between the two."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    above: str = ""
    notes: tuple[str, ...] = ()


def table(
    name: str,
    shown: TextTable,
    caption: str = "",
    links: Mapping[str, Sequence[str | None]] | None = None,
) -> Table:
    """`shown` for the page; `links` are the targets of a column's cells."""
    cells = shown.cells
    columns = tuple(_column(str(name), shown) for name in cells)
    linked = [(links or {}).get(column.name, [None] * len(cells)) for column in columns]
    rows = tuple(
        tuple(
            _cell(column, text, targets[number])
            for column, text, targets in zip(columns, texts, linked, strict=True)
        )
        for number, texts in enumerate(cells.itertuples(index=False))
    )
    return Table(name, shown.title, columns, rows, caption, shown.above, shown.notes)


def _column(name: str, shown: TextTable) -> Column:
    texts = shown.cells[name]
    few = 1 < len(set(texts)) <= min(CHOICES_MAX, len(texts) - 1)
    return Column(name, shown.is_number(name), few and name in _CHOICES, name in _LONG)


def _cell(column: Column, text: str, href: str | None) -> Cell:
    order = None
    if column.is_number:
        order = repr(text.value) if isinstance(text, Number) else ""
    return Cell(str(text), order, TONES.get(text) if column.name in _JUDGED else None, href)


def runs(frame: pd.DataFrame, metrics: Sequence[str], folder: Path) -> Table:
    """One row per run; the path of its record is relative to `folder`."""
    axes, fixed = naming(frame)
    above = f"All runs: {fixed}." if fixed else ""
    names = [*axes, "repeat", *(m for m in metrics if m in frame and frame[m].notna().any())]
    names += ["status", "replicas", "global_batch_size"]
    names += ["reason"] if (frame["reason"].fillna("") != "").any() else []
    names += ["attempt", "hosts", "started"]
    heads = headed(frame, names)
    rows, targets = [], []
    for row in rows_of(frame):
        path = row["record"]
        relative = os.path.relpath(path, folder) if isinstance(path, str) else None
        cells = [cell(name, {**row, "runs": 1}) for name in heads]
        rows.append([*cells, relative or MISSING])
        targets.append(quote(relative.replace(os.sep, "/"), safe="/=") if relative else None)
    note = "A record has everything a run measured; the paths are relative to this page."
    columns = [*heads.values(), "record"]
    shown = TextTable.of("Runs: one row per run", columns, rows, [note], above)
    return table("runs", shown, links={"record": targets})
