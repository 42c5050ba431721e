"""The epoch from which on a configuration's short runs are steady, by all runs together.

The table of runs projects a longer training from the steady epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from tfscaling.record.run_record import StepBlock
from tfscaling.record.step_estimates import CHANGE_MIN

#: Error rate of the test whether epochs still change.
CHANGE_ERROR_RATE = 0.01


def first_steady_block(runs: Sequence[Sequence[StepBlock]]) -> int:
    """Return the index of the first block from which on steps take as long as in the last block.

    A block differs from the last one if its time per step differs by more than CHANGE_MIN, and by
    more than the scatter between runs; the mean speed of each run is removed. The result is the
    last index if the epochs still change, and 0 for a single run or runs with different numbers of
    blocks.

    Args:
        runs: The blocks of each run of a configuration, one for each epoch after the first.
    """
    count = len(runs[0]) if len({len(steady) for steady in runs}) == 1 else 0
    if len(runs) < 2 or count < 2:
        return 0
    logs = np.log([[max(b.duration_s / b.steps, 1e-9) for b in steady] for steady in runs])
    profile = logs.mean(axis=0)
    residuals = logs - profile - logs.mean(axis=1, keepdims=True) + profile.mean()
    freedom = (len(runs) - 1) * (count - 1)
    error = math.sqrt(2 / len(runs) * (residuals**2).sum() / freedom)
    quantile = scipy.special.stdtrit(freedom, 1 - CHANGE_ERROR_RATE / 2 / (count - 1))
    distance = abs(profile[:-1] - profile[-1])
    (differing,) = np.nonzero(distance > max(math.log1p(CHANGE_MIN), quantile * error))
    return int(differing[-1]) + 1 if len(differing) else 0
