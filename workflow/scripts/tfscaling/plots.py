"""Plots of the comparison: one entry each. Layer 4 (view); matplotlib only inside functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: Okabe and Ito's palette, which colour-blind readers can tell apart; markers for print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Plot:
    """`draw(comparison, title)` returns the figure; `needs` are the columns it shows."""

    title: str
    needs: tuple[str, ...]
    draw: Callable[[pd.DataFrame, str], Figure]


def _series(table: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any], pd.DataFrame]]:
    """(label, style, rows sorted by nodes) of each line: a platform's colour is its own."""
    measured = table[table["runs"] > 0]
    axes = ["platform", "model", "strategy", "recipe", "gpus_per_node", "tasks_per_node"]
    varying = [a for a in axes[1:] if measured[a].nunique() > 1]
    colours = {p: _COLOURS[i % len(_COLOURS)] for i, p in enumerate(table["platform"].unique())}
    seen: dict[str, int] = {}
    for keys, rows in measured.groupby(axes, sort=False):
        point = dict(zip(axes, map(str, keys), strict=True))
        number = seen[point["platform"]] = seen.get(point["platform"], -1) + 1
        label = ", ".join([point["platform"], *(f"{a} {point[a]}" for a in varying)])
        style = {
            "color": colours[point["platform"]],
            "marker": _MARKERS[number % len(_MARKERS)],
            "linestyle": ("-", "--", ":", "-.")[number % 4],
        }
        yield label, style, rows.sort_values("nodes")


def _axes(title: str, x: str, y: str, nodes: list[int]) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y, xscale="log")
    axes.set_xticks(nodes, [str(n) for n in nodes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    if len(nodes) == 1:
        axes.set_xlim(nodes[0] / 2, nodes[0] * 2)
    return figure, axes


def _finish(figure: Figure, axes: Any, note: str = "") -> Figure:
    """Legend and limits, or a word if there is nothing to show."""
    if not axes.has_data():
        axes.text(0.5, 0.5, "nothing measured yet", ha="center", transform=axes.transAxes)
        return figure
    low, high = axes.get_ylim()
    if high < 1.1 * low:
        axes.set_ylim(low / 2, high * 2)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", title=note)
    return figure


def _execution_time(table: pd.DataFrame, title: str) -> Figure:
    nodes = sorted(table["nodes"].unique())
    figure, axes = _axes(title, "nodes", "execution time (s), median and range", nodes)
    axes.set_yscale("log")
    for label, style, rows in _series(table):
        time = rows["execution_time_s"]
        spread = [time - rows["execution_time_s_min"], rows["execution_time_s_max"] - time]
        axes.errorbar(rows["nodes"], time, yerr=spread, label=label, capsize=3, **style)
        first = rows.iloc[0]
        ideal = first["execution_time_s"] * first["nodes"] / rows["nodes"]
        axes.plot(rows["nodes"], ideal, color=style["color"], linewidth=0.8, alpha=0.5)
    return _finish(figure, axes, "thin lines: ideal from the first point")


def _speedup(table: pd.DataFrame, title: str) -> Figure:
    nodes = sorted(table["nodes"].unique())
    figure, axes = _axes(title, "nodes", "speed-up over the series' baseline", nodes)
    for label, style, rows in _series(table):
        axes.plot(rows["nodes"], rows["speedup"], label=label, **style)
    if axes.has_data():
        axes.axhline(1.0, color="grey", linewidth=0.8)
    return _finish(figure, axes)


#: Every plot, by name.
PLOTS: dict[str, Plot] = {
    "execution_time": Plot("Execution time against nodes", ("execution_time_s",), _execution_time),
    "speedup": Plot("Speed-up against nodes", ("speedup",), _speedup),
}
