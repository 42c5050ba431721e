"""Tables of the page, to sort and filter in a browser.

A table is a `display.TextTable` whose cells know what they sort by.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from tfscaling.analysis.clouds import GAP
from tfscaling.records.metrics import METRICS
from tfscaling.study.grid import AXES, POINT_AXES
from tfscaling.tables.display import MISSING, NAMING, Number, TextTable, cell

#: Columns with more values than this are searched, not chosen from.
CHOICES_MAX = 24
#: Words that must not be overlooked, by how they are coloured; "ok" is what is expected.
TONES = {
    **dict.fromkeys(("supported", "within"), "good"),
    **dict.fromkeys(
        ("diverged", "failed", "missing", "stale", "unfinished", "outside", "serious"), "bad"
    ),
    **dict.fromkeys(
        ("incomplete", "excluded", "inconclusive", "too few runs", "not measured", "not compared"),
        "doubt",
    ),
}
_JUDGED = {"status", "verdict", "support", "loss_verdict", "accuracy_verdict"}
#: Columns by whose values rows can be chosen, if they are few.
_CHOICES = {*AXES, "devices", *_JUDGED, "cloud", "metric", "winner", "source"}
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
    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    above: str = ""
    notes: tuple[str, ...] = ()


def table(
    name: str, shown: TextTable, links: Mapping[str, Sequence[str | None]] | None = None
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
    return Table(name, shown.title, columns, rows, shown.above, shown.notes)


def _column(name: str, shown: TextTable) -> Column:
    texts = shown.cells[name]
    few = 1 < len(set(texts)) <= min(CHOICES_MAX, len(texts) - 1)
    return Column(name, shown.is_number(name), few and name in _CHOICES, name in _LONG)


def _cell(column: Column, text: str, href: str | None) -> Cell:
    order = None
    if column.is_number:
        order = repr(text.value) if isinstance(text, Number) else ""
    return Cell(str(text), order, TONES.get(text) if column.name in _JUDGED else None, href)


def constant(frame: pd.DataFrame, names: Sequence[str]) -> tuple[list[str], str]:
    """(those of `names` that vary, and nodes; what all rows share as a sentence)."""
    fixed = [n for n in names if n != "nodes" and frame[n].astype(str).nunique() == 1]
    words = ", ".join(f"{name} {frame[name].iloc[0]}" for name in fixed)
    return [n for n in names if n not in fixed], f"All rows: {words}." if fixed else ""


def runs(frame: pd.DataFrame, metrics: Sequence[str], folder: Path) -> Table:
    """One row per run; the path of its record is relative to `folder`."""
    varying, above = constant(frame, NAMING)
    names = [*varying, "repeat", "status", "replicas", "global_batch_size"]
    names += [m for m in metrics if m in frame and frame[m].notna().any()]
    names += ["reason"] if (frame["reason"].fillna("") != "").any() else []
    names += ["attempt", "hosts", "started"]
    rows, targets = [], []
    for row in frame.to_dict("records"):
        path = row["record"]
        relative = os.path.relpath(path, folder) if isinstance(path, str) else None
        cells = [cell(name, {**row, "runs": 1}) for name in names]
        rows.append([*cells, relative or MISSING])
        targets.append(quote(relative.replace(os.sep, "/"), safe="/=") if relative else None)
    note = "A record has everything a run measured; the paths are relative to this page."
    columns = [*names, "record"]
    shown = TextTable.of("Runs: one row per run", columns, rows, [note], above)
    return table("runs", shown, {"record": targets})


def clouds(frame: pd.DataFrame) -> Table:
    """One row per metric of every point that platforms of two clouds have both."""
    sides = ["platform_a", "platform_b", "cloud_a", "cloud_b"]
    varying, above = constant(frame, [*sides, *POINT_AXES[1:], "source"])
    names = [*varying, "metric", "value_a", "value_b", "winner", "margin", "verdict"]
    rows = []
    for row in frame.to_dict("records"):
        metric = row["metric"]
        written = {
            **{end: cell(metric, {metric: row[end], "runs": 1}) for end in ("value_a", "value_b")},
            "margin": _margin(row),
        }
        rows.append([written.get(name) or cell(name, row) for name in names])
    notes = (
        "value_a is of platform_a, value_b of platform_b.",
        "margin: how many times worse the other cloud is than the winner (of accuracies, how many "
        "times larger its error 1 - accuracy), with the interval in brackets where there is one; "
        "where one of the two is zero, by how much they differ.",
        "A winner is a finding only where the verdict is “supported”.",
    )
    title = "Clouds: the same point on two clouds"
    return table("clouds", TextTable.of(title, names, rows, notes, above))


def _margin(row: Mapping[Any, Any]) -> str:
    if pd.isna(row["margin"]):
        return MISSING
    is_gap = row["margin_kind"] == GAP
    digits = METRICS[row["metric"]].digits if is_gap else 2
    interval = "" if pd.isna(row["low"]) else f" ({row['low']:.{digits}f}–{row['high']:.{digits}f})"
    return Number(f"{'by ' * is_gap}{row['margin']:.{digits}f}{interval}", row["margin"])


def published(frame: pd.DataFrame) -> Table:
    """One row per published point, with what was measured beside it and the verdicts."""
    axes = ["platform", "cloud", "model", "strategy", "nodes", "gpus_per_node", "tasks_per_node"]
    varying, above = constant(frame, [*axes, "source"])
    last = ["source"] if "source" in varying else []
    names = [name for name in varying if name not in last]
    names += ["global_batch_size", "status", "runs", "published_execution_time_s"]
    names += ["execution_time_s", "execution_time_ratio", "training_runs"]
    for metric in ("loss", "accuracy"):
        names += [f"published_{metric}", metric, f"{metric}_verdict"]
    rows = []
    for row in frame.to_dict("records"):
        beside = {**row, "runs_asked": None}
        # loss and accuracy are over all runs of the same training
        beside |= {metric: row[f"{metric}_median"] for metric in ("loss", "accuracy")}
        spread = {**beside, "runs": row["training_runs"]}
        rows.append(
            [
                cell(name, spread if name in ("loss", "accuracy") else beside)
                for name in [*names, *last]
            ]
        )
    notes = (
        "Time is compared at the same point with the same training; status says where there is "
        "no such point. execution_time_ratio is measured over published.",
        "Loss and accuracy are over all valid runs of the same training, wherever they ran "
        "(training_runs): the median, in brackets its interval, or the range of too few runs.",
        "A verdict is “within” if the published value lies within the range of the runs, widened "
        "by the configured tolerance; “outside” if not.",
    )
    title = "Published against measured"
    return table("published", TextTable.of(title, [*names, *last], rows, notes, above))
