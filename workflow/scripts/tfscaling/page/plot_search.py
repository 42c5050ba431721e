"""The race of a search: how many runs each point got, and how far it is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from tfscaling.page import plot_figure
from tfscaling.page.plot_figure import COLOURS, FONT_SIZE, Tables
from tfscaling.tables.columns import Cells
from tfscaling.tables.display import point_name, varying
from tfscaling.tables.table_rows import is_known, rows_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Place of a point → how its line is drawn and ends.
_STYLES = {
    "the answer": {"color": COLOURS[2], "marker": "*", "markersize": 11},
    "not excluded": {"color": COLOURS[0], "marker": "o", "markersize": 5},
    "excluded": {"color": "0.55", "marker": "X", "markersize": 5},
}
_INCHES, _AROUND = 0.21, 0.75


def race(tables: Tables, title: str) -> Figure:
    """A panel for each search: a line for each point as long as its runs."""
    table = tables.search
    if table.empty:
        return plot_figure.empty(tables, title, "runs")
    groups = [own for _, own in table.groupby("work", sort=False)]
    figure, every_axes = plot_figure.panels(title, "runs", [""] * len(groups))
    figure.set_figheight(sum(_INCHES * len(own) + _AROUND for own in groups))
    for axes, own in zip(every_axes, groups, strict=True):
        _draw(axes, own)
        if len(groups) > 1:
            axes.set_ylabel(str(own["work"].iloc[0]))
    plot_figure.mark_absent(every_axes[0], tables.comparison)
    notes = [
        "in percent: how far it is behind the answer, by estimate",
        "excluded: not the best; by how much it is worse is not said",
    ]
    plot_figure.finish(figure, every_axes, tables, notes)
    return figure


def _draw(axes: Any, table: pd.DataFrame) -> None:
    rows = rows_of(table)
    vary = varying(rows)
    most = max(row["runs"] for row in rows)
    for height, row in enumerate(rows):
        style = _STYLES[row["place"]]
        runs = row["runs"]
        axes.plot([0, runs], [height] * 2, color=style["color"], linewidth=1.5)
        (end,) = axes.plot([runs], [height], linestyle="none", clip_on=False, **style)
        plot_figure.tip(end, f"{point_name(row, vary)}: {_told(row)}")
        if is_known(row["behind"]) and row["place"] != "the answer":
            at = {"xytext": (7, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(f"{row['behind']:+.0%}", (runs, height), fontsize=FONT_SIZE - 2, **at)
    for place, style in _STYLES.items():
        if place in set(table["place"]):
            axes.plot([], [], linestyle="none", label=place, **style)
    axes.set_yticks(range(len(rows)), [point_name(row, vary) for row in rows])
    axes.tick_params(axis="y", labelsize=FONT_SIZE - 2)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.2 * max(most, 2))
    axes.xaxis.get_major_locator().set_params(integer=True)


def _told(row: Cells) -> str:
    """What is shown at the pointer."""
    parts = [f"{row['place']}, {row['runs']:.0f} runs"]
    if row["why"]:
        parts.append(str(row["why"]))
    if is_known(row["node_hours"]):
        parts.append(f"{row['node_hours']:.3g} node-hours")
    return "; ".join(parts)
