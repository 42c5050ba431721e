"""Texts and tables of conclusions for people, with sentences and notes from templates/."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from tfscaling.conclusions.evidence import remark
from tfscaling.estimation.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.estimation.run_counts import RULE
from tfscaling.estimation.samples import Samples
from tfscaling.tables.display import (
    NAMING,
    TextTable,
    all_share,
    cell,
    listed,
    naming,
    paragraphs,
    percent,
    point_name,
    rounded,
    templates,
    times,
    value,
    varying,
    within,
    worse,
)
from tfscaling.tables.row_types import PointRow, TableRow
from tfscaling.tables.row_values import is_known
from tfscaling.tables.table_files import typed

if TYPE_CHECKING:
    from jinja2 import Environment


_Row = TypeVar("_Row", bound=TableRow)

TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, **values: Any) -> str:
    """Render a template, without space at the end of the text."""
    return str(_environment().get_template(f"{template}.j2").render(values)).rstrip()


def line(template: str, **values: Any) -> str:
    """Render a template as one line."""
    return " ".join(render(template, **values).split())


def sentence(
    template: str, rows: Sequence[PointRow], samples: Samples | None = None, **values: Any
) -> str:
    """Return the text of a template about configurations, as one line.

    In the template `names(few)` names some of `rows` by what differs between them, and
    `remark(row)` is `evidence.remark` in brackets.
    """

    def names(few: Sequence[PointRow]) -> str:
        return listed([point_name(row, varying(rows)) for row in few])

    def remarked(row: PointRow) -> str:
        text = remark(row, samples) if samples else ""
        return f" ({text})" if text else ""

    return line(template, names=names, remark=remarked, **values)


@functools.cache
def _environment() -> Environment:
    environment = templates(TEMPLATES)
    functions = (is_known, listed, percent, times, value, within, worse)
    environment.globals.update({function.__name__: function for function in functions})
    environment.globals |= {
        "confidence": f"{CONFIDENCE:.0%}",
        "runs_for_interval": RUNS_FOR_INTERVAL,
        "rule": RULE,
        "plural": lambda number, noun: noun if number == 1 else f"{noun}s",
    }
    return environment


def notes(name: str, **values: object) -> tuple[str, ...]:
    """Render templates/<name>_notes.j2, each paragraph as one line."""
    return paragraphs(render(f"{name}_notes", **values))


def text_table(
    title: str,
    table: pd.DataFrame,
    kind: type[_Row],
    cells: Callable[[_Row], dict[str, str]],
    notes: Sequence[str],
    if_empty: str,
    *,
    names: Sequence[str] = NAMING,
    each: str = "configurations",
    above: str = "",
) -> TextTable:
    """Return a table with a row per row of `table`: the columns of `names` that differ, and cells.

    What is the same in all rows is named above.

    Args:
        title: Heading of the table.
        table: The table of a conclusion, as it is in its file.
        kind: Type of its rows.
        cells: Returns the further cells of a row, by their heads.
        notes: Paragraphs below the table.
        if_empty: The only note of an empty table.
        names: Columns that name a row.
        each: What a row is about, in the plural.
        above: A sentence before the table.
    """
    if table.empty:
        return TextTable(title, pd.DataFrame(), (if_empty,))
    axes, fixed = naming(table, names)
    rows = [{axis: cell(axis, row) for axis in axes} | cells(row) for row in typed(kind, table)]
    before = " ".join(filter(None, (above, all_share(fixed, each))))
    return TextTable(title, pd.DataFrame(rows, dtype=object), tuple(notes), before)


def with_spread(row: TableRow, name: str, digits: int | None) -> str:
    """Format the value of a column, rounded, with its interval in brackets."""
    return rounded(row[name], digits, row[f"{name}_low"], row[f"{name}_high"])
