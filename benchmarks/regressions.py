#!/usr/bin/env python3
"""How often two sweeps of the same are said to differ, and how often a slower point is found.

Simulates --trials pairs of sweeps of each cell (points, noise, runs):
- nothing differs: how often a point is called slower or faster;
- all points are slower by a little more than the indifference: how often one is called the same,
  and how often all printed intervals hold the truth;
- one point takes 10 % longer: how often it is found.
Exit status 1 if a claim is false in more than 5 % of a cell that is claimed, if all intervals hold
in less than 90 % of one, or if the slow point is found in less than 85 % where 6 runs of 8 points
scatter by 3 %. Cells of LIMITS are simulated to show what does not hold.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "workflow/scripts"))

from tfscaling.conclusions.time_changes import FASTER, SAME, SLOWER, judge_changes  # noqa: E402

Array = np.ndarray
Dice = np.random.Generator
Noise = Callable[[tuple[int, int], Dice], Array]
INDIFFERENCE, ERROR, NEAR, SLOWED = 0.05, 0.05, 1.0505, 1.1
FOUND_MIN, HOLD_MIN = 0.85, 0.90
POINTS, RUNS = (8, 40, 150), (4, 6)


def normal(size: float) -> Noise:
    return lambda shape, dice: size * dice.standard_normal(shape)


def skewed(shape: tuple[int, int], dice: Dice) -> Array:
    return 0.1 * dice.gamma(2, 1, shape) / np.sqrt(2)


def mixed(shape: tuple[int, int], dice: Dice) -> Array:
    """Each point scatters otherwise, by 2 to 20 %, in both sweeps alike."""
    sizes = np.exp(np.random.default_rng(7).uniform(np.log(0.02), np.log(0.2), (shape[0], 1)))
    return np.asarray(sizes * dice.standard_normal(shape))


def disturbed(share: float, factor: float) -> Noise:
    """Let some runs take `factor` times as long."""

    def made(shape: tuple[int, int], dice: Dice) -> Array:
        return 0.05 * dice.standard_normal(shape) + np.log(factor) * (dice.random(shape) < share)

    return made


def modes(share: float, factor: float, of_points: float) -> Noise:
    """Let a share of the runs take `factor` times as long, at a share of the points."""

    def made(shape: tuple[int, int], dice: Dice) -> Array:
        is_slow = (dice.random(shape) < share) * (
            np.arange(shape[0])[:, None] < max(1, round(of_points * shape[0]))
        )
        return 0.02 * dice.standard_normal(shape) + np.log(factor) * is_slow

    return made


def dependent(shape: tuple[int, int], dice: Dice) -> Array:
    """Each run is near the one before it: correlation 0.5."""
    found = dice.standard_normal(shape)
    for run in range(1, shape[1]):
        found[:, run] = 0.5 * found[:, run - 1] + np.sqrt(0.75) * found[:, run]
    return 0.05 * found


NOISES: dict[str, Noise] = {
    "1 %": normal(0.01),
    "3 %": normal(0.03),
    "20 %": normal(0.2),
    "skewed, 10 %": skewed,
    "each its own 2 to 20 %": mixed,
    "5 %, one run in twenty takes 3 times": disturbed(0.05, 3),
    "5 %, one run in ten takes 2 times": disturbed(0.1, 2),
    "two modes, half of runs 35 % slower, a tenth": modes(0.5, 1.35, 0.1),
    "two modes, 30 % of runs 22 % slower, a tenth": modes(0.3, 1.22, 0.1),
    "two modes, half of runs 35 % slower, all": modes(0.5, 1.35, 1),
    "dependent runs, 5 %": dependent,
}
#: What is not claimed: (noise, points, runs), None for all.
LIMITS = (
    ("dependent runs, 5 %", None, None),
    ("two modes, half of runs 35 % slower, a tenth", 150, 4),
    ("two modes, half of runs 35 % slower, all", 8, 4),
)


def is_claimed(name: str, points: int, runs: int) -> bool:
    cell = (name, points, runs)
    return not any(
        all(part in (None, own) for part, own in zip(limit, cell, strict=True)) for limit in LIMITS
    )


def of_cell(noise: Noise, points: int, runs: int, trials: int, seed: int) -> tuple[float, ...]:
    """(slower, faster, same where false; intervals that hold; the slowed point found)."""
    dice = np.random.default_rng(seed)
    counts = np.zeros(5)
    for _ in range(trials):
        before, after = (100 * np.exp(noise((points, runs), dice)) for _ in range(2))
        verdicts = {each.verdict for each in judge_changes(before, after, INDIFFERENCE)}
        near = judge_changes(before, NEAR * after, INDIFFERENCE)
        after[0] *= SLOWED
        counts += [
            SLOWER in verdicts,
            FASTER in verdicts,
            SAME in {each.verdict for each in near},
            all(each.low <= NEAR <= each.high for each in near),
            judge_changes(before, after, INDIFFERENCE)[0].verdict == SLOWER,
        ]
    return tuple((counts / trials).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    trials = args.trials
    print(f"{trials} trials of each cell, seed {args.seed}\n")
    print("| noise of a run | points | runs | slower | faster | same | intervals hold | found | |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|")
    misses = 0
    for (name, noise), points, runs in itertools.product(NOISES.items(), POINTS, RUNS):
        slower, faster, same, hold, found = of_cell(noise, points, runs, trials, args.seed)
        claimed = is_claimed(name, points, runs)
        missed = claimed and (max(slower, faster, same) > ERROR or hold < HOLD_MIN)
        missed |= (name, runs, points) == ("3 %", 6, 8) and found < FOUND_MIN
        misses += missed
        values = " | ".join(f"{value:.3f}" for value in (slower, faster, same, hold, found))
        remark = "MISSED" if missed else "" if claimed else "not claimed"
        print(f"| {name} | {points} | {runs} | {values} | {remark} |", flush=True)
    sys.exit(f"{misses} cells miss what is required" if misses else 0)


if __name__ == "__main__":
    main()
