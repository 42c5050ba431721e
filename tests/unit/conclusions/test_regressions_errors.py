"""Slower, faster, failing more often: statistics of two sweeps, where the truth is known."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import regressions
from simulated import NOISES, noise, share
from tfscaling.conclusions.time_changes import FASTER, OPEN, SAME, SLOWER, judge_changes
from tfscaling.estimation.run_counts import SWEEP_RUNS

INDIFFERENCE = 0.05
Array = np.ndarray


def sweep(kind: tuple[str, float], points: int, runs: int, dice: np.random.Generator) -> Array:
    """Seconds of points whose times are all 100 s in truth: (points, runs)."""
    return 100 * np.exp(noise(*kind, points, dice)[:, :runs])


@pytest.mark.parametrize("kind", NOISES, ids=lambda kind: f"{kind[0]} {kind[1]:g}")
@pytest.mark.parametrize(("points", "runs"), [(2, SWEEP_RUNS), (12, SWEEP_RUNS), (12, 6)])
def test_nothing_is_slower_between_two_sweeps_of_the_same(
    kind: tuple[str, float], points: int, runs: int
) -> None:
    dice = np.random.default_rng(1)
    pairs = [[sweep(kind, points, runs, dice) for _ in range(2)] for _ in range(200)]
    verdicts = [{change.verdict for change in judge_changes(a, b, INDIFFERENCE)} for a, b in pairs]
    assert share([SLOWER in found for found in verdicts]) <= 0.05
    assert share([FASTER in found for found in verdicts]) <= 0.05


@pytest.mark.parametrize("name", [name for name in regressions.NOISES if "tenth" in name])
def test_a_second_mode_at_some_points_of_many_is_no_change(name: str) -> None:
    draw = partial(regressions.two_samples, regressions.NOISES[name], (40, 6))
    slower, faster, *_ = regressions.error_rates(draw, judge_changes, 60, 1)
    assert max(slower, faster) <= 0.05


def test_ten_per_cent_at_one_point_are_found_with_six_runs() -> None:
    dice = np.random.default_rng(1)
    found = []
    for _ in range(200):
        before, after = (sweep(("normal", 0.03), 8, 6, dice) for _ in range(2))
        after[3] *= 1.1
        found.append([change.verdict for change in judge_changes(before, after, INDIFFERENCE)])
    assert share([verdicts[3] == SLOWER for verdicts in found]) >= 0.9
    assert share([SLOWER in verdicts[:3] + verdicts[4:] for verdicts in found]) <= 0.05


def test_points_just_outside_the_indifference_are_not_the_same() -> None:
    dice = np.random.default_rng(1)
    for kind in NOISES:
        pairs = [[sweep(kind, 6, 6, dice) for _ in range(2)] for _ in range(100)]
        found = [judge_changes(before, 1.0525 * after, INDIFFERENCE) for before, after in pairs]
        assert share([SAME in {change.verdict for change in each} for each in found]) <= 0.05


def test_a_verdict_agrees_with_its_ratio_and_interval() -> None:
    before = 100 * np.exp(np.linspace(-0.01, 0.01, 6)) * np.ones((4, 1))
    after = before * np.array([[1.2], [0.8], [1.001], [1.045]])
    slower, faster, same, near = judge_changes(before, after, INDIFFERENCE)
    assert [each.verdict for each in (slower, faster, same, near)] == [SLOWER, FASTER, SAME, OPEN]
    assert slower.low > 1 and slower.ratio == pytest.approx(1.2)
    assert faster.high < 1
    assert 1 / (1 + INDIFFERENCE) < same.low < 1 < same.high < 1 + INDIFFERENCE
    assert near.low > 1 and near.high > 1 + INDIFFERENCE  # shown to be slower, not by how much


def test_holm_shows_more_and_an_interval_leaves_out_what_is_shown() -> None:
    """A point is slower by Holm's level alone where others are decided before it."""
    scatter = 0.05 * np.array([-1.2, -0.6, 0.0, 0.1, 0.6, 1.1])
    before = 100 * np.exp([np.roll(scatter, n) for n in range(4)])
    alone, together = before[::-1].copy(), 2 * before[::-1]
    alone[0] *= 1.08
    together[0] = alone[0]
    assert judge_changes(before, alone, INDIFFERENCE)[0].verdict == OPEN
    slower = judge_changes(before, together, INDIFFERENCE)[0]
    assert (slower.verdict, slower.low) == (SLOWER, 1.0)


def test_all_that_is_printed_holds_together() -> None:
    """All points are slower by a little more than matters: none is the same, and all intervals."""
    dice, missed, same = np.random.default_rng(4), [], []
    for _ in range(200):
        before, after = (sweep(("normal", 0.01), 20, 6, dice) for _ in range(2))
        found = judge_changes(before, 1.0505 * after, INDIFFERENCE)
        missed.append(any(not each.low <= 1.0505 <= each.high for each in found))
        same.append(SAME in {each.verdict for each in found})
    assert share(missed) <= 0.07 and share(same) <= 0.05
