"""Steps with and without input and synchronisation, made after a training: rounds of blocks.

A block is of steps of one way. A pipeline makes batches ahead, so what it has ready would hide how
long it takes to make one: before a block with real input that is taken out, and before a block
without input the pipeline is given the time to fill up, after which it takes no more of the CPU.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tfscaling.records.rank_report import AttributionRound

#: An interval of the median over twelve rounds leaves out the two least and the two greatest.
ROUNDS = 12
#: Steps of a block that are not counted, after which all ranks are in step.
UNCOUNTED_STEPS = 2
#: Steps that are counted: as many as take so long, within these bounds.
BLOCK_S, COUNTED_MIN, COUNTED_MAX = 0.1, 5, 100
#: So many batches a pipeline has ready at most, of those that are looked for.
READY_MAX = 20
#: It is given the time to make so many, but no longer than that.
FILLED_BATCHES, FILLED_MAX_S = 6, 1.0


class Steps(NamedTuple):
    """What a rank does with a batch; each returns when it is done."""

    train: Callable[[Any], None]
    #: Forward and backward pass alone, without the other ranks.
    compute: Callable[[Any], None]
    #: The mean of the ranks' values, which then go on together.
    mean: Callable[[float], float]


class _Way(NamedTuple):
    prepare: Callable[[], None]
    batches: Iterator[Any]
    step: Callable[[Any], None]


def measure(
    steps: Steps,
    real: Iterator[Any],
    kept: Iterator[Any],
    seed: int,
    sign_of_life: Callable[[int], None],
) -> list[AttributionRound]:
    """Seconds of a step in each way, ROUNDS times.

    `real` and `kept` are endless: batches of the pipeline, and batches that are on the devices
    already. The order of the ways is random by `seed`, the same on all ranks, as are the numbers of
    steps. `sign_of_life` is told the number of rounds before each block.
    """
    for compiled in (steps.train, steps.compute):
        compiled(next(kept))
    pipeline = _Pipeline(real)
    ways = [
        _Way(prepare, batches, step)
        for step in (steps.train, steps.compute)
        for prepare, batches in ((pipeline.drain, real), (pipeline.fill, kept))
    ]
    lengths = [_counted(steps.mean(_step_time_s(way, COUNTED_MIN, steps.mean))) for way in ways]
    random, found = np.random.default_rng(seed), []
    for number in range(ROUNDS):
        seconds = {}
        for place in random.permutation(len(ways)).tolist():
            seconds[place] = _step_time_s(ways[place], lengths[place], steps.mean)
            sign_of_life(number)
        found.append(AttributionRound(*(seconds[place] for place in range(len(ways)))))
    return found


def _counted(step_time_s: float) -> int:
    """How many steps make a block."""
    return min(max(math.ceil(BLOCK_S / step_time_s), COUNTED_MIN), COUNTED_MAX)


def _step_time_s(way: _Way, counted: int, mean: Callable[[float], float]) -> float:
    """Mean seconds of a step, with the wait for its batch."""
    mean(0.0)  # all ranks begin together
    way.prepare()
    start_s = 0.0
    for number in range(UNCOUNTED_STEPS + counted):
        if number == UNCOUNTED_STEPS:
            start_s = time.perf_counter()
        way.step(next(way.batches))
    return (time.perf_counter() - start_s) / counted


class _Pipeline:
    """A pipeline whose ready batches can be taken out, or let fill up."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        waits_s = [self._wait_s() for _ in range(READY_MAX)]
        #: Seconds that it takes to make a batch; the first were ready.
        self._made_s = statistics.fmean(waits_s[READY_MAX // 2 :])
        self._is_full = False

    def drain(self) -> None:
        """Take what is ready: a batch that is waited for was not."""
        self._is_full = False
        for _ in range(READY_MAX):
            if self._wait_s() >= self._made_s / 2:
                return

    def fill(self) -> None:
        """Wait until all is ready again."""
        if not self._is_full:
            time.sleep(min(FILLED_BATCHES * self._made_s, FILLED_MAX_S))
        self._is_full = True

    def _wait_s(self) -> float:
        start_s = time.perf_counter()
        next(self._batches)
        return time.perf_counter() - start_s
