"""The numbers of runs that decide: the one rule that conclusions, searches and documents quote."""

from __future__ import annotations

import math

from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL
from tfscaling.study.config_types import COMPARED_RUNS_MIN, LIMITED_RUNS_MIN

#: Runs that a configuration needs before a search names it; the second number counts with a close
#: rival: with ten runs, a slow mode in 30 % of them is seen with 97 %.
LEADER_RUNS, CLOSE_LEADER_RUNS = 4, 10
#: Minimum runs of a configuration in each of two sweeps, or of each of two revisions.
SWEEP_RUNS = COMPARED_RUNS_MIN
#: If all runs kept a limit or target, it counts as kept from this many runs on.
KEPT_RUNS = LIMITED_RUNS_MIN
#: Minimum runs that show that a configuration cannot be recommended, see `is_ruled_out`.
CLOSED_RUNS = 2


def miss_rate_bound(runs: int, configurations: int = 1) -> float:
    """Return an upper bound of the share of runs that miss a limit, if no measured run missed it.

    The result is a fraction with 95 % confidence.

    Args:
        runs: Number of measured runs of the configuration. All of them kept the limit.
        configurations: Number of configurations among which it was chosen. The more, the more often
            one of them keeps the limit in all its runs by chance.
    """
    return float(1 - (0.05 / max(1, configurations)) ** (1 / runs)) if runs else 1.0


def miss_rate_text(runs: int, configurations: int = 1) -> str:
    """Return `miss_rate_bound` as a percentage that is rounded up, such as `36%`.

    Args:
        runs: Number of measured runs of the configuration.
        configurations: Number of configurations among which it was chosen.
    """
    return f"{math.ceil(100 * miss_rate_bound(runs, configurations) - 1e-9)}%"


def is_ruled_out(shown: int, planned: int) -> bool:
    """Return whether enough runs show that a configuration cannot be recommended.

    These are CLOSED_RUNS or more, and at least half of the planned runs.

    Args:
        shown: Number of runs that show it, such as runs that miss a limit.
        planned: Number of all planned runs of the configuration.
    """
    return shown >= CLOSED_RUNS and 2 * shown >= planned


#: The rule as text for people.
RULE = (
    f"Intervals and comparisons need {RUNS_FOR_INTERVAL} runs of each configuration. "
    f"A search names a configuration after {LEADER_RUNS} runs ({CLOSE_LEADER_RUNS} with a close "
    f"rival; 1 complete run after short runs), and two sweeps are compared from {SWEEP_RUNS} runs "
    f"of each on. A limit or target is supported from {KEPT_RUNS} runs on that all kept it: with "
    f"95%, fewer than {miss_rate_text(KEPT_RUNS)} of the runs miss it, or fewer than "
    f"{miss_rate_text(KEPT_RUNS, 6)} if it is one of six configurations. A configuration is "
    f"closed if at least half of its planned runs, and {CLOSED_RUNS} or more, show that it cannot "
    "be recommended."
)
