"""Plots of what a point gives for its time: quality and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfscaling.conclusions.evidence import split, works_of
from tfscaling.page import plot_figure
from tfscaling.page.plot_figure import FONT_SIZE, Tables, values
from tfscaling.record.metrics import METRICS, QUALITY, Metric, of_quality
from tfscaling.spec.config import Quality
from tfscaling.spec.platforms import GPU, LOGICAL
from tfscaling.tables.columns import Cells
from tfscaling.tables.display import with_unit
from tfscaling.tables.significance import pareto_set
from tfscaling.tables.table_rows import point_of, points_of, qualities_in, rows_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_PRICES = "no prices in config/platforms.yaml"
_TIME = "execution_time_s"


@dataclass(frozen=True)
class _Panel:
    """Points over their time by one metric: those that `table` has, of the study's `points`."""

    name: str
    metric: Metric
    label: str
    table: pd.DataFrame
    points: pd.DataFrame

    @property
    def is_cost(self) -> bool:
        return self.name == "cost_usd"

    @property
    def noun(self) -> str:
        """What a point needs besides its time."""
        return "price" if self.is_cost else self.metric.title


def quality_time(tables: Tables, title: str) -> Figure:
    """The quality over execution time, with the Pareto sets: a panel for each metric."""
    table = tables.comparison
    panels = []
    for quality in [*qualities_in(table).values()] or [Quality()]:
        metric = of_quality(quality)
        rows = table[table["quality_metric"] == quality.metric]
        label = with_unit(metric.title, metric.unit)
        panels.append(_Panel(QUALITY, metric, label, rows, table))
    return _against_time(tables, title, panels)


def cost_time(tables: Tables, title: str) -> Figure:
    """Cost of a run over execution time, with the Pareto sets."""
    table, metric = tables.comparison, METRICS["cost_usd"]
    panel = _Panel("cost_usd", metric, "cost of one run (US dollars)", table, table)
    return _against_time(tables, title, [panel])


def _against_time(tables: Tables, title: str, panels: Sequence[_Panel]) -> Figure:
    table = tables.comparison
    labels = [panel.label for panel in panels]
    figure, every_axes = plot_figure.panels(title, "execution time (s)", labels)
    figure.set_figheight(3.6 * len(panels))
    shown = [
        _draw(axes, panel, named=len(panels) > 1)
        for axes, panel in zip(every_axes, panels, strict=True)
    ]
    plot_figure.mark_absent(every_axes[0], table)
    notes = []
    for panel, points in zip(panels, shown, strict=True):
        notes += _notes(panel, points) if len(points) else []
    plot_figure.finish(figure, every_axes, tables, list(dict.fromkeys(notes)))
    return figure


def _draw(axes: Any, panel: _Panel, named: bool) -> pd.DataFrame:
    """Draw the points of a panel and its Pareto sets; returns those that have both values.

    `named`: the Pareto sets are called by the metric, as there are several.
    """
    table, name = panel.table, panel.name
    known = np.isfinite(values(table, _TIME)) & np.isfinite(values(table, name))
    shown = table[known & (values(table, _TIME) > 0)]
    axes.set(xscale="log", xmargin=0.08, ymargin=0.08)
    for line in plot_figure.series(panel.points):
        rows = line.rows[line.rows.index.isin(shown.index)]
        if len(rows):
            style = {**line.style, "linestyle": "none", "elinewidth": 0.8, "capsize": 0}
            plot_figure.points(axes, rows, _TIME, name, line.label, style)
    _pareto_lines(axes, panel, shown, named)
    if not len(shown):
        missing = NO_PRICES if panel.is_cost else f"no {panel.metric.title} measured"
        points = plot_figure.measured(table)
        plot_figure.say(axes, _why_absent(panel, points, missing) or plot_figure.NOTHING)
        axes.set_xticks([])
    else:
        plot_figure.plain_log(axes, "x")
        if panel.is_cost and (values(shown, name) > 0).all():
            plot_figure.plain_log(axes, "y")
        else:
            axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    return shown


def _notes(panel: _Panel, shown: pd.DataFrame) -> list[str]:
    table = panel.points
    nouns = {LOGICAL: "logical devices", GPU: "GPUs"}
    kinds = " or ".join(noun for kind, noun in nouns.items() if kind in set(shown["devices"]))
    gpus = "gpus_per_node" in plot_figure.varying(table)
    notes = ["labels: nodes" + f" × {kinds} per node; of CPUs the nodes alone" * gpus]
    notes += plot_figure.bars_note(table, _TIME, panel.name)
    without: dict[str, list[str]] = {}
    measured = plot_figure.measured(panel.table)
    for platform, title in plot_figure.platform_titles(table).items():
        if platform not in set(shown["platform"]):
            points = measured[measured["platform"] == platform]
            reason = _why_absent(panel, points, f"no {panel.noun}")
            without.setdefault(reason, []).append(title)
    notes += [f"not shown, {why}: {', '.join(names)}" for why, names in without.items() if why]
    return notes


def _why_absent(panel: _Panel, points: pd.DataFrame, missing: str) -> str:
    """Why none of these measured points is shown; nothing if there are none.

    `missing` says that points with a time have no value.
    """
    timed = values(points, _TIME) > 0
    if timed.any():
        return missing if timed.all() else f"no configuration with both time and {panel.noun}"
    return plot_figure.NO_TIMES if len(points) else ""


def _short(row: Cells, gpus: bool) -> str:
    """The label of a point: its nodes, and its GPUs per node if points differ in them."""
    more = gpus and row["gpus_per_node"] > 0
    return f"{row['nodes']}×{row['gpus_per_node']}" if more else str(row["nodes"])


def _pareto_lines(axes: Any, panel: _Panel, shown: pd.DataFrame, named_by_metric: bool) -> None:
    """A line through the Pareto set of each work, whose points have labels."""
    metric, sets = panel.metric, _pareto_sets(panel, shown)
    gpus = "gpus_per_node" in plot_figure.varying(panel.points)
    noun = metric.title if named_by_metric else metric.title.removeprefix("test ")
    what = f"{'more' if metric.is_higher_better else 'less'} {noun}"
    label = f"none has less time and {what}" + ", of the same model and recipe" * (len(sets) > 1)
    style = {"color": "0.35", "linewidth": 1.2, "zorder": 1}
    for best in sets:
        times, others = ([row[name] for row in best] for name in (_TIME, panel.name))
        axes.plot(times, others, label=label, **style)
        for time, other, row in zip(times, others, best, strict=True):
            at: dict[str, Any] = {"xytext": (5, 4), "textcoords": "offset points"}
            axes.annotate(_short(row, gpus), (time, other), fontsize=FONT_SIZE, **at)


def _pareto_sets(panel: _Panel, shown: pd.DataFrame) -> list[list[Cells]]:
    """Of each work the points that no other beats, among those that may be compared."""
    drawn = set(points_of(shown))
    works = [
        [row for row in split(rows)[0] if point_of(row) in drawn]
        for rows in works_of(rows_of(panel.table)).values()
    ]
    names = [_TIME, panel.name]
    return [[rows[place] for place in pareto_set(rows, names)] for rows in works if rows]
