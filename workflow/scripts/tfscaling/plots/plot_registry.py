"""Plots by name: one entry each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfscaling.files.late_import import LateModule
from tfscaling.study.config import PlotOptions, Quality

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tfscaling.plots import plot_scaling, plot_tradeoffs, plot_training
    from tfscaling.plots.plot_series import Tables
else:
    plot_scaling = LateModule("tfscaling.plots.plot_scaling")
    plot_tradeoffs = LateModule("tfscaling.plots.plot_tradeoffs")
    plot_training = LateModule("tfscaling.plots.plot_training")


@dataclass(frozen=True)
class Plot:
    """`title` is used where the configuration has none; `{quality}` in it is what is compared.

    `draw(tables, title)` returns the figure, whatever has failed or is missing.
    """

    title: str
    draw: Callable[[Tables, str], Figure]


#: Every plot, by name.
PLOTS: dict[str, Plot] = {
    "execution_time": Plot("Execution time against nodes", plot_scaling.execution_time),
    "speedup": Plot("Speed-up against nodes", plot_scaling.speedup),
    "scaling_efficiency": Plot("Scaling efficiency", plot_scaling.scaling_efficiency),
    "time_split": Plot("Where the time goes", plot_scaling.time_split),
    "loss_quality": Plot("Loss and {quality} against batch size", plot_training.loss_quality),
    "quality_time": Plot("{quality} against execution time", plot_tradeoffs.quality_time),
    "cost_time": Plot("Cost against execution time", plot_tradeoffs.cost_time),
    "epochs": Plot("Loss and {quality} of each epoch", plot_training.epochs),
}


def titles(options: Mapping[str, PlotOptions], qualities: Iterable[Quality]) -> dict[str, str]:
    """Name of each configured plot → the title in the configuration, or else its own.

    `qualities` are those of the runs: the titles name it where there is one.
    """
    nouns = {each.in_training.replace("_", " ") for each in qualities if each.in_training != "loss"}
    noun = nouns.pop() if len(nouns) == 1 else "quality"
    own = {name: PLOTS[name].title.format(quality=noun) for name in options}
    return {
        name: plot.title or f"{own[name][0].upper()}{own[name][1:]}"
        for name, plot in options.items()
    }
