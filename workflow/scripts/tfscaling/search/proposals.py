"""Proposals of a search: the candidates of the next round, and whether their runs are short.

`ScalingSearch.propose` calls them after each interim analysis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tfscaling.estimation.run_counts import CLOSE_LEADER_RUNS, KEPT_RUNS, LEADER_RUNS
from tfscaling.search.interim import RISK_MAX, worse_chance_max
from tfscaling.search.scaling_model import Array, Fit
from tfscaling.search.search_state import SearchProblem, SearchState
from tfscaling.search.search_types import LimitVerdict
from tfscaling.study.config_types import SHORT_RUNS_MAX

#: A search ends undecided after this many rounds.
ROUNDS_MAX = 40
#: A rival is close if its log value exceeds the best one's by at most this: the best then needs
#: CLOSE_LEADER_RUNS runs.
CLOSE_DISTANCE = math.log(1.08)
#: A round has the share 1 / BATCH_SHARE of the candidates, and no fewer runs than BATCH_MIN.
BATCH_SHARE, BATCH_MIN = 12, 3


def batch_size(candidates: int) -> int:
    """Return how many runs a round after the first has in a search with this many candidates."""
    return max(BATCH_MIN, round(candidates / BATCH_SHARE))


def next_runs(problem: SearchProblem, state: SearchState) -> dict[str, int]:
    """Return how many complete runs and how many short runs of each candidate the next round has.

    Args:
        problem: The question.
        state: The state after the last analysis.

    Returns:
        Name → number of runs, in addition to the runs of earlier rounds. The key is the candidate's
        name for complete runs, and the separate name of its short runs for these (see
        `SearchProblem.names`). Candidates without runs in the round are left out. {} if the search
        ends.
    """
    if not state.rounds:
        chosen, completes_best = _initial_candidates(problem, state), False
    elif state.analysis.fit is None or state.analysis.best is None:
        unseen = [n for n in range(problem.count) if not state.known_runs[n]]
        chosen, completes_best = _keep_runnable(problem, state, unseen), False
    elif is_settled(problem, state):
        return {}
    else:
        best, fit = state.analysis.best, state.analysis.fit
        chosen = _keep_runnable(problem, state, _choose_candidates(problem, state, fit, best))
        has_all_short = state.analysis.is_sure and state.known_runs[best] >= _runs_needed_of_best(
            problem, state
        )
        completes_best = bool(problem.limits or has_all_short)
    return dict(
        Counter(problem.names[n] for n in _choose_short_or_complete(state, chosen, completes_best))
    )


def is_settled(problem: SearchProblem, state: SearchState) -> bool:
    """Return whether the best candidate may be recommended and no other may be better."""
    best = state.analysis.best
    if best is None or not state.analysis.is_sure:
        return False
    return (
        _runs_lacking_of_best(problem, state, best) <= 0
        and state.limit_verdicts[best] is LimitVerdict.IN
    )


def _initial_candidates(problem: SearchProblem, state: SearchState) -> Sequence[int]:
    """Return the numbers of the candidates that the first round runs.

    If lines are assumed to be smooth, these are the smallest and the largest candidate of each
    line. Otherwise these are all candidates.
    """
    if not state.is_smooth:
        return range(problem.count)
    lines: dict[str, list[int]] = {}
    for n in np.argsort(problem.nodes, kind="stable"):
        lines.setdefault(problem.lines[n], []).append(int(n))
    return sorted({own[end] for own in lines.values() for end in (0, -1)})


def _keep_runnable(problem: SearchProblem, state: SearchState, chosen: Sequence[int]) -> list[int]:
    """Return the chosen candidates, by number, that still have a run to start.

    Args:
        problem: The question.
        state: The state; after ROUNDS_MAX rounds the result is [].
        chosen: Numbers of candidates.
    """
    runnable = [n for n in chosen if state.can_run(problem, n)]
    return runnable if state.rounds < ROUNDS_MAX else []


def find_possible_runs(problem: SearchProblem, state: SearchState) -> list[int]:
    """Return what a later round may run, as indices in `SearchProblem.names`.

    Indices of complete runs come first, then indices of short runs.
    """
    runnable = _keep_runnable(problem, state, range(problem.count))
    return runnable + [n + problem.count for n in runnable if state.is_projected[n]]


def _choose_short_or_complete(
    state: SearchState, chosen: Sequence[int], completes_best: bool
) -> list[int]:
    """Choose for each candidate whether its next run is short or complete.

    Runs of a candidate whose time is projected from short runs are short as long as further short
    runs reduce the projection's error considerably. All other runs are complete.

    Args:
        state: The state.
        chosen: Number of a candidate for each run of the round; a candidate with several runs is
            repeated.
        completes_best: Whether all runs of the best candidate are complete: to confirm its
            projection, or because the question has limits, which only complete runs decide.

    Returns:
        For each run an index in `SearchProblem.names`. This list has each candidate twice: all
        complete runs come first, then all short runs in the same order.
    """
    count = len(state.limit_verdicts)
    most = np.rint(2 * state.analysis.scatter / state.projection_sd**2)
    most = np.clip(most, LEADER_RUNS - 1, SHORT_RUNS_MAX)
    series: list[int] = []
    for n in chosen:
        is_more = state.runs_used[n + count] + series.count(n + count) < most[n]
        is_confirmed = completes_best and n == state.analysis.best
        is_short = state.is_projected[n] and is_more and not is_confirmed
        series.append(n + count if is_short else n)
    return series


def _runs_needed_of_best(problem: SearchProblem, state: SearchState) -> int:
    """Return how many runs in total the best candidate needs to be recommended."""
    if problem.may_miss:
        return KEPT_RUNS
    others = enumerate(state.analysis.gaps)
    out = {state.analysis.best, *state.eliminated}
    is_close = min((gap for n, gap in others if n not in out), default=math.inf) <= CLOSE_DISTANCE
    return min(CLOSE_LEADER_RUNS if is_close else LEADER_RUNS, problem.settings.repeats_max)


def _runs_lacking_of_best(problem: SearchProblem, state: SearchState, best: int) -> int:
    """Return how many more runs the best candidate needs to be recommended.

    One of its runs must be complete, to confirm the projection from short runs.

    Args:
        problem: The question.
        state: The state after the last analysis.
        best: Number of the best candidate.
    """
    runs = state.complete_runs if problem.limits else state.known_runs
    return max(
        _runs_needed_of_best(problem, state) - int(runs[best]), 1 - int(state.complete_runs[best])
    )


def _choose_candidates(
    problem: SearchProblem, state: SearchState, fit: Fit, best: int
) -> list[int]:
    """Return the numbers of the candidates of the next round, once for each run.

    These are the best candidate, and others that may be better, chosen by their chance and by the
    cost of a run. If all others are shown to be worse, only the best candidate gets runs. If lines
    are not assumed to be smooth, all candidates without runs come before these.

    Args:
        problem: The question.
        state: The state after the last analysis.
        fit: The estimates of the last analysis.
        best: Number of the best candidate.
    """
    batch = batch_size(problem.count)
    is_new = (state.runs_used[: problem.count] == 0) & (state.known_runs == 0)
    if not state.is_smooth and (
        unseen := _keep_runnable(problem, state, np.flatnonzero(is_new).tolist())
    ):
        return unseen
    gates = state.analysis.has_few_runs
    ranked = _rank_rivals(problem, state, fit, best)
    must_fall = gates | _find_too_likely_rivals(state.analysis.chances)
    likely = [n for n in ranked if must_fall[n]]
    order = [] if state.analysis.is_sure else _keep_runnable(problem, state, likely)
    # after a miss it leaves, and the other runs of its round would be in vain
    most = max(1, int(state.complete_runs[best])) if problem.may_miss else batch
    lacks = min(_runs_lacking_of_best(problem, state, best), most)
    # it needs its runs for the limits anyway, and they may show that rivals are behind
    if problem.limits and lacks > 0 and _keep_runnable(problem, state, [best]):
        order = [n for n in order if gates[n]]
    is_unsure = not order or fit.variance[best] >= 0.8 * fit.variance[order[0]]
    chosen = [best] if lacks > 0 or is_unsure else []
    for n in order:
        is_known_soon = any(_are_neighbours(problem, state, n, other) for other in chosen)
        if len(chosen) < batch and (state.known_runs[n] or not is_known_soon):
            chosen.append(n)
    chosen += [best] * min(batch - len(chosen), lacks - chosen.count(best))
    runnable = _keep_runnable(problem, state, chosen) or _keep_runnable(problem, state, [best])
    return runnable or ranked[:batch]


def _rank_rivals(problem: SearchProblem, state: SearchState, fit: Fit, best: int) -> list[int]:
    """Return the numbers of candidates that may beat the best, the most promising first.

    They are sorted by their chance, divided by the square root of the cost of a run.

    Args:
        problem: The question.
        state: The state after the last analysis.
        fit: The estimates of the last analysis.
        best: Number of the best candidate.
    """
    chances = state.analysis.chances
    takes = np.exp(fit.mean) * (1 if problem.is_cost else problem.nodes)
    score = np.where(state.analysis.has_few_runs, np.maximum(chances, 0.02), chances)
    score[best] = 0
    rank = score / np.sqrt(takes / takes.mean())
    least = worse_chance_max(problem)
    return [int(n) for n in np.argsort(-rank, kind="stable") if score[n] > least]


def _find_too_likely_rivals(chances: Array) -> Array:
    """Return which candidates are so likely to be better than the best that the search continues.

    The least likely candidates are ignored while their chances add up to at most half of RISK_MAX.

    Args:
        chances: Probability of each candidate to be better than the best, (candidates,).

    Returns:
        Booleans, (candidates,).
    """
    sums = np.array([chances[chances <= chance].sum() for chance in chances])
    return np.asarray(sums > RISK_MAX / 2)


def _are_neighbours(problem: SearchProblem, state: SearchState, n: int, other: int) -> bool:
    """Return whether two candidates have no runs, and differ only in similar numbers of nodes.

    Numbers are similar if the larger one is at most twice the other.

    Args:
        problem: The question.
        state: The state.
        n: Number of a candidate.
        other: Number of another candidate.
    """
    octaves = abs(math.log2(problem.nodes[n] / problem.nodes[other]))
    is_near = problem.lines[n] == problem.lines[other] and octaves < 1.01
    return is_near and not state.known_runs[n] and not state.known_runs[other]
