"""What all plots share: series, colours, labels, ticks, legends, files.

A platform has the same colour in every plot; markers and line styles tell its series apart.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfscaling.study.grid import LINE_AXES, POINT_AXES
from tfscaling.tables.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.wording import axis_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito's colours and, after them, Tol's muted ones: colour-blind readers can tell them
#: apart. Black and yellow are left out: black is for published values, yellow is too pale.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#332288", "#882255", "#999933", "#44AA99", "#CC6677", "#666666"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "<", "p", ">", "h")
#: Dotted lines are for published values.
LINESTYLES: tuple[Any, ...] = ("-", "--", "-.", (0, (6, 2, 1, 2, 1, 2)))
ABSENT = "without a valid run: see the table"
NOTHING = "nothing measured yet"
INTERVAL_OF_MEDIAN = (
    f"bars: {CONFIDENCE:.0%} interval of the median; of fewer than {RUNS_FOR_INTERVAL} runs the "
    "range; of one run none"
)
_LEGEND: dict[str, Any] = {"fontsize": "small", "frameon": False}
AXES_WIDTH = 6.0  # inches


@dataclass(frozen=True)
class Tables:
    """What plots are drawn from: comparison.csv, epochs.csv and published.csv (may be empty).

    `footnotes` stand at the foot of every plot, before its own notes.
    """

    comparison: pd.DataFrame
    epochs: pd.DataFrame
    published: pd.DataFrame
    footnotes: Sequence[str] = ()


@dataclass(frozen=True)
class Series:
    """One line: `rows` are its points by nodes, those without a valid run too."""

    key: tuple[str, ...]
    label: str
    style: dict[str, Any]
    rows: pd.DataFrame


def values(rows: pd.DataFrame, name: str) -> np.ndarray:
    """A column as floats: NaN for what is missing, even if the whole column is."""
    if name not in rows:
        return np.full(len(rows), np.nan)
    return pd.to_numeric(rows[name], errors="coerce").to_numpy(float)


def measured(table: pd.DataFrame) -> pd.DataFrame:
    """The points that have a valid run."""
    return table[values(table, "runs") > 0]


def absent(table: pd.DataFrame) -> pd.DataFrame:
    """The points that failed, are missing or were excluded."""
    return table[~(values(table, "runs") > 0)]


def of_other_work(table: pd.DataFrame) -> pd.Series[bool]:
    """Which points do not train as many examples as their baseline: no plot ranks them."""
    return table["same_work"].map(lambda same: pd.notna(same) and not same).astype(bool)


def point_style(platform: int, number: int) -> dict[str, Any]:
    """The style of line `number` of the platform in place `platform`."""
    return {
        "color": COLOURS[platform % len(COLOURS)],
        "marker": MARKERS[(platform + number) % len(MARKERS)],
        "linestyle": LINESTYLES[number % len(LINESTYLES)],
    }


def places(table: pd.DataFrame) -> dict[str, int]:
    """Platform → its place in the table, which gives it its colour."""
    return {str(name): place for place, name in enumerate(table["platform"].unique())}


def platform_titles(table: pd.DataFrame) -> dict[str, str]:
    """Platform → its title; its name if it has no title or shares it with another."""
    titles = {}
    for name, rows in table.groupby("platform", sort=False):
        known = rows["platform_title"].dropna() if "platform_title" in rows else ()
        titles[str(name)] = str(next(iter(known), name))
    shared = [*titles.values()]
    return {name: title if shared.count(title) == 1 else name for name, title in titles.items()}


def varying(table: pd.DataFrame) -> list[str]:
    """The axes in which the measured points differ, without the platform."""
    rows = measured(table)
    return [axis for axis in POINT_AXES if axis != "platform" and rows[axis].nunique() > 1]


def series(table: pd.DataFrame) -> list[Series]:
    """All lines over the nodes, in the order of the table."""
    titles, place, shown = platform_titles(table), places(table), varying(table)
    counts: dict[str, int] = {}
    found = []
    for keys, rows in table.groupby([*LINE_AXES], sort=False, dropna=False):
        point = dict(zip(LINE_AXES, keys, strict=True))
        name = str(point["platform"])
        number = counts[name] = counts.get(name, -1) + 1
        texts = [axis_text(axis, rows.iloc[0]) for axis in LINE_AXES if axis in shown]
        found.append(
            Series(
                tuple(map(str, keys)),
                ", ".join([titles[name], *texts]),
                point_style(place[name], number),
                rows.sort_values("nodes"),
            )
        )
    return found


def spread(rows: pd.DataFrame, name: str) -> np.ndarray:
    """Lengths of the error bars, below and above: the interval, else the range of several runs."""
    middle, several = values(rows, name), values(rows, "runs") > 1
    ends = []
    for end, whole in (("low", "min"), ("high", "max")):
        interval, whole_range = values(rows, f"{name}_{end}"), values(rows, f"{name}_{whole}")
        ends.append(np.where(np.isnan(interval), whole_range, interval))
    both = np.abs(np.stack([middle - ends[0], ends[1] - middle]))
    return np.where(several, both, np.nan)


def panels(title: str, x: str, ys: Sequence[str]) -> tuple[Figure, list[Any]]:
    """A figure with one panel per entry of `ys`, above each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(AXES_WIDTH, 4.5 if len(ys) == 1 else 3.3 * len(ys)))
    figure.set_layout_engine("constrained", h_pad=0.08)
    found = figure.subplots(len(ys), 1, squeeze=False)[:, 0].tolist()
    for axes, y in zip(found, ys, strict=True):
        axes.set_ylabel(y)
        axes.grid(alpha=0.3)
    found[0].set_title(title)
    found[-1].set_xlabel(x)
    return figure, found


def plain(value: float) -> str:
    """A number without an exponent: 0.004, 60, 2000."""
    return str(np.format_float_positional(float(f"{value:.6g}"), trim="-"))


def log_ticks(low: float, high: float) -> list[float]:
    """At most nine round values between the ends of a logarithmic axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    sets = ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 4, 6), (1, 2, 5), (1, 3), (1,))
    for number, steps in enumerate(sets):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if number == 0 and len(ticks) < 3:
            from matplotlib.ticker import MaxNLocator

            ticks = [float(tick) for tick in MaxNLocator(5).tick_values(low, high)]
            return [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 9:
            return ticks
    return ticks[:: math.ceil(len(ticks) / 9)]


def plain_log(axes: Any, which: str, room: float = 0.0) -> None:
    """Make an axis logarithmic with plain labels; `room` is the share left empty below."""
    getattr(axes, f"set_{which}scale")("log")
    low, high = getattr(axes, f"get_{which}lim")()
    if high < 1.2 * low:
        low, high = low / 1.5, high * 1.5
    low *= (low / high) ** room
    ticks = log_ticks(low, high)
    getattr(axes, f"set_{which}lim")(low, high)
    getattr(axes, f"set_{which}ticks")(ticks, [plain(tick) for tick in ticks])
    getattr(axes, f"{which}axis").minorticks_off()


def value_ticks(found: Sequence[float], width: float = AXES_WIDTH * 0.8) -> list[float]:
    """Those of the sorted values whose labels fit beside each other on a logarithmic axis."""
    if len(found) < 2:
        return [*found]

    def gap(left: float, right: float) -> bool:
        inches = width * math.log(right / left) / math.log(found[-1] / found[0])
        return inches > 0.045 * (len(plain(left)) + len(plain(right))) + 0.05

    kept = [found[0]]
    for value in found[1:-1]:
        if gap(kept[-1], value) and gap(value, found[-1]):
            kept.append(value)
    return [*kept, found[-1]]


def value_axis(axes: Any, found: Iterable[float]) -> None:
    """A logarithmic x axis whose ticks are the values themselves, as node counts."""
    known = sorted({float(value) for value in found if value > 0})
    axes.set_xscale("log")
    if not known:
        axes.set_xticks([])
        return
    factor = (known[-1] / known[0]) ** 0.06 if len(known) > 1 else 2.0
    ticks = value_ticks(known)
    axes.set_xticks(ticks, [plain(value) for value in ticks])
    axes.xaxis.minorticks_off()
    axes.set_xlim(known[0] / factor, known[-1] * factor)


def mark_absent(axes: Any, table: pd.DataFrame, x: str | None = None) -> bool:
    """A cross at the foot of the axes for each point without a valid run, where `x` says.

    Without an `x` the cross stands in the legend only. Returns whether there is any such point.
    """
    rows, place = absent(table), places(table)
    where = values(rows, x) if x else np.full(len(rows), np.nan)
    heights: dict[float, int] = {}
    usual: dict[str, Any] = {"marker": "x", "linestyle": "none", "markersize": 6, "zorder": 4}
    for value, name in dict.fromkeys(zip(where, map(str, rows["platform"]), strict=True)):
        if not np.isnan(value):
            height = heights[value] = heights.get(value, -1) + 1
            colour = COLOURS[place[name] % len(COLOURS)]
            at = axes.get_xaxis_transform()
            axes.plot([value], [0.03 + 0.04 * height], color=colour, transform=at, **usual)
    if len(rows):
        number = f"{len(rows)} point{'s' if len(rows) > 1 else ''} "
        axes.plot([], [], color="0.3", label=number + ABSENT, **usual)
    return len(rows) > 0


def say(axes: Any, text: str = NOTHING) -> None:
    """A word in the middle of empty axes, whose y axis says nothing."""
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
    axes.yaxis.set_ticks([])
    axes.minorticks_off()


def finish(
    figure: Figure, axes: Any, tables: Tables, notes: Sequence[str] = (), rows: float = 0.0
) -> None:
    """Legend at the right, the footnotes of `tables` and these notes below.

    The figure becomes as large as they need. The legend has what is labelled in `axes`; `rows` is
    the least height in inches.
    """
    from matplotlib.lines import Line2D

    entries = list(zip(*axes.get_legend_handles_labels(), strict=True))
    # points with error bars and bars are tuples of artists: these first, explanations after them
    entries.sort(key=lambda entry: not isinstance(entry[0], tuple))
    handles, labels = [handle for handle, _ in entries], [wrapped(text, 60) for _, text in entries]
    lines = [line for label in labels for line in label.split("\n")]
    beside = 0.6 + 0.066 * max(map(len, lines), default=0) if lines else 0.0
    columns = int((AXES_WIDTH + beside) / 0.068)
    below = [
        line for note in [*tables.footnotes, *notes] for line in wrapped(note, columns).split("\n")
    ]
    height = max(figure.get_figheight(), rows, 0.5 + 0.18 * len(lines))
    figure.set_size_inches(AXES_WIDTH + beside, height + 0.16 * len(below))
    if handles:
        figure.legend(handles, labels, loc="outside right upper", **_LEGEND)
    if below:
        style = {"loc": "outside lower left", "handlelength": 0, "handletextpad": 0, **_LEGEND}
        figure.legend([Line2D([], [], linestyle="none")], ["\n".join(below)], **style)


def wrapped(text: str, width: int) -> str:
    """Text in lines of at most `width` characters; its own line breaks stay."""
    return "\n".join(
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, width, subsequent_indent="    ") or [""]
    )


def save(figure: Figure, path: Path) -> None:
    """Write the figure; the same figure gives the same SVG, whose text is text."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tfscaling"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
