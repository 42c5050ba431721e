"""Points, values and differences in words, for findings and decisions. Layer 4 (view)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tfscaling.display import cell
from tfscaling.metrics import METRICS
from tfscaling.samples import Difference

#: Points named in a sentence, at most.
NAMED_MAX = 3

Row = Mapping[Any, Any]


def place(row: Row, also: Sequence[str] = ()) -> str:
    """`10 nodes with 2 GPUs each of AWS p3.2xlarge`, and what else tells it from others.

    `also`: axes of which points differ besides nodes, GPUs, platform, model and recipe.
    """
    nodes = f"{row['nodes']} node{'s' if row['nodes'] > 1 else ''}"
    gpus = row["gpus_per_node"]
    each = f" with {gpus} GPU{'s' if gpus > 1 else ''}" if gpus else ""
    each += " each" if gpus and row["nodes"] > 1 else ""
    more = "".join(f", {axis} {row[axis]}" for axis in also)
    return f"{nodes}{each} of {row['platform_title']} ({row['model']}, {row['recipe']}{more})"


def listed(names: Sequence[str]) -> str:
    """`a; b; c and 2 more`."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return "; ".join(names[:NAMED_MAX]) + more


def counted(points: Sequence[Any], one: str, several: str) -> str:
    """`1 point has` or `2 points have`, with `one` for has and `several` for have."""
    return f"1 point {one}" if len(points) == 1 else f"{len(points)} points {several}"


def value(metric: str, row: Row) -> str:
    """The metric's value of a point with interval or range and unit."""
    unit = METRICS[metric].unit
    return f"{cell(metric, dict(row))}{' ' + unit if unit else ''}"


def times(found: Difference) -> str:
    """`1.50 times (1.40–1.60)`."""
    if found.interval is None:
        return f"{found.ratio:.2f} times"
    return f"{found.ratio:.2f} times ({found.interval[0]:.2f}–{found.interval[1]:.2f})"


def worse(found: Difference, noun: str, metric: str) -> str:
    """`1.50 times (1.40–1.60) the error`; without a ratio `0.1000 (0.0900–0.1100) more error`."""
    if found.ratio is not None:
        return f"{times(found)} the {noun}"
    digits = METRICS[metric].digits
    text = f"{found.gap:.{digits}f}"
    if found.interval is not None:
        text += f" ({found.interval[0]:.{digits}f}–{found.interval[1]:.{digits}f})"
    return f"{text} more {noun}"


def percent(fraction: float) -> str:
    """A bound to a tenth of a per cent, rounded up: `2.1%`."""
    return f"{math.ceil(fraction * 1000 - 1e-9) / 10:.1f}%"
