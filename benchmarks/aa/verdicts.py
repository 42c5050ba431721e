#!/usr/bin/env python3
"""How often two equal revisions are said to differ, and a revision that is 5 % slower is found.

usage: verdicts.py RUNS.CSV...: one table of runs for each sweep of benchmarks/aa/config.yaml.

Each configuration of a sweep is a pair of equal revisions (`before`, `after`) and a pair with a
slowdown of 5 % (`before`, `slower`). The same runs also show what a comparison of two separate
sweeps would find: `before` of one sweep against `after` of the next one.
"""

from __future__ import annotations

import itertools
import sys
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

INDIFFERENCE = 0.02
Times = dict[str, np.ndarray]


def read_times(path: Path, repeats: int) -> Times:
    """Return revision → seconds of a sweep's runs, (configurations, the first repeats)."""
    runs = pd.read_csv(path)
    runs = runs[(runs["status"] == "ok") & (runs["repeat"] <= repeats)]
    return {
        str(recipe): rows.pivot_table("execution_time_s", "model", "repeat").to_numpy()
        for recipe, rows in runs.groupby("recipe")
    }


def describe(name: str, changes: list[TimeChange], sweeps: list[bool]) -> str:
    """Return a row of the table: pairs, verdicts, the median width of the intervals.

    Args:
        name: What is compared.
        changes: The change of each pair.
        sweeps: For each sweep, whether any of its pairs is called slower or faster.
    """
    slower, faster = (sum(c.verdict == verdict for c in changes) for verdict in (SLOWER, FASTER))
    width = float(np.median([np.log(change.high / change.low) for change in changes]))
    cells = (len(changes), slower, faster, f"{sum(sweeps)} of {len(sweeps)}", f"{width:.1%}")
    return f"| {name} | {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    print("| compared | pairs | slower | faster | sweeps with either | width of an interval |")
    print("|---|--:|--:|--:|--:|--:|")
    for repeats in (6, 12):
        times = [read_times(Path(path), repeats) for path in sys.argv[1:]]
        kinds = {
            f"equal, one sweep, {repeats} runs": [
                judge_paired_changes(t["before"], t["after"], INDIFFERENCE) for t in times
            ],
            f"equal, two sweeps, {repeats} runs": [
                judge_changes(a["before"], b["after"], INDIFFERENCE)
                for a, b in itertools.pairwise(times)
            ],
            f"5 % slower, one sweep, {repeats} runs": [
                judge_paired_changes(t["before"], t["slower"], INDIFFERENCE) for t in times
            ],
            f"5 % slower, two sweeps, {repeats} runs": [
                judge_changes(a["before"], b["slower"], INDIFFERENCE)
                for a, b in itertools.pairwise(times)
            ],
        }
        for name, sweeps in kinds.items():
            if sweeps:
                differ = [any(c.verdict in (SLOWER, FASTER) for c in each) for each in sweeps]
                print(describe(name, [c for each in sweeps for c in each], differ))


if __name__ == "__main__":
    main()
