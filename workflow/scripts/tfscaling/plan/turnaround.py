"""Which geometry would end first if it were submitted now: the wait in the queue and the run.

The wait is Slurm's own estimate for one run alone (`preflight`), which knows of no job that is
submitted later, or that ends before its time limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfscaling.plan.plan_rows import PointRow
from tfscaling.plan.run_estimates import TIME_LIMIT

#: Where points differ in the queue by less than this, the order is chance.
_SECONDS_MIN = 60.0


def sentences(rows: Iterable[PointRow]) -> Iterator[str]:
    """For each model and recipe which run is the shortest, and which would end first.

    Only of points whose duration was measured and which Slurm would start; nothing of fewer than
    two.
    """
    works: dict[tuple[str, str], list[PointRow]] = {}
    for row in rows:
        if row.ends_in_s is not None and row.duration_from != TIME_LIMIT:
            works.setdefault((row.model, row.recipe), []).append(row)
    for (model, recipe), points in works.items():
        if len(points) > 1:
            yield f"{model}, {recipe}: {_compared(points)}"


def _compared(points: list[PointRow]) -> str:
    shortest = min(points, key=lambda row: (_run_s(row), row.nodes))
    first = min(points, key=lambda row: (_end_s(row), row.nodes))
    of_shortest = f"the shortest run is that of {_name(shortest)} ({_about(_run_s(shortest))})"
    if _end_s(shortest) - _end_s(first) < _SECONDS_MIN:
        return f"{of_shortest}; with the queue as it is now it would end first, too."
    return (
        f"{of_shortest}, but with the queue as it is now {_name(first)} would end first: in "
        f"{_about(_end_s(first))}, that one in {_about(_end_s(shortest))}."
    )


def _run_s(row: PointRow) -> float:
    return row.duration_s or 0.0


def _end_s(row: PointRow) -> float:
    return row.ends_in_s or 0.0


def _name(row: PointRow) -> str:
    gpus = f" with gpus_per_node {row.gpus_per_node}" if row.gpus_per_node else ""
    return f"{row.nodes} node{'s' * (row.nodes > 1)}{gpus} on {row.platform}"


def _about(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
