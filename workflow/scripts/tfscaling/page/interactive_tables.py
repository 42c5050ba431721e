"""Tables of the page, to sort and filter in a browser."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self
from urllib.parse import quote

import pandas as pd

from tfscaling.spec.config import AXES
from tfscaling.tables.display import (
    MISSING,
    Number,
    TextTable,
    all_share,
    cell,
    headed,
    naming,
)
from tfscaling.tables.rows import RunRow
from tfscaling.tables.table_rows import NOT_MEASURED, typed

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
_LONG = {"reason", "remark", "meaning", "what it means"}


class Link(str):
    """The text of a cell that leads to `href`."""

    href: str

    def __new__(cls, text: str, href: str) -> Self:
        link = super().__new__(cls, text)
        link.href = href
        return link


@dataclass(frozen=True)
class Column:
    """`is_choice`: rows can be chosen by the column's values; `is_judged`: these are coloured."""

    name: str
    is_number: bool
    is_choice: bool
    is_judged: bool
    is_long: bool

    @classmethod
    def of(cls, name: str, shown: TextTable) -> Self:
        """A column of a table."""
        texts = shown.cells[name]
        few = 1 < len(set(texts)) <= min(CHOICES_MAX, len(texts) - 1)
        is_choice = few and name in _CHOICES
        return cls(name, shown.is_number(name), is_choice, name in _JUDGED, name in _LONG)

    def order(self, cell: str) -> str:
        """What a cell of a column of numbers sorts by; empty for a missing number."""
        return repr(cell.value) if isinstance(cell, Number) else ""

    def tone(self, cell: str) -> str | None:
        """How a cell is coloured."""
        return TONES.get(cell) if self.is_judged else None


@dataclass(frozen=True)
class Table:
    """A table of the page, between its caption and its notes."""

    id: str
    shown: TextTable
    caption: str = ""

    @cached_property
    def columns(self) -> list[Column]:
        """The columns in their order."""
        return [Column.of(str(name), self.shown) for name in self.shown.cells]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells: `Number`s, `Link`s and other texts."""
        return [*self.shown.cells.itertuples(index=False, name=None)]


def runs(frame: pd.DataFrame, metrics: Sequence[str], folder: Path) -> Table:
    """One row per run; the path of its record is relative to `folder`."""
    axes, fixed = naming(frame)
    rows = typed(RunRow, frame)
    names = [*axes, "repeat", *(m for m in metrics if m in frame and frame[m].notna().any())]
    names += ["status", "replicas", "global_batch_size"]
    names += ["reason"] * any(row.reason for row in rows)
    names += ["attempt", "hosts", "started"]
    heads = headed(frame, names)
    cells = ([*(cell(name, row) for name in heads), _record(row, folder)] for row in rows)
    note = "A record has everything a run measured; the paths are relative to this page."
    columns = [*heads.values(), "record"]
    title = "Runs: one row per run"
    return Table("runs", TextTable.of(title, columns, cells, [note], all_share(fixed, "runs")))


def _record(row: RunRow, folder: Path) -> str:
    if row.record is None:
        return MISSING
    path = os.path.relpath(row.record, folder)
    return Link(path, quote(path.replace(os.sep, "/"), safe="/="))
