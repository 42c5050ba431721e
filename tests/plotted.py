"""Made-up points for the tests of plots, and what a figure shows of them."""

from __future__ import annotations

from typing import Any

import pandas as pd
from measured import NOTHING_PLANNED
from tfscaling.conclusions.evidence import Study
from tfscaling.page.plot_figure import Tables
from tfscaling.study import platforms
from tfscaling.study.config_types import POINT_AXES
from tfscaling.tables import comparison, runs_table
from tfscaling.tables.row_values import QUALITY_COLUMNS


def point(nodes: int = 1, **changes: Any) -> dict[str, Any]:
    """A measured point of one run: 60 s on one node, half of it on two."""
    usual = {
        "platform": "cluster",
        "model": "mnist_cnn",
        "strategy": "multi_worker_mirrored",
        "recipe": "weak",
        "nodes": nodes,
        "gpus_per_node": 0,
        "tasks_per_node": "1",
        "status": "ok",
        "runs": 1,
        "runs_planned": 1,
        "replicas": nodes,
        "global_batch_size": 64 * nodes,
        "execution_time_s": 60 / nodes,
        "loss": 0.1 * nodes,
        "accuracy": 1 - 0.01 * nodes,
        "test_accuracy": 0.98,
        "quality_metric": "test_accuracy",
        "quality_direction": "higher",
    }
    row = {**usual, **changes}
    return {"quality": row["test_accuracy"], "runs_timed": row["runs"], **row}


def failed(nodes: int, **changes: Any) -> dict[str, Any]:
    """A point without a valid run."""
    kept = (*POINT_AXES, *QUALITY_COLUMNS)
    usual = {name: value for name, value in point(nodes).items() if name in kept}
    return {**usual, "status": "failed", "runs": 0, "global_batch_size": 64 * nodes, **changes}


def tables_of(*points: dict[str, Any], epochs: Any = (), published: Any = ()) -> Tables:
    """Tables of these points, on CPU or GPUs unless they say otherwise, with all columns."""
    kinds = [platforms.device_kind(point["gpus_per_node"], "physical") for point in points]
    rows = [{"devices": kind, **point} for kind, point in zip(kinds, points, strict=True)]
    table = pd.DataFrame(rows, columns=list(comparison.COLUMNS))
    runs = pd.DataFrame(columns=list(runs_table.RUN_COLUMNS))
    return Tables(
        table,
        pd.DataFrame(epochs, columns=list(runs_table.EPOCH_COLUMNS)),
        pd.DataFrame(published),
        excluded=Study(table, runs, NOTHING_PLANNED).excluded,
    )


def comparison_of(*points: dict[str, Any]) -> pd.DataFrame:
    return tables_of(*points).comparison


def points_of(figure: Any, panel: int = 0) -> dict[str, list[tuple[float, float]]]:
    """Label → points of the lines that stand in the legend."""
    handles, labels = figure.axes[panel].get_legend_handles_labels()
    lines = [handle[0] if isinstance(handle, tuple) else handle for handle in handles]
    return {
        label: [(float(x), round(float(y), 9)) for x, y in zip(*line.get_data(), strict=True)]
        for label, line in zip(labels, lines, strict=True)
    }


def visible_lines(axes: Any) -> list[Any]:
    """The lines of a panel, without the invisible marks that have texts for the pointer."""
    return [line for line in axes.lines if line.get_alpha() != 0]


def legend_of(figure: Any) -> list[str]:
    """The texts of the legend, and of the notes below."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def crosses(axes: Any) -> list[tuple[float, float, str]]:
    """(x, height, colour) of the crosses at the foot of the axes."""
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]), line.get_color())
        for line in axes.lines
        if line.get_marker() == "x" and len(line.get_xdata())
    ]
