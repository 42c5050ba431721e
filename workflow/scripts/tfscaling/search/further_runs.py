"""What the next round of a search costs, and what it is expected to save in all trainings.

With `question.trainings`, a search ends when the price is larger. Price and saving have the same
unit: US dollars if the goal is a cost, else node-hours. With a goal of time, a training that takes
longer than necessary occupies the nodes of the named configuration for longer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy

from tfscaling.estimation.run_counts import KEPT_RUNS
from tfscaling.search.interim import FREEDOM_RANGE, chances_to_beat_best
from tfscaling.search.scaling_model import Array
from tfscaling.search.search_state import SearchProblem, SearchState
from tfscaling.search.search_types import PRICE_RATIO, FurtherRuns

#: Price of a short run as a fraction of its complete training, as long as none is known.
SHORT_PRICE = 0.1
#: Lowest standard deviation of a change of an estimate, as a logarithm.
SHIFT_MIN = 1e-6
#: Fractions by which the value of a training may fall, and their widths; small ones are denser.
_EDGES = np.linspace(0, 1, 101) ** 2
_FRACTIONS, _WIDTHS = (_EDGES[1:] + _EDGES[:-1]) / 2, np.diff(_EDGES)


def assess_further_runs(
    problem: SearchProblem,
    state: SearchState,
    proposed: Mapping[str, int],
    to_make: Mapping[str, int] | None = None,
) -> FurtherRuns | None:
    """Return the price of the next round, and what it is expected to save in all trainings.

    Args:
        problem: The question.
        state: The state after the last analysis.
        proposed: Name of a candidate or its short runs → number of its runs in the next round.
        to_make: Name → number of these runs that do not exist yet. Only they have a price. None
            gives all runs in `proposed` a price.

    Returns:
        None if the number of trainings is unknown or no run is proposed, or if the search may not
        end yet: the best candidate may not be named, fewer than two candidates have a run, or a
        candidate that needs a run has none.
    """
    fit, best = state.analysis.fit, state.analysis.best
    if problem.trainings is None or not proposed:
        return None
    if fit is None or best is None or not state.may_name_best:
        return None
    numbers = [problem.numbers[name] % problem.count for name in proposed]
    has_unseen = not state.is_smooth and not all(state.known_runs[n] for n in numbers)
    is_kept = not problem.may_miss or state.complete_runs[best] >= KEPT_RUNS
    if has_unseen or not is_kept or (state.known_runs > 0).sum() < 2:
        return None
    values = np.exp(fit.mean) * (1 if problem.is_cost else problem.nodes / 3600)
    return FurtherRuns(
        trainings=problem.trainings,
        price=_price(problem, state, proposed if to_make is None else to_make, values),
        saving=problem.trainings
        * float(values[best])
        * _expected_gain(problem, state, _shifts_by_runs(problem, state, proposed)),
        chance=_chance_of_better(problem, state),
    )


def _price(
    problem: SearchProblem, state: SearchState, proposed: Mapping[str, int], values: Array
) -> float:
    """Return the expected price of the proposed runs.

    The price of a run is the price of a training, multiplied by the mean PRICE_RATIO of the
    candidate's runs of the same kind, complete or short. If they have no ratio, the runs of all
    candidates are used. If these have none, the factor is 1 for a complete run and SHORT_PRICE for
    a short run.

    Args:
        problem: The question.
        state: The state after the last analysis.
        proposed: Name of a candidate or its short runs → number of its runs in the next round.
        values: Expected price of a training of each candidate, (candidates,).
    """
    ratios: dict[int, list[float]] = {}
    for each in state.observations:
        if each.is_known and PRICE_RATIO in each.run:
            own = each.candidate + problem.count * each.is_short
            for key in (own, -1 - each.is_short):
                ratios.setdefault(key, []).append(each.run[PRICE_RATIO])
    price, usual = 0.0, ([1.0], [SHORT_PRICE])
    for name, runs in proposed.items():
        is_short, n = divmod(problem.numbers[name], problem.count)
        known = ratios.get(problem.numbers[name]) or ratios.get(-1 - is_short) or usual[is_short]
        price += runs * float(values[n]) * sum(known) / len(known)
    return price


def _shifts_by_runs(
    problem: SearchProblem, state: SearchState, proposed: Mapping[str, int]
) -> Array:
    """Return by how much the next round may change each candidate's difference from the best.

    A run changes the estimate of its candidate. Its effect on other candidates is not counted, and
    errors that estimates share, also of short runs, count as independent: the result is rather too
    large, up to the uncertainty of the difference.

    Args:
        problem: The question.
        state: The state after the last analysis.
        proposed: Name of a candidate or its short runs → number of its runs in the next round.

    Returns:
        Standard deviations of the changes, as logarithms, (candidates,).
    """
    fit, best = state.analysis.fit, state.analysis.best
    if fit is None or best is None:
        return np.full(problem.count, np.nan)
    precision = np.zeros(problem.count)
    for name, runs in proposed.items():
        is_short, n = divmod(problem.numbers[name], problem.count)
        precision[n] += 1 / (fit.scatter / runs + is_short * state.projection_sd[n] ** 2)
    removed = fit.variance**2 * precision / (1 + fit.variance * precision)
    shifts = np.minimum(np.sqrt(removed + removed[best]), fit.difference_sd(best))
    return np.asarray(fit.error_factor * np.maximum(shifts, SHIFT_MIN))


def _expected_gain(problem: SearchProblem, state: SearchState, shifts: Array) -> float:
    """Return what a training is expected to save because the next round may name a different best.

    The result is a fraction of the time or cost of a training with the present best candidate. It
    is the integral over all fractions x of the chance that the estimate of a candidate becomes
    better than the best one's by more than x. Changes of estimates have Student's t distribution,
    because the scatter of runs is itself an estimate. Eliminated candidates are left out, because
    they get no further runs.

    Args:
        problem: The question.
        state: The state after the last analysis.
        shifts: Standard deviation of the change of each candidate's difference from the best, as a
            logarithm, (candidates,).
    """
    fit, best = state.analysis.fit, state.analysis.best
    others = [n for n in range(problem.count) if n not in state.eliminated and n != best]
    freedom = np.clip(fit.freedom if fit else 0.0, *FREEDOM_RANGE)
    margins = -np.log1p(-_FRACTIONS)
    distances = (state.analysis.gaps[others] + margins[:, None]) / shifts[others]
    return float(_WIDTHS @ _chance_of_any(scipy.special.stdtr(freedom, -distances)))


def _chance_of_any(chances: Array) -> Array:
    """Return the probability of at least one event, from the probabilities along the last axis.

    The events are assumed to be independent. In fact they are positively correlated, as all
    candidates are compared with the same best one. So the result is an upper bound.
    """
    return np.asarray(1 - np.prod(1 - chances, axis=-1))


def _chance_of_better(problem: SearchProblem, state: SearchState) -> float:
    """Return the chance that any candidate is better than the best by more than the indifference.

    Candidates that were eliminated by failures and may be better are included.
    """
    chances = chances_to_beat_best(state, problem.log_indifference)
    unresolved = state.analysis.unresolved
    counted = [n for n in range(problem.count) if n not in state.eliminated or n in unresolved]
    return float(_chance_of_any(chances[counted]))
