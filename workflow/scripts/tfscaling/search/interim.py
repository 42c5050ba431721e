"""Interim analyses of a search: what all runs so far show about each candidate.

`ScalingSearch.observe` calls them after each round; they return new states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy

from tfscaling.estimation import intervals
from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.estimation.run_counts import KEPT_RUNS, is_ruled_out
from tfscaling.search.scaling_model import POOLED_FREEDOM, Array, Fit, Runs
from tfscaling.search.search_state import (
    PROJECTION,
    PROJECTION_FREEDOM,
    NewRuns,
    Observation,
    SearchProblem,
    SearchState,
)
from tfscaling.search.search_types import (
    FAILURE_REASONS,
    LimitVerdict,
    ProjectionCheck,
    Reason,
    Run,
)

#: A search is decided if the chances of all other candidates add up to at most this: two fifths of
#: the error rate 1 - CONFIDENCE.
RISK_MAX = 0.4 * (1 - CONFIDENCE)
#: Number of runs → a candidate with this few runs counts as worse than the best only from the first
#: ratio on, or from the second if the others' runs give it a chance of SURPRISE to be the best: its
#: runs may all be of a slow mode, and cannot show that it scatters more than its rivals.
EARLY_RATIOS = {1: (1.3, 4.5), 2: (1.15, 1.45), 3: (1.1, 1.35), 4: (1.0, 1.2)}
SURPRISE = 0.1
#: Lines are not smooth if more than this many configurations are further from the others'
#: projection than OUTLIER_SD standard deviations, or if the errors exceed the model's intervals by
#: more than ERROR_FACTOR_MAX.
OUTLIERS_MAX, OUTLIER_SD, ERROR_FACTOR_MAX = 2, 3.0, 1.3
#: Degrees of freedom of a comparison are limited to this range.
FREEDOM_RANGE = (4.0, 30.0)


def worse_chance_max(problem: SearchProblem) -> float:
    """Return the largest chance to beat the best with which a candidate is still judged worse.

    `chances_to_beat_best` computes the chances that are compared with this threshold.
    """
    return RISK_MAX / (4 * problem.count)


def add_runs(problem: SearchProblem, state: SearchState, new: Mapping[str, NewRuns]) -> SearchState:
    """Return the state with the runs of a round, and with candidates eliminated by failures.

    Args:
        problem: The question.
        state: The state before the round.
        new: Name of a candidate, or of its short runs → its runs in this round.

    Raises:
        ValueError: The goal of a run is not above zero.
    """
    used, is_projected = state.runs_used.copy(), state.is_projected.copy()
    observations, eliminated = [*state.observations], {**state.eliminated}
    for name, made in new.items():
        is_short, n = divmod(problem.numbers[name], problem.count)
        used[problem.numbers[name]] += made.proposed
        for run in made.runs:
            value = _goal_value(problem, run)
            observations.append(Observation(n, state.rounds, value, bool(is_short), run))
            if is_short and math.isnan(value):
                is_projected[n] = False
            values = [each.value for each in observations if each.candidate == n]
            if _gets_no_more_runs(
                sum(map(math.isinf, values)), sum(not math.isnan(v) for v in values)
            ):
                eliminated[n] = Reason.NOT_REACHED if problem.has_target else Reason.DIVERGED
    for name, made in new.items():
        if made.failure is not None:
            is_short, n = divmod(problem.numbers[name], problem.count)
            if is_short:
                is_projected[n] = False
            else:
                eliminated[n] = made.failure
    return replace(
        state,
        runs_used=used,
        observations=tuple(observations),
        is_projected=is_projected,
        eliminated=eliminated,
        rounds=state.rounds + 1,
    )


def _goal_value(problem: SearchProblem, run: Run) -> float:
    """Return a run's value of the goal metric, after a check that it is positive.

    It is infinite if the run diverged or missed its target, and NaN if it is unknown.

    Raises:
        ValueError: The value is not above zero.
    """
    value = run.get(problem.goal, 0.0)
    if value <= 0:
        raise ValueError(f"{problem.goal}: a goal needs a value above zero of every run")
    return value


def _gets_no_more_runs(missed: int, runs: int) -> bool:
    """Return whether further runs of a candidate are useless because some missed a limit.

    They are useless in two cases:

    - Enough runs missed the limit to show that the candidate does not keep it, by `is_ruled_out`.
    - Fewer than half of the runs missed it. The candidate can no longer be recommended, because
      all runs must keep the limits, and many more runs would be needed to rule it out.

    Args:
        missed: Number of the candidate's runs that missed a limit or the target; with 0, further
            runs are useful.
        runs: Number of all its runs.
    """
    return missed > 0 and (is_ruled_out(missed, runs) or 2 * missed < runs)


def is_miss(problem: SearchProblem, run: Run) -> bool:
    """Return whether a run diverged, missed the target, or missed a limit.

    Args:
        problem: The question.
        run: The run.
    """
    return math.isinf(run.get(problem.goal, math.nan)) or any(
        intervals.count_beyond_limit([run[name]], limit)
        for name, limit in problem.limits.items()
        if name in run
    )


def judge_limits(problem: SearchProblem, state: SearchState) -> SearchState:
    """Return the state with a verdict on each candidate: keeps all limits, misses one, or open.

    `is_ruled_out` decides whether a candidate misses a limit. `intervals.keeps_limit` decides, from
    KEPT_RUNS runs on, whether it keeps them. A candidate whose verdict is open is eliminated if a
    run reports no value for a limit, if `_gets_no_more_runs` is true, or after its last run.
    """
    limits = problem.limits
    allowed, eliminated = [*state.limit_verdicts], {**state.eliminated}
    for n in range(problem.count if limits else 0):
        runs = state.runs_of(n)
        known = {
            name: [run[name] for run in runs if not math.isnan(run.get(name, math.nan))]
            for name in limits
        }
        ended = sum(math.isfinite(run[problem.goal]) for run in runs)
        beyond = max(
            intervals.count_beyond_limit(known[name], limit) for name, limit in limits.items()
        )
        if is_ruled_out(beyond, len(runs)):
            allowed[n] = LimitVerdict.OUT
            eliminated.setdefault(n, Reason.NOT_ALLOWED)
        elif any(len(values) < ended for values in known.values()):
            allowed[n] = LimitVerdict.OPEN
            eliminated.setdefault(n, Reason.NOT_SHOWN)
        elif min(map(len, known.values())) >= KEPT_RUNS and all(
            intervals.keeps_limit(known[name], limit, RISK_MAX / 4 / len(limits))
            for name, limit in limits.items()
        ):
            allowed[n] = LimitVerdict.IN
        elif (
            _gets_no_more_runs(beyond, len(runs))
            or state.runs_used[n] >= problem.settings.repeats_max
        ):
            allowed[n] = LimitVerdict.OPEN
            eliminated.setdefault(n, Reason.NOT_SHOWN)
    return replace(state, limit_verdicts=tuple(allowed), eliminated=eliminated)


def analyse(problem: SearchProblem, state: SearchState) -> SearchState:
    """Return the state with a new interim analysis: fit, best candidate, chances of the others."""
    leaders = [int(n) for n in np.flatnonzero(state.known_runs) if n not in state.eliminated]
    before = state.analysis
    if not leaders:
        return replace(state, analysis=replace(before, best=None))
    known = [each for each in state.observations if each.is_known]
    runs = Runs(
        candidates=np.array([each.candidate for each in known]),
        rounds=np.array([each.round for each in known]),
        log_values=np.array([math.log(each.value) for each in known]),
        is_short=np.array([each.is_short for each in known]),
    )
    state = _compare_projections(state, runs)
    effects = np.zeros(0) if before.fit is None else before.fit.effects
    fit = problem.model.fit(runs, effects, state.projection_sd)
    certain = fit.mean + np.sqrt(fit.variance) / 2
    best = min(leaders, key=lambda n: certain[n])
    is_refuted = (
        fit.error_factor > ERROR_FACTOR_MAX
        or int((fit.left_out_errors > OUTLIER_SD).sum()) >= OUTLIERS_MAX
    )
    state = replace(
        state,
        is_smooth=state.is_smooth and not is_refuted,
        analysis=replace(state.analysis, fit=fit, best=best, gaps=fit.mean - fit.mean[best]),
    )
    chances = chances_to_beat_best(state, problem.log_indifference)
    gates = _find_candidates_with_few_runs(problem, state, fit, best)
    unresolved = tuple(
        n
        for n, why in state.eliminated.items()
        if why in FAILURE_REASONS
        and not _is_shown_unsuitable(state, n)
        # no runs show that it is worse
        and (not state.known_runs[n] or gates[n] or chances[n] > worse_chance_max(problem))
    )
    others = [n for n in range(problem.count) if n not in state.eliminated]
    has_gates = bool(gates[others].any())
    analysis = replace(
        state.analysis,
        chances=chances,
        has_few_runs=gates,
        any_has_few_runs=has_gates,
        is_sure=bool(chances[others].sum() <= RISK_MAX) and not has_gates,
        unresolved=unresolved,
    )
    return replace(state, analysis=analysis)


def _compare_projections(state: SearchState, runs: Runs) -> SearchState:
    """Return the state with a comparison of each candidate's projected and measured values.

    Candidates without runs of both kinds have none. The comparisons update the variance of
    projection errors.

    Args:
        state: The state.
        runs: All runs with a known value.
    """
    analysis, comparisons = state.analysis, dict[int, ProjectionCheck]()
    freedom = np.clip(analysis.fit.freedom if analysis.fit else 0.0, *FREEDOM_RANGE)
    quantile = float(scipy.special.stdtrit(freedom, (1 + CONFIDENCE) / 2))
    within = state.projection_sd**2 - analysis.projection
    squares, weight = PROJECTION_FREEDOM * PROJECTION**2, PROJECTION_FREEDOM
    for n in np.flatnonzero(
        (state.complete_runs > 0) & (state.complete_runs < state.known_runs)
    ).tolist():
        own = runs.candidates == n
        short, complete = (
            runs.log_values[own & runs.is_short],
            runs.log_values[own & ~runs.is_short],
        )
        projected, measured = float(short.mean()), float(complete.mean())
        scatter = analysis.scatter * (1 / len(short) + 1 / len(complete)) + within[n]
        half = quantile * math.sqrt(scatter + PROJECTION**2)
        ends = projected, projected - half, projected + half, measured
        comparisons[n] = ProjectionCheck(*map(math.exp, ends))
        squares += max(0.0, (measured - projected) ** 2 - scatter)
        weight += 1
    projection = max(PROJECTION**2, squares / weight)
    return replace(
        state, analysis=replace(analysis, projection=projection, projection_checks=comparisons)
    )


def chances_to_beat_best(state: SearchState, margin: float | Array) -> Array:
    """Return each candidate's chance to beat the present best by more than `margin`.

    Args:
        state: The state of the search.
        margin: Difference of the goal's logarithms; several differences have the shape (n, 1).

    Returns:
        Probabilities, (candidates,) or (n, candidates): 0 for the best itself, NaN without a fit.
    """
    fit, best, gaps = state.analysis.fit, state.analysis.best, state.analysis.gaps
    if fit is None or best is None:
        return np.full(len(gaps), np.nan)
    sd = fit.error_factor * fit.difference_sd(best)
    runs = np.minimum(state.known_runs, state.known_runs[best])
    own = np.minimum(POOLED_FREEDOM - 1 + runs, fit.freedom)
    freedom = np.clip(np.where(state.known_runs > 0, own, fit.freedom), *FREEDOM_RANGE)
    chances = np.asarray(scipy.special.stdtr(freedom, -(gaps + margin) / sd))
    chances[..., best] = 0
    return chances


def _find_candidates_with_few_runs(
    problem: SearchProblem, state: SearchState, fit: Fit, best: int
) -> Array:
    """Return which candidates have too few runs to be judged worse than the best.

    Args:
        problem: The question.
        state: The state.
        fit: The estimates from all runs.
        best: Number of the best candidate.

    Returns:
        Boolean array of shape (candidates,).
    """
    gates = np.zeros(problem.count, bool) if state.is_smooth else state.known_runs == 0
    with np.errstate(invalid="ignore"):
        ahead = (fit.mean[best] - problem.log_indifference - fit.left_out) / fit.left_out_sd
        chance = np.nan_to_num(scipy.special.stdtr(np.clip(fit.freedom, *FREEDOM_RANGE), ahead))
    for runs, (ratio, surprising) in EARLY_RATIOS.items():
        least = np.where(chance > SURPRISE, math.log(surprising), math.log(ratio))
        gates |= (state.known_runs == runs) & (
            state.analysis.gaps < least - problem.log_indifference
        )
    gates[best] = False
    may_run = state.runs_used[: problem.count] < problem.settings.repeats_max
    return np.asarray(gates & (may_run | (state.known_runs == 0)))


def _is_shown_unsuitable(state: SearchState, n: int) -> bool:
    """Return whether the runs of an eliminated candidate suffice to rule it out.

    Args:
        state: The state.
        n: Number of the candidate.
    """
    if state.eliminated[n] in (Reason.DIVERGED, Reason.NOT_REACHED):
        return is_ruled_out(
            int(state.missed_runs[n]), int(state.missed_runs[n] + state.known_runs[n])
        )
    return state.eliminated[n] is Reason.NO_MEMORY
