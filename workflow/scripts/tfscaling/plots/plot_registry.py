"""Plots by name: one entry each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfscaling.files.late_import import LateModule
from tfscaling.study.config import PlotOptions

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
    """`title` is used where the configuration has none.

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
    "loss_accuracy": Plot("Loss and accuracy against batch size", plot_training.loss_accuracy),
    "accuracy_time": Plot("Accuracy against execution time", plot_tradeoffs.accuracy_time),
    "cost_time": Plot("Cost against execution time", plot_tradeoffs.cost_time),
    "epochs": Plot("Loss and accuracy of each epoch", plot_training.epochs),
}


def titles(options: Mapping[str, PlotOptions]) -> dict[str, str]:
    """Name of each configured plot → the title in the configuration, or else its own."""
    return {name: plot.title or PLOTS[name].title for name, plot in options.items()}
