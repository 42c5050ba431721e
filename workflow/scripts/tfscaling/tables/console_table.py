"""The comparison for a terminal: status, runs and the asked value first, then the axes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import pandas as pd

from tfscaling.record.metrics import QUALITY
from tfscaling.tables import display
from tfscaling.tables.display import Number, TextTable
from tfscaling.tables.estimates import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, qualities_in
from tfscaling.tables.table_files import typed

#: Columns of a terminal. The result and the axes have room there; more metrics need more columns.
WIDTH = 80
#: Axes in the order in which a narrow terminal shows them; others follow.
_FIRST_AXES = ("nodes", "devices")
#: Characters of a shortened axis at least.
_AXIS_MIN = 6
#: Where a name may be cut: parts that all names have at their beginning or end.
_PARTS = re.compile(r"([-_+ .])")


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
    cells = {name: [display.cell(name, row) for row in rows] for name in heads}
    shown_heads = dict(heads)
    _shorten(cells, shown_heads, axes)
    is_number = {name: any(isinstance(text, Number) for text in cells[name]) for name in heads}
    texts = TextTable.of("", list(shown_heads.values()), zip(*cells.values(), strict=True))
    aligned = ["right" if is_number[name] else "left" for name in heads]
    lines = texts.cells.to_markdown(index=False, disable_numparse=True, colalign=aligned)
    return [*lines.splitlines(), *_meaning_of_brackets(rows, shown)]


def _shorten(cells: dict[str, list[str]], heads: dict[str, str], axes: Sequence[str]) -> None:
    """Shorten the names of axes until status, runs, the asked value and the axes fit.

    Parts that all names share go first, then the ends of the longest names.
    """
    first = [*heads][: 3 + len(axes)]

    def width(name: str) -> int:
        return max(map(len, [heads[name], *cells[name]]))

    def room() -> int:
        return WIDTH - 1 - sum(width(name) + 3 for name in first)

    texts = [axis for axis in axes if not any(isinstance(each, Number) for each in cells[axis])]
    if room() < 0:
        for axis in texts:
            cells[axis] = without_common_parts(cells[axis])
    while room() < 0 and any(width(axis) > _AXIS_MIN for axis in texts):
        axis = max(texts, key=width)
        longest = width(axis) - 1
        cells[axis] = [_cut(text, longest) for text in cells[axis]]
        heads[axis] = _cut(heads[axis], longest)


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
    """Return with how many equal parts, separators included, all names begin."""
    columns = zip(*names, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda parts: len(set(parts)) == 1, columns))


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
