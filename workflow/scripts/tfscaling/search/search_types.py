"""What a search is given and what it returns: candidates with their runs, and decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tfscaling.study.config_types import Search

#: Metric → value of a run; infinite: it diverged or did not reach the target; NaN: not known.
Run = Mapping[str, float]
#: In a short run: the standard error of its value as a fraction, by the steps within the run.
PROJECTION_ERROR = "projection_error"


@dataclass(frozen=True)
class Candidate:
    """A candidate and its runs by block; None: no run, or the infrastructure ended it.

    In `failed_blocks`, numbered from 0, the run failed too often to be tried again, or ran out of
    memory; the latter are `unfit_blocks`, too. Later blocks replace `skipped_blocks`, up to
    `blocks_max`. Candidates on the same `line` differ only in their nodes. `short` has the short
    runs of the same training: their values are projected, and their PROJECTION_ERROR is the
    projection's standard error as a fraction, from the steps within the run.
    """

    name: str
    runs: tuple[Run | None, ...] = ()
    failed_blocks: frozenset[int] = frozenset()
    skipped_blocks: frozenset[int] = frozenset()
    blocks_max: int = Search().repeats_max
    line: str = ""
    nodes: int = 1
    short: Candidate | None = None
    unfit_blocks: frozenset[int] = frozenset()

    @property
    def number(self) -> int:
        return sum(run is not None for run in self.runs)

    def blocks(self, runs: int) -> list[int]:
        """Return the blocks of the candidate's first `runs` runs, from 0."""
        return [n for n in range(self.blocks_max) if n not in self.skipped_blocks][:runs]

    def lacks(self, runs: int) -> list[int]:
        """Return the blocks of the candidate's first `runs` runs in which it has no run."""
        had = len(self.runs)
        return [n for n in self.blocks(runs) if n >= had or self.runs[n] is None]

    def made(self, runs: int) -> list[Run]:
        """Return the existing runs among the candidate's first `runs`."""
        own = [self.runs[n] for n in self.blocks(runs) if n < len(self.runs)]
        return [run for run in own if run is not None]


class Reason(StrEnum):
    """Why a candidate is not the answer."""

    NOT_THE_BEST = "not the best"
    BY_ITS_LINE = "not run, behind by its line"
    DOES_NOT_RUN = "does not run"
    NO_MEMORY = "does not fit in memory"
    DIVERGED = "diverged"
    NOT_REACHED = "does not reach the target reliably"
    NOT_ALLOWED = "misses a limit"
    NOT_SHOWN = "not shown to keep the limits"


#: A candidate that left for one of these may be better than the one that is named.
FAILED = (
    *(Reason.DOES_NOT_RUN, Reason.NO_MEMORY, Reason.DIVERGED, Reason.NOT_REACHED),
    Reason.NOT_SHOWN,
)


class Allowed(StrEnum):
    """Whether a candidate keeps all limits."""

    IN = "in"
    OUT = "out"
    OPEN = "open"


@dataclass(frozen=True)
class Standing:
    """What is known about a candidate.

    `runs` and `short_runs` were analysed. `behind`: by what fraction it is behind the best, by
    estimate; negative where the best was chosen for its certainty. `chance` is the probability that
    it is better than the best by more than the indifference. Both are None before the first
    analysis. `reason` is None for the best and those not excluded. `trial` is None without both
    short and complete runs.
    """

    runs: int
    behind: float | None
    chance: float | None
    reason: Reason | None
    allowed: Allowed
    short_runs: int = 0
    trial: Trial | None = None


@dataclass(frozen=True)
class Trial:
    """The goal of a candidate: projected from its short runs, and measured by complete runs.

    The projection has an interval of CONFIDENCE; the measured value is the mean.
    """

    projected: float
    low: float
    high: float
    measured: float

    @property
    def holds(self) -> bool:
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Decision:
    """What is known after the last interim analysis, and what the next one needs.

    `best` may be worse than the best by the fraction `bound`; None where nothing may be named.
    Nothing is compared, so nothing decided, where fewer than two candidates have a valid run.
    `unresolved` left without being closed (they do not run, or some of their runs diverged or
    missed a limit or the target), and no runs show that they are worse than `best`. `beat_by`: a
    candidate without runs would have to be better than its line says by this fraction, to be better
    than the best by more than the indifference; None if every candidate has a run.

    The next analysis needs this many runs of each candidate, and of each `short`, in `wanted`,
    which is empty when the search has ended. Those in `open` may be run later.
    """

    best: str | None
    bound: float
    is_decided: bool
    has_ended: bool
    is_compared: bool
    rounds: int
    standings: Mapping[str, Standing]
    unresolved: tuple[str, ...]
    beat_by: float | None
    wanted: Mapping[str, int]
    open: tuple[str, ...]

    @property
    def survivors(self) -> tuple[str, ...]:
        return tuple(name for name, each in self.standings.items() if each.reason is None)

    @property
    def runs(self) -> dict[str, int]:
        """The number of analysed complete runs by candidate."""
        return {name: each.runs for name, each in self.standings.items()}

    @property
    def failed(self) -> dict[str, Reason]:
        """Return the candidates that were eliminated for a reason in FAILED."""
        reasons = {name: each.reason for name, each in self.standings.items()}
        return {name: why for name, why in reasons.items() if why in FAILED}


def lacking(decision: Decision, candidates: Sequence[Candidate]) -> list[tuple[int, str]]:
    """Return (block from 0, candidate) of the runs that the next analysis lacks, block by block."""
    runs = decision.wanted
    each = [*candidates, *(own.short for own in candidates if own.short)]
    return sorted((n, own.name) for own in each for n in own.lacks(runs.get(own.name, 0)))
