#!/usr/bin/env python3
"""How often equal sweeps or revisions are said to differ, and how often a slower point is found.

Simulates --trials pairs of sweeps of each cell (points, noise, runs):
- nothing differs: how often a point is called slower or faster;
- all points are slower by a little more than the indifference: how often one is called the same,
  and how often all printed intervals hold the truth;
- one point takes 10 % longer: how often it is found.
Exit status 1 if a claim is false in more than 5 % of a cell that is claimed, if all intervals hold
in less than 90 % of one, or if the slow point is found in less than 85 % where 6 runs of 8 points
scatter by 3 %. Cells of LIMITS are simulated to show what does not hold.

Then the same for two revisions in one sweep, whose runs are in pairs: under load of a pair, under
load that changes within a pair or depends on the runs before, with slow modes. PAIRED_LIMITS has
the cells that are not claimed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import scipy

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "workflow/scripts"))

from tfscaling.conclusions.time_changes import (  # noqa: E402
    FASTER,
    SAME,
    SLOWER,
    TimeChange,
    judge_changes,
    judge_paired_changes,
)

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


#: Logarithms of the times of two equal revisions: two arrays (points, runs).
Pair = tuple[Array, Array]
PairNoise = Callable[[tuple[int, int], Dice], Pair]
#: Scatter of each run besides its load: usual, and of a machine that is otherwise quiet.
OWN_NOISE, QUIET = 0.01, 0.002


def independent_noise(shape: tuple[int, int], dice: Dice, size: float = OWN_NOISE) -> Pair:
    """Scatter of each run alone."""
    first, second = (size * dice.standard_normal(shape) for _ in range(2))
    return first, second


def load(shape: tuple[int, ...], dice: Dice) -> Array:
    """Other work, which makes a run longer by up to a half."""
    return np.log(1 + 0.5 * dice.random(shape))


def shared(shape: tuple[int, int], dice: Dice) -> Pair:
    """Load that both runs of a pair have."""
    of_pair, own = load(shape, dice), independent_noise(shape, dice)
    return of_pair + own[0], of_pair + own[1]


def changing(share: float, size: float = OWN_NOISE) -> PairNoise:
    """Load that changes between the two runs of a share of the pairs."""

    def draw_pair(shape: tuple[int, int], dice: Dice) -> Pair:
        first, own = load(shape, dice), independent_noise(shape, dice, size)
        second = np.where(dice.random(shape) < share, load(shape, dice), first)
        swap = dice.random(shape) < 0.5
        return np.where(swap, second, first) + own[0], np.where(swap, first, second) + own[1]

    return draw_pair


def paired_modes(
    share: float, factor: float, of_points: float = 1.0, size: float = OWN_NOISE
) -> PairNoise:
    """Let a share of the runs take `factor` times as long, at a share of the points."""

    def draw_pair(shape: tuple[int, int], dice: Dice) -> Pair:
        has = (np.arange(shape[0]) < max(1, round(of_points * shape[0])))[:, None]
        slow = [np.log(factor) * has * (dice.random(shape) < share) for _ in range(2)]
        own = independent_noise(shape, dice, size)
        return own[0] + slow[0], own[1] + slow[1]

    return draw_pair


def following(size: float, correlation: float) -> PairNoise:
    """Load of a run that depends on the run before it, in the order of a sweep.

    Each repeat runs all points in a random order, the two runs of a pair in a random order.
    """

    def draw_pair(shape: tuple[int, int], dice: Dice) -> Pair:
        points, runs = shape
        number = 2 * points * runs
        steps = np.sqrt(1 - correlation**2) * dice.standard_normal(number)
        steps[0] = dice.standard_normal()
        loads = size * scipy.signal.lfilter([1.0], [1.0, -correlation], steps)
        by_pair = np.asarray(loads).reshape(runs, points, 2)
        by_pair = dice.permuted(by_pair, axis=2)
        place = np.argsort(dice.random((runs, points)), axis=1)
        by_point = np.take_along_axis(by_pair, place[:, :, None], axis=1)
        own = independent_noise(shape, dice)
        return by_point[:, :, 0].T + own[0], by_point[:, :, 1].T + own[1]

    return draw_pair


PAIRED: dict[str, PairNoise] = {
    "load of the pair": shared,
    "load, one pair in five changes": changing(0.2),
    "load, one pair in five changes, runs of 0.2 %": changing(0.2, QUIET),
    "load, each pair changes": changing(1.0),
    "one run in ten 20 % slower": paired_modes(0.1, 1.2),
    "30 % of runs 20 % slower": paired_modes(0.3, 1.2),
    "30 % of runs 20 % slower, runs of 0.2 %": paired_modes(0.3, 1.2, 1.0, QUIET),
    "half of runs 20 % slower": paired_modes(0.5, 1.2),
    "30 % of runs 20 % slower, a tenth": paired_modes(0.3, 1.2, 0.1),
    "half of runs 35 % slower": paired_modes(0.5, 1.35),
    "load of 10 %, correlation 0.5": following(0.1, 0.5),
    "load of 10 %, correlation 0.9": following(0.1, 0.9),
    "load of 20 %, correlation 0.99": following(0.2, 0.99),
}
PAIRED_POINTS, PAIRED_RUNS = (1, 8, 40), (4, 6, 12)
#: What is not claimed of pairs: (noise, points, runs), None for all.
PAIRED_LIMITS: tuple[tuple[str | None, int | None, int | None], ...] = ()


def is_claimed(
    name: str,
    points: int,
    runs: int,
    limits: Sequence[tuple[str | None, int | None, int | None]] = LIMITS,
) -> bool:
    cell = (name, points, runs)
    return not any(
        all(part in (None, own) for part, own in zip(limit, cell, strict=True)) for limit in limits
    )


def two_samples(noise: Noise, shape: tuple[int, int], dice: Dice) -> Pair:
    """Noise of two sweeps that have nothing in common."""
    return noise(shape, dice), noise(shape, dice)


def error_rates(
    draw: Callable[[Dice], Pair], judge: Callable[..., list[TimeChange]], trials: int, seed: int
) -> tuple[float, ...]:
    """(slower, faster, same where false; intervals that hold; the slowed point found)."""
    dice = np.random.default_rng(seed)
    counts = np.zeros(5)
    for _ in range(trials):
        before, after = (100 * np.exp(each) for each in draw(dice))
        verdicts = {each.verdict for each in judge(before, after, INDIFFERENCE)}
        near = judge(before, NEAR * after, INDIFFERENCE)
        after[0] *= SLOWED
        counts += [
            SLOWER in verdicts,
            FASTER in verdicts,
            SAME in {each.verdict for each in near},
            all(each.low <= NEAR <= each.high for each in near),
            judge(before, after, INDIFFERENCE)[0].verdict == SLOWER,
        ]
    return tuple((counts / trials).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--paired", action="store_true", help="only two revisions in one sweep")
    args = parser.parse_args()
    trials = args.trials
    print(f"{trials} trials of each cell, seed {args.seed}")
    misses = 0

    def report(name: str, points: int, runs: int, rates: Sequence[float], claimed: bool) -> bool:
        slower, faster, same, hold, found = rates
        missed = claimed and (max(slower, faster, same) > ERROR or hold < HOLD_MIN)
        missed |= (name, runs, points) == ("3 %", 6, 8) and found < FOUND_MIN
        values = " | ".join(f"{value:.3f}" for value in rates)
        remark = "MISSED" if missed else "" if claimed else "not claimed"
        print(f"| {name} | {points} | {runs} | {values} | {remark} |", flush=True)
        return missed

    print_head("noise of a run")
    for (name, noise), points, runs in itertools.product(NOISES.items(), POINTS, RUNS):
        if not args.paired:
            draw = partial(two_samples, noise, (points, runs))
            rates = error_rates(draw, judge_changes, trials, args.seed)
            misses += report(name, points, runs, rates, is_claimed(name, points, runs))
    print_head("two revisions, in pairs")
    cells = itertools.product(PAIRED.items(), PAIRED_POINTS, PAIRED_RUNS)
    for (name, paired), points, runs in cells:
        draw = partial(paired, (points, runs))
        rates = error_rates(draw, judge_paired_changes, trials, args.seed)
        claimed = is_claimed(name, points, runs, PAIRED_LIMITS)
        misses += report(name, points, runs, rates, claimed)
    sys.exit(f"{misses} cells miss what is required" if misses else 0)


def print_head(what: str) -> None:
    print(f"\n| {what} | points | runs | slower | faster | same | intervals hold | found | |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|")


if __name__ == "__main__":
    main()
