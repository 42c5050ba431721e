"""From which epoch on the steps of several runs take equally long."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.stats
from tfscaling.record.run_record import StepBlock
from tfscaling.record.step_estimates import CHANGE_MIN
from tfscaling.tables.steady_epochs import CHANGE_ERROR_RATE, first_steady_block


def blocks(logs: Sequence[Sequence[float]], steps: int = 1) -> list[list[StepBlock]]:
    """Runs whose steps take the exponentials of these seconds."""
    return [
        [StepBlock(steps=steps, duration_s=steps * math.exp(value)) for value in own]
        for own in logs
    ]


@pytest.mark.parametrize(
    ("profile", "first"),
    [
        ([0.0, 0.0], 0),
        ([1.01 * math.log1p(CHANGE_MIN), 0.0], 1),
        ([-1.01 * math.log1p(CHANGE_MIN), 0.0], 1),
        ([0.99 * math.log1p(CHANGE_MIN), 0.0], 0),
        ([1.0, 0.0, 0.0, 0.0], 1),
        ([0.0, 1.0, 0.0, 0.0], 2),
        ([3.0, 2.0, 1.0, 0.0], 3),
    ],
)
def test_without_scatter_the_smallest_change_that_counts_decides(
    profile: list[float], first: int
) -> None:
    """The speed of a run as a whole, and the number of its steps, change nothing."""
    number = random.randint(2, 6)
    levels = [random.uniform(-3, 3) for _ in range(number)]
    runs = [[level + value for value in profile] for level in levels]
    assert first_steady_block(blocks(runs, random.randint(1, 100))) == first


@pytest.mark.parametrize(("runs", "count"), [(2, 2), (2, 5), (3, 3), (7, 4)])
@pytest.mark.parametrize(("factor", "is_found"), [(0.98, False), (1.02, True)])
def test_a_change_counts_beyond_the_scatter_between_runs(
    runs: int, count: int, factor: float, is_found: bool
) -> None:
    """The bound is a t-test of each block, with the error rate of all blocks together."""
    noise = np.random.default_rng(seed := random.randrange(10**6)).normal(0, 1, (runs, count))
    noise -= noise.mean(axis=0)
    noise -= noise.mean(axis=1, keepdims=True)
    freedom = (runs - 1) * (count - 1)
    noise *= 0.2 / math.sqrt((noise**2).sum() / freedom)
    quantile = scipy.stats.t.ppf(1 - CHANGE_ERROR_RATE / 2 / (count - 1), freedom)
    noise[:, 0] += factor * quantile * 0.2 * math.sqrt(2 / runs)
    assert first_steady_block(blocks(noise.tolist())) == int(is_found), seed


@pytest.mark.parametrize("runs", [[], [[1.0, 0.0]], [[1.0], [1.0]], [[1.0, 0.0], [1.0]], [[], []]])
def test_a_single_run_or_other_numbers_of_blocks_show_nothing(runs: list[list[float]]) -> None:
    if runs:
        assert first_steady_block(blocks(runs)) == 0
    else:
        assert first_steady_block([]) == 0


def test_steps_that_take_no_time_are_no_error() -> None:
    none = [StepBlock(steps=3, duration_s=0.0), StepBlock(steps=3, duration_s=3.0)]
    assert first_steady_block([none, none]) == 1
