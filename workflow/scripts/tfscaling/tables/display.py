"""Tables as people read them: values and points in words, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from tfscaling.estimation.samples import OF_WHOLE
from tfscaling.record.metrics import METRICS, QUALITY, Metric
from tfscaling.study.config_types import POINT_AXES
from tfscaling.study.platforms import CPU, LOGICAL
from tfscaling.tables.row_types import Cells
from tfscaling.tables.row_values import (
    QUALITY_TEXTS,
    counted_by,
    is_known,
    is_projected,
    metric_of,
    qualities_in,
)
from tfscaling.tables.table_files import rows_of

if TYPE_CHECKING:
    from jinja2 import Environment

    from tfscaling.estimation.samples import Difference

MISSING = "–"
#: The unit of costs, and the amount below which people read the cost of 1,000 runs.
DOLLARS, _SMALL = "US dollars", 0.001
#: The column with the steps from which times and costs are projected.
PROJECTED = "projected_from_steps"
GPUS = "gpus_per_node"
#: Columns that name a point: its axes, with `devices` for the GPUs or logical devices per node.
NAMING = tuple("devices" if axis == GPUS else axis for axis in POINT_AXES)
#: Axes that a name in a sentence may need, besides the nodes.
_NAMED = ("platform", "model", "strategy", "recipe", "tasks_per_node", GPUS)
#: Points named in a sentence, at most.
NAMED_MAX = 3
#: Warnings before a table, at most: the table must stay in view. The others come after it.
_BEFORE_MAX = 4


class Number(str):
    """A number as people read it, such as `358.1 (346.1–371.0)`: `value` is what it sorts by."""

    value: float

    def __new__(cls, text: str, value: float) -> Self:
        number = super().__new__(cls, text)
        number.value = value
        return number


# values in words


def three_digits(value: float) -> str:
    """Format a value with three digits, or in whole numbers: 26.6, 0.979, 1234; never 1e-05."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def rounded(
    value: float | None, digits: int | None, low: float | None = None, high: float | None = None
) -> str:
    """Format a value with its interval or range in brackets; `MISSING` for none.

    `digits` are decimals; with None the value has three digits.
    """
    if not is_known(value):
        return MISSING
    text = three_digits if digits is None else f"{{:.{digits}f}}".format
    spread = f" ({text(low)}–{text(high)})" if is_known(low) and is_known(high) else ""
    return Number(f"{text(value)}{spread}", value)


def cell(name: str, row: Cells) -> str:
    """Format the value of a column as its metric requires, with its interval or else its range.

    A value without either has three digits.
    """
    if name == "devices":
        return devices(row)
    value = row[name]
    if name == PROJECTED and is_known(value):
        return Number(f"{value:,.0f} of {row['projected_to_steps']:,.0f}", value)
    if name == "runs":
        planned = row["runs_asked"]
        return Number(f"{value} of {planned:.0f}" if is_known(planned) else str(value), value)
    if not is_known(value):
        return MISSING
    if name in METRICS:
        low, high = _spread(name, row)
        if low is None or high is None:
            return Number(three_digits(value), value)
        digits = 1 if name == "execution_time_s" else metric_of(name, row).digits
        return rounded(value, max(digits, _digits_of_spread(value, low, high)), low, high)
    if isinstance(value, Real):
        return Number(f"{value:.0f}" if isinstance(value, float) else str(value), float(value))
    return one_line(str(value))


def _spread(name: str, row: Cells) -> tuple[float | None, float | None]:
    """Return the interval of the median or ratio; for fewer runs the range; for one nothing."""
    column = next((each for each in (counted_by(name), "runs") if each in row), None)
    for low, high in ((f"{name}_low", f"{name}_high"), (f"{name}_min", f"{name}_max")):
        if column and row[column] > 1 and low in row and is_known(row[low]):
            return row[low], row[high]
    return None, None


def _digits_of_spread(value: float, low: float, high: float) -> int:
    """Return the decimals at which the ends differ: at most three digits of the value."""
    if not 0 < high - low < math.inf:
        return 0
    needed = math.ceil(-math.log10((high - low) / 2))
    return min(needed, 2 - math.floor(math.log10(max(abs(value), high - low))))


def value(metric: str, row: Cells, is_for_many: bool = True) -> str:
    """Format a point's metric with its interval or range and its unit.

    A projected value is marked as projected. If `is_for_many`, costs below a tenth of a cent are in
    US dollars per 1,000 runs.
    """
    unit = metric_of(metric, row).unit
    if is_for_many and unit == DOLLARS and is_known(row[metric]) and 0 < row[metric] < _SMALL:
        low, high = (end and 1000 * end for end in _spread(metric, row))
        amount = rounded(1000 * row[metric], None, low, high)
        text = f"{amount} {unit} per 1,000 runs"
    else:
        text = f"{cell(metric, row)} {unit}".rstrip()
    return f"{text}, projected" if is_projected(row) and metric in OF_WHOLE else text


def duration_text(seconds: float) -> str:
    """Format a duration: `75 seconds`, `42 minutes` or `2.6 hours`."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def one_line(text: str) -> str:
    """Return text without line breaks."""
    return " ".join(text.split())


def count(number: int, noun: str) -> str:
    """Return `1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def with_unit(name: str, unit: str | None) -> str:
    """Return `cost (US dollars)`, or the name of a pure number."""
    return f"{name} ({unit})" if unit else name


def listed(names: Sequence[str]) -> str:
    """Join names: `a; b; c and 2 more`."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return "; ".join(names[:NAMED_MAX]) + more


def within(bound: float, of_what: str) -> str:
    """How far a value may be from the best: `within 2.1% of the best`, or `no worse than the best`.

    `bound` is a fraction.
    """
    return f"within {percent(bound)} of {of_what}" if bound > 0 else f"no worse than {of_what}"


def percent(fraction: float) -> str:
    """Format a bound with a tenth of a per cent, rounded up: `2.1%`."""
    return f"{math.ceil(fraction * 1000 - 1e-9) / 10:.1f}%"


def times(found: Difference) -> str:
    """Return `1.50 times (1.40–1.60)`."""
    ends = "" if found.interval is None else " ({:.2f}–{:.2f})".format(*found.interval)
    return f"{found.ratio:.2f} times{ends}"


def worse(found: Difference, metric: Metric) -> str:
    """`1.50 times (1.40–1.60) the error`; without a ratio `0.1000 (0.0900–0.1100) more error`.

    For a metric that is better the higher: `1.50 times (1.40–1.60) less`.
    """
    is_less = metric.is_higher_better and metric.best is None
    noun = metric.title if metric.best is None else "error"
    if found.ratio is not None:
        return f"{times(found)} less" if is_less else f"{times(found)} the {noun}"
    text = rounded(found.gap, metric.digits, *(found.interval or ()))
    return f"{text} less" if is_less else f"{text} more {noun}"


def target_text(row: Cells) -> str:
    """Describe the target of a point that has one: `test accuracy 0.97`."""
    metric = metric_of(QUALITY, row)
    return f"{metric.title} {row['target']:g} {metric.unit}".rstrip()


def quality_name(table: pd.DataFrame) -> str:
    """Name what all points or runs of the table are compared by, or `quality` if that differs."""
    found = qualities_in(table)
    return next(iter(found.values())).title if len(found) == 1 else QUALITY


# points in words


def devices(row: Cells) -> str:
    """Name what each node of a point trains on: `CPU`, `2 GPUs` or `2 logical devices`."""
    number = int(row[GPUS])
    noun = "logical device" if row["devices"] == LOGICAL else "GPU"
    return count(number, noun) if number else CPU


def axis_text(axis: str, point: Cells) -> str:
    """Describe an axis of a point: "4 nodes", "2 logical devices per node", "CPU".

    `devices` is the axis GPUS.
    """
    value = point[axis]
    if axis == "platform":
        title = point["platform_title" if "platform_title" in point else axis]
        return str(title if isinstance(title, str) and title else value)
    if axis in ("model", "strategy", "recipe"):
        return str(value)
    if axis in (GPUS, "devices"):
        return devices(point) + " per node" * (int(point[GPUS]) > 0)
    plural = "" if str(value) == "1" else "s"
    return f"{value} node{plural}" if axis == "nodes" else f"{value} task{plural} per node"


def varying(rows: Sequence[Cells]) -> list[str]:
    """Return the axes that the name of a point must give, because these points differ in them.

    Nodes and GPUs are always named; a point without GPUs only where others have some.
    """
    return [axis for axis in _NAMED if len({str(row[axis]) for row in rows}) > 1]


def point_name(row: Cells, vary: Sequence[str] = ()) -> str:
    """Return `4 nodes with 2 GPUs each on AWS p3 (weak)`, with a platform's title.

    Other axes are named if they `vary`.
    """
    each = ""
    if row[GPUS]:
        each = f" with {devices(row)}" + " each" * (row["nodes"] > 1)
    elif GPUS in vary:
        each = f" with {CPU} only"
    on = f" on {axis_text('platform', row)}" if "platform" in vary else ""
    more = [axis_text(axis, row) for axis in vary if axis not in ("platform", GPUS)]
    return axis_text("nodes", row) + each + on + (f" ({', '.join(more)})" if more else "")


def naming(frame: pd.DataFrame, names: Sequence[str] = NAMING) -> tuple[list[str], str]:
    """Return the columns that differ between rows, and nodes; and in words what all rows share.

    `names` are of NAMING, and other columns of texts.
    """
    columns = {name: GPUS if name == "devices" else name for name in names}
    differs = {name for name, own in columns.items() if frame[own].astype(str).nunique() > 1}
    differs |= {"nodes"} | ({"devices"} if frame["devices"].nunique() > 1 else set())
    shown = [name for name in names if name in differs]
    if frame.empty:
        return shown, ""
    (first,) = rows_of(frame.head(1))
    return shown, ", ".join(_said(name, first) for name in names if name not in differs)


def _said(name: str, row: Cells) -> str:
    """Describe the value of a column with its noun: "recipe small" or "1 task per node"."""
    if name in NAMING:
        return "recipe " * (name == "recipe") + axis_text(name, row)
    if name == "batch_scaling":
        return f"{row[name]} scaling"
    return f"{name.replace('_', ' ')} {row[name]}"


# tables


@dataclass(frozen=True)
class TextTable:
    """A table as people read it: the `cells` are texts, numbers among them are `Number`s.

    `above` is a sentence before the table, `notes` come after it.
    """

    title: str
    cells: pd.DataFrame
    notes: tuple[str, ...] = ()
    above: str = ""

    @classmethod
    def of(
        cls,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        notes: Iterable[str] = (),
        above: str = "",
    ) -> Self:
        """Make a table of rows, each with a text for every one of `columns`."""
        cells = pd.DataFrame([list(row) for row in rows], columns=list(columns), dtype=object)
        return cls(title, cells, tuple(notes), above)

    def is_number(self, column: Hashable) -> bool:
        """Return whether the column has a number: it is aligned to the right and sorts by value."""
        return any(isinstance(text, Number) for text in self.cells[column])


def headed(table: pd.DataFrame, names: Sequence[str]) -> dict[str, str]:
    """Return column to show → its heading, for these columns of a table of points or runs.

    The quality is headed by its metric and unit where all rows share it, and is left out where a
    column of that name is shown as well; where it differs, columns next to it describe it.
    """
    found = qualities_in(table) if QUALITY in names else {}
    heads: dict[str, str] = {}
    for name in names:
        if name != QUALITY:
            heads[name] = name
        elif len(found) == 1:
            (quality,) = found.values()
            if quality.metric not in names:
                heads[name] = with_unit(quality.metric, quality.unit)
        else:
            heads[name] = name
            heads |= {column: column for column in QUALITY_TEXTS if table[column].notna().any()}
    return heads


def all_share(fixed: str, noun: str = "configurations") -> str:
    """Make the sentence that all rows of a table share the facts `fixed`; "" if that is empty."""
    return f"All {noun}: {fixed}." if fixed else ""


# Markdown


def markdown(shown: TextTable, level: int = 1) -> str:
    """Format a table in Markdown: a heading, the table, the notes as a list."""
    # a bar ends a cell, and Markdown drops "<class 'int'>" of an error as HTML
    cells = shown.cells.map(lambda text: text.replace("|", "\\|").replace("<", "\\<"))
    align = ["right" if shown.is_number(name) else "left" for name in cells]
    table = cells.to_markdown(index=False, disable_numparse=True, colalign=align)
    parts = [f"{'#' * level} {shown.title}", shown.above, table if len(cells) else "None."]
    parts.append("\n".join(f"- {note}" for note in shown.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def with_warnings(page: str, warnings: Sequence[str]) -> str:
    """Put warnings below the first heading of a page in Markdown, the last ones at its end."""
    heading, _, rest = page.strip().partition("\n")
    texts = [f"- **Warning:** {warning}".replace("<", "\\<") for warning in warnings]
    before, after = "\n".join(texts[:_BEFORE_MAX]), "\n".join(texts[_BEFORE_MAX:])
    return "\n\n".join(part for part in (heading, before, rest.strip(), after) if part) + "\n"


def paragraphs(text: str) -> tuple[str, ...]:
    """Return the paragraphs of a text, each on one line."""
    return tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())


def notes(template: str, **values: object) -> tuple[str, ...]:
    """Fill a template of this package and return its paragraphs."""
    found = templates(Path(__file__).parent).get_template(f"{template}.j2")
    return paragraphs(found.render(values))


def templates(folder: Path, **options: Any) -> Environment:
    """Load the templates of a folder: an undefined name is an error, lines of tags leave none."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
