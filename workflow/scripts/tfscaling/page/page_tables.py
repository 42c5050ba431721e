"""Tables of the page: how their columns sort and filter, and the tables that only the page has."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup

from tfscaling.page.host_lists import fold_host_names
from tfscaling.page.words import FORMULAE, STATUSES, TONES
from tfscaling.record import attempts
from tfscaling.record.metrics import METRICS, QUALITY, describe_metrics, quality_metric
from tfscaling.study.config_types import AXES, Quality
from tfscaling.tables.display import (
    MISSING,
    FormattedNumber,
    TextTable,
    column_headings,
    count_text,
    format_cell,
    format_value,
    shared_values_sentence,
    split_naming_columns,
)
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.table_files import row_dicts, to_rows

#: Highest number of values in a column by which readers choose rows; columns with more are
#: searched.
CHOICES_MAX = 24
#: Columns whose values are judgements.
_JUDGED = {"status", "verdict", "support", "loss_verdict", "accuracy_verdict"}
#: Columns by whose values readers can choose rows, if there are few values.
_CHOICES = {*AXES, "devices", *_JUDGED, "cloud", "metric", "winner", "source", "quality_metric"}
_CHOICES |= {"platform_a", "platform_b", "cloud_a", "cloud_b"}
_NUMBER = re.compile(r"-?[0-9.]+")
#: Columns with long texts.
_LONG = {"reason", "remark", "meaning", "what it means"}


class Column:
    """A column of a table on the page: how the page formats, filters and sorts it.

    Args:
        name: Name of the column.
        shown: The table that has the column.

    Attributes:
        is_long: Whether its cells have long texts.
        is_choice: Whether readers can filter the rows by choosing one of its values.
        is_number: Whether it has numbers.
        is_ordered: Whether its cells need a sort key, because they have text next to a number.
    """

    def __init__(self, name: str, shown: TextTable) -> None:
        texts = shown.cells[name]
        few = 1 < len(set(texts)) <= min(CHOICES_MAX, len(texts) - 1)
        self.name, self.is_long, self.is_choice = name, name in _LONG, few and name in _CHOICES
        self.is_number = shown.is_number_column(name)
        self.is_ordered = self.is_number and any(
            isinstance(text, FormattedNumber) and not _NUMBER.fullmatch(text) for text in texts
        )

    def order(self, cell: str) -> str:
        """Return the number by which the page sorts a cell, as text; "" for a missing number."""
        return f"{cell.value:.9g}" if isinstance(cell, FormattedNumber) else ""

    def tone(self, cell: str) -> str | None:
        """Return the name of a cell's colour, a value of TONES; None for a cell without colour."""
        return TONES.get(cell) if self.name in _JUDGED else None


@dataclass(frozen=True)
class Table:
    """A table of the page with its caption and notes.

    Attributes:
        id: The id of its HTML element.
        shown: The formatted table.
        caption: A text above the table.
    """

    id: str
    shown: TextTable
    caption: str = ""

    @cached_property
    def columns(self) -> list[Column]:
        """The columns of the table."""
        return [Column(str(name), self.shown) for name in self.shown.cells]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The formatted cells, row by row."""
        return [*self.shown.cells.itertuples(index=False, name=None)]


def make_runs_table(frame: pd.DataFrame, metrics: Sequence[str], folder: Path) -> Table:
    """Return the page's table with one row per run.

    Args:
        frame: The table of runs.
        metrics: The metrics to show, if a run has a value.
        folder: The page's folder, to which links to records are relative.
    """
    axes, fixed = split_naming_columns(frame)
    rows = to_rows(RunRow, frame)
    for row in rows:  # as Slurm writes them
        row.hosts = row.hosts and fold_host_names(row.hosts.split())
    names = [*axes, "repeat", *(m for m in metrics if m in frame and frame[m].notna().any())]
    names += ["status", "replicas", "global_batch_size"]
    names += ["reason"] * any(row.reason for row in rows)
    names += ["attempt", "hosts", "started"]
    heads = column_headings(frame, names)
    cells = (
        [*(format_cell(name, row) for name in heads), _record_link(row, folder)] for row in rows
    )
    note = "A record has everything a run measured; the paths are relative to this page."
    columns = [*heads.values(), "record"]
    title = "Runs: one row per run"
    return Table(
        "runs",
        TextTable.from_rows(title, columns, cells, [note], shared_values_sentence(fixed, "runs")),
    )


def _record_link(row: RunRow, folder: Path) -> str:
    """Return an HTML link to the raw record of a run; only its path if the file is missing.

    Args:
        row: The run.
        folder: The page's folder, to which the link is relative.
    """
    if row.record is None:
        return MISSING
    path = os.path.relpath(row.record, folder)
    if not Path(row.record).exists():  # a page of published or copied results
        return path
    href = quote(path.replace(os.sep, "/"), safe="/=")
    return Markup('<a href="{}">{}</a>').format(href, Path(path).name)


def make_status_table(runs: pd.DataFrame, comparison: pd.DataFrame) -> Table:
    """Return the page's table of statuses: for each the number of runs, and what it means.

    For `excluded` it is the number of configurations.

    Args:
        runs: The table of runs.
        comparison: The table of configurations, with excluded ones.
    """
    counts = Counter(str(status) for status in runs["status"])
    counts["excluded"] = int((comparison["status"] == "excluded").sum())
    names = dict.fromkeys([*STATUSES, *counts])
    rows = [[name, format_value(counts[name], 0), STATUSES.get(name, "")] for name in names]
    header = ["status", "runs", "what it means"]
    return Table(
        "statuses", TextTable.from_rows("Runs by status", header, rows, failed_attempts_notes(runs))
    )


def failed_attempts_notes(runs: pd.DataFrame) -> list[str]:
    """Return [note on the cost of failed attempts at these runs]; [] without failed attempts."""
    found = attempts.sum_node_hours(row_dicts(runs.filter(attempts.SPENT_COLUMNS)))
    if not found.failed_attempts:
        return []
    usd = "no price" if found.lost_cost_usd is None else f"{found.lost_cost_usd:.2f} US dollars"
    number = count_text(found.failed_attempts, "attempt")
    failed = f"{number} failed: {found.lost_node_hours:.3f} node-hours"
    where = "The cause and the logs of each are in its folder, attempt=<n>."
    return [f"{failed}, {usd}. {where}"]


def make_metrics_table(qualities: Mapping[str, Quality]) -> Table:
    """Return the page's table that explains all metrics.

    Args:
        qualities: Name → metric of quality. A metric that is not in METRICS gets a row, too.
    """
    texts = {**describe_metrics(), **FORMULAE}
    own = {name: quality_metric(each) for name, each in qualities.items() if name not in METRICS}
    rows = [
        [name, m.title, m.unit or MISSING, m.direction, texts.get(name, texts[QUALITY])]
        for name, m in {**METRICS, **own}.items()
    ]
    header = ["metric", "title", "unit", "better", "meaning"]
    return Table("metrics", TextTable.from_rows("Metrics", header, rows))
