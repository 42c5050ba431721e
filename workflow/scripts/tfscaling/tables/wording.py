"""Points, values and differences in words, for findings and decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfscaling.record.metrics import Metric
from tfscaling.spec.platforms import CPU
from tfscaling.tables.display import axis_text, cell, devices
from tfscaling.tables.table_rows import OF_WHOLE, Row, is_projected, metric_of

if TYPE_CHECKING:  # SciPy comes with it, which no words need
    from tfscaling.tables.significance import Difference

GPUS = "gpus_per_node"
_NAMED = ("platform", "model", "strategy", "recipe", "tasks_per_node", GPUS)
#: Points named in a sentence, at most.
NAMED_MAX = 3


def varying(rows: Sequence[Row]) -> list[str]:
    """The axes that the name of a point must give, because these points differ in them.

    Nodes and GPUs are named always, that there are none where other points have some.
    """
    return [axis for axis in _NAMED if len({str(row[axis]) for row in rows}) > 1]


def point_name(row: Row, vary: Sequence[str] = ()) -> str:
    """`4 nodes with 2 GPUs each on aws-p3 (weak)`: a platform by its name in the configuration.

    Logical devices are called so: they are no GPUs. Of the other axes those that `vary` are named.
    """
    each = ""
    if row[GPUS]:
        each = f" with {devices(row)}" + " each" * (row["nodes"] > 1)
    elif GPUS in vary:
        each = f" with {CPU} only"
    on = f" on {row['platform']}" if "platform" in vary else ""
    more = [axis_text(axis, row) for axis in vary if axis not in ("platform", GPUS)]
    return axis_text("nodes", row) + each + on + (f" ({', '.join(more)})" if more else "")


def listed(names: Sequence[str]) -> str:
    """`a; b; c and 2 more`."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return "; ".join(names[:NAMED_MAX]) + more


def counted(points: Sequence[object], one: str, several: str) -> str:
    """`1 point has` or `2 points have`, with `one` for has and `several` for have."""
    return f"1 point {one}" if len(points) == 1 else f"{len(points)} points {several}"


def value(metric: str, row: Row) -> str:
    """The metric's value of a point with interval or range and unit, and if it is projected."""
    unit = metric_of(metric, row).unit
    text = f"{cell(metric, row)}{' ' + unit if unit else ''}"
    return f"{text}, projected" if is_projected(row) and metric in OF_WHOLE else text


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


def within(bound: float, of_what: str) -> str:
    """How far a value may be from the best: `within 2.1% of the best`, or `no worse than the best`.

    `bound` is a fraction.
    """
    return f"within {percent(bound)} of {of_what}" if bound > 0 else f"no worse than {of_what}"


def percent(fraction: float) -> str:
    """A bound to a tenth of a per cent, rounded up: `2.1%`."""
    return f"{math.ceil(fraction * 1000 - 1e-9) / 10:.1f}%"
