"""Values, configurations and tables as texts for people, and tables in Markdown."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from tfscaling.estimation.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.estimation.samples import COMPLETE_RUN_METRICS, PROJECTED_METRICS
from tfscaling.record.metrics import CAMPAIGN_COST, FINISH_TIME, METRICS, QUALITY, Metric
from tfscaling.study.config_types import POINT_AXES, PROGRAM_STRATEGY, Limit
from tfscaling.study.platforms import CPU, LOGICAL
from tfscaling.tables.row_types import Cells
from tfscaling.tables.row_values import (
    QUALITY_TEXTS,
    is_known,
    is_projected,
    metric_of,
    qualities_in_table,
    run_count_column,
)
from tfscaling.tables.table_files import row_dicts

if TYPE_CHECKING:
    from jinja2 import Environment

    from tfscaling.estimation.samples import Difference

MISSING = "–"
#: The unit of costs, and the amount below which people read the cost of 1,000 runs.
DOLLARS, _SMALL = "US dollars", 0.1
#: The column with the steps from which times and costs are projected.
PROJECTED_COLUMN = "projected_from_steps"
GPUS = "gpus_per_node"
#: Columns whose values name a configuration: its axes, with `devices` instead of gpus_per_node.
NAMING_COLUMNS = tuple("devices" if axis == GPUS else axis for axis in POINT_AXES)
#: Axes besides nodes and devices that a configuration's name has if they vary.
_OPTIONAL_AXES = ("platform", "model", "strategy", "recipe", "tasks_per_node", GPUS)
#: Most configurations that a sentence names.
NAMES_IN_SENTENCE_MAX = 3
#: Maximum number of warnings above a table; further ones come below it.
_WARNINGS_ABOVE_MAX = 4


class FormattedNumber(str):
    """A formatted number, such as `358.1 (346.1–371.0)`; tables sort by its `value`."""

    value: float

    def __new__(cls, text: str, value: float) -> Self:
        """Return the text with its number.

        Args:
            text: The formatted number.
            value: The number, by which tables sort.
        """
        number = super().__new__(cls, text)
        number.value = value
        return number


# values in words


def format_three_digits(value: float) -> str:
    """Format a value with three significant digits, without an exponent: 26.6, 0.979, 1234."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def format_value(
    value: float | None, digits: int | None, low: float | None = None, high: float | None = None
) -> str:
    """Format a value with its interval or range in brackets: `358.1 (346.1–371.0)`.

    Args:
        value: The value; None gives MISSING.
        digits: Decimals; None for three significant digits.
        low: Lower end of the interval or range.
        high: Upper end of the interval or range.
    """
    if not is_known(value):
        return MISSING
    text = format_three_digits if digits is None else f"{{:.{digits}f}}".format
    spread = f" ({text(low)}–{text(high)})" if is_known(low) and is_known(high) else ""
    return FormattedNumber(f"{text(value)}{spread}", value)


def format_simulated(value: float, low: float, high: float) -> str:
    """Format a value of simulated campaigns with its interval: `410 (385–440)`.

    An end is `unknown` if more campaigns never end than the interval leaves out.

    Args:
        value: Median of the campaigns; NaN, if the median campaign never ends, gives MISSING.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """
    if not is_known(value):
        return MISSING
    ends = (format_three_digits(end) if is_known(end) else "unknown" for end in (low, high))
    return FormattedNumber(f"{format_three_digits(value)} ({'–'.join(ends)})", value)


def format_cell(name: str, row: Cells) -> str:
    """Format the value of a row's column.

    A metric has its interval, or else its range, in brackets; without both it has three significant
    digits. Other numbers are written as integers, and texts as one line.
    """
    if name == "devices":
        return devices_text(row)
    value = row[name]
    if name == PROJECTED_COLUMN and is_known(value):
        return FormattedNumber(f"{value:,.0f} of {row['projected_to_steps']:,.0f}", value)
    if name == "runs":
        planned = row["runs_planned"]
        return FormattedNumber(
            f"{value} of {planned:.0f}" if is_known(planned) else str(value), value
        )
    if not is_known(value):
        return MISSING
    if name in METRICS:
        low, high = _interval_or_range(name, row)
        if low is None or high is None:
            return FormattedNumber(format_three_digits(value), value)
        digits = 1 if name == "execution_time_s" else metric_of(name, row).digits
        return format_value(
            value, max(digits, _distinguishing_decimals(value, low, high)), low, high
        )
    if isinstance(value, Real):
        return FormattedNumber(
            f"{value:.0f}" if isinstance(value, float) else str(value), float(value)
        )
    return join_lines(str(value))


class BracketKind(enum.Enum):
    """What the brackets after a configuration's value contain, and what its error bars show."""

    #: The confidence interval of the median, or of the ratio of medians.
    MEDIAN_INTERVAL = enum.auto()
    #: For a value that is projected from short runs: the interval of one complete run.
    COMPLETE_RUN_INTERVAL = enum.auto()
    #: The range of the runs, which are too few for an interval.
    RANGE = enum.auto()


def bracket_kind(name: str, row: Cells) -> BracketKind | None:
    """Return what the brackets after a metric's value contain; None if it has no brackets.

    Args:
        name: The metric.
        row: The configuration.
    """
    column = next((each for each in (run_count_column(name), "runs") if each in row), None)
    if not column or row[column] <= 1:
        return None
    if f"{name}_low" in row and is_known(row[f"{name}_low"]):
        is_of_one_run = is_projected(row) and name in COMPLETE_RUN_METRICS
        kinds = BracketKind
        return kinds.COMPLETE_RUN_INTERVAL if is_of_one_run else kinds.MEDIAN_INTERVAL
    if f"{name}_min" in row and is_known(row[f"{name}_min"]):
        return BracketKind.RANGE
    return None


def bracket_kinds(names: Iterable[str], rows: Collection[Cells]) -> set[BracketKind]:
    """Return the kinds of ranges that these cells have in brackets, for a legend."""
    found = {
        bracket_kind(name, row)
        for name in names
        for row in rows
        if name in METRICS and is_known(row[name])
    }
    return {kind for kind in found if kind is not None}


def bracket_legend(kinds: Collection[BracketKind]) -> str:
    """Return the explanation of the brackets in a table; "" without brackets.

    Args:
        kinds: What brackets in the table contain.
    """
    parts = []
    if BracketKind.MEDIAN_INTERVAL in kinds:
        parts.append(f"{CONFIDENCE:.0%} interval of the median or ratio")
    if BracketKind.COMPLETE_RUN_INTERVAL in kinds:
        parts.append(f"of projected values the {CONFIDENCE:.0%} interval of one complete run")
    if BracketKind.RANGE in kinds:
        too_few = f"fewer than {RUNS_FOR_INTERVAL}"
        parts.append(
            f"with {too_few} runs their range"
            if parts
            else f"range of the runs, as {too_few} have no interval"
        )
    return f"In brackets: {'; '.join(parts)}." if parts else ""


def _interval_or_range(name: str, row: Cells) -> tuple[float | None, float | None]:
    """Return (low, high) of a metric's interval, or of its range if a row has too few runs.

    (None, None) if the row has neither.
    """
    kind = bracket_kind(name, row)
    if kind is None:
        return None, None
    low, high = ("min", "max") if kind is BracketKind.RANGE else ("low", "high")
    return row[f"{name}_{low}"], row[f"{name}_{high}"]


def _distinguishing_decimals(value: float, low: float, high: float) -> int:
    """Return how many decimals the ends of an interval need to be written as different numbers.

    The result is lower if the value would otherwise have more than three significant digits.

    Args:
        value: The value.
        low: Lower end of its interval.
        high: Upper end of its interval.
    """
    if not 0 < high - low < math.inf:
        return 0
    needed = math.ceil(-math.log10((high - low) / 2))
    return min(needed, 2 - math.floor(math.log10(max(abs(value), high - low))))


def format_metric(metric: str, row: Cells, is_for_many: bool = True) -> str:
    """Format a metric of a configuration with its interval or range and its unit.

    A projected value is marked as projected.

    Args:
        metric: The metric's name.
        row: The configuration's row.
        is_for_many: Whether a cost below ten cents is given per 1,000 runs instead of per run.
    """
    if metric == FINISH_TIME:
        times_s = [row[f"{metric}{end}"] for end in ("", "_low", "_high")]
        middle, *ends = (duration_text(s) if is_known(s) else "unknown" for s in times_s)
        return f"{middle} ({' to '.join(ends)})"
    if metric == CAMPAIGN_COST:
        amount = format_simulated(row[metric], row[f"{metric}_low"], row[f"{metric}_high"])
        return f"{amount} {DOLLARS}"
    unit = metric_of(metric, row).unit
    if is_for_many and unit == DOLLARS and is_known(row[metric]) and 0 < row[metric] < _SMALL:
        low, high = (end and 1000 * end for end in _interval_or_range(metric, row))
        amount = format_value(1000 * row[metric], None, low, high)
        text = f"{amount} {unit} per 1,000 runs"
    else:
        text = f"{format_cell(metric, row)} {unit}".rstrip()
    return f"{text}, projected" if is_projected(row) and metric in PROJECTED_METRICS else text


def limit_text(name: str, row: Cells, limit: Limit, remark: str = "") -> str:
    """Return a metric's value and its limit: `cost 41.2 (39.8–43.1) US dollars, at most 40`.

    Args:
        name: The metric with the limit.
        row: The configuration.
        limit: The limit.
        remark: Words that follow the value.
    """
    shown = format_metric(name, row, is_for_many=False) if is_known(row[name]) else "unknown"
    bound = "at least" if limit.at_most is None else "at most"
    return f"{metric_of(name, row).title} {shown}{remark}, {bound} {limit_value_text(name, limit)}"


def limit_value_text(name: str, limit: Limit) -> str:
    """Return the number of a metric's limit as text, without unit unless it is a duration."""
    return duration_text(limit.value) if name == FINISH_TIME else f"{limit.value:g}"


def duration_text(seconds: float) -> str:
    """Format a duration: `75 seconds`, `42 minutes` or `2.6 hours`."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def join_lines(text: str) -> str:
    """Return the text as a single line: a space in place of each line break."""
    return " ".join(text.split())


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural: `1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def name_with_unit(name: str, unit: str | None) -> str:
    """Return a name with its unit, `cost (US dollars)`; the name alone for a pure number."""
    return f"{name} ({unit})" if unit else name


def join_names(names: Sequence[str]) -> str:
    """Join the first names with semicolons, and count the others: `a; b; c and 2 more`."""
    more = (
        f" and {len(names) - NAMES_IN_SENTENCE_MAX} more"
        if len(names) > NAMES_IN_SENTENCE_MAX
        else ""
    )
    return "; ".join(names[:NAMES_IN_SENTENCE_MAX]) + more


def format_bound(bound: float, of_what: str) -> str:
    """Return how far a value may be from the best: `within 2.1% of the best`.

    With a bound of 0 it is `no worse than the best`.

    Args:
        bound: Fraction by which the value may be worse.
        of_what: What the value is compared with, such as `the best`.
    """
    return (
        f"within {percent_rounded_up(bound)} of {of_what}"
        if bound > 0
        else f"no worse than {of_what}"
    )


def percent_rounded_up(fraction: float) -> str:
    """Format a fraction as a percentage, rounded up to a tenth: 0.0203 is `2.1%`."""
    return f"{math.ceil(fraction * 1000 - 1e-9) / 10:.1f}%"


def format_ratio(difference: Difference) -> str:
    """Format the ratio of two configurations with its interval: `1.50 times (1.40–1.60)`.

    Without an interval it is `1.50 times`.

    Args:
        difference: The comparison of the configurations; its `ratio` must not be None.
    """
    ends = "" if difference.interval is None else " ({:.2f}–{:.2f})".format(*difference.interval)
    return f"{difference.ratio:.2f} times{ends}"


def disadvantage_noun(metric: Metric) -> str:
    """Return the words after the ratio of a worse quality to the best: "1.50 times `the error`".

    They are `the error` if the metric has a best possible value, such as 1 for an accuracy.
    Otherwise they have the metric's title: `the perplexity`, or `less bleu` if higher is better.
    """
    if metric.best is not None:
        return "the error"
    # without a leader the metric has no direction, and the text is not shown
    return f"less {metric.title}" if metric.direction == "higher" else f"the {metric.title}"


def best_value_noun(metric: Metric) -> str:
    """Return the words after a bound on a quality: "within 2.1% of `the best bleu`".

    They are `the least error` if the metric has a best possible value: the bound is then a fraction
    of the error. Otherwise it is a fraction of the value.
    """
    return f"the best {metric.title}" if metric.best is None else "the least error"


def format_disadvantage(difference: Difference, metric: Metric) -> str:
    """Describe how much worse a quality is: `1.50 times (1.40–1.60) the error`.

    Without a ratio it is `0.1000 (0.0900–0.1100) more error`. For a metric whose higher values are
    better, but which has no best value, it is `1.50 times (1.40–1.60) less`.
    """
    is_less = metric.is_higher_better and metric.best is None
    noun = metric.title if metric.best is None else "error"
    if difference.ratio is not None:
        return (
            f"{format_ratio(difference)} less"
            if is_less
            else f"{format_ratio(difference)} the {noun}"
        )
    text = format_value(difference.gap, metric.digits, *(difference.interval or ()))
    return f"{text} less" if is_less else f"{text} more {noun}"


def measured_time_text(row: Cells, imported_from: str = "") -> str:
    """Return in words at which events the execution time of a configuration begins and ends.

    Args:
        row: The configuration.
        imported_from: The file of timings from which its runs were imported; "" if they were
            measured here.
    """
    if imported_from:
        return f"as in {imported_from}, not measured by tfscaling"
    if row["strategy"] == PROGRAM_STRATEGY:
        return "from the program's start on the first rank to its end on the last"
    return "from the trainer's first line to the end of training"


def target_text(row: Cells) -> str:
    """Return the target of a configuration's quality with its metric: `test accuracy 0.97`."""
    metric = metric_of(QUALITY, row)
    return f"{metric.title} {row['target']:g} {metric.unit}".rstrip()


def quality_name(table: pd.DataFrame) -> str:
    """Return the name of the quality metric that all rows share; `quality` if they differ."""
    found = qualities_in_table(table)
    return next(iter(found.values())).title if len(found) == 1 else QUALITY


# points in words


def devices_text(row: Cells) -> str:
    """Return what each node of a row trains on: `CPU`, `2 GPUs` or `2 logical devices`."""
    number = int(row[GPUS])
    noun = "logical device" if row["devices"] == LOGICAL else "GPU"
    return count_text(number, noun) if number else CPU


def axis_text(axis: str, point: Cells) -> str:
    """Return an axis and its value in words: `4 nodes`, `2 logical devices per node`, `CPU`.

    The axis `devices` gives the same text as gpus_per_node.
    """
    value = point[axis]
    if axis == "platform":
        title = point["platform_title" if "platform_title" in point else axis]
        return str(title if isinstance(title, str) and title else value)
    if axis in ("model", "strategy", "recipe"):
        return str(value)
    if axis in (GPUS, "devices"):
        return devices_text(point) + " per node" * (int(point[GPUS]) > 0)
    plural = "" if str(value) == "1" else "s"
    return f"{value} node{plural}" if axis == "nodes" else f"{value} task{plural} per node"


def varying_axes(rows: Sequence[Cells]) -> list[str]:
    """Return the axes that names of configurations need: those in which these rows differ.

    The result is an argument of `point_name`, which names nodes and GPUs in any case. It lacks
    gpus_per_node if each platform has a single number of GPUs per node.
    """
    found = [axis for axis in _OPTIONAL_AXES if len({str(row[axis]) for row in rows}) > 1]
    if len({(row["platform"], row[GPUS]) for row in rows}) == len(
        {row["platform"] for row in rows}
    ):
        return [axis for axis in found if axis != GPUS]
    return found


def point_name(row: Cells, vary: Sequence[str] = ()) -> str:
    """Return the name of a row's configuration: `4 nodes with 2 GPUs each on AWS p3 (weak)`.

    Args:
        row: The row of a configuration.
        vary: Further axes that the name must give, from `varying_axes`.
    """
    each = ""
    if row[GPUS]:
        each = f" with {devices_text(row)}" + " each" * (row["nodes"] > 1)
    elif GPUS in vary:
        each = f" with {CPU} only"
    on = f" on {axis_text('platform', row)}" if "platform" in vary else ""
    more = [axis_text(axis, row) for axis in vary if axis not in ("platform", GPUS)]
    return axis_text("nodes", row) + each + on + (f" ({', '.join(more)})" if more else "")


def split_naming_columns(
    frame: pd.DataFrame, names: Sequence[str] = NAMING_COLUMNS
) -> tuple[list[str], str]:
    """Split columns into the ones that differ between rows, and a text with all shared values.

    Nodes are always among the columns.

    Args:
        frame: The table.
        names: The columns to consider: NAMING_COLUMNS, or other columns of texts.

    Returns:
        The names of the differing columns, and the text of the shared values.
    """
    columns = {name: GPUS if name == "devices" else name for name in names}
    differs = {name for name, own in columns.items() if frame[own].astype(str).nunique() > 1}
    differs |= {"nodes"} | ({"devices"} if frame["devices"].nunique() > 1 else set())
    shown = [name for name in names if name in differs]
    if frame.empty:
        return shown, ""
    (first,) = row_dicts(frame.head(1))
    return shown, ", ".join(_describe_value(name, first) for name in names if name not in differs)


def _describe_value(name: str, row: Cells) -> str:
    """Return the value of a column with its noun: `recipe small`, `1 task per node`."""
    if name in NAMING_COLUMNS:
        return "recipe " * (name == "recipe") + axis_text(name, row)
    if name == "batch_scaling":
        return f"{row[name]} scaling"
    return f"{name.replace('_', ' ')} {row[name]}"


# tables


@dataclass(frozen=True)
class TextTable:
    """A table whose cells are texts, ready to be written as Markdown or HTML.

    Attributes:
        title: Heading of the table.
        cells: The texts; numbers are `FormattedNumber`s.
        notes: Texts below the table.
        above: A sentence above the table.
    """

    title: str
    cells: pd.DataFrame
    notes: tuple[str, ...] = ()
    above: str = ""

    @classmethod
    def from_rows(
        cls,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        notes: Iterable[str] = (),
        above: str = "",
    ) -> Self:
        """Return a table with these columns and rows.

        Args:
            title: Heading of the table.
            columns: Headings of the columns.
            rows: For each row a text for every column.
            notes: Texts below the table.
            above: A sentence above the table.
        """
        cells = pd.DataFrame([list(row) for row in rows], columns=list(columns), dtype=object)
        return cls(title, cells, tuple(notes), above)

    def is_number_column(self, column: Hashable) -> bool:
        """Return whether a column has numbers, which are right-aligned and sorted by value."""
        return any(isinstance(text, FormattedNumber) for text in self.cells[column])


def column_headings(table: pd.DataFrame, names: Sequence[str]) -> dict[str, str]:
    """Return column → its heading, for columns of a table of configurations.

    The heading is the name of the column, except for the column `quality`:

    - If all rows have the same quality metric, its heading is the metric with its unit. The column
      is left out if `names` has this metric, too.
    - If metrics differ between rows, the result has further columns for metric and unit.

    Args:
        table: The table.
        names: Names of the columns.
    """
    found = qualities_in_table(table) if QUALITY in names else {}
    heads: dict[str, str] = {}
    for name in names:
        if name != QUALITY:
            heads[name] = name
        elif len(found) == 1:
            (quality,) = found.values()
            if quality.metric not in names:
                heads[name] = name_with_unit(quality.metric, quality.unit)
        else:
            heads[name] = name
            heads |= {column: column for column in QUALITY_TEXTS if table[column].notna().any()}
    return heads


def shared_values_sentence(fixed: str, noun: str = "configurations") -> str:
    """Return the sentence that all rows of a table share some values; "" without such values.

    Args:
        fixed: The shared values, from `split_naming_columns`.
        noun: What a row represents, in the plural.
    """
    return f"All {noun}: {fixed}." if fixed else ""


# Markdown


#: A code span, with nothing in it that has a meaning where a reader takes it for plain text.
_CODE_SPAN = re.compile(r"(?<!`)`[^`<\[\]|\\]+`(?!`)")
#: Characters with a meaning in Markdown. Some have it at certain places only: a dollar sign that is
#: no price, an underscore at an end of a word, the beginning of an HTML entity, a backslash before
#: punctuation.
_MARKDOWN = re.compile(
    r"[<\[\]`*~]|\$(?!\d)|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|\\(?=[!-/:-@\[-`{-~]|$)"
)
#: Mark of a heading, list or quotation at the beginning of a line.
_BLOCK_MARK = re.compile(r"^(\d*)([.)+-](?=\s|$)|#(?=#*(?:\s|$))|>|=(?==*$))")


class Markdown(str):
    """A cell of a table that is Markdown already, such as a link."""

    __slots__ = ()


def escape_markdown(text: str) -> str:
    """Return a text as one line, in which no character is read as Markdown or HTML.

    Code spans are kept: sentences name keys in them.
    """
    line, parts, end = join_lines(text), [], 0
    for code in _CODE_SPAN.finditer(line):
        parts += [_MARKDOWN.sub(r"\\\g<0>", line[end : code.start()]), code[0]]
        end = code.end()
    parts.append(_MARKDOWN.sub(r"\\\g<0>", line[end:]))
    return _BLOCK_MARK.sub(r"\1\\\2", "".join(parts))


def _markdown_cell(text: str) -> str:
    """Return a text escaped for a cell of a Markdown table; `Markdown` is returned unchanged."""
    return text if isinstance(text, Markdown) else escape_markdown(text).replace("|", "\\|")


def to_markdown(shown: TextTable, level: int = 1) -> str:
    """Return a table in Markdown: its title as a heading, the cells, the notes as a list.

    Args:
        shown: The table.
        level: Level of the heading.
    """
    align = ["right" if shown.is_number_column(name) else "left" for name in shown.cells]
    cells = shown.cells.map(_markdown_cell).rename(columns=_markdown_cell)
    table = cells.to_markdown(index=False, disable_numparse=True, colalign=align)
    title, above = escape_markdown(shown.title), escape_markdown(shown.above)
    parts = [f"{'#' * level} {title}", above, table if len(cells) else "None."]
    parts.append("\n".join(f"- {escape_markdown(note)}" for note in shown.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def insert_warnings(page: str, warnings: Sequence[str]) -> str:
    """Return a Markdown page with warnings below its first line, the heading.

    At most _WARNINGS_ABOVE_MAX warnings are placed there; further ones are at the end of the page.
    """
    heading, _, rest = page.strip().partition("\n")
    texts = [f"- **Warning:** {escape_markdown(warning)}" for warning in warnings]
    before, after = "\n".join(texts[:_WARNINGS_ABOVE_MAX]), "\n".join(texts[_WARNINGS_ABOVE_MAX:])
    return "\n\n".join(part for part in (heading, before, rest.strip(), after) if part) + "\n"


def split_paragraphs(text: str) -> tuple[str, ...]:
    """Return the paragraphs of a text, each as a single line."""
    return tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())


def fill_notes(template: str, **values: object) -> tuple[str, ...]:
    """Return the paragraphs of the template `<template>.j2` of this package, filled with values."""
    found = load_templates(Path(__file__).parent).get_template(f"{template}.j2")
    return split_paragraphs(found.render(values))


def load_templates(folder: Path, **options: Any) -> Environment:
    """Return a Jinja environment for a folder, in which an undefined name raises an error.

    Its filter `markdown` is `escape_markdown`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    environment.filters["markdown"] = escape_markdown
    return environment
