"""The lines of a plot: which points, their label, colour and marker.

A platform has the same colour in every plot; markers and line styles distinguish its lines. If
there is only one platform, colours distinguish them, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tfscaling.spec.config import LINE_AXES, POINT_AXES
from tfscaling.tables.display import axis_text, count, value
from tfscaling.tables.rows import PointRow
from tfscaling.tables.table_rows import (
    counted_by,
    metric_of,
    typed,
)

#: Okabe and Ito's colours and, after them, Tol's muted ones: colour-blind readers can distinguish
#: them. Black and yellow are left out: black is for published values, yellow is too pale.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#332288", "#882255", "#999933", "#44AA99", "#CC6677", "#666666"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "<", "p", ">", "h")
#: A name, or offset and lengths of dashes and gaps in points.
LineStyle = str | tuple[float, tuple[int, ...]]
#: How matplotlib draws a line or marks: the keyword arguments of an artist.
Style = dict[str, LineStyle | float]
#: Dotted lines are for published values.
LINESTYLES: tuple[LineStyle, ...] = (
    "-",
    "--",
    "-.",
    (0, (6, 2, 1, 2, 1, 2)),
)


@dataclass(frozen=True)
class Tables:
    """What plots are drawn from: comparison.csv, epochs.csv, and published.csv and search.csv.

    The last two may be empty. `footnotes` are at the foot of every plot, before its own notes.
    """

    comparison: pd.DataFrame
    epochs: pd.DataFrame
    published: pd.DataFrame
    footnotes: Sequence[str] = ()
    search: pd.DataFrame = field(default_factory=pd.DataFrame)


@dataclass(frozen=True)
class Series:
    """One line: `rows` are its points by nodes, those without a valid run too."""

    key: tuple[str, ...]
    label: str
    style: Style
    rows: pd.DataFrame


def values(rows: pd.DataFrame, name: str) -> np.ndarray:
    """A column as floats: NaN for what is missing, even if the whole column is."""
    if name not in rows:
        return np.full(len(rows), np.nan)
    return pd.to_numeric(rows[name], errors="coerce").to_numpy(float)


def measured(table: pd.DataFrame) -> pd.DataFrame:
    """The points that have a valid run."""
    return table[values(table, "runs") > 0]


def timed(table: pd.DataFrame) -> pd.DataFrame:
    """The points that have a time: not those whose runs all went on from a checkpoint."""
    return table[np.isfinite(values(table, "execution_time_s"))]


def absent(table: pd.DataFrame) -> pd.DataFrame:
    """The points that failed, are missing or were excluded."""
    return table[~(values(table, "runs") > 0)]


def of_other_work(table: pd.DataFrame) -> pd.Series[bool]:
    """Which points do not train as many examples as their baseline: no plot ranks them."""
    return table["same_work"].map(lambda same: pd.notna(same) and not same).astype(bool)


def point_style(platform: int, number: int, is_only: bool) -> Style:
    """The style of line `number` of a platform with the colour number `platform`.

    `is_only`: there is no other platform. Earlier lines have larger markers, so that those at the
    same place are seen.
    """
    return {
        "color": COLOURS[(number if is_only else platform) % len(COLOURS)],
        "marker": MARKERS[(platform + number) % len(MARKERS)],
        "linestyle": LINESTYLES[number % len(LINESTYLES)],
        "markersize": max(4.5, 7.5 - number),
    }


def colour_numbers(table: pd.DataFrame) -> dict[str, int]:
    """Platform → the number of its colour: its position among the platforms of the table."""
    return {str(name): number for number, name in enumerate(table["platform"].unique())}


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
    titles, colours, shown = platform_titles(table), colour_numbers(table), varying(table)
    counts: dict[str, int] = {}
    lines = []
    for keys, rows in table.groupby([*LINE_AXES], sort=False, dropna=False):
        point = dict(zip(LINE_AXES, keys, strict=True))
        name = str(point["platform"])
        number = counts[name] = counts.get(name, -1) + 1
        texts = [axis_text(axis, rows.iloc[0]) for axis in LINE_AXES if axis in shown]
        lines.append(
            Series(
                tuple(map(str, keys)),
                line_label(titles, name, texts),
                point_style(colours[name], number, len(colours) == 1),
                rows.sort_values("nodes"),
            )
        )
    return lines


def line_label(titles: Mapping[str, str], platform: str, texts: Sequence[str]) -> str:
    """What the line is called: an only platform is named where nothing else is."""
    return ", ".join(texts) if len(titles) == 1 and texts else ", ".join([titles[platform], *texts])


def tips(rows: pd.DataFrame, label: str, *names: str) -> list[str]:
    """A text for each point of a line: its nodes, the line, the values of these metrics, its runs.

    Where not all runs have times, and there is one of these metrics that goes by them, it says how
    many have.
    """
    columns = {counted_by(name) for name in names}
    texts = []
    for row in typed(PointRow, rows):
        runs = count(row.runs, "run")
        if "runs_timed" in columns and row.runs_timed < row.runs:
            runs += f", {row.runs_timed} with times"
        values = ", ".join(f"{metric_of(name, row).title} {value(name, row)}" for name in names)
        texts.append(f"{axis_text('nodes', row)}, {label}: {values} ({runs})")
    return texts


def spread(rows: pd.DataFrame, name: str) -> np.ndarray:
    """Lengths of the error bars, below and above: the interval, else the range of several runs."""
    middle, several = values(rows, name), values(rows, counted_by(name)) > 1
    ends = []
    for end, whole in (("low", "min"), ("high", "max")):
        interval, whole_range = values(rows, f"{name}_{end}"), values(rows, f"{name}_{whole}")
        ends.append(np.where(np.isnan(interval), whole_range, interval))
    both = np.abs(np.stack([middle - ends[0], ends[1] - middle]))
    return np.where(several, both, np.nan)
