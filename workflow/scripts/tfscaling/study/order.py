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

from tfscaling.study.manifest import PlannedRun


def randomised(runs: Sequence[PlannedRun], seed: int) -> list[PlannedRun]:
    """The runs repeat by repeat, each repeat shuffled; the same `seed` gives the same order.

    The order depends on the runs and the seed only, not on how `runs` are sorted.
    """
    ordered: list[PlannedRun] = []
    for repeat in sorted({run.spec.repeat for run in runs}):
        block = [run for run in runs if run.spec.repeat == repeat]
        block.sort(key=lambda run: run.spec.path)
        random.Random(f"{seed} {repeat}").shuffle(block)
        ordered += block
    return ordered
