"""The epochs from which on the runs of a configuration no longer change, by all runs together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from tfscaling.record.run_record import StepBlock
from tfscaling.record.step_estimates import CHANGE_MIN

#: The chance that the epochs of runs seem to change where they only scatter.
CHANGE_CHANCE = 0.01


def steady_place(runs: Sequence[Sequence[StepBlock]]) -> int:
    """Return the first block from which on the blocks of these runs take as long as their last.

    The runs are of one configuration, with one block for each epoch after the first. A block
    differs from the last by more than CHANGE_MIN, and by more than the same blocks scatter between
    the runs: the pace of a run is taken off. The result is the last block's place if the block
    before differs from it: the epochs still change. It is 0 for a single run, and where the runs
    have different numbers of blocks.
    """
    count = len(runs[0]) if len({len(steady) for steady in runs}) == 1 else 0
    if len(runs) < 2 or count < 2:
        return 0
    logs = np.log([[max(b.duration_s / b.steps, 1e-9) for b in steady] for steady in runs])
    profile = logs.mean(axis=0)
    residuals = logs - profile - logs.mean(axis=1, keepdims=True) + profile.mean()
    freedom = (len(runs) - 1) * (count - 1)
    error = math.sqrt(2 / len(runs) * (residuals**2).sum() / freedom)
    quantile = scipy.special.stdtrit(freedom, 1 - CHANGE_CHANCE / 2 / (count - 1))
    distance = abs(profile[:-1] - profile[-1])
    (differing,) = np.nonzero(distance > max(math.log1p(CHANGE_MIN), quantile * error))
    return int(differing[-1]) + 1 if len(differing) else 0
