"""When further runs of a search are not worth their price, with known truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from all_trainings import TRAININGS, simulate_cell
from scipy.special import stdtrit
from tfscaling.estimation.run_counts import KEPT_RUNS
from tfscaling.record.metrics import QUALITY
from tfscaling.search.further_runs import SHORT_PRICE, _price, assess_further_runs
from tfscaling.search.interim import chances_to_beat_best
from tfscaling.search.scaling_model import Fit
from tfscaling.search.scaling_search import ScalingSearch, decide
from tfscaling.search.search_state import NewRuns, SearchProblem, SearchState
from tfscaling.search.search_types import (
    PRICE_RATIO,
    Candidate,
    Decision,
    FurtherRuns,
    list_needed_runs,
)
from tfscaling.study.config_types import Limit, Search

TIME, COST, TO_TARGET = "execution_time_s", "cost_usd", "time_to_target_s"
RUNS = Search().repeats_max
LIMIT = {QUALITY: Limit(at_least=0.98)}
NODES = 4


@pytest.fixture
def dice() -> np.random.Generator:
    """Random numbers whose seed a failed test prints."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def candidates(
    dice: np.random.Generator, ratio: float = 1.0, ahead: float | None = None
) -> list[Candidate]:
    """Between 3 and 8 candidates with all runs that a search may need, by 2 to 8 % of scatter.

    A run occupies its nodes for `ratio` times the training. The first candidate is faster than all
    others by the fraction `ahead`, if given.
    """
    count, scatter = int(dice.integers(3, 9)), dice.uniform(0.02, 0.08)
    times_s = 100 * np.exp(dice.uniform(0, 0.3, count))
    if ahead is not None:
        times_s[0] = times_s[1:].min() * (1 - ahead)
    logs = np.log(times_s)[:, None] + scatter * dice.standard_normal((count, RUNS))
    return [
        Candidate(
            f"c{n}",
            tuple(
                {TIME: t, COST: t, TO_TARGET: t, PRICE_RATIO: ratio, QUALITY: 0.99}
                for t in np.exp(own).tolist()
            ),
            line=f"c{n}",
            nodes=NODES,
        )
        for n, own in enumerate(logs)
    ]


def states(problem: SearchProblem) -> Iterator[tuple[SearchState, dict[str, int]]]:
    """Each state of a search whose runs all exist, and what it proposes."""
    method, state = ScalingSearch(problem), SearchState.start(problem)
    while proposed := method.propose(state):
        new = {}
        for name, runs in proposed.items():
            used = int(state.runs_used[problem.numbers[name]])
            own = problem.candidates[problem.numbers[name]]
            new[name] = NewRuns(runs, tuple(r for r in own.runs[used : used + runs] if r))
        state = method.observe(state, new)
        yield state, method.propose(state)


def problem_of(planned: list[Candidate], trainings: int | None, goal: str = TIME) -> SearchProblem:
    return SearchProblem(tuple(planned), Search(), goal, {}, math.log(1.05), trainings)


def first(planned: list[Candidate], trainings: int, goal: str = TIME) -> FurtherRuns:
    """What the second round of a search costs and is expected to save."""
    problem = problem_of(planned, trainings, goal)
    found = assess_further_runs(problem, *next(states(problem)))
    assert found is not None
    return found


def run_until_it_ends(planned: list[Candidate], trainings: int | None) -> list[Decision]:
    """The decision before each round of a search, whose runs are made one round at a time."""
    made = [replace(each, runs=()) for each in planned]
    by_name = {each.name: each for each in planned}
    found = [decide(made, Search(), TIME, trainings=trainings)]
    while found[-1].runs_to_start:
        due = list_needed_runs(found[-1], made)
        number = {each.name: sum(each.name == name for _, name in due) for each in made}
        made = [replace(e, runs=by_name[e.name].runs[: len(e.runs) + number[e.name]]) for e in made]
        found.append(decide(made, Search(), TIME, trainings=trainings))
    return found


def test_the_saving_is_the_expected_effect_of_the_next_round(dice: np.random.Generator) -> None:
    """The integral over the model's changes of estimates, compared with quantiles of them."""
    problem = problem_of(candidates(dice), 1)
    state, proposed = next(states(problem))
    found, fit, best = assess_further_runs(problem, state, proposed), *_fit_of(state)
    assert found is not None
    value = math.exp(fit.mean[best]) * NODES / 3600
    runs = np.array([proposed.get(name, 0) for name in problem.names[: problem.count]])
    # variance that independent runs remove from a normally distributed estimate
    removed = fit.variance - 1 / (1 / fit.variance + runs / fit.scatter)
    quantiles = (np.arange(200_000) + 0.5) / 200_000
    savings = []
    for n in range(problem.count):
        if n != best:
            sd = min(math.sqrt(removed[n] + removed[best]), fit.difference_sd(best)[n])
            freedom = min(max(fit.freedom, 4.0), 30.0)
            changes = fit.error_factor * sd * stdtrit(freedom, quantiles)
            gaps = fit.mean[n] - fit.mean[best] + changes
            savings.append(float(np.maximum(0, -np.expm1(gaps)).mean()))
    assert max(savings) * 0.99 <= found.saving / value <= sum(savings) * 1.01
    chances = chances_to_beat_best(state, problem.log_indifference)
    assert chances.max() <= found.chance <= chances.sum()


def test_more_runs_of_a_round_save_more(dice: np.random.Generator) -> None:
    """They show more; a round without runs has no price and no saving."""
    problem = problem_of(candidates(dice), 1)
    state, _ = next(states(problem))
    names = problem.names[: problem.count]
    rounds = [dict.fromkeys(names[:chosen], runs) for chosen in (1, len(names)) for runs in (1, 2)]
    savings = []
    for proposed in rounds:
        found = assess_further_runs(problem, state, proposed)
        assert found is not None
        savings.append(found.saving)
    few, more, all_few, all_more = savings
    assert few <= more <= all_more and few <= all_few <= all_more
    assert assess_further_runs(problem, state, {}) is None


def test_short_runs_save_no_more_than_complete_ones(dice: np.random.Generator) -> None:
    """Their projections have an error that further short runs do not remove."""
    complete = candidates(dice)
    planned = tuple(replace(c, short=replace(c, name=f"short {c.name}")) for c in complete)
    problem = SearchProblem(planned, Search(), TIME, {}, math.log1p(0.05), 1)
    method, state = ScalingSearch(problem), SearchState.start(problem)
    # all candidates have a complete run
    runs = {each.name: NewRuns(1, tuple(run for run in each.runs[:1] if run)) for each in complete}
    state = method.observe(state, runs)
    names = [each.name for each in complete]
    complete_round, short_round = (
        assess_further_runs(problem, state, {prefix + name: 1 for name in names})
        for prefix in ("", "short ")
    )
    assert complete_round is not None and short_round is not None
    assert 0 < short_round.saving <= complete_round.saving


def _fit_of(state: SearchState) -> tuple[Fit, int]:
    assert state.analysis.fit is not None and state.analysis.best is not None
    return state.analysis.fit, state.analysis.best


def test_price_and_saving_have_one_unit(dice: np.random.Generator) -> None:
    """Node-hours for a time, dollars for a cost; a run with start-up costs more."""
    planned, trainings, ratio = candidates(dice), int(dice.integers(2, 99)), dice.uniform(1.1, 3)
    one, all_of_them = first(planned, 1), first(planned, trainings)
    assert all_of_them.saving == pytest.approx(trainings * one.saving)
    assert all_of_them.price == one.price and all_of_them.chance == one.chance
    in_usd = first(planned, 1, COST)
    hours = NODES / 3600
    # the same values as dollars of a run; a cost is expected to rise with the nodes, a time to fall
    assert one.saving / hours == pytest.approx(in_usd.saving, rel=0.2)
    assert 0 < one.price / hours / in_usd.price < 2
    longer = [
        replace(each, runs=tuple({**(run or {}), PRICE_RATIO: ratio} for run in each.runs))
        for each in planned
    ]
    assert first(longer, 1).price == pytest.approx(ratio * one.price)
    assert first(longer, 1).saving == one.saving


def test_more_trainings_never_end_a_search_earlier(dice: np.random.Generator) -> None:
    planned = candidates(dice, ratio=1.2)
    usual = run_until_it_ends(planned, None)
    runs = [sum(run_until_it_ends(planned, n)[-1].runs.values()) for n in (1, 30, 1000, 10**6)]
    assert runs == sorted(runs) and runs[-1] <= sum(usual[-1].runs.values())
    assert usual[-1].not_worth_it is None
    # the rounds are the usual ones, up to the end
    for trainings in (1, 30):
        found = run_until_it_ends(planned, trainings)
        assert found[:-1] == usual[: len(found) - 1]


def test_one_training_is_worth_one_run_of_each(dice: np.random.Generator) -> None:
    planned = candidates(dice)
    last = run_until_it_ends(planned, 1)[-1]
    assert last.not_worth_it is not None and not last.not_worth_it.is_worth_its_price
    assert (last.has_ended, last.is_decided, last.runs_to_start) == (True, False, {})
    assert last.possible_runs == () and last.best is not None
    assert set(last.runs.values()) == {1}


def test_runs_that_only_save_their_price_are_not_made() -> None:
    price = random.uniform(0.1, 10)
    for saving, is_worth_it in ((0.99 * price, False), (price, False), (1.01 * price, True)):
        further = FurtherRuns(trainings=30, price=price, saving=saving, chance=0.1)
        assert further.is_worth_its_price == is_worth_it


def test_many_trainings_leave_a_search_as_it_is(dice: np.random.Generator) -> None:
    """The decision ends the search then, or its last round, and hardly ever the price.

    Candidates that are far behind may have fewer runs than a decision needs. A search ends without
    these runs if they are expected to save less in 10**18 trainings than they cost.
    """
    planned = candidates(dice, ahead=dice.uniform(0.1, 0.5))
    usual, found = (run_until_it_ends(planned, trainings) for trainings in (None, 10**18))
    omitted = found[-1].not_worth_it
    if omitted is None:
        assert found == usual
    else:
        assert found[:-1] == usual[: len(found) - 1]
        assert found[-1].best == usual[-1].best and omitted.chance < 0.01


def test_a_decision_is_a_function_of_the_runs(dice: np.random.Generator) -> None:
    """A search that is resumed after any round, or with runs lost, decides the same."""
    planned, trainings = candidates(dice), int(dice.integers(1, 3000))
    decisions = run_until_it_ends(planned, trainings)
    pairs = [*pairwise(decisions)]
    for before, after in random.sample(pairs, min(len(pairs), 3)):
        made = [replace(each, runs=each.runs[: before.runs[each.name]]) for each in planned]
        dice.shuffle(made)
        assert decide(made, Search(), TIME, trainings=trainings) == before
        # half of the round is made
        name, runs = next(iter(before.runs_to_start.items()))
        half = [replace(e, runs=planned[int(name[1:])].runs[:runs]) if e.name == name else e
                for e in made]  # fmt: skip
        found = decide(half, Search(), TIME, trainings=trainings)
        assert found == (before if len(before.runs_to_start) > 1 else after)


def test_runs_that_exist_cost_nothing(dice: np.random.Generator) -> None:
    """A number of trainings that is set after a search leaves its decision as it is."""
    planned = candidates(dice)
    usual, known = (decide(planned, Search(), TIME, trainings=n) for n in (None, 1))
    assert known == usual and known.not_worth_it is None
    simulated = decide(planned, Search(), TIME, trainings=1, is_simulated=True)
    assert simulated == run_until_it_ends(planned, 1)[-1] != usual


@pytest.mark.parametrize("cell", ["random 20, 5 %", "each platform, 5 %, by cost"])
def test_a_known_number_of_trainings_costs_no_more_in_all(cell: str) -> None:
    """Measuring and lost node-hours together; all cells: `make simulate`."""
    # a fixed seed: of ten searches alone, the total may be above the bound of many
    found = simulate_cell(cell, 10, 7)
    for trainings, each in zip(TRAININGS, found, strict=True):
        assert not each.is_surely_above, (trainings, each)
        assert each.total < 1.2 or trainings > 100
    assert found[0].ended == 1 and found[0].total < found[0].unknown < found[0].grid


@pytest.mark.parametrize("way", ["limit", "target"])
def test_limits_and_targets_are_shown_first(way: str, dice: np.random.Generator) -> None:
    """Not before the named configuration has the runs that show it."""
    goal, limits = (TIME, LIMIT) if way == "limit" else (TO_TARGET, {})
    found = decide(candidates(dice), Search(), goal, limits, trainings=1, is_simulated=True)
    assert found.best is not None and found.runs[found.best] >= KEPT_RUNS
    assert found.has_ended


def test_short_runs_end_a_search_only_with_a_complete_one(dice: np.random.Generator) -> None:
    planned = [
        replace(each, short=replace(each, name=f"short {each.name}", blocks_max=9))
        for each in candidates(dice)
    ]
    found = decide(planned, Search(), TIME, trainings=1, is_simulated=True)
    assert found.best is not None and found.runs[found.best] >= 1


@pytest.mark.parametrize(
    "change",
    [
        lambda each: replace(each, runs=({TIME: math.nan}, *each.runs[1:])),
        lambda each: replace(each, runs=(), failed_blocks=frozenset({0})),
    ],
)
def test_a_configuration_without_a_run_is_run(
    change: Callable[[Candidate], Candidate], dice: np.random.Generator
) -> None:
    """Unless it fails: then the others are judged, and it is named as unresolved."""
    one, *others = candidates(dice)
    found = decide([change(one), *others], Search(), TIME, trainings=1, is_simulated=True)
    assert found.has_ended and (found.runs["c0"] > 1 or "c0" in found.unresolved)
    if found.not_worth_it and found.unresolved:
        assert found.not_worth_it.chance > 0


def test_runs_of_a_round_that_exist_cost_nothing(dice: np.random.Generator) -> None:
    planned = candidates(dice)
    problem = SearchProblem(tuple(planned), Search(), TIME, {}, math.log1p(0.05), 1)
    for state, proposed in states(problem):
        if assess_further_runs(problem, state, proposed) and sum(proposed.values()) > 1:
            break
    used = {each.name: int(state.runs_used[problem.numbers[each.name]]) for each in planned}
    begun = dice.choice([*proposed])
    prices = []
    for more in (0, 1):  # runs of the round that exist
        own = {name: runs + more * (name == begun) for name, runs in used.items()}
        some = [replace(each, runs=each.runs[: own[each.name]]) for each in planned]
        found = decide(some, Search(), TIME, trainings=1).not_worth_it
        assert found is not None
        prices.append(found.price)
    assert prices[1] < prices[0]


def test_a_short_run_is_cheap_before_any_was_made(dice: np.random.Generator) -> None:
    """The plan simulates searches whose short runs report no price."""
    complete = candidates(dice)
    names = [each.name for each in complete]
    shorts = [replace(each, name=f"short {each.name}") for each in complete]
    planned = tuple(replace(c, short=s) for c, s in zip(complete, shorts, strict=True))
    problem = SearchProblem(planned, Search(), TIME, {}, math.log1p(0.05), 1)
    values = np.full(len(names), dice.uniform(1, 9))
    state = SearchState.start(problem)
    price = {name: _price(problem, state, {name: 2}, values) for name in (names[0], shorts[0].name)}
    assert price[shorts[0].name] == pytest.approx(SHORT_PRICE * price[names[0]])
