"""Candidates, goals and settings of a search, and the types of its decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from tfscaling.spec.config import LOOKS

#: The share of the error of each interim analysis.
SHARES = (0.4, 0.2, *(0.4 / 6,) * 6)
#: A screen by one run has this share of the error. It assumes that runs scatter by at most
#: SCREEN_SCATTER and that no run takes more than SCREEN_DISTURBED times as long as usual.
SCREEN_SHARE, SCREEN_SCATTER, SCREEN_DISTURBED = 0.2, 0.10, 3.0
#: The share of bounds by linear speed-up, for both parts of the first round together.
BOUNDS_SHARE = 0.2
#: Amounts are claimed from so many runs on.
CLAIM_RUNS = 4
#: Where a run may miss a target or a limit, a candidate is named from so many runs on, all of which
#: kept it: with 95 %, no more than 24 % of its runs miss it.
KEPT_RUNS = 11
#: The constraint's share of the error; the goals divide the rest.
CONSTRAINT_SHARE = 0.2

#: Metric → value of a run; infinite: it diverged or did not reach the target; NaN: not known.
Run = Mapping[str, float]


@dataclass(frozen=True)
class Candidate:
    """A candidate and its runs by block; None: no run, or the infrastructure ended it.

    `failed_blocks`, from 0, are those whose run failed too often to be tried again. Later blocks
    replace `skipped_blocks`, up to `blocks_max`. `cost` of a run is in any unit. Candidates on the
    same `line` differ only in their nodes.
    """

    name: str
    runs: tuple[Run | None, ...] = ()
    failed_blocks: frozenset[int] = frozenset()
    skipped_blocks: frozenset[int] = frozenset()
    blocks_max: int = LOOKS[-1]
    cost: float | None = None
    line: str = ""
    nodes: int = 1

    @property
    def number(self) -> int:
        """The number of its runs."""
        return sum(run is not None for run in self.runs)

    def blocks(self, runs: int) -> list[int]:
        """The blocks of its first `runs` runs, from 0."""
        return [n for n in range(self.blocks_max) if n not in self.skipped_blocks][:runs]

    def lacks(self, runs: int) -> list[int]:
        """The blocks of its first `runs` runs in which it has no run."""
        had = len(self.runs)
        return [n for n in self.blocks(runs) if n >= had or self.runs[n] is None]

    def cannot_run(self, runs: int) -> bool:
        """Whether one of its first `runs` runs is missing and failed too often."""
        return not self.failed_blocks.isdisjoint(self.lacks(runs))


@dataclass(frozen=True)
class Goal:
    """A metric above zero, the smaller the better.

    `is_cost`: it is a time on all nodes together. `has_target`: runs may miss a target.
    """

    name: str
    is_cost: bool = False
    has_target: bool = False


@dataclass(frozen=True)
class Constraint:
    """A quality of at least `limit` (at most, if `is_most`), give or take the indifference.

    It limits the mean over a candidate's runs, and every run.
    """

    metric: str
    limit: float
    indifference: float = 0.001
    is_most: bool = False


@dataclass(frozen=True)
class Settings:
    """`indifference` is a fraction; all others are fixed at the start.

    `is_screened`: one run of each candidate is analysed first. `is_bounded`: speed-up is taken to
    be linear at most.
    """

    indifference: float = 0.05
    confidence: float = 0.95
    repeats_max: int = LOOKS[-1]
    is_screened: bool = False
    is_bounded: bool = False

    def __post_init__(self) -> None:
        if not (self.indifference > 0 and 0 < self.confidence < 1 and self.analyses):
            raise ValueError("indifference > 0, 0 < confidence < 1 and repeats_max >= 2 are needed")

    @property
    def analyses(self) -> tuple[int, ...]:
        """Runs of each remaining candidate at each interim analysis."""
        return tuple(runs for runs in LOOKS if runs <= self.repeats_max)

    def error(self, analysis: int) -> float:
        """The error that an interim analysis may make, from 0."""
        share = 1 - SCREEN_SHARE * self.is_screened - BOUNDS_SHARE * self.is_bounded
        return share * (1 - self.confidence) * SHARES[analysis] / sum(SHARES[: len(self.analyses)])

    @property
    def bounds_error(self) -> float:
        """The error that each of the two parts of a bounded first round may make."""
        return BOUNDS_SHARE * (1 - self.confidence) / 2

    def screen_factor(self, comparisons: int) -> float:
        """The least ratio of a single run to the best one that eliminates by the screen."""
        tail = SCREEN_SHARE * (1 - self.confidence) / max(comparisons, 1)
        quantile = NormalDist().inv_cdf(1 - tail)
        return SCREEN_DISTURBED * math.exp(quantile * math.sqrt(2) * SCREEN_SCATTER)


class Reason(StrEnum):
    """Why a candidate was eliminated."""

    NOT_THE_BEST = "not the best"
    SCREENED = "far behind in its only run"
    BOUNDED = "no better even with linear speed-up"
    DOES_NOT_RUN = "does not run"
    NOT_REACHED = "does not reach the target reliably"
    NOT_ALLOWED = "outside the constraint"


class Allowed(StrEnum):
    """What is known of a candidate and the constraint."""

    IN = "in"
    OUT = "out"
    OPEN = "open"


@dataclass(frozen=True)
class Elimination:
    """A candidate that was eliminated in a round, from 1, or in 0 by a screen or a bound.

    `gap`: by what fraction `rival` was ahead, at least by this where `reason` is a bound.
    `at_least`: by what fraction it is worse than `rival`, where that is claimed.
    """

    name: str
    round: int
    reason: Reason
    rival: str | None = None
    gap: float | None = None
    at_least: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What is known for a goal after its last interim analysis.

    `best` may be worse than the best by the fraction `bound`; None where nothing may be named.
    `cheapest` is the cheapest of the survivors shown to be within the indifference of the best.
    Nothing is compared, so nothing decided, where fewer than two candidates have a valid run.
    `unresolved` were eliminated because they do not run or miss the target, and their valid runs
    are not shown to be worse than the runs of `best`.
    """

    goal: str
    best: str | None
    bound: float
    is_decided: bool
    has_ended: bool
    survivors: tuple[str, ...]
    eliminated: tuple[Elimination, ...]
    cheapest: str | None
    rounds: int
    is_compared: bool = True
    unresolved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """A verdict for each goal, and what the next interim analysis needs.

    `runs` of each candidate were analysed last. The next analysis needs `runs_next` runs of each
    `wanted` candidate: none and 0 when the search has ended. Those that are `waiting` only run if
    the runs of the others leave it open.
    """

    verdicts: tuple[Verdict, ...]
    runs: Mapping[str, int]
    wanted: tuple[str, ...]
    runs_next: int
    allowed: Mapping[str, Allowed]
    waiting: tuple[str, ...] = ()

    @property
    def due(self) -> tuple[str, ...]:
        """The candidates whose runs the next analysis needs."""
        return tuple(name for name in self.wanted if name not in self.waiting)
