"""Plots of cost and quality over time, and of how well models learned: quality, loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd

from tfscaling.conclusions.evidence import group_by_task
from tfscaling.page import plot_figure
from tfscaling.page.plot_figure import FONT_SIZE, Style, Tables, column_values
from tfscaling.record.metrics import METRICS, QUALITY, Metric, quality_metric
from tfscaling.record.run_states import RunState
from tfscaling.study.config_types import POINT_AXES, Quality
from tfscaling.study.platforms import GPU, LOGICAL
from tfscaling.tables.display import name_with_unit
from tfscaling.tables.row_types import Cells, PointRow
from tfscaling.tables.row_values import (
    metric_of,
    points_of,
    qualities_by_metric,
    qualities_in_table,
)
from tfscaling.tables.table_files import to_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Text in axes without costs.
NO_PRICES = "no prices in config/platforms.yaml"
_TIME = "execution_time_s"
#: Notes below the plot of epochs.
_BANDS_NOTE = "lines: median over the repeats; bands: their range"
_MARKS_NOTE = "hollow: on held-out examples after the epoch"
#: Highest number of epochs of a line that have a tooltip.
_EPOCH_TIPS_MAX = 20


@dataclass(frozen=True)
class _Panel:
    """A panel of a plot over execution time.

    Attributes:
        name: Column of the table for the y axis.
        metric: The metric in this column.
        label: Label of the y axis.
        table: The configurations that the panel shows.
    """

    name: str
    metric: Metric
    label: str
    table: pd.DataFrame


def quality_time(tables: Tables, title: str) -> Figure:
    """Plot quality over execution time with Pareto sets, a panel for each metric of quality."""
    table = tables.comparison
    panels = []
    for quality in [*qualities_in_table(table).values()] or [Quality()]:
        metric = quality_metric(quality)
        rows = table[table["quality_metric"] == quality.metric]
        label = name_with_unit(metric.title, metric.unit)
        panels.append(_Panel(QUALITY, metric, label, rows))
    return _plot_against_time(tables, title, panels)


def cost_time(tables: Tables, title: str) -> Figure:
    """Plot the cost of a run over execution time, with the Pareto sets."""
    label = "cost of one run (US dollars)"
    panel = _Panel("cost_usd", METRICS["cost_usd"], label, tables.comparison)
    return _plot_against_time(tables, title, [panel])


def _plot_against_time(tables: Tables, title: str, panels: Sequence[_Panel]) -> Figure:
    """Return a figure with each panel's column plotted against the execution time.

    Args:
        tables: The tables.
        title: Title of the figure.
        panels: What each panel shows.
    """
    labels = [panel.label for panel in panels]
    figure, every_axes = plot_figure.make_panels(title, "execution time (s)", labels)
    figure.set_figheight(3.6 * len(panels))
    notes = []
    by_gpus = "gpus_per_node" in plot_figure.axes_that_vary(tables.comparison)
    nouns = {LOGICAL: "logical devices", GPU: "GPUs"}
    for axes, panel in zip(every_axes, panels, strict=True):
        shown = _draw_panel(axes, tables, panel, len(panels) > 1, by_gpus)
        if len(shown):
            kinds = " or ".join(nouns[kind] for kind in nouns if kind in set(shown["devices"]))
            per_node = f" × {kinds} per node; of CPUs the nodes alone" * by_gpus
            notes.append(f"labels: nodes{per_node}")
            notes += plot_figure.error_bar_notes(tables, _TIME, panel.name)
    notes += plot_figure.line_notes(tables)
    plot_figure.mark_absent(every_axes[0], tables.comparison)
    return plot_figure.add_legend_and_notes(figure, every_axes, tables, list(dict.fromkeys(notes)))


def _draw_panel(
    axes: Any, tables: Tables, panel: _Panel, legend_names_metric: bool, labels_have_gpus: bool
) -> pd.DataFrame:
    """Draw a panel; return the configurations that have a time and a value for the y axis.

    Args:
        axes: The panel's axes.
        tables: The tables.
        panel: What to draw.
        legend_names_metric: Whether the legend names the metric of the Pareto set.
        labels_have_gpus: Whether labels have the number of GPUs per node.
    """
    table, name = panel.table, panel.name
    is_cost = name == "cost_usd"
    known = np.isfinite(column_values(table, _TIME)) & np.isfinite(column_values(table, name))
    shown = table[known & (column_values(table, _TIME) > 0)]
    axes.set(xscale="log", xmargin=0.08, ymargin=0.08)
    for line in plot_figure.drawn_series(tables):
        rows = line.rows[line.rows.index.isin(shown.index)]
        if len(rows):
            style = {**line.style, "linestyle": "none", "elinewidth": 0.8, "capsize": 0}
            with plot_figure.mark_as_line(axes, line):
                plot_figure.draw_points(axes, tables, rows, _TIME, name, line.label, style)
    is_compared = [point not in tables.excluded for point in points_of(shown)]
    _draw_pareto_lines(axes, panel, shown[is_compared], legend_names_metric, labels_have_gpus)
    if not len(shown):
        text = NO_PRICES if is_cost else f"no {panel.metric.title} measured"
        if not (column_values(table, _TIME) > 0).any():
            is_run = len(plot_figure.rows_with_runs(table)) > 0
            text = plot_figure.NO_TIMES if is_run else plot_figure.NOTHING
        plot_figure.label_empty_axes(axes, text)
        axes.set_xticks([])
    else:
        plot_figure.use_plain_log(axes, "x")
        if is_cost and (column_values(shown, name) > 0).all():
            plot_figure.use_plain_log(axes, "y")
        else:
            axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    return shown


def pareto_set(rows: Sequence[Cells], metrics: Sequence[str]) -> list[int]:
    """Return the indices of the rows that no other row dominates, sorted by the metrics.

    A row dominates another if it is at least as good in every metric and better in at least one.
    Rows with equal values are all kept.

    Args:
        rows: The rows; each has a value of every metric.
        metrics: Names of the metrics.

    Raises:
        ValueError: The rows have different metrics of quality.
    """
    if QUALITY in metrics and len(qualities_by_metric(rows)) > 1:
        raise ValueError(
            f"configurations of different qualities: {', '.join(qualities_by_metric(rows))}"
        )
    better = {name: metric_of(name, rows[0]).is_higher_better for name in metrics if rows}
    losses = np.array([[row[n] * (-1 if better[n] else 1) for n in metrics] for row in rows], float)
    is_beaten = [((losses <= own).all(1) & (losses < own).any(1)).any() for own in losses]
    kept = [position for position, beaten in enumerate(is_beaten) if not beaten]
    return sorted(kept, key=lambda position: tuple(losses[position]))


def _draw_pareto_lines(
    axes: Any,
    panel: _Panel,
    compared: pd.DataFrame,
    legend_names_metric: bool,
    labels_have_gpus: bool,
) -> None:
    """Draw a line through the Pareto set of each training, with labels at its configurations.

    Args:
        axes: The panel's axes.
        panel: What is drawn.
        compared: The configurations that have a time and a value for the y axis, without the ones
            that are not compared.
        legend_names_metric: Whether the legend names the metric.
        labels_have_gpus: Whether labels have the number of GPUs per node.
    """
    metric, names = panel.metric, [_TIME, panel.name]
    # for each task, the points that no other comparable point beats
    tasks = group_by_task(to_rows(PointRow, compared))
    sets = [[rows[place] for place in pareto_set(rows, names)] for rows in tasks.values()]
    noun = metric.title if legend_names_metric else metric.title.removeprefix("test ")
    what = f"{'more' if metric.is_higher_better else 'less'} {noun}"
    label = f"none has less time and {what}" + ", of the same model and recipe" * (len(sets) > 1)
    style = {"color": "0.35", "linewidth": 1.2, "zorder": 1}
    for best in sets:
        times, others = ([row[name] for row in best] for name in names)
        axes.plot(times, others, label=label, **style)
        for time, other, row in zip(times, others, best, strict=True):
            at: dict[str, Any] = {"xytext": (5, 4), "textcoords": "offset points"}
            more = f"×{row['gpus_per_node']}" * (labels_have_gpus and row["gpus_per_node"] > 0)
            axes.annotate(f"{row['nodes']}{more}", (time, other), fontsize=FONT_SIZE, **at)


#: Style of published values.
_PUBLISHED: Style = {
    **{"color": "black", "marker": "o", "linestyle": "none", "markerfacecolor": "none"},
    **{"markersize": 4, "markeredgewidth": 0.8, "zorder": 3},
}


@dataclass(frozen=True)
class _LearningPanel:
    """A panel that shows how well models learned.

    Attributes:
        label: Label of the y axis.
        column: Column of the comparison.
        in_training: Column of the epochs with the value during training.
        held_out: Column of the epochs with the value on held-out examples.
        quality: The configurations' metric of quality; None: the panel shows all configurations.
    """

    label: str
    column: str
    in_training: str
    held_out: str
    quality: str | None = None

    def select_rows(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of the configurations that the panel shows."""
        return table if self.quality is None else table[table["quality_metric"] == self.quality]


def _learning_panels(table: pd.DataFrame) -> list[_LearningPanel]:
    """Return the panels for the loss, the accuracy if known, and other metrics of quality."""
    found = [*qualities_in_table(table).values()]
    panels = [_LearningPanel("loss", "loss", "loss", "test_loss")]
    if np.isfinite(column_values(table, "accuracy")).any() or any(q.is_accuracy for q in found):
        panels.append(_LearningPanel("accuracy", "accuracy", "accuracy", "test_accuracy"))
    for quality in found:
        if quality.training_metric not in ("loss", "accuracy"):
            label, metric = name_with_unit(quality.title, quality.unit), quality.metric
            panels.append(_LearningPanel(label, QUALITY, quality.training_metric, metric, metric))
    return panels


def loss_quality(tables: Tables, title: str) -> Figure:
    """Plot loss and quality over the global batch size, measured and published."""
    table, published, batch = tables.comparison, tables.published, "global_batch_size"
    shown_of = _learning_panels(table)
    labels = [learned.label for learned in shown_of]
    figure, panels = plot_figure.make_panels(title, "global batch (examples)", labels)
    some_absent = len(plot_figure.rows_without_runs(table)) > 0
    lines, drawn = plot_figure.drawn_series(tables), tables
    if all(len(line.rows) == 1 for line in lines):  # one recipe for each batch
        first = [msgspec.structs.replace(each, recipe="any") for each in tables.first]
        drawn = replace(tables, comparison=table.assign(recipe="any"), first=first)
        lines = plot_figure.drawn_series(drawn)
    for axes, learned in zip(panels, shown_of, strict=True):
        name = learned.column
        for line in lines:
            own = learned.select_rows(line.rows)
            rows = own[
                np.isfinite(column_values(own, name) + column_values(own, batch))
            ].sort_values(batch)
            if len(rows):
                style = {**line.style, "linewidth": 1}
                with plot_figure.mark_as_line(axes, line):
                    plot_figure.draw_points(axes, tables, rows, batch, name, line.label, style)
        known = np.isfinite(
            column_values(published, f"published_{name}") + column_values(published, batch)
        )
        if known.any():
            at = (
                column_values(published, column)[known] for column in (batch, f"published_{name}")
            )
            xs, ys = at
            axes.plot(xs, ys, label="published", **_PUBLISHED)
            named = f"published: {learned.label}"
            texts = [f"batch {x:g}, {named} {y:.4g}" for x, y in zip(xs, ys, strict=True)]
            plot_figure.add_tips(axes, xs, ys, texts)
        both = [column_values(table, batch), column_values(published, batch)]
        plot_figure.use_value_ticks(axes, np.concatenate(both))
        shown = np.isfinite(column_values(learned.select_rows(table), name)).any()
        _format_value_axis(axes, bool(shown or known.any()), 0.08 * some_absent)
        plot_figure.mark_absent(axes, table, batch)
    notes = plot_figure.error_bar_notes(tables, *(learned.column for learned in shown_of))
    if not len(plot_figure.rows_with_runs(table)) and len(published):
        notes = [plot_figure.NOTHING]
    notes += plot_figure.line_notes(drawn)
    return plot_figure.add_legend_and_notes(figure, panels[0], tables, notes)


def epochs(tables: Tables, title: str) -> Figure:
    """Plot loss and quality over epochs, a line for each configuration.

    Hollow marks are values on held-out examples.
    """
    from matplotlib.ticker import MaxNLocator

    table = tables.comparison
    # the last epoch of a run that diverged has no loss; those before are of a model that fails
    measured = tables.epochs[tables.epochs["status"] != RunState.DIVERGED]
    shown_of = _learning_panels(table)
    labels = [learned.label.removeprefix("test ") for learned in shown_of]
    figure, panels = plot_figure.make_panels(title, "epoch", labels)
    places = plot_figure.row_numbers(measured, POINT_AXES)
    every = plot_figure.drawn_series(tables, POINT_AXES)
    lines = [(line, measured.iloc[places[line.key]]) for line in every if line.key in places]
    drawn = set[str]()
    for axes, learned, label in zip(panels, shown_of, labels, strict=True):
        for line, rows in lines:
            if len(learned.select_rows(line.rows)):
                drawn |= _draw_learning_curve(axes, learned, label, line, rows)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if not lines:
            axes.set_xticks([])
        if measured["epoch"].nunique() == 1:
            axes.set_xlim(measured["epoch"].iloc[0] - 1, measured["epoch"].iloc[0] + 1)
        _format_value_axis(axes, len(lines) > 0)
    plot_figure.mark_absent(panels[0], table)
    notes = [note for note in (_BANDS_NOTE, _MARKS_NOTE) if note in drawn]
    notes += plot_figure.line_notes(tables, POINT_AXES)
    return plot_figure.add_legend_and_notes(figure, panels[0], tables, notes)


def _draw_learning_curve(
    axes: Any, learned: _LearningPanel, label: str, line: plot_figure.Series, rows: pd.DataFrame
) -> set[str]:
    """Draw the values of one configuration over epochs; return the notes that they need.

    Args:
        axes: The axes of the panel.
        learned: The metrics of the panel.
        label: Name of the metric for tooltips.
        line: The configuration.
        rows: Its rows in the table of epochs.
    """
    notes, name = set[str](), learned.in_training
    style: Style = line.style | {"linewidth": 1.3}
    by_epoch = rows.assign(**{name: column_values(rows, name)}).groupby("epoch")[name]
    middle = by_epoch.median()
    held_out = rows.assign(value=column_values(rows, learned.held_out)).groupby("epoch")["value"]
    with plot_figure.mark_as_line(axes, line):
        axes.plot(middle.index, middle, label=line.label, **style)
        _add_epoch_tips(axes, middle, f"{line.label}: {label}")
        if by_epoch.count().max() > 1:
            notes.add(_BANDS_NOTE)
            ends = by_epoch.min(), by_epoch.max()
            band = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
            axes.fill_between(middle.index, *ends, **band)
        if learned.held_out != name and not (marks := held_out.median().dropna()).empty:
            notes.add(_MARKS_NOTE)
            hollow = {"linestyle": "none", "markerfacecolor": "none", "markersize": 7}
            axes.plot(marks.index, marks, **style | hollow)
            _add_epoch_tips(axes, marks, f"{line.label}: held-out {label}")
    return notes


def _add_epoch_tips(axes: Any, by_epoch: pd.Series, name: str) -> None:
    """Add tooltips to a line over epochs: to all epochs, or to every n-th and the last.

    Args:
        axes: The axes.
        by_epoch: The line's values, by epoch.
        name: Label of the line.
    """
    step = -(-len(by_epoch) // _EPOCH_TIPS_MAX)
    shown = by_epoch.iloc[::-step].iloc[::-1]
    texts = [f"epoch {epoch}, {name} {value:.4g}" for epoch, value in shown.items()]
    plot_figure.add_tips(axes, shown.index.to_numpy(float), shown.to_numpy(float), texts)


def _format_value_axis(axes: Any, has_data: bool, free_share: float = 0.0) -> None:
    """Format the y axis with plain numbers; it is logarithmic if losses differ by a factor of 8.

    Args:
        axes: The axes.
        has_data: Whether something is drawn; otherwise, a text is written into the axes.
        free_share: Share of the axis to leave empty below the values.
    """
    if not has_data:
        plot_figure.label_empty_axes(axes)
        return
    low, high = axes.dataLim.intervaly
    if axes.get_ylabel() == "loss" and low > 0 and high > 8 * low:
        axes.set_yscale("log")
        plot_figure.use_plain_log(axes, "y", free_share)
        return
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom - free_share * (top - bottom), top)
    axes.ticklabel_format(axis="y", useOffset=False)
