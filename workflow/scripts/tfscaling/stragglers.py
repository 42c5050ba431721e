"""Ranks that compute longer than the others of their run, again and again. Layer 4 (view)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tfscaling.grid import POINT_AXES
from tfscaling.samples import SUPPORTED, TOO_FEW
from tfscaling.statistics import RUNS_FOR_INTERVAL

#: A rank is slow if it computes this many times as long as the median rank, in every run.
RATIO_MIN = 1.3


def find(runs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], str, str]]:
    """(axes, sentence, support) of each point in which the same rank was slow in every run.

    With few runs the same rank can be the slowest by chance: the support says so.
    """
    valid = runs[(runs["status"] == "ok") & runs["straggler_ratio"].notna()]
    for axes, group in valid.groupby(list(POINT_AXES), sort=False):
        ranks, hosts = group["slowest_rank"].unique(), group["slowest_host"].unique()
        if len(ranks) > 1 or group["straggler_ratio"].min() < RATIO_MIN:
            continue
        low, high = group["straggler_ratio"].min(), group["straggler_ratio"].max()
        ratio = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
        where = f"on {hosts[0]}" if len(hosts) == 1 else f"on {len(hosts)} hosts"
        made = "its only run" if len(group) == 1 else f"all {len(group)} runs"
        text = (
            f"Rank {int(ranks[0])} {where} computes {ratio} times as long as the median rank, in "
            f"{made}: the others wait for it at each step."
        )
        support = SUPPORTED if len(group) >= RUNS_FOR_INTERVAL else TOO_FEW
        yield dict(zip(POINT_AXES, axes, strict=True)), text, support
