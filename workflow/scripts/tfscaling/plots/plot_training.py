"""Plots of how well a model learned: loss and accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfscaling.plots import plot_axes, plot_figure, plot_series
from tfscaling.plots.plot_series import Style, Tables, values
from tfscaling.records.run_states import RunState
from tfscaling.study.config import POINT_AXES
from tfscaling.tables.table_rows import point_of, points_of, rows_of
from tfscaling.tables.wording import axis_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("loss", "accuracy")
#: With more points than this the lines are thin and the legend names only the platforms.
MANY = 12
_BARS = {"capsize": 2, "markersize": 5, "elinewidth": 1, "linewidth": 1}
_PUBLISHED: Style = {
    **{"color": "black", "marker": "o", "linestyle": "none", "markerfacecolor": "none"},
    **{"markersize": 4, "markeredgewidth": 0.8, "zorder": 3},
}


def loss_accuracy(tables: Tables, title: str) -> Figure:
    """Loss and accuracy over the global batch, measured and published."""
    table, published, batch = tables.comparison, tables.published, "global_batch_size"
    figure, panels = plot_figure.panels(title, "global batch (examples)", NAMES)
    some_absent = len(plot_series.absent(table)) > 0
    lines = plot_series.series(table)
    if all(len(line.rows) == 1 for line in lines):  # one recipe for each batch: one line of all
        lines = plot_series.series(table.assign(recipe="any"))
    for axes, name in zip(panels, NAMES, strict=True):
        for line in lines:
            rows = line.rows[np.isfinite(values(line.rows, name) + values(line.rows, batch))]
            rows = rows.sort_values(batch)
            if len(rows):
                axes.errorbar(
                    values(rows, batch),
                    values(rows, name),
                    yerr=plot_series.spread(rows, name),
                    label=line.label,
                    **_BARS,
                    **line.style,
                )
        known = np.isfinite(values(published, f"published_{name}") + values(published, batch))
        if known.any():
            axes.plot(
                values(published, batch)[known],
                values(published, f"published_{name}")[known],
                label="published",
                **_PUBLISHED,
            )
        both = [values(table, batch), values(published, batch)]
        plot_axes.value_axis(axes, np.concatenate(both))
        shown = np.isfinite(values(table, name)).any()
        _value_axis(axes, bool(shown or known.any()), 0.08 * some_absent)
        plot_figure.mark_absent(axes, table, batch)
    nothing = len(plot_series.measured(table)) == 0
    note = plot_figure.NOTHING if nothing else plot_figure.INTERVAL_OF_MEDIAN
    notes = [] if nothing and not len(published) else [note]
    plot_figure.finish(figure, panels[0], tables, notes)
    return figure


def epochs(tables: Tables, title: str) -> Figure:
    """Loss and accuracy of each epoch, one line per point, and hollow marks where held out."""
    from matplotlib.ticker import MaxNLocator

    table = tables.comparison
    # the last epoch of a run that diverged has no loss; those before are of a model that fails
    measured = tables.epochs[tables.epochs["status"] != RunState.DIVERGED]
    figure, panels = plot_figure.panels(title, "epoch", NAMES)
    lines = _lines(table, measured)
    repeated = evaluated = False
    for axes, name in zip(panels, NAMES, strict=True):
        for line in lines:
            style, rows = line.style, line.rows
            by_epoch = rows.assign(**{name: values(rows, name)}).groupby("epoch")[name]
            middle = by_epoch.median()
            axes.plot(middle.index, middle, label=line.label, **style)
            if by_epoch.count().max() > 1:
                repeated = True
                ends = by_epoch.min(), by_epoch.max()
                alpha = 0.06 if len(lines) > MANY else 0.15
                axes.fill_between(
                    middle.index, *ends, color=style["color"], alpha=alpha, linewidth=0
                )
            held_out = rows.assign(value=values(rows, f"test_{name}")).groupby("epoch")["value"]
            if not (marks := held_out.median().dropna()).empty:
                evaluated = True
                hollow = {"linestyle": "none", "markerfacecolor": "none", "markersize": 7}
                axes.plot(marks.index, marks, **style | hollow)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if not lines:
            axes.set_xticks([])
        if measured["epoch"].nunique() == 1:
            axes.set_xlim(measured["epoch"].iloc[0] - 1, measured["epoch"].iloc[0] + 1)
        _value_axis(axes, len(lines) > 0)
    plot_figure.mark_absent(panels[0], table)
    notes = ["lines: median over the repeats; bands: their range"] if repeated else []
    if evaluated:
        notes.append("hollow: on held-out examples after the epoch")
    if len(lines) > MANY:
        notes.append(f"{len(lines)} points, one line each")
    plot_figure.finish(figure, panels[0], tables, notes)
    return figure


@dataclass(frozen=True)
class _Line:
    """A point over its epochs; without a label it is not in the legend."""

    label: str | None
    style: Style
    rows: pd.DataFrame


def _lines(table: pd.DataFrame, measured: pd.DataFrame) -> list[_Line]:
    """The line of each point that has epochs, in the order of the table."""
    colours, titles = plot_series.colour_numbers(table), plot_series.platform_titles(table)
    vary = plot_series.varying(table)
    by_axes = measured.groupby([*POINT_AXES], sort=False)
    groups = [(points_of(rows)[0], rows) for _, rows in by_axes]
    many = len(groups) > MANY
    points = {point_of(row): row for row in rows_of(table)}
    counts: dict[str, int] = {}
    lines = []
    for key, rows in groups:
        point = points[key]
        name = str(point["platform"])
        number = counts[name] = counts.get(name, -1) + 1
        style = plot_series.point_style(colours[name], number)
        texts = [axis_text(axis, point) for axis in POINT_AXES if axis in vary]
        label: str | None = ", ".join([titles[name], *texts])
        if many:
            style |= {"linewidth": 0.7, "linestyle": "-", "marker": ".", "markersize": 3}
            label = titles[name] if number == 0 else None
        else:
            style |= {"linewidth": 1.3, "markersize": 5}
        lines.append(_Line(label, style, rows))
    return lines


def _value_axis(axes: Any, shown: bool, room: float = 0.0) -> None:
    """Plain numbers; a logarithmic axis where the values differ by much."""
    if not shown:
        plot_figure.say(axes)
        return
    low, high = axes.dataLim.intervaly
    if axes.get_ylabel() == "loss" and low > 0 and high > 8 * low:
        axes.set_yscale("log")
        plot_axes.plain_log(axes, "y", room)
        return
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom - room * (top - bottom), top)
    axes.ticklabel_format(axis="y", useOffset=False)
