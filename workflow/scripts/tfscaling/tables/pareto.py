"""The Pareto set: the points that no other point beats in all of several metrics together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfscaling.record.metrics import QUALITY
from tfscaling.tables.table_rows import Row, metric_of, qualities_of


def pareto_set(rows: Sequence[Row], metrics: Sequence[str]) -> list[int]:
    """Positions of the rows that no other row beats, sorted by the first metric, then the next.

    A row is beaten by one that is at least as good in every metric and better in one. So rows with
    equal values beat each other in nothing and are all kept. Every row has a value of every metric.
    Raises ValueError if rows are of different qualities, which nothing compares.
    """
    if QUALITY in metrics and len(qualities_of(rows)) > 1:
        raise ValueError(f"points of different qualities: {', '.join(qualities_of(rows))}")
    better = {name: metric_of(name, rows[0]).is_higher_better for name in metrics if rows}
    losses = [
        tuple(-float(row[name]) if better[name] else float(row[name]) for name in metrics)
        for row in rows
    ]
    all_losses = np.array(losses)
    kept = [position for position, loss in enumerate(losses) if not _is_beaten(loss, all_losses)]
    return sorted(kept, key=lambda position: losses[position])


def _is_beaten(loss: tuple[float, ...], all_losses: np.ndarray) -> bool:
    """Whether another row loses no more in any metric, and less in one: (metrics,) of (rows, …)."""
    as_good = (all_losses <= loss).all(axis=1)
    return bool((all_losses[as_good] < loss).any())
