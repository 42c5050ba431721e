"""The problem of a search, and its state: observed runs and conclusions of the analyses.

All of them are values, which `interim` and `proposals` read and return. Candidates are numbers, in
the order of their names. Arrays have the shape (candidates,) unless they are described with a
different shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tfscaling.search.scaling_model import SCATTER_SD, Array, Fit, ScalingModel
from tfscaling.search.search_types import (
    PROJECTION_ERROR,
    Candidate,
    LimitVerdict,
    ProjectionCheck,
    Reason,
    Run,
)
from tfscaling.study.config_types import Limit, Search
from tfscaling.tables.comparison import ALL_RUNS_METRICS

#: Values projected from the short runs of a candidate have a common error. Its standard deviation
#: is no less than PROJECTION, which has the weight of PROJECTION_FREEDOM comparisons of projected
#: and measured values.
PROJECTION, PROJECTION_FREEDOM = 0.02, 2.0


@dataclass(frozen=True, eq=False)
class SearchProblem:
    """The question of a search: candidates, goal and limits.

    Attributes:
        candidates: The candidates, in the order of their names.
        settings: The settings of the search.
        goal: The metric to minimise.
        limits: Metric → limit.
        log_indifference: Largest difference of the goal's logarithm that does not matter.
        trainings: Number of trainings that are planned with the answer; None if unknown.
    """

    candidates: tuple[Candidate, ...]
    settings: Search
    goal: str
    limits: Mapping[str, Limit]
    log_indifference: float
    trainings: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if two candidates have the same name."""
        if len({each.name for each in self.candidates}) < self.count:
            raise ValueError("two candidates have the same name")

    @property
    def count(self) -> int:
        """Number of candidates."""
        return len(self.candidates)

    @cached_property
    def names(self) -> list[str]:
        """Names of all candidates, then, for each candidate, the name of its short runs.

        The name of short runs is "" for a candidate without them, so the list is always twice as
        long as `candidates`.
        """
        shorts = (each.short.name if each.short else "" for each in self.candidates)
        return [*(each.name for each in self.candidates), *shorts]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Name of a candidate or its short runs → its index in `names`."""
        return {name: number for number, name in enumerate(self.names) if name}

    @cached_property
    def nodes(self) -> Array:
        """Number of nodes of each candidate."""
        return np.array([each.nodes for each in self.candidates], float)

    @cached_property
    def lines(self) -> list[str]:
        """Name of the line of each candidate; on a line only the number of nodes differs."""
        return [each.line for each in self.candidates]

    @property
    def is_cost(self) -> bool:
        """Whether the goal is a cost."""
        return self.goal.startswith("cost_")

    @property
    def has_target(self) -> bool:
        """Whether the goal is a time or cost until a target is reached."""
        return self.goal in ALL_RUNS_METRICS

    @property
    def may_miss(self) -> bool:
        """Whether runs may miss a limit or the target."""
        return bool(self.limits) or self.has_target

    @cached_property
    def model(self) -> ScalingModel:
        """The model of time or cost over the numbers of nodes."""
        return ScalingModel(self.nodes, self.lines, self.is_cost)


class NewRuns(NamedTuple):
    """Runs of a candidate, or its short runs, that ended in a round.

    Attributes:
        proposed: Number of runs that the search proposed.
        runs: The runs that have a result, diverged ones included; fewer than `proposed` if some
            failed.
        failure: Why the candidate can have no further runs; None if it can.
    """

    proposed: int
    runs: tuple[Run, ...]
    failure: Reason | None = None


class Observation(NamedTuple):
    """A run that the analyses include.

    Attributes:
        candidate: Number of the candidate.
        round: Number of the round, from 0.
        value: Value of the goal metric; infinite if the run diverged or missed the target, NaN if
            unknown.
        is_short: Whether it is a short run, whose value is projected.
        run: Metric → value of the run.
    """

    candidate: int
    round: int
    value: float
    is_short: bool
    run: Run

    @property
    def is_known(self) -> bool:
        """Whether the value is a finite number."""
        return math.isfinite(self.value)


@dataclass(frozen=True, eq=False)
class Analysis:
    """The conclusions of an interim analysis.

    Attributes:
        gaps: Difference of each candidate's estimate from the best candidate's, in logarithms.
        chances: Probability that a candidate is better than the best by more than the indifference.
        has_few_runs: Whether each candidate has too few runs to be judged worse than the best.
        any_has_few_runs: Whether a candidate that is not eliminated has too few runs.
        is_sure: Whether it is shown that no other candidate that is not eliminated is better than
            the best by more than the indifference.
        best: Number of the best candidate: its estimate plus half of the standard deviation is
            lowest among candidates with runs that are not eliminated; None if no such candidate
            exists.
        unresolved: Numbers of candidates that were eliminated by failures and may be better than
            the best.
        fit: The model's estimates; None before the first analysis.
        projection: Variance of the errors of projections from short runs, in logarithms.
        projection_checks: Number of a candidate → comparison of the goal projected from its short
            runs with its complete runs.
    """

    gaps: Array
    chances: Array
    has_few_runs: Array
    any_has_few_runs: bool = True
    is_sure: bool = False
    best: int | None = None
    unresolved: tuple[int, ...] = ()
    fit: Fit | None = None
    projection: float = PROJECTION**2
    projection_checks: Mapping[int, ProjectionCheck] = field(default_factory=dict)

    @property
    def scatter(self) -> float:
        """The pooled variance of runs."""
        return self.fit.scatter if self.fit else SCATTER_SD**2


@dataclass(frozen=True, eq=False)
class SearchState:
    """All that a search has observed and concluded so far.

    Attributes:
        runs_used: Number of runs that the analyses used: one element for each candidate's complete
            runs, then one for each candidate's short runs.
        observations: The runs, in the order in which they were added.
        is_projected: Whether each candidate has short runs, all with a value and none failed.
        eliminated: Number of a candidate that gets no more runs → the reason.
        limit_verdicts: For each candidate whether it keeps all limits.
        rounds: The number of analyses.
        is_smooth: Whether the goal is assumed to change smoothly with the number of nodes.
        analysis: The conclusions of the last analysis.
    """

    runs_used: Array
    observations: tuple[Observation, ...]
    is_projected: Array
    eliminated: Mapping[int, Reason]
    limit_verdicts: tuple[LimitVerdict, ...]
    rounds: int
    is_smooth: bool
    analysis: Analysis

    @classmethod
    def start(cls, problem: SearchProblem) -> SearchState:
        """Return the state of a search without runs."""
        count = problem.count
        unknown = np.full(count, np.nan)
        return cls(
            runs_used=np.zeros(2 * count, int),
            observations=(),
            is_projected=np.array([each.short is not None for each in problem.candidates]),
            eliminated={},
            limit_verdicts=(LimitVerdict.OPEN if problem.limits else LimitVerdict.IN,) * count,
            rounds=0,
            is_smooth=problem.settings.assumes_smooth_lines,
            analysis=Analysis(unknown, unknown, np.ones(count, bool)),
        )

    @cached_property
    def known_runs(self) -> Array:
        """For each candidate, the number of runs with a known value, short ones included."""
        return self._count(lambda each: each.is_known)

    @cached_property
    def complete_runs(self) -> Array:
        """For each candidate, the number of complete runs with a known value."""
        return self._count(lambda each: each.is_known and not each.is_short)

    @cached_property
    def missed_runs(self) -> Array:
        """For each candidate, the number of runs that diverged or missed the target."""
        return self._count(lambda each: math.isinf(each.value))

    @property
    def may_name_best(self) -> bool:
        """Whether the best candidate is shown to keep the limits, and its runs reached the target.

        It also needs a complete run with a known value.
        """
        best = self.analysis.best
        return (
            best is not None
            and self.limit_verdicts[best] is LimitVerdict.IN
            and self.complete_runs[best] > 0
            and not self.missed_runs[best]
        )

    def _count(self, counts: Callable[[Observation], bool]) -> Array:
        """Return the number of observations of each candidate for which `counts` returns True."""
        owners = [each.candidate for each in self.observations if counts(each)]
        return np.bincount(np.array(owners, int), minlength=len(self.limit_verdicts))

    def runs_of(self, candidate: int, is_short: bool = False) -> list[Run]:
        """Return the complete runs of a candidate, or its short runs; each maps metric to value."""
        own = (each for each in self.observations if each.candidate == candidate)
        return [each.run for each in own if each.is_short == is_short]

    @cached_property
    def projection_sd(self) -> Array:
        """Standard deviation of the error that all short runs of a candidate share, (candidates,).

        It is the error of the projection, as a logarithm.
        """
        errors: list[list[float]] = [[] for _ in self.limit_verdicts]
        for each in self.observations:
            if each.is_known and each.is_short:
                errors[each.candidate].append(each.run.get(PROJECTION_ERROR, 0.0))
        within = [np.mean(np.square(own)) if own else 0.0 for own in errors]
        return np.sqrt(np.array(within) + self.analysis.projection)

    def can_run(self, problem: SearchProblem, candidate: int) -> bool:
        """Return whether a candidate may have further runs."""
        has_runs_left = self.runs_used[candidate] < problem.settings.repeats_max
        return candidate not in self.eliminated and bool(has_runs_left)
