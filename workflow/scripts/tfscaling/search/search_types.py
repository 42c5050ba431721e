"""Arguments and results of a search: candidates with their runs, and decisions.

`study_searches` makes them for a study, benchmarks for simulated studies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tfscaling.study.config_types import Search

#: Metric → value of a run; infinite if it diverged or did not reach the target, NaN if unknown.
Run = Mapping[str, float]
#: Metric of a short run: the standard error of its value as a fraction, by its steps.
PROJECTION_ERROR = "projection_error"
#: Metric of a run: the time that it occupied its nodes, divided by the time of a training.
PRICE_RATIO = "price_ratio"


@dataclass(frozen=True)
class Candidate:
    """A configuration of a search with its runs so far; a block is one repeat of the grid.

    Attributes:
        name: The name.
        runs: For each block, the run of the candidate as metric → value; None if it is missing.
        failed_blocks: Blocks, from 0, whose run failed too often or ran out of memory.
        skipped_blocks: Blocks whose run failed for reasons outside of the configuration; runs in
            later blocks replace them.
        blocks_max: Number of blocks.
        line: Name of the line; on a line only the number of nodes differs.
        nodes: Number of nodes.
        short: The candidate's short runs. Their values are projections, and PROJECTION_ERROR is the
            projection's standard error as a fraction. None without short runs.
        unfit_blocks: The failed blocks whose run ran out of memory.
        closed: Why none of its missing runs will be made; None if they can be.
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
    closed: Reason | None = None

    @property
    def run_count(self) -> int:
        """Number of existing runs."""
        return sum(run is not None for run in self.runs)

    def blocks_of_runs(self, runs: int) -> list[int]:
        """Return the numbers, from 0, of the first blocks that are not skipped.

        A block has one run of each candidate.

        Args:
            runs: How many of these blocks to return, one for each run.
        """
        return [n for n in range(self.blocks_max) if n not in self.skipped_blocks][:runs]

    def missing_blocks(self, runs: int) -> list[int]:
        """Return the numbers of the blocks in which the candidate still lacks a run.

        A block has one run of each candidate.

        Args:
            runs: How many runs the candidate should have.
        """
        had = len(self.runs)
        return [n for n in self.blocks_of_runs(runs) if n >= had or self.runs[n] is None]

    def existing_runs(self, runs: int) -> list[Run]:
        """Return the runs that exist in `blocks_of_runs(runs)`; each maps metric to value.

        Args:
            runs: How many runs the candidate should have.
        """
        own = [self.runs[n] for n in self.blocks_of_runs(runs) if n < len(self.runs)]
        return [run for run in own if run is not None]


class Reason(StrEnum):
    """Why a candidate is not the answer."""

    NOT_THE_BEST = "not the best"
    BY_ITS_LINE = "not run, behind by its line"
    DOES_NOT_RUN = "does not run"
    NO_MEMORY = "does not fit in memory"
    SMALLER_BATCH = "not run, a smaller batch failed"
    DIVERGED = "diverged"
    NOT_REACHED = "does not reach the target reliably"
    NOT_ALLOWED = "misses a limit"
    NOT_SHOWN = "not shown to keep the limits"


#: Reasons for which a candidate gets no more runs although it may be better than the best.
FAILURE_REASONS = (
    *(Reason.DOES_NOT_RUN, Reason.NO_MEMORY, Reason.SMALLER_BATCH),
    *(Reason.DIVERGED, Reason.NOT_REACHED, Reason.NOT_SHOWN),
)


class LimitVerdict(StrEnum):
    """Whether a candidate is shown to keep all limits (`IN`), to miss one (`OUT`), or neither."""

    IN = "in"
    OUT = "out"
    OPEN = "open"


@dataclass(frozen=True)
class Standing:
    """Estimate, chance and reasons of one candidate after the last analysis.

    Attributes:
        runs: Number of complete runs in the analyses.
        behind: Fraction by which its estimate is worse than the best candidate's; negative if it is
            better, but less certain; None before the first analysis.
        chance: Probability that it is better than the best by more than the indifference; None
            before the first analysis.
        reason: Why it is not the answer; None for the best and for candidates that may be better.
        limit_verdict: Whether it keeps all limits.
        short_runs: Number of short runs in the analyses.
        projection_check: Comparison of projected and measured value; None unless it has both short
            and complete runs.
    """

    runs: int
    behind: float | None
    chance: float | None
    reason: Reason | None
    limit_verdict: LimitVerdict
    short_runs: int = 0
    projection_check: ProjectionCheck | None = None


@dataclass(frozen=True)
class ProjectionCheck:
    """A candidate's goal as projected from its short runs and as measured by its complete runs.

    Attributes:
        projected: The projection.
        low: Lower end of its interval with confidence CONFIDENCE.
        high: Upper end of the interval.
        measured: Mean of the complete runs.
    """

    projected: float
    low: float
    high: float
    measured: float

    @property
    def is_within_interval(self) -> bool:
        """Whether the measured value is inside the projection's interval."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class FurtherRuns:
    """What the next round of a search costs, and what it is expected to save.

    Attributes:
        trainings: Number of trainings that are planned with the answer.
        price: Expected price of the next round: node-hours, or US dollars if the goal is a cost.
        saving: What all trainings together are expected to save, in the same unit, because the next
            round may name a configuration that is better than the one that is best so far.
        chance: Probability that another configuration is better than the one that is best so far,
            by more than the indifference.
    """

    trainings: int
    price: float
    saving: float
    chance: float

    @property
    def is_worth_its_price(self) -> bool:
        """Whether the next round is expected to save more than it costs."""
        return self.saving > self.price


@dataclass(frozen=True)
class Decision:
    """The result of a search after its last analysis, and the runs that it needs next.

    Attributes:
        best: Name of the candidate to recommend; None if none may be named.
        bound: Fraction by which another candidate may be better than `best`; infinite if unknown.
        is_decided: Whether `best` may be recommended, and no other candidate may be better by more
            than the indifference.
        has_ended: Whether the search needs no more runs.
        is_compared: Whether at least two candidates have a valid run.
        rounds: Number of analyses.
        standings: Name → standing of the candidate.
        unresolved: Candidates without further runs (they fail, diverge or miss a limit sometimes)
            that may be better than `best`.
        beat_by: Lowest fraction by which a candidate without runs must be better than predicted
            from its line, to beat `best` by more than the indifference; None if all have runs.
        runs_to_start: Name → total number of runs that the next analysis needs, earlier runs
            included. The key is a candidate's name for complete runs, and the separate name of its
            short runs for these. Candidates that need no further run are left out. {} if the search
            has ended.
        possible_runs: Names of candidates, and of their short runs, that a later round may run; ()
            if the search has ended.
        not_worth_it: Price and expected saving of the next round, if the search ended because it
            would cost more than it is expected to save; else None.
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
    runs_to_start: Mapping[str, int]
    possible_runs: tuple[str, ...]
    not_worth_it: FurtherRuns | None = None

    @property
    def has_bound(self) -> bool:
        """Whether it is known by which fraction another candidate may be better than `best`."""
        return math.isfinite(self.bound)

    @property
    def survivors(self) -> tuple[str, ...]:
        """Names of the candidates that may still be the answer."""
        return tuple(name for name, each in self.standings.items() if each.reason is None)

    @property
    def runs(self) -> dict[str, int]:
        """Name → number of complete runs in the analyses."""
        return {name: each.runs for name, each in self.standings.items()}

    @property
    def failed(self) -> dict[str, Reason]:
        """Name → reason, for candidates that were eliminated because their runs failed."""
        reasons = {name: each.reason for name, each in self.standings.items()}
        return {name: why for name, why in reasons.items() if why in FAILURE_REASONS}


def list_needed_runs(decision: Decision, candidates: Sequence[Candidate]) -> list[tuple[int, str]]:
    """Return (block, name of the candidate) of each run that the next analysis needs, by block.

    Block n, from 0, has repeat n + 1 of all candidates.

    Args:
        decision: The decision after the last analysis.
        candidates: The candidates with their runs so far.
    """
    runs = decision.runs_to_start
    each = [*candidates, *(own.short for own in candidates if own.short)]
    each = [own for own in each if own.closed is None]
    return sorted((n, own.name) for own in each for n in own.missing_blocks(runs.get(own.name, 0)))
