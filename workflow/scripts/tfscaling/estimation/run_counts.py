"""How many runs decide what: the one rule that conclusions, searches, pages and documents quote."""

from __future__ import annotations

from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL
from tfscaling.study.config_types import LIMITED_RUNS_MIN

#: Runs of the configuration that a search names, and of its closest rivals: with ten, a slow mode
#: in 30 % of its runs is seen with 97 %.
LEADER_RUNS, CLOSE_LEADER_RUNS = 4, 10
#: Runs of a configuration in each of two sweeps: fewer show neither outliers nor a second mode.
SWEEP_RUNS = 4
#: A limit or target counts as kept from this many runs on, if all of them kept it.
KEPT_RUNS = LIMITED_RUNS_MIN
#: Runs of a configuration that must show that it cannot be recommended; at least half of all its
#: planned runs, too.
CLOSED_RUNS = 2


def missed_at_most(runs: int) -> float:
    """Return the share of runs that may miss a limit with 95 % if this many runs all kept it."""
    return float(1 - 0.05 ** (1 / runs)) if runs else 1.0


def is_closed(shown: int, planned: int) -> bool:
    """Return whether this many of all planned runs show that a configuration is out."""
    return shown >= CLOSED_RUNS and 2 * shown >= planned


#: The rule in words.
RULE = (
    f"Intervals and comparisons need {RUNS_FOR_INTERVAL} runs of each configuration. "
    f"A search names a configuration after {LEADER_RUNS} runs ({CLOSE_LEADER_RUNS} with a close "
    f"rival; 1 complete run after short runs), and two sweeps are compared from {SWEEP_RUNS} runs "
    f"of each on. A limit or target is supported from {KEPT_RUNS} runs on that all kept it: with "
    f"95%, fewer than {missed_at_most(KEPT_RUNS):.0%} of the runs miss it. A configuration is "
    f"closed if at least half of its planned runs, and {CLOSED_RUNS} or more, show that it cannot "
    "be recommended."
)
