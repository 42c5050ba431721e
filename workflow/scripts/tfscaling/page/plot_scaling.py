"""Plots of time over nodes: execution time, speed-up, efficiency, phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfscaling.estimation.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.estimation.samples import NOT_MEASURED
from tfscaling.page import plot_figure
from tfscaling.page.plot_figure import Series, Tables, column_values
from tfscaling.record.metrics import METRICS
from tfscaling.record.phases import PHASES
from tfscaling.study.config_types import POINT_AXES
from tfscaling.tables.display import (
    axis_text,
    count_text,
    join_lines,
    measured_time_text,
    name_with_unit,
)
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, points_of
from tfscaling.tables.runs_table import SERIES_AXES
from tfscaling.tables.table_files import to_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Style of thin lines without marks.
_THIN = {"linewidth": 0.8, "marker": "none", "linestyle": "-"}
#: Highest number of characters in a line of a bar's name.
_BAR_COLUMNS = 36
#: Highest number of bars in a plot: more would be several screens high.
_BARS_MAX = 50
#: Style of ideal values.
_IDEAL = {**_THIN, "color": "0.7", "zorder": 1}
_INTERVAL_OF_RATIO = (
    f"bars: {CONFIDENCE:.0%} bootstrap interval, where both configurations have "
    f"{RUNS_FOR_INTERVAL} runs"
)
_NO_BASELINE = "no baseline measured"

#: Phase that is drawn → its colour and hatch.
PHASE_STYLES = {
    "launch_time_s": ("#BBBBBB", "////"),
    "import_time_s": ("#E69F00", ""),
    "rendezvous_time_s": ("#D55E00", "xxxx"),
    "data_time_s": ("#F0E442", ""),
    "build_time_s": ("#CC79A7", "...."),
    "preparation_time_s": ("#44AA99", "----"),
    "first_step_time_s": ("#009E73", "\\\\\\\\"),
    "train_time_s": ("#56B4E9", ""),
    "program_time_s": ("#999933", "...."),
    "checkpoint_time_s": ("#882255", ""),
    "evaluation_time_s": ("#0072B2", "////"),
}


def _plot_over_nodes(
    tables: Tables, title: str, label: str, column: str
) -> tuple[Figure, Any, list[tuple[Series, pd.DataFrame]], bool]:
    """Plot a column against the nodes, with a line for each series.

    Args:
        tables: The tables.
        title: Title of the figure.
        label: Label of the y axis.
        column: Column of the comparison.

    Returns:
        Figure, axes, the drawn series with their rows that have a value, and whether a
        configuration without a valid run is marked.
    """
    figure, (axes,) = plot_figure.make_panels(title, "nodes", [label])
    lines = []
    for line in plot_figure.drawn_series(tables):
        rows = line.rows[np.isfinite(column_values(line.rows, column))]
        if len(rows):
            with plot_figure.mark_as_line(axes, line):
                plot_figure.draw_points(axes, tables, rows, "nodes", column, line.label, line.style)
            lines.append((line, rows))
    plot_figure.use_value_ticks(axes, column_values(tables.comparison, "nodes"))
    has_absent = plot_figure.mark_absent(axes, tables.comparison, "nodes")
    return figure, axes, lines, has_absent


def execution_time(tables: Tables, title: str) -> Figure:
    """Plot execution time over nodes, with ideal scaling of each line and published times."""
    table, time = tables.comparison, "execution_time_s"
    figure, axes, lines, has_absent = _plot_over_nodes(tables, title, "execution time (s)", time)
    axes.set_yscale("log")
    for line, rows in lines:
        if len(rows) > 1:
            ideal = _ideal_times_s(rows)
            style = {**_THIN, "color": line.style["color"], "alpha": 0.5}
            with plot_figure.mark_as_line(axes, line):
                axes.plot(rows["nodes"], ideal, **style)
    hollow = {"linestyle": ":", "markerfacecolor": "none", "linewidth": 0.8, "markersize": 5}
    any_published = bool((column_values(table, f"published_{time}") > 0).any())
    for line in plot_figure.drawn_series(tables):
        known = line.rows[column_values(line.rows, f"published_{time}") > 0]
        if len(known):
            with plot_figure.mark_as_line(axes, line):
                xs, ys = (known[name].to_numpy(float) for name in ("nodes", f"published_{time}"))
                axes.plot(xs, ys, **{**line.style, **hollow})
                texts = [
                    f"{axis_text('nodes', row)}, {line.label}: published {seconds:.4g} s"
                    for row, seconds in zip(to_rows(PointRow, known), ys, strict=True)
                ]
                plot_figure.add_tips(axes, xs, ys, texts)
    if any(len(rows) > 1 for _, rows in lines):
        axes.plot(
            [],
            [],
            **_THIN,
            color="0.5",
            label="ideal: same start-up, training shared by all nodes",
        )
    if any_published:
        axes.plot([], [], color="0.3", marker="o", label="published", **hollow)
    if lines or any_published:
        plot_figure.use_plain_log(axes, "y", 0.08 * has_absent)
    else:
        plot_figure.label_empty_axes(axes, _why_no_times(table))
    notes = plot_figure.error_bar_notes(tables, time)
    if any_published and not lines:
        notes = [_why_no_times(table)]
    notes += plot_figure.line_notes(tables)
    return plot_figure.add_legend_and_notes(figure, axes, tables, notes)


def _ideal_times_s(rows: pd.DataFrame) -> np.ndarray:
    """Return the ideal execution time, in seconds, of each configuration of a line of the plot.

    The first configuration has its measured time. For the others, its training time is divided by
    how many times as many replicas they have, and the rest of its execution time is added.
    """
    whole_s, training_s = (
        column_values(rows, "execution_time_s")[0],
        column_values(rows, "train_time_s")[0],
    )
    divided_s = training_s if 0 < training_s <= whole_s else whole_s
    replicas = column_values(rows, "replicas")
    return np.asarray(whole_s - divided_s + divided_s * replicas[0] / replicas)


def metric_over_nodes(tables: Tables, title: str, name: str) -> Figure:
    """Plot a metric over nodes, and mark configurations without a valid run.

    Args:
        tables: The tables.
        title: Title of the figure.
        name: The metric.
    """
    table, metric = tables.comparison, METRICS[name]
    label = name_with_unit(metric.title, metric.unit)
    figure, axes, lines, _ = _plot_over_nodes(tables, title, label, name)
    if not lines:
        nothing = not len(plot_figure.rows_with_runs(table))
        plot_figure.label_empty_axes(
            axes, plot_figure.NOTHING if nothing else f"no {metric.title} measured"
        )
    notes = plot_figure.error_bar_notes(tables, name) if f"{name}_low" in table else []
    notes += plot_figure.line_notes(tables)
    return plot_figure.add_legend_and_notes(figure, axes, tables, notes)


def ratio(tables: Tables, title: str, name: str) -> Figure:
    """Plot speed-up or an efficiency over nodes, with its ideal value.

    Args:
        tables: The tables.
        title: Title of the figure.
        name: `speedup` or the name of an efficiency.
    """
    is_speedup, table = name == "speedup", tables.comparison
    y = "speed-up over the baseline" if is_speedup else METRICS[name].title
    figure, axes, lines, has_absent = _plot_over_nodes(tables, title, y, name)
    axes.set_yscale("log" if is_speedup else "linear")
    if lines:
        text = "as fast as the baseline" if is_speedup else "ideal"
        axes.axhline(1.0, color="0.4", linewidth=1.2, zorder=1, label=text)
    if lines and is_speedup:
        both = (
            (rows, column_values(rows, name) / column_values(rows, "scaling_efficiency"))
            for _, rows in lines
        )
        ideals = {tuple(zip(rows["nodes"], ideal.round(6), strict=True)) for rows, ideal in both}
        for each in sorted(ideals):
            axes.plot(*zip(*each, strict=True), **_IDEAL)
        axes.plot([], [], **_IDEAL, label="ideal: replicas over the baseline's")
        plot_figure.use_plain_log(axes, "y", 0.08 * has_absent)
    elif lines:
        axes.set_ylim(0, max(1.05, axes.get_ylim()[1]))
    else:
        timed = plot_figure.rows_with_times(table)
        plot_figure.label_empty_axes(axes, _NO_BASELINE if len(timed) else _why_no_times(table))
    drawn = {line.key for line, _ in lines}
    without: dict[str, list[str]] = {}
    for line in plot_figure.drawn_series(tables):
        if line.key not in drawn and len(found := plot_figure.rows_with_runs(line.rows)):
            without.setdefault(_why_no_ratio(found, name), []).append(line.label)
    notes = _describe_baselines(table)
    notes += [f"not shown, {why}: {'; '.join(labels)}" for why, labels in without.items()]
    if lines and np.isfinite(column_values(table, f"{name}_low")).any():
        notes.append(_INTERVAL_OF_RATIO)
    notes += plot_figure.line_notes(tables)
    return plot_figure.add_legend_and_notes(figure, axes, tables, notes)


def _why_no_times(table: pd.DataFrame) -> str:
    """Return why no configuration has a time: no valid run, or none whose times count.

    Empty axes show this text.
    """
    return plot_figure.NO_TIMES if len(plot_figure.rows_with_runs(table)) else plot_figure.NOTHING


def _why_no_ratio(points: pd.DataFrame, name: str) -> str:
    """Return why these configurations have no speed-up or efficiency.

    Args:
        points: Measured configurations.
        name: `speedup` or the name of an efficiency.
    """
    if name == "weak_scaling_efficiency":
        if points["batch_scaling"].eq("strong").all():
            return "the same global batch on any number of nodes"
        if not (column_values(points, "throughput_examples_per_s") > 0).any():
            return "no throughput"
    elif points["same_work"].eq(False).all():
        return "other work than the baseline"
    return _NO_BASELINE if len(plot_figure.rows_with_times(points)) else plot_figure.NO_TIMES


def _describe_baselines(table: pd.DataFrame) -> list[str]:
    """Return a text for each baseline with its time: "baseline 1 node, CPU: cluster 60.0 s"."""
    titles, vary = plot_figure.platform_titles(table), plot_figure.axes_that_vary(table)
    named = [axis for axis in SERIES_AXES if axis in vary]
    rows = [row for row in to_rows(PointRow, table) if row.baseline is not None]
    found: dict[str, dict[str, None]] = {str(row.baseline): {} for row in rows if row.runs}
    for row in rows:
        if row.baseline in found:
            words = [titles[row.platform]] * (len(titles) > 1)
            series = ", ".join([*words, *(str(row[axis]) for axis in named)])
            time_s = row.baseline_execution_time_s
            text = f"{time_s:.1f} s" if is_known(time_s) else NOT_MEASURED
            found[row.baseline][" ".join(filter(None, [series, text]))] = None
    return [f"baseline {text}: {'; '.join(entries)}" for text, entries in found.items()]


def time_split(tables: Tables, title: str) -> Figure:
    """Plot the phases of each configuration as a bar, a panel for each platform."""
    from matplotlib.figure import Figure

    table = tables.comparison
    planned = _points_with_bars(tables)
    if not len(plot_figure.rows_with_runs(table)):
        figure, (axes,) = plot_figure.make_panels(title, "time (s)", [""])
        axes.set_xticks([])
        plot_figure.mark_absent(axes, table)
        plot_figure.label_empty_axes(axes)
        return plot_figure.add_legend_and_notes(figure, axes, tables)
    groups = list(planned.groupby("platform", sort=False))
    names = [_bar_names(rows) for _, rows in groups]
    lines = max(text.count("\n") + 1 for own in names for text in own)
    sizes = [len(rows) * max(1.0, 0.6 * lines) + 0.6 for _, rows in groups]
    height = 0.9 + 0.24 * sum(sizes) + 0.4 * len(groups)
    figure = Figure(figsize=(plot_figure.WIDTH, height), layout="constrained")
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=sizes)[:, 0]
    titles = plot_figure.platform_titles(table)
    known = [
        column for column in PHASE_STYLES if not np.isnan(column_values(planned, column)).all()
    ]
    vary = plot_figure.axes_that_vary(table)
    for axes, (name, rows), own in zip(panels, groups, names, strict=True):
        texts = [axis_text(a, rows.iloc[0]) for a in vary if a not in _axes_in_bar_names(rows)]
        _draw_bars(axes, rows, own, known)
        if len(groups) > 1:
            axes.set_title(", ".join([titles[str(name)], *texts]), loc="left", fontsize="medium")
    figure.suptitle(title)
    scales = "; every panel has its own scale" if len(groups) > 1 else ""
    panels[-1].set_xlabel(f"time (s){scales}")
    plot_figure.mark_absent(panels[0], table)
    timed = [row for row in to_rows(PointRow, planned) if row.runs]
    times = sorted({measured_time_text(row, tables.imported_from) for row in timed})
    notes = [f"execution time: {', or '.join(times)}", "medians of the phases over the runs"]
    if others := int((table["status"] != "excluded").sum()) - len(planned):
        notes.append(f"{count_text(others, 'other configuration')}: in comparison.csv alone")
    return plot_figure.add_legend_and_notes(figure, panels[0], tables, notes)


def _points_with_bars(tables: Tables) -> pd.DataFrame:
    """Return the configurations that get a bar: at most _BARS_MAX, `tables.first` preferred."""
    planned = tables.comparison[tables.comparison["status"] != "excluded"]
    ranks = plot_figure.rank_lines(points_of(planned), tables.first)
    return planned[[ranks[point] < _BARS_MAX for point in points_of(planned)]]


def _axes_in_bar_names(rows: pd.DataFrame) -> list[str]:
    """Return the axes that distinguish the bars of a panel: nodes and others that differ."""
    return [axis for axis in POINT_AXES[1:] if axis == "nodes" or rows[axis].nunique() > 1]


def _bar_names(rows: pd.DataFrame) -> list[str]:
    """Return the label of each bar of a panel, with line breaks."""
    axes = _axes_in_bar_names(rows)
    texts = [", ".join(axis_text(axis, row) for axis in axes) for row in to_rows(PointRow, rows)]
    return [plot_figure.wrap_lines(text, _BAR_COLUMNS) for text in texts]


def _draw_bars(axes: Any, rows: pd.DataFrame, texts: Sequence[str], phases: Sequence[str]) -> None:
    """Draw one bar per row from top to bottom; rows without times get a text.

    Args:
        axes: The panel.
        rows: Its configurations.
        texts: Their names.
        phases: The phases that were measured.
    """
    position = np.arange(len(rows))
    left = np.zeros(len(rows))
    for column in phases:
        colour, hatch = PHASE_STYLES[column]
        width = np.nan_to_num(column_values(rows, column)).clip(0)
        style = {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.3}
        label = PHASES[column].label
        drawn = axes.barh(position, width, left=left, height=0.75, label=label, **style)
        for bar, seconds, name in zip(drawn, width, texts, strict=True):
            plot_figure.set_tip(bar, f"{join_lines(name)}: {label} {seconds:.3g} s")
        left += width
    axes.set_yticks(position, texts)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.02 * left.max() or 1.0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    usual = {"textcoords": "offset points", "va": "center"}
    timed = plot_figure.rows_with_times(rows).index
    for at, (index, row) in zip(position, rows.iterrows(), strict=True):
        if index not in timed:
            why = plot_figure.NO_TIMES if row["runs"] > 0 else f"× {row['status']}"
            axes.annotate(why, (0, at), (3, 0), **usual)
