"""Plots of the page by name, without loading what draws them.

Configuration, rules and `stages.write_page` read only this list: the modules that draw load
matplotlib and pandas.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfscaling.study.config_types import PlotOptions, Quality

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from tfscaling.page.plot_figure import Tables


@dataclass(frozen=True)
class Plot:
    """A plot that the page may have.

    Attributes:
        title: Default title; `{quality}` in it is replaced by the metric of quality, `{learned}` by
            the loss and that metric.
        function: `module.function` of this package. It takes `Tables`, the title and, if the plot
            has one, the metric, and returns the figure.
        shows: Columns of the comparison. The plot is left out if all are empty.
        metric: The metric to plot; "" if `function` takes none.
    """

    title: str
    function: str
    shows: tuple[str, ...] = ("execution_time_s",)
    metric: str = ""

    def draw(self, tables: Tables, title: str) -> Figure:
        """Return the figure of the plot, drawn by its function."""
        module, _, name = self.function.partition(".")
        function = getattr(importlib.import_module(f"tfscaling.page.{module}"), name)
        return function(tables, title, *[self.metric] * bool(self.metric))

    def is_measured(self, comparison: pd.DataFrame) -> bool:
        """Return whether the comparison has a value in a column that the plot shows."""
        return any(comparison[name].notna().any() for name in self.shows if name in comparison)


#: Name → plot, for every plot.
PLOTS: dict[str, Plot] = {
    "execution_time": Plot(
        "Execution time against nodes",
        "plot_scaling.execution_time",
        ("execution_time_s", "published_execution_time_s"),
    ),
    "time_split": Plot("Where the time goes", "plot_scaling.time_split"),
    "speedup": Plot("Speed-up against nodes", "plot_scaling.ratio", ("speedup",), "speedup"),
    "scaling_efficiency": Plot(
        "Scaling efficiency against nodes",
        "plot_scaling.ratio",
        ("scaling_efficiency",),
        "scaling_efficiency",
    ),
    "weak_scaling_efficiency": Plot(
        "Weak scaling efficiency against nodes",
        "plot_scaling.ratio",
        ("weak_scaling_efficiency",),
        "weak_scaling_efficiency",
    ),
    "cost_time": Plot("Cost against execution time", "plot_quality.cost_time", ("cost_usd",)),
    "quality_time": Plot(
        "{quality} against execution time", "plot_quality.quality_time", ("quality",)
    ),
    "loss_quality": Plot(
        "{learned} against the global batch",
        "plot_quality.loss_quality",
        ("loss", "quality", "published_loss", "published_accuracy"),
    ),
    "epochs": Plot("{learned} of each epoch", "plot_quality.epochs", ("loss", "quality")),
}


def plot_titles(
    options: Mapping[str, PlotOptions | None], qualities: Iterable[Quality]
) -> dict[str, str]:
    """Return name → title for each plot to draw.

    Args:
        options: Plots in the configuration: None for a plot that is not drawn; options with the
            title None for the default title. Plots without an entry are drawn.
        qualities: The metrics of quality of all runs. If only one exists, titles name it.
    """
    nouns = {each.training_metric.replace("_", " ") for each in qualities}
    noun = nouns.pop() if len(nouns) == 1 else "quality"
    learned = "loss" if noun == "loss" else f"loss and {noun}"
    shown = {}
    for name, plot in PLOTS.items():
        chosen = options.get(name, PlotOptions())
        if chosen is not None:
            title = plot.title.format(quality=noun, learned=learned)
            shown[name] = chosen.title or f"{title[0].upper()}{title[1:]}"
    return shown
