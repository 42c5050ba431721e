"""The candidates of a search, and the types of its decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tfscaling.spec.config import LOOKS

#: Where a run may miss a target or a limit, a candidate is named from so many runs on, all of which
#: kept it: with 95 %, no more than 24 % of its runs miss it.
KEPT_RUNS = 11

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
