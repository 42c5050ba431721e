"""The comparison for a terminal: status, runs and the asked value first, then the axes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

import pandas as pd

from tfscaling.estimation.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.record.metrics import QUALITY
from tfscaling.tables import display
from tfscaling.tables.display import Number
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, qualities_in
from tfscaling.tables.table_files import typed

#: Columns of a terminal. The result and the axes have room there; more metrics need more columns.
WIDTH = 80
#: Axes in the order in which a narrow terminal shows them; others follow.
_FIRST_AXES = ("nodes", "devices")
#: Characters of a shortened name at least.
_PART_MIN = 3
#: Where a name may be cut: parts that all names have at their beginning or end.
_PARTS = re.compile(r"([-_+ .])")

#: Name of a column → its heading and its cells.
Columns = dict[str, list[str]]


def console_table(table: pd.DataFrame, metrics: Sequence[str], asked: str) -> list[str]:
    """Return the rows of the comparison as lines, and what its brackets mean.

    Args:
        table: The comparison.
        metrics: The columns of `comparison.columns`, in their order.
        asked: The column that the question asks for.
    """
    rows = typed(PointRow, table)
    qualities = qualities_in(table)
    if asked == QUALITY and len(qualities) == 1:
        asked = next(iter(qualities.values())).metric
    shown = [asked, *(name for name in metrics if name != asked)]
    shown = [name for name in shown if name in table and any(is_known(row[name]) for row in rows)]
    axes = sorted(display.naming(table)[0], key=lambda axis: axis not in _FIRST_AXES)
    heads = display.headed(table, ["status", "runs", *shown[:1], *axes, *shown[1:]])
    columns = {name: [heads[name], *(_cell(name, row) for row in rows)] for name in heads}
    columns = _with_short_axes(columns, axes)
    return [*_lines([*columns.values()]), *_meaning_of_brackets(rows, shown)]


def _with_short_axes(columns: Columns, axes: Sequence[str]) -> Columns:
    """Shorten the axes until they fit next to status, runs and the asked value.

    Parts that all names share go first. If that is too little, one column has all axes.
    """
    names = [*columns]
    at = names.index(axes[0])
    first = names[: at + len(axes)]
    if _width(columns, first) <= WIDTH:
        return columns
    for axis in axes:
        if not _is_number(columns[axis]):
            columns[axis][1:] = without_common_parts(columns[axis][1:])
    if _width(columns, first) <= WIDTH:
        return columns
    room = WIDTH - _width(columns, names[:at]) - 3
    parts = [
        [f"{axis}={text}" if isinstance(text, Number) else text for text in columns[axis][1:]]
        for axis in axes
    ]
    longest = [max(map(len, texts)) for texts in parts]
    texts = [number for number, axis in enumerate(axes) if not _is_number(columns[axis])]
    while texts and sum(longest) + len(longest) - 1 > room:
        widest = max(texts, key=longest.__getitem__)
        if longest[widest] <= _PART_MIN:
            break
        longest[widest] -= 1
    rows = zip(*parts, strict=True)
    merged = ["configuration", *(" ".join(map(_cut, row, longest)) for row in rows)]
    before, after = names[:at], names[at + len(axes) :]
    return (
        {name: columns[name] for name in before}
        | {"configuration": merged}
        | {name: columns[name] for name in after}
    )


def _cell(name: str, row: PointRow) -> str:
    """Return the text of a cell; `3 of 6` where runs do not count, else `6`."""
    if name == "runs" and row.runs == row.runs_asked:
        return Number(str(row.runs), row.runs)
    return display.cell(name, row)


def _width(columns: Columns, names: Sequence[str]) -> int:
    """Return the length of a line with these columns."""
    return 1 + sum(max(map(len, columns[name])) + 3 for name in names)


def _is_number(column: Sequence[str]) -> bool:
    """Return whether a column has numbers below its heading."""
    return any(isinstance(text, Number) for text in column[1:])


def _lines(columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown; numbers are aligned to the right."""
    widths = [max(map(len, column)) for column in columns]
    right = [_is_number(column) for column in columns]
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


def without_common_parts(names: Sequence[str]) -> list[str]:
    """Return names without the parts that all have at their beginning or at their end.

    Parts are separated by `-`, `_`, `+`, `.` or a space.
    """
    different = [_PARTS.split(name) for name in dict.fromkeys(names)]
    if len(different) < 2:
        return [*names]
    begin, end = _equal_parts(different), _equal_parts([parts[::-1] for parts in different])
    short = []
    for name in names:
        parts = _PARTS.split(name)
        short.append("".join(parts[begin : len(parts) - end]))
    return short if all(short) else [*names]


def _equal_parts(names: Sequence[Sequence[str]]) -> int:
    """Return the number of leading parts, separators included, that all names share."""
    columns = zip(*names, strict=False)
    return sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, columns))


def _cut(text: str, width: int) -> str:
    """Return the text, its end replaced by an ellipsis if it is longer than `width`."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _meaning_of_brackets(rows: Sequence[PointRow], shown: Sequence[str]) -> Iterator[str]:
    """Yield what the brackets of the table are: intervals or ranges; nothing without brackets."""
    if not any("(" in display.cell(name, row) for name in shown for row in rows):
        return
    interval = f"{CONFIDENCE:.0%} interval of the median or ratio"
    a_range = f"range of the runs, as fewer than {RUNS_FOR_INTERVAL} have no interval"
    have_interval = [row.runs >= RUNS_FOR_INTERVAL for row in rows if row.runs > 1]
    if all(have_interval):
        yield f"In brackets: {interval}."
    elif any(have_interval):
        yield f"In brackets: {interval}; with fewer than {RUNS_FOR_INTERVAL} runs their range."
    else:
        yield f"In brackets: {a_range}."
