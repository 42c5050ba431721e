"""Rendering of conclusions: sentences and notes from templates/, and tables for the page."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from tfscaling.conclusions.evidence import failure_remark
from tfscaling.estimation.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.estimation.run_counts import KEPT_RUNS, RULE
from tfscaling.estimation.samples import Samples
from tfscaling.tables.display import (
    NAMING_COLUMNS,
    TextTable,
    format_bound,
    format_cell,
    format_disadvantage,
    format_metric,
    format_ratio,
    format_three_digits,
    format_value,
    join_names,
    load_templates,
    percent_rounded_up,
    point_name,
    shared_values_sentence,
    split_naming_columns,
    split_paragraphs,
    varying_axes,
)
from tfscaling.tables.row_types import PointRow, TableRow
from tfscaling.tables.row_values import is_known
from tfscaling.tables.table_files import to_rows

if TYPE_CHECKING:
    from jinja2 import Environment


_Row = TypeVar("_Row", bound=TableRow)

TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, **values: Any) -> str:
    """Render templates/<template>.j2 with these values, without white space at its end."""
    return str(_environment().get_template(f"{template}.j2").render(values)).rstrip()


def render_line(template: str, **values: Any) -> str:
    """Render templates/<template>.j2 with these values and return it as one line."""
    return " ".join(_environment().get_template(f"{template}.j2").render(values).split())


def render_sentence(
    template: str, rows: Sequence[PointRow], samples: Samples | None = None, **values: Any
) -> str:
    """Render a template about configurations and return it as one line.

    The template may call `names(few)`, which names the rows in `few` by the axes that vary in
    `rows`, and `remark(row)`, which returns `evidence.failure_remark` in brackets.

    Args:
        template: Name of the template.
        rows: All configurations of the study.
        samples: The values of their runs; None without remarks.
        **values: Values of the template.
    """

    def names(few: Sequence[PointRow]) -> str:
        return join_names([point_name(row, varying_axes(rows)) for row in few])

    def remarked(row: PointRow) -> str:
        text = failure_remark(row, samples) if samples else ""
        return f" ({text})" if text else ""

    return render_line(template, names=names, remark=remarked, **values)


@functools.cache
def _environment() -> Environment:
    """Return the Jinja environment of the conclusions' templates, with their functions."""
    environment = load_templates(TEMPLATES)
    functions = (
        is_known,
        join_names,
        percent_rounded_up,
        format_ratio,
        format_metric,
        format_bound,
        format_disadvantage,
        format_three_digits,
    )
    environment.globals.update({function.__name__: function for function in functions})
    environment.globals |= {
        "confidence": f"{CONFIDENCE:.0%}",
        "runs_for_interval": RUNS_FOR_INTERVAL,
        "kept_runs": KEPT_RUNS,
        "rule": RULE,
        "plural": lambda number, noun: noun if number == 1 else f"{noun}s",
    }
    return environment


def render_notes(name: str, **values: object) -> tuple[str, ...]:
    """Render templates/<name>_notes.j2 with these values; return its paragraphs as lines."""
    return split_paragraphs(render(f"{name}_notes", **values))


def make_text_table(
    title: str,
    table: pd.DataFrame,
    kind: type[_Row],
    cells: Callable[[_Row], dict[str, str]],
    notes: Sequence[str],
    if_empty: str,
    *,
    names: Sequence[str] = NAMING_COLUMNS,
    row_noun: str = "configurations",
    above: str = "",
) -> TextTable:
    """Format a conclusion's table for the page.

    The first columns are the ones of `names` whose values differ between the rows; `cells` adds
    the further columns. A sentence above the table lists the values that all rows share.

    Args:
        title: Heading of the table.
        table: The conclusion's table, as in its file.
        kind: Type of the table's rows.
        cells: Converts a row to heading → text of its further columns.
        notes: Paragraphs below the table.
        if_empty: The note that replaces an empty table.
        names: Columns that identify a row, such as platform and nodes.
        row_noun: What a row represents, in the plural, for the sentence above the table.
        above: A further sentence above the table.
    """
    if table.empty:
        return TextTable(title, pd.DataFrame(), (if_empty,))
    axes, fixed = split_naming_columns(table, names)
    rows = [
        {axis: format_cell(axis, row) for axis in axes} | cells(row) for row in to_rows(kind, table)
    ]
    before = " ".join(filter(None, (above, shared_values_sentence(fixed, row_noun))))
    return TextTable(title, pd.DataFrame(rows, dtype=object), tuple(notes), before)


def format_with_interval(row: TableRow, name: str, digits: int | None) -> str:
    """Format the value of a row's column with its interval in brackets, `2.10 (2.05–2.17)`.

    Args:
        row: The row; its columns `<name>_low` and `<name>_high` have the interval.
        name: Name of the column.
        digits: Decimals; None for three significant digits.
    """
    return format_value(row[name], digits, row[f"{name}_low"], row[f"{name}_high"])
