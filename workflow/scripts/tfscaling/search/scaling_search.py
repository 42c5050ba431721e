"""A search: it proposes runs and observes them, round by round, until the question is decided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfscaling.estimation.run_counts import is_ruled_out
from tfscaling.search.further_runs import assess_further_runs
from tfscaling.search.interim import (
    RISK_MAX,
    add_runs,
    analyse,
    chances_to_beat_best,
    is_miss,
    judge_limits,
    worse_chance_max,
)
from tfscaling.search.proposals import find_possible_runs, is_settled, next_runs
from tfscaling.search.search_state import NewRuns, SearchProblem, SearchState
from tfscaling.search.search_types import Candidate, Decision, Reason, Standing
from tfscaling.study.config_types import Limit, Question, Search


class ScalingSearch:
    """The search by scaling curves. Its methods return new states and change none.

    Args:
        problem: The question, with its candidates.
    """

    def __init__(self, problem: SearchProblem) -> None:
        self.problem = problem

    def propose(self, state: SearchState) -> dict[str, int]:
        """Return how many complete and short runs of each candidate the next round has.

        Args:
            state: The state after the last analysis.

        Returns:
            Name → number of runs, as from `next_runs`; {} if the search has ended.
        """
        return next_runs(self.problem, state)

    def observe(self, state: SearchState, new: Mapping[str, NewRuns]) -> SearchState:
        """Return the state after the analysis of all runs, including a new round.

        Args:
            state: The state before.
            new: Name → results of the runs that `propose` returned.

        Raises:
            ValueError: The goal of a run is not above zero.
        """
        state = add_runs(self.problem, state, new)
        return analyse(self.problem, judge_limits(self.problem, state))


def decide(
    candidates: Sequence[Candidate],
    search: Search,
    goal: str,
    limits: Mapping[str, Limit] | None = None,
    indifference: float = Question().indifference,
    trainings: int | None = None,
    *,
    is_simulated: bool = False,
    uses_further_runs: bool = True,
) -> Decision:
    """Return what the runs so far show, and which runs a search needs next.

    All interim analyses are repeated from the first one, each with the runs of the rounds before
    it. So the decision depends on the runs only, and a search can be interrupted at any time. If
    `trainings` is known, the search also ends when the next round costs more than it is expected to
    save.

    Args:
        candidates: The configurations with their runs so far.
        search: The settings of the search.
        goal: The metric to minimise; each run has a value of it.
        limits: Metric → limit; runs have values of these metrics.
        indifference: Fraction by which the result may be worse than the best.
        trainings: Number of trainings that are planned with the answer; None if unknown.
        is_simulated: Whether existing runs are simulated; they then have a price, as missing
            runs have.
        uses_further_runs: Whether existing runs that no round has proposed may rule out the best
            candidate. False for simulations that make all runs in advance.
    """
    ordered = tuple(sorted(candidates, key=lambda each: each.name))
    log_indifference = math.log1p(indifference)
    problem = SearchProblem(ordered, search, goal, limits or {}, log_indifference, trainings)
    method, state = ScalingSearch(problem), SearchState.start(problem)
    runs = {each.name: each for each in (*ordered, *(own.short for own in ordered if own.short))}
    while True:
        proposed = method.propose(state)
        new = {
            name: _new_runs(runs[name], int(state.runs_used[problem.numbers[name]]), number)
            for name, number in proposed.items()
        }
        made = {name: each for name, each in new.items() if each is not None}
        assessment = None
        if proposed and (len(made) < len(new) or is_simulated):
            to_make = None if is_simulated else _runs_to_make(problem, state, proposed, runs)
            assessment = assess_further_runs(problem, state, proposed, to_make)
        is_worth_it = assessment is None or assessment.is_worth_its_price
        if not proposed or len(made) < len(new) or not is_worth_it:
            in_round = proposed if is_worth_it else {}
            made = _find_runs_against_best(problem, state, in_round) if uses_further_runs else {}
            if not made:
                break
        state = method.observe(state, made)
    if not is_worth_it:
        return replace(_make_decision(problem, state, {}), not_worth_it=assessment)
    failed = {name for name, each in new.items() if each is not None and each.failure is not None}
    proposed = {
        name: number
        for name, number in proposed.items()
        if name not in failed and runs[name].closed is None
    }
    return _make_decision(problem, state, proposed)


def _find_runs_against_best(
    problem: SearchProblem, state: SearchState, proposed: Mapping[str, int]
) -> dict[str, NewRuns]:
    """Return name of the best candidate → its unused runs, if a further one is a miss; else {}.

    Further runs are existing runs that no round has proposed. They were made for another purpose,
    such as the repeats of a grid. A miss is a run that diverged, or missed the target or a limit.
    Further runs out of memory count if they rule the candidate out.

    Args:
        problem: The question.
        state: The state after the last analysis.
        proposed: Name → number of its runs in the round that is not complete yet.
    """
    best = state.analysis.best
    if best is None:
        return {}
    candidate, used = problem.candidates[best], int(state.runs_used[best])
    blocks = candidate.blocks_of_runs(candidate.blocks_max)[used:]
    known = [candidate.runs[n] if n < len(candidate.runs) else None for n in blocks]
    in_round = proposed.get(candidate.name, 0)
    further = [run for run in known[in_round:] if run is not None]
    unfit = len(candidate.unfit_blocks.intersection(blocks[in_round:]))
    is_unfit = is_ruled_out(unfit, candidate.run_count + len(candidate.unfit_blocks))
    if not is_unfit and not any(is_miss(problem, run) for run in further):
        return {}
    numbers = [number for number, run in enumerate(known, start=1) if run is not None]
    existing = tuple(run for run in known if run is not None)
    failure = Reason.NO_MEMORY if is_unfit else None
    return {candidate.name: NewRuns(max(numbers, default=0), existing, failure)}


def _runs_to_make(
    problem: SearchProblem,
    state: SearchState,
    proposed: Mapping[str, int],
    runs: Mapping[str, Candidate],
) -> dict[str, int]:
    """Return name of a candidate → how many of its proposed runs do not exist yet.

    Args:
        problem: The question.
        state: The state after the last analysis.
        proposed: Name → number of its runs in this round.
        runs: Name → the candidate whose existing runs count: complete or short ones.
    """
    totals = {
        name: int(state.runs_used[problem.numbers[name]]) + more for name, more in proposed.items()
    }
    return {name: len(runs[name].missing_blocks(total)) for name, total in totals.items()}


def _new_runs(candidate: Candidate, used: int, number: int) -> NewRuns | None:
    """Return the runs of a candidate in a round; None while one of them is still to be made.

    Args:
        candidate: The candidate, or its short runs.
        used: Number of its runs in earlier rounds.
        number: Number of its runs in this round.
    """
    missing = {*candidate.missing_blocks(used + number)}
    runs = candidate.existing_runs(used + number)[len(candidate.existing_runs(used)) :]
    if not missing:
        return NewRuns(number, tuple(runs))
    if not candidate.failed_blocks & missing:
        return NewRuns(number, tuple(runs), candidate.closed) if candidate.closed else None
    # a failure of another kind may have hidden that it fits
    is_unfit = candidate.failed_blocks <= candidate.unfit_blocks and not candidate.run_count
    return NewRuns(number, tuple(runs), Reason.NO_MEMORY if is_unfit else Reason.DOES_NOT_RUN)


def _make_decision(
    problem: SearchProblem, state: SearchState, wanted: Mapping[str, int]
) -> Decision:
    """Summarise the state of a search as a decision.

    Args:
        problem: The question.
        state: The state after the last analysis.
        wanted: Name → number of further runs in this round; {} if the search has ended.
    """
    names, best = problem.names, state.analysis.best
    is_named = state.may_name_best
    is_compared = int((state.known_runs > 0).sum()) >= 2
    eliminated, unresolved = state.eliminated, state.analysis.unresolved
    unseen = [n for n in range(problem.count) if not state.known_runs[n] and n not in eliminated]
    beat_by = None
    if unseen and best is not None:
        beat_by = -math.expm1(-float(state.analysis.gaps[unseen].min()) - problem.log_indifference)
    return Decision(
        best=names[best] if is_named and best is not None else None,
        bound=_improvement_bound(problem, state) if is_named else math.inf,
        is_decided=is_settled(problem, state) and not unresolved and is_compared,
        has_ended=not wanted,
        is_compared=is_compared,
        rounds=state.rounds,
        standings={names[n]: _describe_standing(problem, state, n) for n in range(problem.count)},
        unresolved=tuple(names[n] for n in unresolved),
        beat_by=beat_by,
        runs_to_start={
            name: int(state.runs_used[problem.numbers[name]]) + number
            for name, number in wanted.items()
        },
        possible_runs=tuple(names[n] for n in find_possible_runs(problem, state)) if wanted else (),
    )


def _describe_standing(problem: SearchProblem, state: SearchState, n: int) -> Standing:
    """Return a candidate's estimate, its chance to beat the best, and why it is not the answer.

    Args:
        problem: The question.
        state: The state after the last analysis.
        n: Number of the candidate.
    """
    analysis, reason = state.analysis, state.eliminated.get(n)
    if reason is None and n != analysis.best and analysis.chances[n] <= worse_chance_max(problem):
        reason = Reason.NOT_THE_BEST if state.known_runs[n] else Reason.BY_ITS_LINE
    is_analysed = not math.isnan(analysis.gaps[n])
    return Standing(
        runs=len(state.runs_of(n)),
        behind=math.expm1(analysis.gaps[n]) if is_analysed else None,
        chance=float(analysis.chances[n]) if is_analysed else None,
        reason=reason,
        limit_verdict=state.limit_verdicts[n],
        short_runs=len(state.runs_of(n, is_short=True)),
        projection_check=analysis.projection_checks.get(n),
    )


def _improvement_bound(problem: SearchProblem, state: SearchState) -> float:
    """Return the fraction by which other candidates may improve on the best candidate.

    The probability of a larger improvement is at most RISK_MAX. Infinite if it is unknown.
    """
    unresolved = state.analysis.unresolved
    if state.analysis.any_has_few_runs or not all(state.known_runs[n] for n in unresolved):
        return math.inf
    counted = [n for n in range(problem.count) if n not in state.eliminated or n in unresolved]
    low, high = 0.0, 5.0
    if chances_to_beat_best(state, low)[counted].sum() <= RISK_MAX:
        return low
    for _ in range(30):
        middle = (low + high) / 2
        is_enough = chances_to_beat_best(state, middle)[counted].sum() <= RISK_MAX
        low, high = (low, middle) if is_enough else (middle, high)
    return math.expm1(high)
