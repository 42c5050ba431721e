"""Ranks that compute longer than the others of their run, again and again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import pandas as pd

from tfscaling.study.run_spec import Point
from tfscaling.tables.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.significance import INCONCLUSIVE, SUPPORTED, TOO_FEW
from tfscaling.tables.table_rows import points_of

#: A rank is slow if it computes this many times as long as the median rank, in every run.
RATIO_MIN = 1.3


class RunRanks(NamedTuple):
    """How the ranks of a run differ; `straggler_ratio` is the slowest over the median one's."""

    replicas: int
    straggler_ratio: float
    slowest_rank: int
    slowest_host: str


def find(
    runs: pd.DataFrame, points: Collection[Point] | None = None
) -> Iterator[tuple[Point, str, str, int]]:
    """(point, sentence, support, comparisons) of each point of which one rank was slow in each run.

    That the same of R ranks that are alike is the slowest in each of n runs has the probability
    1 / R**(n - 1). It is supported if that is rare among all points with several ranks; with few
    runs it is chance. `points`: those to look at, all if not given.
    """
    groups = _by_point(runs)
    if points is not None:
        groups = {point: own for point, own in groups.items() if point in points}
    ranks_of = {point: _ranks(point, own[0].replicas) for point, own in groups.items()}
    comparisons = sum(
        ranks_of[point] > 1 and len(own) >= RUNS_FOR_INTERVAL for point, own in groups.items()
    )
    for point, own in groups.items():
        ratios = [run.straggler_ratio for run in own]
        ranks = {run.slowest_rank for run in own}
        hosts = list(dict.fromkeys(run.slowest_host for run in own))
        if len(ranks) > 1 or min(ratios) < RATIO_MIN:
            continue
        low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        ratio = low if low == high else f"{low} to {high}"
        where = f"on {hosts[0]}" if len(hosts) == 1 else f"on {len(hosts)} hosts"
        made = "its only run" if len(own) == 1 else f"all {len(own)} runs"
        text = (
            f"Rank {int(ranks.pop())} {where} computes {ratio} times as long as the median rank, "
            f"in {made}: the others wait for it at each step."
        )
        support = TOO_FEW
        if len(own) >= RUNS_FOR_INTERVAL:
            by_chance = comparisons * ranks_of[point] ** (1.0 - len(own))
            support = SUPPORTED if by_chance <= 1 - CONFIDENCE else INCONCLUSIVE
        if support == INCONCLUSIVE:
            text += f" Among {comparisons} points with several ranks that can be chance."
        yield point, text, support, comparisons


def _by_point(runs: pd.DataFrame) -> dict[Point, list[RunRanks]]:
    """The valid runs of each point whose ranks' computation was measured."""
    valid = runs[(runs["status"] == "ok") & runs["straggler_ratio"].notna()]
    columns = (valid[name].tolist() for name in RunRanks._fields)
    found: dict[Point, list[RunRanks]] = {}
    for point, *values in zip(points_of(valid), *columns, strict=True):
        found.setdefault(point, []).append(RunRanks(*values))
    return found


def _ranks(point: Point, replicas: int) -> int:
    """How many ranks train."""
    return int(replicas) // max(1, point.geometry.gpus_per_task)
