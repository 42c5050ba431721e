#!/usr/bin/env python3
"""How often a statement about a limit of scaling efficiency is false, with known truth.

efficiency.py [--trials N] [--seed N]: simulates --trials sets of each cell. Ends with 1 if a
statement is surely (99 %) false in more than 5 % of a cell.

A set has a baseline and configurations with a limit that is as hard as it gets: just enough of
their runs miss it to make the statement false, against the true median of the baseline.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "workflow/scripts"), str(REPOSITORY / "benchmarks")]

from special_cases import ERROR, Array, Cell, Dice, Rates, is_missed, simulate  # noqa: E402
from tfscaling.conclusions.answers.efficiency import RatioToBaseline  # noqa: E402
from tfscaling.estimation.intervals import CONFIDENCE  # noqa: E402
from tfscaling.estimation.run_counts import KEPT_RUNS, miss_rate_bound  # noqa: E402

#: Name → times of runs with a scatter (a fraction): shape (configurations, runs).
SHAPES: dict[str, Callable[[tuple[int, int], float, Dice], Array]] = {
    "normal": lambda shape, s, dice: np.exp(s * dice.standard_normal(shape)),
    "one in ten 1.5 times": lambda shape, s, dice: np.exp(
        s * dice.standard_normal(shape) + np.log(1.5) * (dice.random(shape) < 0.1)
    ),
    "one in three 1.2 times": lambda shape, s, dice: np.exp(
        s * dice.standard_normal(shape) + np.log(1.2) * (dice.random(shape) < 1 / 3)
    ),
    "skewed": lambda shape, s, dice: 1 + s * dice.standard_exponential(shape),
}
#: How much slower the limit allows runs to be than they are, for the share of true statements.
MARGIN = 1.15


@functools.cache
def quantile(shape: str, scatter: float, share: float) -> float:
    """Return a quantile of the times of runs of a shape."""
    times = SHAPES[shape]((1, 1_000_000), scatter, np.random.default_rng(0))
    return float(np.quantile(times, share))


def kept(
    shape: str, configurations: int, runs: int, base: int, scatter: float, dice: Dice
) -> Rates:
    """One set: configurations that miss their limit as often as a kept limit excludes.

    False: one is shown to keep it. True: with a limit MARGIN higher than the median ratio, all are.
    """
    own = SHAPES[shape]((configurations, runs), scatter, dice)
    of_base = SHAPES[shape]((1, base), scatter, dice)[0].tolist()
    middle = quantile(shape, scatter, 0.5)
    error = (1 - CONFIDENCE) / 2 / configurations
    # the harder of the two statements: the ratio of medians, and the share of runs that miss
    most = quantile(shape, scatter, max(0.5, 1 - miss_rate_bound(runs, configurations))) / middle
    ratios = [RatioToBaseline(each.tolist(), of_base, error) for each in own]
    easier = (ratio.is_kept(MARGIN * most) for ratio in ratios)
    return Rates(any(ratio.is_kept(most) for ratio in ratios), all(easier))


def missed(
    shape: str, configurations: int, runs: int, base: int, scatter: float, dice: Dice
) -> Rates:
    """One set: configurations that miss their limit in as few runs as a kept limit allows.

    False: one is shown to miss it. True: with a limit MARGIN lower than the median ratio, all are.
    """
    own = SHAPES[shape]((configurations, runs), scatter, dice)
    of_base = SHAPES[shape]((1, base), scatter, dice)[0].tolist()
    most = quantile(shape, scatter, 1 - miss_rate_bound(KEPT_RUNS)) / quantile(shape, scatter, 0.5)
    error = (1 - CONFIDENCE) / 2 / configurations
    ratios = [RatioToBaseline(each.tolist(), of_base, error) for each in own]
    harder = (ratio.is_missed(1 / MARGIN, runs) for ratio in ratios)
    return Rates(any(ratio.is_missed(most, runs) for ratio in ratios), all(harder))


CELLS = tuple(
    Cell(
        f"{words}: {shape}, {configurations} configurations, {runs} runs, baseline {base}, "
        f"scatter {scatter:.1%}",
        functools.partial(set_of, shape, configurations, runs, base, scatter),
    )
    for words, set_of in (("kept", kept), ("missed", missed))
    for shape in SHAPES
    for configurations in (1, 4)
    for runs, base in ((6, 6), (11, 6), (11, 11), (20, 6))
    for scatter in (0.005, 0.05)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"{args.trials} sets of each cell, seed {args.seed}\n")
    print("| cell | false statement | true statement |\n|---|--:|--:|")
    false_cells = 0
    for cell in CELLS:
        rates = simulate(cell, args.trials, args.seed)
        false_cells += is_missed(rates.false, args.trials)
        print(f"| {cell.name} | {rates.false:.3f} | {rates.true:.3f} |", flush=True)
    more = f"{false_cells} cells have false statements in more than {ERROR:.0%}"
    sys.exit(more if false_cells else 0)


if __name__ == "__main__":
    main()
