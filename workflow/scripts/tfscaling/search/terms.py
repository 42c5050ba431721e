"""Candidates, goals and settings of a search, and what it decides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist

from tfscaling.spec.config import LOOKS

#: The share of the error of each look.
SHARES = (0.4, 0.2, *(0.4 / 6,) * 6)
#: The share of a screen by one run, and what it assumes: runs scatter by so much at most, and none
#: takes more than so many times as long as usual.
SCREEN_SHARE, SCREEN_SCATTER, SCREEN_DISTURBED = 0.2, 0.10, 3.0
#: The share of bounds before runs, of two parts of the first round together.
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
    """A candidate and its runs by block, None where there is none or the infrastructure ended it.

    `failed_blocks` are those, from 0, whose run failed too often to be tried again; those in
    `skipped_blocks` are replaced by later ones, up to `blocks_max`. `cost` is the cost of a run, in
    any unit. Candidates on the same `line` differ in their nodes alone.
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
        """How many runs it has."""
        return sum(run is not None for run in self.runs)

    def blocks(self, runs: int) -> list[int]:
        """The blocks of its first runs, from 0."""
        return [n for n in range(self.blocks_max) if n not in self.skipped_blocks][:runs]

    def lacks(self, runs: int) -> list[int]:
        """Those of the blocks of its first runs in which it has none."""
        had = len(self.runs)
        return [n for n in self.blocks(runs) if n >= had or self.runs[n] is None]

    def cannot_run(self, runs: int) -> bool:
        """Whether one of the first runs, which it lacks, failed too often."""
        return not self.failed_blocks.isdisjoint(self.lacks(runs))


@dataclass(frozen=True)
class Goal:
    """A metric, the smaller the better, above zero, times a known factor of each candidate.

    `is_cost`: it is a time on all nodes together. `has_target`: runs may miss a target.
    """

    name: str
    metric: str
    factors: Mapping[str, float] = field(default_factory=dict)
    is_cost: bool = False
    has_target: bool = False


@dataclass(frozen=True)
class Constraint:
    """A quality that must be at least `limit` (at most, if `is_most`), but for an indifference.

    It is a limit of the mean over a candidate's runs and of every run.
    """

    metric: str
    limit: float
    indifference: float = 0.001
    is_most: bool = False


@dataclass(frozen=True)
class Settings:
    """`indifference` is a fraction; all others are fixed at the start.

    The last look is the last of LOOKS with at most `repeats_max` runs. `is_screened`: before them
    one run of each is looked at. `is_bounded`: no line is taken to be faster than linear.
    """

    indifference: float = 0.05
    confidence: float = 0.95
    repeats_max: int = LOOKS[-1]
    is_screened: bool = False
    is_bounded: bool = False

    def __post_init__(self) -> None:
        if not (self.indifference > 0 and 0 < self.confidence < 1 and self.looks):
            raise ValueError("indifference > 0, 0 < confidence < 1 and repeats_max >= 2 are needed")

    @property
    def looks(self) -> tuple[int, ...]:
        return tuple(runs for runs in LOOKS if runs <= self.repeats_max)

    def error(self, look: int) -> float:
        """The error that a look may make."""
        left = 1 - SCREEN_SHARE * self.is_screened - BOUNDS_SHARE * self.is_bounded
        return left * (1 - self.confidence) * SHARES[look] / sum(SHARES[: len(self.looks)])

    @property
    def bounds_error(self) -> float:
        """The error that each of the two parts of a bounded first round may make."""
        return BOUNDS_SHARE * (1 - self.confidence) / 2

    def screen_factor(self, comparisons: int) -> float:
        """How many times as much as the best a single run must take to leave by the screen."""
        tail = SCREEN_SHARE * (1 - self.confidence) / max(comparisons, 1)
        quantile = NormalDist().inv_cdf(1 - tail)
        return SCREEN_DISTURBED * math.exp(quantile * math.sqrt(2) * SCREEN_SCATTER)


class Why(StrEnum):
    """Why a candidate left."""

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
class Left:
    """A candidate that left in a round, from 1, or in 0 by a screen or a bound.

    `gap`: by what fraction `rival` was ahead, by a bound at least.
    """

    name: str
    round: int
    why: Why
    rival: str | None = None
    gap: float | None = None


@dataclass(frozen=True)
class Claim:
    """One candidate is better than another by at least a fraction."""

    better: str
    worse: str
    at_least: float


@dataclass(frozen=True)
class Verdict:
    """What is known for a goal after its last look.

    `best` may be worse than the best by the fraction `bound`; None where nothing may be named.
    `cheapest` is the cheapest of the survivors shown to be within the indifference of the best.
    Nothing is compared, so nothing decided, where fewer than two candidates have a valid run.
    `unresolved` are those that left because they do not run or miss the target, and whose valid
    runs are not shown to be worse than the runs of `best`.
    """

    goal: str
    best: str | None
    bound: float
    is_decided: bool
    has_ended: bool
    survivors: tuple[str, ...]
    left: tuple[Left, ...]
    claims: tuple[Claim, ...]
    cheapest: str | None
    rounds: int
    is_compared: bool = True
    unresolved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """A verdict for each goal, and what the next look needs.

    `runs` are those of each candidate that the last look went by, `wanted` the candidates that the
    next look needs with `runs_next` runs each: none and 0 when the search has ended. Those of them
    that are `waiting` are run only if the runs of the others leave it open.
    """

    verdicts: tuple[Verdict, ...]
    runs: Mapping[str, int]
    wanted: tuple[str, ...]
    runs_next: int
    allowed: Mapping[str, Allowed]
    waiting: tuple[str, ...] = ()

    @property
    def due(self) -> tuple[str, ...]:
        """The candidates whose runs the next look needs."""
        return tuple(name for name in self.wanted if name not in self.waiting)
