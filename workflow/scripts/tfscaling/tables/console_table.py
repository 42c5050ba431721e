"""The comparison as a table for a terminal: status, runs and the goal's metric come first.

The console prints it at the end of a sweep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

import pandas as pd

from tfscaling.record.metrics import QUALITY
from tfscaling.tables import display
from tfscaling.tables.display import FormattedNumber
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, qualities_in_table
from tfscaling.tables.table_files import to_rows

#: Width of a terminal in characters. The goal's metric and the axes fit; more metrics need more.
WIDTH = 80
#: Axes in the order in which a narrow terminal shows them; others follow.
_FIRST_AXES = ("nodes", "devices")
#: Minimum length of a shortened name, in characters.
_SHORT_NAME_MIN = 3
#: Characters that divide a name into parts, such as `aws-p3.2xlarge`.
_PART_SEPARATORS = re.compile(r"([-_+ .])")

#: Name of a column → its heading and its cells.
ColumnTexts = dict[str, list[str]]


def console_table(table: pd.DataFrame, metrics: Sequence[str], goal: str) -> list[str]:
    """Return the comparison as lines for a terminal, and a last line that explains its brackets.

    Status, runs, the goal's metric and the axes come first; axes are shortened to fit into WIDTH.

    Args:
        table: The comparison.
        metrics: The columns of the comparison to show, in order.
        goal: The metric of the study's goal, which is shown first.
    """
    rows = to_rows(PointRow, table)
    qualities = qualities_in_table(table)
    if goal == QUALITY and len(qualities) == 1:
        goal = next(iter(qualities.values())).metric
    shown = [goal, *(name for name in metrics if name != goal)]
    shown = [name for name in shown if name in table and any(is_known(row[name]) for row in rows)]
    axes = sorted(display.split_naming_columns(table)[0], key=lambda axis: axis not in _FIRST_AXES)
    heads = display.column_headings(table, ["status", "runs", *shown[:1], *axes, *shown[1:]])
    columns = {name: [heads[name], *(_cell_text(name, row) for row in rows)] for name in heads}
    columns = _shorten_axes(columns, axes)
    legend = display.bracket_legend(display.bracket_kinds(shown, rows))
    return [*_markdown_lines([*columns.values()]), *filter(None, [legend])]


def _shorten_axes(columns: ColumnTexts, axes: Sequence[str]) -> ColumnTexts:
    """Return the columns with shorter names of axis values, so that the axes fit into WIDTH.

    Parts that all names share are removed first. If that is not enough, all axes share one column.
    Columns to the right of the axes do not count.

    Args:
        columns: All columns of the table.
        axes: Names of the columns of axes.
    """
    names = [*columns]
    at = names.index(axes[0])
    first = names[: at + len(axes)]
    if _line_width(columns, first) <= WIDTH:
        return columns
    for axis in axes:
        if not _is_number_column(columns[axis]):
            columns[axis][1:] = strip_common_parts(columns[axis][1:])
    if _line_width(columns, first) <= WIDTH:
        return columns
    room = WIDTH - _line_width(columns, names[:at]) - 3
    parts = [
        [
            f"{axis}={text}" if isinstance(text, FormattedNumber) else text
            for text in columns[axis][1:]
        ]
        for axis in axes
    ]
    longest = [max(map(len, texts)) for texts in parts]
    texts = [number for number, axis in enumerate(axes) if not _is_number_column(columns[axis])]
    while texts and sum(longest) + len(longest) - 1 > room:
        widest = max(texts, key=longest.__getitem__)
        if longest[widest] <= _SHORT_NAME_MIN:
            break
        longest[widest] -= 1
    rows = zip(*parts, strict=True)
    merged = ["configuration", *(" ".join(map(_truncate, row, longest)) for row in rows)]
    before, after = names[:at], names[at + len(axes) :]
    return (
        {name: columns[name] for name in before}
        | {"configuration": merged}
        | {name: columns[name] for name in after}
    )


def _cell_text(name: str, row: PointRow) -> str:
    """Return the text of a configuration's cell in a column.

    The column `runs` has `3 of 6` if some runs are not valid, else `6`.
    """
    if name == "runs" and row.runs == row.runs_planned:
        return FormattedNumber(str(row.runs), row.runs)
    return display.format_cell(name, row)


def _line_width(columns: ColumnTexts, names: Sequence[str]) -> int:
    """Return the length in characters of a line with the columns of these names."""
    return 1 + sum(max(map(len, columns[name])) + 3 for name in names)


def _is_number_column(column: Sequence[str]) -> bool:
    """Return whether the cells below the heading of a column are numbers."""
    return any(isinstance(text, FormattedNumber) for text in column[1:])


def _markdown_lines(columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table; numbers are aligned to the right."""
    widths = [max(map(len, column)) for column in columns]
    right = [_is_number_column(column) for column in columns]
    for number, row in enumerate(zip(*columns, strict=True)):
        cells = (
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        )
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            ends = zip(widths, right, strict=True)
            rules = ("-" * (width + 1) + (":" if is_right else "-") for width, is_right in ends)
            yield f"|{'|'.join(rules)}|"


def strip_common_parts(names: Sequence[str]) -> list[str]:
    """Return names without the parts that all of them share at their beginning or end.

    Parts are separated by `-`, `_`, `+`, `.` or a space: `aws-p3`, `aws-g5` become `p3`, `g5`.
    """
    different = [_PART_SEPARATORS.split(name) for name in dict.fromkeys(names)]
    if len(different) < 2:
        return [*names]
    begin, end = (
        _count_shared_parts(different),
        _count_shared_parts([parts[::-1] for parts in different]),
    )
    short = []
    for name in names:
        parts = _PART_SEPARATORS.split(name)
        short.append("".join(parts[begin : len(parts) - end]))
    return short if all(short) else [*names]


def _count_shared_parts(names: Sequence[Sequence[str]]) -> int:
    """Return how many leading parts all names share; separators count as parts."""
    columns = zip(*names, strict=False)
    return sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, columns))


def _truncate(text: str, width: int) -> str:
    """Return the text, shortened to `width` characters with an ellipsis if it is longer."""
    return text if len(text) <= width else text[: width - 1] + "…"
