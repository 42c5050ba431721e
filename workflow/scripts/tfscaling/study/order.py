"""In which order runs start: randomised complete blocks.

Each repeat is one block: it runs every point once, in an order of its own, before the next repeat
begins. What drifts while a sweep runs (temperature, other users, the hour) then falls on all points
alike, and a sweep that is cut short has about as many runs of each point.

Source: G. E. P. Box, J. S. Hunter, W. G. Hunter, "Statistics for Experimenters", Wiley 2005,
chapter 4 ("block what you can and randomize what you cannot"); T. Hoefler and R. Belli, SC15.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tfscaling.study.grid import Run


def randomised(runs: Sequence[Run], seed: int) -> list[Run]:
    """The runs repeat by repeat, each repeat shuffled; the same `seed` gives the same order.

    The order depends on the runs and the seed only, not on how `runs` are sorted.
    """
    found: list[Run] = []
    for repeat in sorted({run.repeat for run in runs}):
        block = sorted((run for run in runs if run.repeat == repeat), key=lambda run: run.path)
        random.Random(f"{seed} {repeat}").shuffle(block)
        found += block
    return found


def priorities(runs: Sequence[Run], seed: int) -> dict[str, int]:
    """Path of each run → its priority; the run that starts first has the highest."""
    ordered = randomised(runs, seed)
    return {run.path: len(ordered) - place for place, run in enumerate(ordered)}
