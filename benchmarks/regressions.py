#!/usr/bin/env python3
"""How often two sweeps of the same are said to differ, by each of three tests, with Holm's.

Simulates --trials pairs of sweeps of each cell (points, noise, runs) in which nothing differs, and
as many with a point that takes 10 % longer. Of each test: how often any point is said to be slower
than by the indifference, and how often that one is. `moderated` is what the workflow uses
(`tfscaling.analysis.change`): exit status 1 if it says "slower" in more than 5 % of a cell in which
nothing is, at RUNS_MIN runs or more, or finds the slowed point in less than 90 % where 6 runs
scatter by 3 %. 3 runs are simulated to show why they are too few.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import ttest_ind

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "workflow/scripts"))

from tfscaling.analysis.change import RUNS_MIN, SLOWER, holm, judge  # noqa: E402

Array = np.ndarray
INDIFFERENCE, ERROR, SLOWED, FOUND_MIN = 0.05, 0.05, 1.1, 0.9
POINTS, RUNS = (1, 8, 20), (3, 4, 6)
#: Noise of the logarithm of a time, with its size.
NOISES = (
    ("normal", 0.03), ("normal", 0.2), ("skewed", 0.1), ("outliers", 0.05), ("mixed", 0.2),
)  # fmt: skip


def noise(name: str, size: float, shape: tuple[int, int], dice: np.random.Generator) -> Array:
    """(points, runs)."""
    usual = dice.standard_normal(shape)
    if name == "skewed":
        return np.asarray(size * dice.gamma(2, 1, shape) / np.sqrt(2))
    if name == "outliers":  # one run in twenty takes three times as long
        return np.asarray(size * usual + np.log(3) * (dice.random(shape) < 0.05))
    if name == "mixed":  # every point scatters otherwise, by 2 % to `size`
        sizes = np.exp(dice.uniform(np.log(0.02), np.log(size), (shape[0], 1)))
        return np.asarray(sizes * usual)
    return np.asarray(size * usual)


def moderated(before: Array, after: Array) -> Array:
    """Which points are slower, of seconds by point and run."""
    return np.array([each.verdict == SLOWER for each in judge(before, after, INDIFFERENCE)])


def welch(before: Array, after: Array) -> Array:
    """The same by Welch's test of the logarithms."""
    chance = ttest_ind(np.log(after), np.log(before), axis=1, equal_var=False).pvalue
    return _slower(np.log(before), np.log(after), chance)


def permutation(before: Array, after: Array) -> Array:
    """The same by all ways to share out the runs between the sweeps."""
    runs = before.shape[1]
    both = np.log(np.concatenate([before, after], axis=1))
    ways = [[n in way for n in range(2 * runs)] for way in _ways(runs)]
    first = np.array(ways, float).T
    apart = np.abs(both @ (1 - first) - both @ first)
    own = np.abs(both[:, runs:].sum(axis=1) - both[:, :runs].sum(axis=1))
    chance = (apart >= own[:, None] * (1 - 1e-12)).mean(axis=1)
    return _slower(np.log(before), np.log(after), chance)


def _ways(runs: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(2 * runs), runs))


def _slower(before: Array, after: Array, chance: Array) -> Array:
    difference = after.mean(axis=1) - before.mean(axis=1)
    return np.asarray((chance <= holm(chance)) & (difference > np.log1p(INDIFFERENCE)))


TESTS: dict[str, Callable[[Array, Array], Array]] = {
    "moderated": moderated, "welch": welch, "permutation": permutation,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    args = parser.parse_args()
    names = "".join(f"{f'{name} (false, found)':>24}" for name in TESTS)
    print(f"{'points':>6} {'noise':>14} {'runs':>4}{names}")
    misses = 0
    for points, kind, runs in itertools.product(POINTS, NOISES, RUNS):
        shares = {test: of_cell(test, points, kind, runs, args.trials) for test in TESTS}
        values = "".join(f"{false:>16.3f}{found:>8.2f}" for false, found in shares.values())
        false, found = shares["moderated"]
        is_clear = (kind, runs) == (("normal", 0.03), 6)
        missed = runs >= RUNS_MIN and (false > ERROR or (is_clear and found < FOUND_MIN))
        misses += missed
        print(f"{points:>6} {kind[0]:>9} {kind[1]:>4g} {runs:>4}{values}{' MISSED' * missed}")
    sys.exit(f"{misses} cells miss what is required" if misses else 0)


def of_cell(
    test: str, points: int, kind: tuple[str, float], runs: int, trials: int
) -> tuple[float, float]:
    """(how often something is slower where nothing is, how often the slowed point is found)."""
    dice = np.random.default_rng(1)
    false = found = 0
    for _ in range(trials):
        before, after = (100 * np.exp(noise(*kind, (points, runs), dice)) for _ in range(2))
        false += bool(TESTS[test](before, after).any())
        after[0] *= SLOWED
        found += bool(TESTS[test](before, after)[0])
    return false / trials, found / trials


if __name__ == "__main__":
    main()
