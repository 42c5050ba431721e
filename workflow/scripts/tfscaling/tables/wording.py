"""Points, values and differences in words, for findings and decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tfscaling.records.metrics import Metric
from tfscaling.tables.display import cell, devices
from tfscaling.tables.table_rows import Row, metric_of

if TYPE_CHECKING:  # SciPy comes with it, which no words need
    from tfscaling.tables.significance import Difference

#: Points named in a sentence, at most.
NAMED_MAX = 3


def point_name(row: Row, more_axes: Sequence[str] = ()) -> str:
    """`10 nodes with 2 GPUs each of AWS p3.2xlarge`, and what else tells it from others.

    Logical devices are called so: they are no GPUs. `more_axes` are axes other than nodes,
    GPUs, platform, model and recipe in which the points differ.
    """
    nodes = f"{row['nodes']} node{'s' if row['nodes'] > 1 else ''}"
    each = f" with {devices(row)}" if row["gpus_per_node"] else ""
    each += " each" if each and row["nodes"] > 1 else ""
    more = "".join(f", {axis} {row[axis]}" for axis in more_axes)
    return f"{nodes}{each} of {row['platform_title']} ({row['model']}, {row['recipe']}{more})"


def axis_text(axis: str, point: Row | pd.Series) -> str:
    """An axis of a point as people say it: "4 nodes", "2 logical devices per node", "CPU"."""
    value = point[axis]
    if axis in ("platform", "model", "strategy", "recipe"):
        return str(value)
    if axis == "gpus_per_node":
        return devices(point) + " per node" * (int(value) > 0)
    plural = "" if str(value) == "1" else "s"
    return f"{value} node{plural}" if axis == "nodes" else f"{value} task{plural} per node"


def listed(names: Sequence[str]) -> str:
    """`a; b; c and 2 more`."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return "; ".join(names[:NAMED_MAX]) + more


def counted(points: Sequence[object], one: str, several: str) -> str:
    """`1 point has` or `2 points have`, with `one` for has and `several` for have."""
    return f"1 point {one}" if len(points) == 1 else f"{len(points)} points {several}"


def value(metric: str, row: Row) -> str:
    """The metric's value of a point with interval or range and unit."""
    unit = metric_of(metric, row).unit
    return f"{cell(metric, row)}{' ' + unit if unit else ''}"


def times(found: Difference) -> str:
    """`1.50 times (1.40–1.60)`."""
    if found.interval is None:
        return f"{found.ratio:.2f} times"
    return f"{found.ratio:.2f} times ({found.interval[0]:.2f}–{found.interval[1]:.2f})"


def worse(found: Difference, metric: Metric) -> str:
    """`1.50 times (1.40–1.60) the error`; without a ratio `0.1000 (0.0900–0.1100) more error`.

    Of a metric of which more is better, `1.50 times (1.40–1.60) less` than the other.
    """
    is_less = metric.is_higher_better and metric.best is None
    noun = metric.title if metric.best is None else "error"
    if found.ratio is not None:
        return f"{times(found)} less" if is_less else f"{times(found)} the {noun}"
    text = f"{found.gap:.{metric.digits}f}"
    if found.interval is not None:
        low, high = (f"{end:.{metric.digits}f}" for end in found.interval)
        text += f" ({low}–{high})"
    return f"{text} less" if is_less else f"{text} more {noun}"


def percent(fraction: float) -> str:
    """A bound to a tenth of a per cent, rounded up: `2.1%`."""
    return f"{math.ceil(fraction * 1000 - 1e-9) / 10:.1f}%"
