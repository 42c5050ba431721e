"""Parts of all plots: lines, points, styles, panels, scales, legend, notes, tooltips, the SVG.

A platform has the same colour in every plot; markers and line styles distinguish its lines. If
there is only one platform, colours distinguish them, too.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfscaling.estimation.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.page.tooltips import tooltips_class
from tfscaling.record.metrics import METRICS
from tfscaling.study.config_types import LINE_AXES, POINT_AXES
from tfscaling.study.run_spec import Point
from tfscaling.tables.display import (
    BracketKind,
    axis_text,
    bracket_kinds,
    count_text,
    format_metric,
)
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import metric_of, run_count_column
from tfscaling.tables.table_files import to_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito's colours and, after them, Tol's muted ones: colour-blind readers can distinguish
#: them. Black and yellow are left out: black is for published values, yellow is too pale.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#332288", "#882255", "#999933", "#44AA99", "#CC6677", "#666666"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "<", "p", ">", "h")
#: A line style of matplotlib: a name, or offset and lengths of dashes and gaps in points.
LineStyle = str | tuple[float, tuple[int, ...]]
#: Keyword arguments with which matplotlib draws a line or marks.
Style = dict[str, LineStyle | float]
#: Line styles of measured values; dotted lines are for published values.
LINESTYLES: tuple[LineStyle, ...] = ("-", "--", "-.", (0, (6, 2, 1, 2, 1, 2)))


@dataclass(frozen=True)
class Tables:
    """The tables from which all plots are drawn.

    Attributes:
        comparison: comparison.csv, one row per configuration.
        epochs: epochs.csv.
        published: published.csv, which may be empty.
        footnotes: Notes below each exported plot.
        first: Configurations whose lines are shown first if a plot cannot show all lines.
        imported_from: The file of timings with the runs; "" if they were measured here.
        excluded: Configurations that are not compared, by `evidence.Study.excluded`. Plots show
            their values, and no Pareto set includes them.
    """

    comparison: pd.DataFrame
    epochs: pd.DataFrame
    published: pd.DataFrame
    footnotes: Sequence[str] = ()
    first: Sequence[Point] = ()
    imported_from: str = ""
    excluded: Collection[Point] = ()

    @cached_property
    def points(self) -> Mapping[Hashable, PointRow]:
        """Label of a row of `comparison` in its index → the row."""
        return dict(zip(self.comparison.index, to_rows(PointRow, self.comparison), strict=True))


@dataclass(frozen=True)
class Series:
    """A line of a plot, with the configurations that it connects.

    Attributes:
        key: The values of the axes that its configurations share.
        label: Its text in the legend.
        style: Colour, marker and line style for matplotlib.
        rows: Its configurations, sorted by number of nodes; some may have no valid run.
        is_shown: Whether the line is visible until a reader of the page hides it.
    """

    key: tuple[str, ...]
    label: str
    style: Style
    rows: pd.DataFrame
    is_shown: bool = True


def column_values(rows: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column of a table as floats; NaN for missing cells or a missing column."""
    if name not in rows:
        return np.full(len(rows), np.nan)
    return pd.to_numeric(rows[name], errors="coerce").to_numpy(float)


def rows_with_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of configurations that have a valid run."""
    return table[column_values(table, "runs") > 0]


def rows_with_times(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of configurations that have a time.

    A configuration has none if no valid run has times that count: see `runs_timed`.
    """
    return table[np.isfinite(column_values(table, "execution_time_s"))]


def rows_without_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of configurations without a valid run: failed, missing or excluded."""
    return table[~(column_values(table, "runs") > 0)]


def colour_numbers(table: pd.DataFrame) -> dict[str, int]:
    """Return platform → index of its colour: its place in the order of the platforms."""
    return {str(name): number for number, name in enumerate(table["platform"].unique())}


def platform_titles(table: pd.DataFrame) -> dict[str, str]:
    """Return platform → its title, or its name if the title is missing or not unique."""
    titles = {}
    for name, rows in table.groupby("platform", sort=False):
        known = rows["platform_title"].dropna() if "platform_title" in rows else ()
        titles[str(name)] = str(next(iter(known), name))
    shared = [*titles.values()]
    return {name: title if shared.count(title) == 1 else name for name, title in titles.items()}


def axes_that_vary(table: pd.DataFrame) -> list[str]:
    """Return the axes in which the measured configurations differ, without the platform."""
    rows = rows_with_runs(table)
    return [axis for axis in POINT_AXES if axis != "platform" and rows[axis].nunique() > 1]


#: Number of lines that a plot shows at once.
LINES_MAX = 6
#: Number of lines that a plot has, with the hidden ones; more would make pages of several MB.
LINES_DRAWN_MAX = 20


def rank_lines(keys: Sequence[Hashable], first: Iterable[Hashable] = ()) -> dict[Hashable, int]:
    """Return key of a line → its place in the order of the lines, from 0; `first` come first.

    Args:
        keys: Keys of all lines, in the order of the table.
        first: Keys of the lines to show first, the most important one first.
    """
    known = {*keys}
    ordered = dict.fromkeys([*(key for key in first if key in known), *keys])
    return {key: rank for rank, key in enumerate(ordered)}


def row_numbers(table: pd.DataFrame, by: Sequence[str]) -> dict[tuple[str, ...], list[int]]:
    """Return (values of the axes in `by`, as texts) → the numbers of the rows with them."""
    keys = zip(*(map(str, table[axis]) for axis in by), strict=True)
    found: dict[tuple[str, ...], list[int]] = {}
    for number, key in enumerate(keys):
        found.setdefault(key, []).append(number)
    return found


def make_series(
    table: pd.DataFrame, first: Sequence[Point] = (), by: Sequence[str] = LINE_AXES
) -> list[Series]:
    """Return the lines that a plot draws, visible or hidden at first; visible ones come first.

    Args:
        table: The table of configurations.
        first: Configurations whose lines are shown first.
        by: The axes that the configurations of a line share. By default, the configurations of a
            line differ only in nodes; with POINT_AXES each configuration is a line.
    """
    titles, colours, shown = platform_titles(table), colour_numbers(table), axes_that_vary(table)
    groups = row_numbers(table, by)
    measured = row_numbers(rows_with_runs(table), by)
    have = [key for key in groups if key in measured]
    ranks = rank_lines(have, [tuple(str(getattr(each, axis)) for axis in by) for each in first])
    counts: dict[str, int] = {}
    lines = []
    for key in sorted(groups, key=lambda key: max(LINES_MAX - 1, ranks.get(key, 0))):
        name = key[by.index("platform")]
        number = counts[name] = counts.get(name, -1) + 1
        rank = ranks.get(key, 0)
        if rank >= LINES_DRAWN_MAX:
            continue
        rows = table.iloc[groups[key]]
        row = rows.iloc[0]
        texts = [axis_text(axis, row) for axis in by if axis in shown]
        if len(titles) > 1 or not texts:  # an only platform is named where nothing else is
            texts = [titles[name], *texts]
        style: Style = {
            "color": COLOURS[(number if len(colours) == 1 else colours[name]) % len(COLOURS)],
            "marker": MARKERS[(colours[name] + number) % len(MARKERS)],
            "linestyle": LINESTYLES[number % len(LINESTYLES)],
            # so that those at the same place are seen
            "markersize": max(4.5, 7.5 - number),
        }
        rows = rows.sort_values("nodes")
        lines.append(Series(key, ", ".join(texts), style, rows, is_shown=rank < LINES_MAX))
    return lines


def drawn_series(tables: Tables, by: Sequence[str] = LINE_AXES) -> list[Series]:
    """Return the lines that a plot draws, visible or hidden at first.

    Args:
        tables: The tables.
        by: The axes that the configurations of a line share.
    """
    return make_series(tables.comparison, tables.first, by)


def line_notes(tables: Tables, by: Sequence[str] = LINE_AXES) -> list[str]:
    """Return [note that the plot lacks some lines, with their number]; [] if it has all.

    Args:
        tables: The tables.
        by: The axes that the configurations of a line share.
    """
    others = len(row_numbers(rows_with_runs(tables.comparison), by)) - LINES_DRAWN_MAX
    return [f"{count_text(others, 'other line')}: in the tables alone"] if others > 0 else []


@contextmanager
def mark_as_line(axes: Any, line: Series) -> Iterator[None]:
    """Mark the artists that are drawn in the `with` block as parts of a line.

    The artists are hidden if the line is not shown at first. On the page, readers show and hide a
    line by its label in the legend.

    Args:
        axes: The axes.
        line: The line.
    """
    before, containers = set(axes.get_children()), len(axes.containers)
    yield
    how = "" if line.is_shown else _HIDDEN
    for artist in set(axes.get_children()) - before:
        artist.set_gid("\t".join([f"{_LINE}{line.label}", how, artist.get_gid() or ""]))
        if how:
            artist.set_label("_")
    for container in axes.containers[containers:] if how else ():
        container.set_label("_")


def hidden_artists(figure: Figure) -> dict[str, list[Any]]:
    """Return label → matplotlib artists, for each line that is hidden at first."""
    found: dict[str, list[Any]] = {}
    for artist in figure.findobj():
        gid = artist.get_gid() or ""
        if gid.startswith(_LINE) and gid.split("\t")[1] == _HIDDEN:
            found.setdefault(gid.removeprefix(_LINE).split("\t")[0], []).append(artist)
    return found


def tip_texts(rows: Iterable[PointRow], label: str, *names: str) -> list[str]:
    """Return the tooltip of each point of a line: nodes, line, values of metrics, runs.

    Args:
        rows: The configurations.
        label: Label of the line.
        *names: The metrics to show.
    """
    columns = {run_count_column(name) for name in names}
    texts = []
    for row in rows:
        runs = count_text(row.runs, "run")
        if "runs_timed" in columns and row.runs_timed < row.runs:
            runs += f", {row.runs_timed} with times"
        values = ", ".join(
            f"{metric_of(name, row).title} {format_metric(name, row)}" for name in names
        )
        texts.append(f"{axis_text('nodes', row)}, {label}: {values} ({runs})")
    return texts


def error_bar_lengths(rows: pd.DataFrame, name: str) -> np.ndarray:
    """Return the lengths of the error bars of a column, shape (2, rows): below and above the value.

    They show the interval of the median, or else the range of several runs. Without bars, the
    length is 0 or NaN.

    Args:
        rows: The configurations.
        name: The column.
    """
    middle, several = column_values(rows, name), column_values(rows, run_count_column(name)) > 1
    ends = []
    for end, whole in (("low", "min"), ("high", "max")):
        interval, whole_range = (
            column_values(rows, f"{name}_{end}"),
            column_values(rows, f"{name}_{whole}"),
        )
        ends.append(np.where(np.isnan(interval), whole_range, interval))
    both = np.abs(np.stack([middle - ends[0], ends[1] - middle]))
    return np.where(several, both, np.nan)


#: Width of every figure, in inches: on a phone, text of FONT_SIZE points has at least 9 pixels.
WIDTH = 5.3
FONT_SIZE = 10.0
#: Highest number of ticks; with more values an axis shows every second one, or fewer.
VALUE_TICKS_MAX = 10
#: Label of configurations without a valid run.
ABSENT = "without valid run"
#: Text in axes without any measured run.
NOTHING = "nothing measured yet"
#: Text in axes of configurations whose valid runs all resumed from a checkpoint.
NO_TIMES = "no run with a time"
_INTERVAL = f"bars: {CONFIDENCE:.0%} interval of the median"
_RANGE = f"range of fewer than {RUNS_FOR_INTERVAL} runs"
#: Beginning of an artist's gid that is a tooltip.
_TIP = "tip: "
#: Beginning of the gid of a line's artist; the label, a tab, _HIDDEN or nothing, a tab and the
#: tooltip follow.
_LINE, _HIDDEN = "line: ", "hidden"
#: Beginning of the gid of an entry of the legend; the label of the line follows.
_ENTRY = "entry: "
_LINE_INCHES = 0.178
_LEGEND: Style = {"fontsize": FONT_SIZE, "frameon": False, "loc": "upper left", "borderpad": 0.0}
#: Highest number of characters in a line of the legend, of the notes, of a title.
_LEGEND_COLUMNS, _NOTE_COLUMNS, _TITLE_COLUMNS = 60, 66, 46


def make_panels(title: str, x: str, ys: Sequence[str]) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes: one panel for each y label, one below the other.

    Args:
        title: Title of the figure.
        x: Label of the common x axis.
        ys: Labels of the y axes.
    """
    import matplotlib
    from matplotlib.figure import Figure

    # titles and names are no formulas, between two `$` either
    matplotlib.rcParams["text.parse_math"] = False
    figure = Figure(figsize=(WIDTH, 3.2 if len(ys) == 1 else 2.5 * len(ys)))
    figure.set_layout_engine("constrained", h_pad=0.08)
    every_axes = figure.subplots(len(ys), 1, squeeze=False)[:, 0].tolist()
    for axes, y in zip(every_axes, ys, strict=True):
        axes.set_ylabel(y)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    every_axes[0].set_title(wrap_lines(title, _TITLE_COLUMNS))
    every_axes[-1].set_xlabel(x)
    return figure, every_axes


def set_tip(artist: Any, text: str) -> None:
    """Give an artist a tooltip, which browsers show without a script."""
    artist.set_gid(_TIP + text)


def draw_points(
    axes: Any, tables: Tables, rows: pd.DataFrame, x: str, y: str, label: str, style: Style
) -> None:
    """Draw the points of a line with error bars and tooltips, and connect them.

    Args:
        axes: The axes.
        tables: The tables.
        rows: The configurations: rows of `tables.comparison`, with their index.
        x: Column for the x axis.
        y: Column for the y axis.
        label: Label of the line.
        style: Style of the line.
    """
    named = [name for name in (x, y) if name in METRICS]
    bars = {
        f"{axis}err": error_bar_lengths(rows, n) for axis, n in (("x", x), ("y", y)) if n in named
    }
    xs, ys = column_values(rows, x), column_values(rows, y)
    axes.errorbar(xs, ys, label=label, **{"capsize": 3, "elinewidth": 1, **bars, **style})
    points = (tables.points[each] for each in rows.index)
    add_tips(axes, xs, ys, tip_texts(points, label, *named))


def add_tips(axes: Any, xs: np.ndarray, ys: np.ndarray, texts: Iterable[str]) -> None:
    """Add a tooltip to each point.

    Args:
        axes: The axes.
        xs: x values of the points.
        ys: y values of the points.
        texts: The tooltips.
    """
    axes.add_artist(tooltips_class()(xs, ys, [f"{_TIP}{text}" for text in texts]))


def error_bar_notes(tables: Tables, *columns: str) -> list[str]:
    """Return notes on what the error bars of columns show, by `display.bracket_kind`.

    Args:
        tables: The tables.
        *columns: The columns that are drawn.
    """
    kinds = bracket_kinds(columns, tables.points.values())
    notes = []
    if BracketKind.MEDIAN_INTERVAL in kinds:
        notes.append(_INTERVAL + f", or {_RANGE}" * (BracketKind.RANGE in kinds))
    elif BracketKind.RANGE in kinds:
        notes.append(f"bars: {_RANGE}")
    if BracketKind.COMPLETE_RUN_INTERVAL in kinds:
        notes.append(f"bars of projected values: {CONFIDENCE:.0%} interval of one complete run")
    return notes


def mark_absent(axes: Any, table: pd.DataFrame, x: str | None = None) -> bool:
    """Mark configurations without a valid run by crosses at the bottom, and in the legend.

    Args:
        axes: The axes.
        table: The table of configurations.
        x: Column for the x axis; None: only the legend has a cross.

    Returns:
        Whether any configuration is without a valid run.
    """
    rows, colours = rows_without_runs(table), colour_numbers(table)
    where = column_values(rows, x) if x else np.full(len(rows), np.nan)
    heights: dict[float, int] = {}
    usual: Style = {"marker": "x", "linestyle": "none", "markersize": 6, "zorder": 4}
    for at_x, name in dict.fromkeys(zip(where, map(str, rows["platform"]), strict=True)):
        if not np.isnan(at_x):
            height = heights[at_x] = heights.get(at_x, -1) + 1
            colour = COLOURS[colours[name] % len(COLOURS)] if len(colours) > 1 else "0.3"
            at = axes.get_xaxis_transform()
            axes.plot([at_x], [0.03 + 0.04 * height], color=colour, transform=at, **usual)
    if len(rows):
        number = count_text(len(rows), "configuration")
        axes.plot([], [], color="0.3", label=f"{number} {ABSENT}", **usual)
    return len(rows) > 0


def format_plain(value: float) -> str:
    """Format a number without an exponent: 0.004, 60, 2000."""
    return str(np.format_float_positional(float(f"{value:.6g}"), trim="-"))


def use_plain_log(axes: Any, axis_name: str, free_share: float = 0.0) -> None:
    """Make an axis logarithmic with plain numbers, and add this to its label.

    Args:
        axes: The axes.
        axis_name: `x` or `y`.
        free_share: Share of the axis to leave empty below the values.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    getattr(axes, f"set_{axis_name}scale")("log")
    low, high = getattr(axes, f"get_{axis_name}lim")()
    if high < 1.2 * low:
        low, high = low / 1.5, high * 1.5
    getattr(axes, f"set_{axis_name}lim")(low * (low / high) ** free_share, high)
    axis = getattr(axes, f"{axis_name}axis")
    axis.set_label_text(f"{axis.get_label_text()}, log scale")
    digits = (1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_major_formatter(lambda value, _: format_plain(value))
    axis.set_minor_locator(NullLocator())


def use_value_ticks(axes: Any, tick_values: Iterable[float]) -> None:
    """Make the x axis logarithmic, with ticks at these values, such as numbers of nodes."""
    from matplotlib.ticker import FixedLocator, NullLocator

    known = sorted({float(value) for value in tick_values if value > 0})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(known, nbins=VALUE_TICKS_MAX))
    axes.xaxis.set_major_formatter(lambda value, _: format_plain(value))
    axes.xaxis.set_minor_locator(NullLocator())
    if known:
        factor = (known[-1] / known[0]) ** 0.06 if len(known) > 1 else 2.0
        axes.set_xlim(known[0] / factor, known[-1] * factor)


def label_empty_axes(axes: Any, text: str = NOTHING) -> None:
    """Write a text into axes without data, and remove the ticks of their y axis."""
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
    axes.yaxis.set_ticks([])
    axes.minorticks_off()


def add_legend_and_notes(
    figure: Figure, axes: Any, tables: Tables, notes: Sequence[str] = ()
) -> Figure:
    """Add a legend and notes below a figure, which becomes higher by their height.

    Args:
        figure: The figure.
        axes: The axes, or a list of axes, whose labelled artists the legend lists.
        tables: The tables, with footnotes that follow the notes.
        notes: The notes.

    Returns:
        The same figure.
    """
    from matplotlib.lines import Line2D

    entries = _legend_entries(axes if isinstance(axes, list) else [axes])
    width = max((len(label) for _, label in entries), default=0)
    columns = 3 if width <= 14 else 2 if width <= 26 else 1
    columns = min(columns, max(1, len(entries)))
    texts = [wrap_lines(label, _LEGEND_COLUMNS) for _, label in entries]
    rows = -(-len(texts) // columns)
    lines = sum(text.count("\n") + 1 for text in texts) if columns == 1 else rows
    more = len(hidden_artists(figure))
    hint = [f"{count_text(more, 'more line')}: to choose on the page"] * bool(more)
    below = "\n".join(wrap_lines(n, _NOTE_COLUMNS) for n in [*notes, *hint, *tables.footnotes])
    legend_inches = _LINE_INCHES * lines + 0.12 if texts else 0.0
    notes_inches = _LINE_INCHES * (below.count("\n") + 1) + 0.12 if below else 0.0
    above, under = figure.get_figheight(), legend_inches + notes_inches
    height = above + under
    figure.set_size_inches(WIDTH, height)
    layout: Any = figure.get_layout_engine()
    layout.set(rect=(0, under / height, 1, above / height))
    if entries:
        style: dict[str, Any] = {**_LEGEND, "bbox_to_anchor": (0.01, under / height)}
        style |= {"ncols": columns, "labelspacing": 0.25}
        legend = figure.legend([h for h, _ in entries], texts, **style)
        legend.set_in_layout(False)
        for text, (_, label) in zip(legend.get_texts(), entries, strict=True):
            text.set_gid(f"{_ENTRY}{label}")
    if below:
        style = {**_LEGEND, "bbox_to_anchor": (0.01, notes_inches / height), "labelcolor": "0.3"}
        style |= {"handlelength": 0, "handletextpad": 0}
        blank = Line2D([], [], linestyle="none")
        figure.legend([blank], [below], **style).set_in_layout(False)
    return figure


def _legend_entries(several_axes: Sequence[Any]) -> list[tuple[Any, str]]:
    """Return (artist, label) once for each label of the axes.

    Points and bars come first, then marks that explain, such as a line for the ideal value.
    """
    labelled: dict[str, Any] = {}
    for axes in several_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    entries = [(handle, label) for label, handle in labelled.items()]
    # points with error bars and bars are tuples of artists: these first, explanations after them
    return sorted(entries, key=lambda entry: not isinstance(entry[0], tuple))


def wrap_lines(text: str, width: int) -> str:
    """Return the text with line breaks after at most `width` characters; existing ones stay."""
    return "\n".join(
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, width, subsequent_indent="    ") or [""]
    )


#: Dots per inch of SVG in matplotlib.
_SVG_DPI = 72


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG with tooltips, and fix its layout; equal figures give equal texts."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    # `savefig` draws a figure with a layout engine twice, the first time only for the layout
    FigureCanvasSVG(figure)
    figure.set_dpi(_SVG_DPI)
    if layout := figure.get_layout_engine():
        layout.execute(figure)
        figure.set_layout_engine(None)
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
    style = matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tfscaling"})
    with style, io.StringIO() as file:
        figure.savefig(file, format="svg", metadata=metadata)
        return _add_tip_titles(file.getvalue())


#: Pattern for a tab in an attribute, which may be written as a character reference.
_TAB = r"(?:\t|&#0*9;|&#x0*9;)"


def _add_tip_titles(svg: str) -> str:
    """Return the SVG, with the gids from `set_tip` and `mark_as_line` as titles and attributes.

    Browsers show a title when the pointer is on its element. Parts of lines have the attribute
    `data-line` and entries of the legend `data-entry`, with the label of the line. Hidden lines
    have `display="none"`.
    """
    # an attribute whose value has double quotes is written in single ones
    svg = re.sub(
        "<g id='([^']*)'", lambda found: f'<g id="{found[1].replace(chr(34), "&quot;")}"', svg
    )
    start, label = f'<g id="{_LINE}', '([^"]*?)'
    svg = re.sub(rf"{start}{label}{_TAB}{_TAB}", r'<g data-line="\1" id="', svg)
    svg = re.sub(
        rf"{start}{label}{_TAB}{_HIDDEN}{_TAB}", r'<g data-line="\1" display="none" id="', svg
    )
    svg = re.sub(rf'id="{_ENTRY}([^"]*)"', r'data-entry="\1"', svg).replace(' id="">', ">")
    return re.sub(rf'id="{_TIP}([^"]*)">', r'class="tip"><title>\1</title>', svg)
