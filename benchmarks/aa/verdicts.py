#!/usr/bin/env python3
"""How often two equal revisions are said to differ, and a revision that is 5 % slower is found.

usage: verdicts.py STUDY...: one folder of results for each sweep of benchmarks/aa/config.yaml.

Each configuration of a sweep is a pair of equal revisions (`before`, `after`) and a pair with a
slowdown of 5 % (`before`, `slower`). Their verdicts are conclusions of the sweep. The same runs
also show what a comparison of two separate sweeps would find: `before` of one sweep against both
others of the next one. Fewer runs are the first repeats.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "workflow/scripts"))

from tfscaling.conclusions.time_changes import (  # noqa: E402
    FASTER,
    SLOWER,
    TimeChange,
    judge_changes,
    judge_paired_changes,
)

#: As in config.yaml.
INDIFFERENCE, REPEATS = 0.02, 12
OTHERS = {"after": "equal", "slower": "5 % slower"}
Times = dict[str, np.ndarray]


def read_times(study: Path, repeats: int) -> Times:
    """Return revision → seconds of a sweep's runs, (configurations, the first repeats)."""
    runs = pd.read_csv(study / "runs.csv")
    runs = runs[(runs["status"] == "ok") & (runs["repeat"] <= repeats)]
    return {
        str(recipe): rows.pivot_table("execution_time_s", "model", "repeat").to_numpy()
        for recipe, rows in runs.groupby("recipe")
    }


def read_changes(study: Path) -> dict[str, list[TimeChange]]:
    """Return revision → the change of each configuration, from its conclusions."""
    rows = pd.read_csv(study / "details/conclusions/regressions.csv").sort_values("model")
    fields = ["time_ratio", "time_ratio_low", "time_ratio_high", "verdict"]
    return {
        str(recipe): [TimeChange(*each) for each in some[fields].itertuples(index=False)]
        for recipe, some in rows.groupby("recipe")
    }


def compare(before: Times, after: Times, is_paired: bool) -> dict[str, list[TimeChange]]:
    """Return revision → the change of each configuration.

    In one sweep all revisions are judged together. A comparison of two sweeps has one revision.

    Args:
        before: Times of the sweep that has the reference.
        after: Times of the sweep that has the other revisions.
        is_paired: Whether both are the same sweep.
    """
    first = before["before"]
    if not is_paired:
        return {name: judge_changes(first, after[name], INDIFFERENCE) for name in OTHERS}
    changes = judge_paired_changes(
        np.concatenate([first for _ in OTHERS]),
        np.concatenate([after[name] for name in OTHERS]),
        INDIFFERENCE,
    )
    return {name: changes[i * len(first) :][: len(first)] for i, name in enumerate(OTHERS)}


def describe(name: str, sweeps: Sequence[Sequence[TimeChange]]) -> str:
    """Return a row of the table.

    Args:
        name: What is compared.
        sweeps: The changes of each sweep, or of each pair of sweeps.
    """
    changes = [change for each in sweeps for change in each]
    slower, faster = (sum(c.verdict == verdict for c in changes) for verdict in (SLOWER, FASTER))
    differ = sum(any(c.verdict in (SLOWER, FASTER) for c in each) for each in sweeps)
    logs = np.log([[change.ratio, change.low, change.high] for change in changes])
    cells = (
        len(changes), slower, faster, f"{differ} of {len(sweeps)}",
        f"{np.exp(np.median(logs[:, 0])):.3f}",
        f"{np.std(logs[:, 0], ddof=1):.1%}",
        f"{np.median(logs[:, 2] - logs[:, 1]):.1%}",
    )  # fmt: skip
    return f"| {name} | {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    studies = [Path(each) for each in sys.argv[1:]]
    print(
        "| compared | pairs | slower | faster | sweeps with either | median ratio "
        "| scatter of ratios | width of an interval |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for repeats in (REPEATS // 2, REPEATS):
        times = [read_times(each, repeats) for each in studies]
        within = [compare(each, each, is_paired=True) for each in times]
        if repeats == REPEATS:
            within = [read_changes(each) for each in studies]
        between = [compare(*each, is_paired=False) for each in itertools.pairwise(times)]
        for revision, words in OTHERS.items():
            for place, sweeps in (("one sweep", within), ("two sweeps", between)):
                if sweeps:
                    name = f"{words}, {place}, {repeats} runs"
                    print(describe(name, [each[revision] for each in sweeps]))


if __name__ == "__main__":
    main()
