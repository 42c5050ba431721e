#!/usr/bin/env python3
"""What a search costs in all, if it ends when further runs are not worth their price.

all_trainings.py [--trials N] [--cell NAME] [--seed N]: simulates the cells of race.py that have no
limits and no short runs, for 1, 10, 100 and 1,000 trainings. The *total* is the node-hours of all
runs and those that the trainings lose because the named configuration is not the best. Its unit is
one run of each configuration. Next to it are the totals of a search that does not know the number
of trainings, and of six runs of each. Ends with 1 if the total of a cell is surely (99 %) above the
lower of these two, or if the mean over all cells is above MEAN_MAX.

*Hindsight* is the total of a search that ends after the round that makes its own total lowest,
which takes the truth: no rule that ends the same search can be better.

*Wrong* is the share of ended searches whose configuration is not within the indifference of the
best; *stated* the mean of the probabilities of that, as they print them.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the matrices are small

import numpy as np
import race
from race import CELLS, COST, INDIFFERENCE, METRIC, START_S, Array, Cell, Truth
from tfscaling.search.further_runs import assess_further_runs
from tfscaling.search.scaling_search import ScalingSearch
from tfscaling.search.search_state import NewRuns, SearchProblem, SearchState
from tfscaling.search.search_types import PRICE_RATIO, FurtherRuns
from tfscaling.study.config_types import Search

TRAININGS = (1, 10, 100, 1000)
#: Number of trainings → highest allowed mean of the totals over all cells. With 1,000, the cells
#: in which all rivals are just outside the indifference, or few runs show a slow mode, exceed 1.2.
MEAN_MAX = {1: 1.2, 10: 1.2, 100: 1.2}
#: Procedure of race.py → goal, settings of the search, and how much slower runs get in each round.
PROCEDURES: dict[str, tuple[str, Search, float]] = {
    "time": (METRIC, race.USUAL, 0.0),
    "cost": (COST, race.USUAL, 0.0),
    "time, smooth": (METRIC, race.SMOOTH, 0.0),
    "cost, smooth": (COST, race.SMOOTH, 0.0),
    "time, drift": (METRIC, race.USUAL, 0.03),
}


class Stop(NamedTuple):
    """A round after which a search may end.

    Attributes:
        spent: Node-hours of all runs so far.
        lost: Node-hours that each training loses, as the named configuration is not the best.
        is_wrong: Whether the named configuration is not within the indifference of the best.
        further: What the next round costs and is expected to save in one training; None if the
            search may not end, or has ended.
    """

    spent: float
    lost: float
    is_wrong: bool
    further: FurtherRuns | None

    def ends(self, trainings: int) -> bool:
        """Whether a search for this number of trainings ends here."""
        return self.further is not None and (trainings * self.further.saving <= self.further.price)


class Trial(NamedTuple):
    """One simulated study: the stops of its search, the last one without a number of trainings.

    Attributes:
        stops: The rounds.
        once: Node-hours of one run of each configuration.
        lost_by_grid: Node-hours that each training loses after six runs of each configuration.
    """

    stops: Sequence[Stop]
    once: float
    lost_by_grid: float

    def total(self, trainings: int) -> tuple[float, float, float, float]:
        """Return totals for a number of trainings.

        Returns:
            The totals of the search that knows this number, of the search that does not, of the
            full grid, and of the best end in hindsight.
        """
        stop, last = self.stop(trainings), self.stops[-1]
        grid = race.FULL_REPEATS * self.once + trainings * self.lost_by_grid
        known, unknown = (each.spent + trainings * each.lost for each in (stop, last))
        may_end = [each for each in self.stops if each.further] or [last]
        hindsight = min(each.spent + trainings * each.lost for each in (*may_end, last))
        once = self.once
        return known / once, unknown / once, grid / once, hindsight / once

    def stop(self, trainings: int) -> Stop:
        """Return the round after which a search for this number of trainings ends."""
        return next((stop for stop in self.stops if stop.ends(trainings)), self.stops[-1])


def simulate(true: Truth, time_s: Array, goal: str, settings: Search, drift: float) -> Trial:
    """Simulate a search.

    Args:
        true: The truth.
        time_s: Seconds by candidate and block.
        goal: METRIC or COST.
        settings: The settings of the search.
        drift: By what fraction runs get slower in each round.
    """
    factor = true.nodes if goal == COST else np.ones(len(true.nodes))
    values = true._replace(time_s=true.time_s * factor)
    ratio = np.broadcast_to((1 + START_S / true.time_s)[:, None], time_s.shape)
    runs = true.candidates(**{goal: time_s * factor[:, None], PRICE_RATIO: ratio})
    problem = SearchProblem(tuple(runs), settings, goal, {}, math.log1p(INDIFFERENCE), 1)
    method, state = ScalingSearch(problem), SearchState.start(problem)
    stops: list[Stop] = []
    while proposed := method.propose(state):
        new = {}
        for name, number in proposed.items():
            used = int(state.runs_used[problem.numbers[name]])
            own = [run or {} for run in runs[int(name)].runs[used : used + number]]
            slower = math.exp(drift * state.rounds)
            new[name] = NewRuns(number, tuple({**run, goal: run[goal] * slower} for run in own))
        state = method.observe(state, new)
        further = assess_further_runs(problem, state, method.propose(state))
        spent = state.runs_used[: problem.count] @ true.node_hours
        best = state.analysis.best or 0
        is_wrong = values.regret(best) > INDIFFERENCE + 1e-9
        stops.append(Stop(float(spent), _lost_hours(true, values, best), is_wrong, further))
    grid = int(np.median(time_s[:, : race.FULL_REPEATS] * factor[:, None], axis=1).argmin())
    return Trial(stops, float(true.node_hours.sum()), _lost_hours(true, values, grid))


def _lost_hours(true: Truth, values: Truth, named: int) -> float:
    """Return the node-hours that a training with the named configuration loses.

    Args:
        true: The truth.
        values: The truth with the values of the goal instead of the times.
        named: Number of the named configuration.
    """
    regret = values.regret(named)
    return float(true.time_s[named] * true.nodes[named] / 3600 * regret / (1 + regret))


class CellResult(NamedTuple):
    """Results of a cell for a number of trainings; totals in runs of each configuration.

    Attributes:
        total: Mean total if the number of trainings is known.
        unknown: Mean total of a search that does not know it.
        grid: Mean total of six runs of each configuration.
        hindsight: Mean total of the best end in hindsight.
        ended: Share of the searches that end because further runs are not worth their price.
        wrong: Share of these that are wrong.
        stated: Mean of their stated probabilities to be wrong.
        is_surely_above: Whether the total is above the lower one of the others, with 99 %.
    """

    total: float
    unknown: float
    grid: float
    hindsight: float
    ended: float
    wrong: float
    stated: float
    is_surely_above: bool

    @classmethod
    def summarize(cls, trials: Sequence[Trial], trainings: int) -> CellResult:
        """Return the result of a cell, from its trials, for a number of trainings."""
        totals = np.array([trial.total(trainings) for trial in trials])
        means = totals.mean(axis=0)
        excess = totals[:, 0] - totals[:, 1 + int(means[1:3].argmin())]
        error = excess.std(ddof=1) / math.sqrt(len(trials)) if len(trials) > 1 else math.inf
        stops = [trial.stop(trainings) for trial in trials]
        ended = [stop for stop in stops if stop.ends(trainings)]
        chances = [stop.further.chance for stop in ended if stop.further]
        total, unknown, grid, hindsight = means.tolist()
        return cls(
            total,
            unknown,
            grid,
            hindsight,
            ended=len(ended) / len(trials),
            wrong=float(np.mean([stop.is_wrong for stop in ended])) if ended else math.nan,
            stated=float(np.mean(chances)) if ended else math.nan,
            is_surely_above=bool(excess.mean() > 2.33 * error + 1e-9),
        )


def simulate_cell(name: str, trials: int, seed: int) -> list[CellResult]:
    """Return the result of a cell for each number of TRAININGS."""
    cell: Cell = CELLS[name]
    dice = np.random.default_rng([seed, *name.encode()])
    found = []
    for _ in range(trials):
        true = cell.truth(dice)
        runs = true.runs(cell.noise, dice)
        found.append(simulate(true, runs, *PROCEDURES[cell.procedures[0]]))
    return [CellResult.summarize(found, trainings) for trainings in TRAININGS]


def main() -> None:
    names = [name for name, cell in CELLS.items() if cell.procedures[0] in PROCEDURES]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--cell", action="append", choices=names, help="only this one")
    parser.add_argument("--seed", type=int, default=race.SEED)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    cells = args.cell or names
    print(f"{datetime.now(UTC):%Y-%m-%d}, {args.trials} trials of each cell, seed {args.seed}\n")
    print(
        "| cell | trainings | total | unknown | six of each | hindsight | ended | wrong | stated |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    problems, totals, hindsights = [], [], []
    run = functools.partial(simulate_cell, trials=args.trials, seed=args.seed)
    with ProcessPoolExecutor(args.processes) as pool:
        for name, results in zip(cells, pool.map(run, cells), strict=True):
            totals.append([each.total for each in results])
            hindsights.append([each.hindsight for each in results])
            for trainings, each in zip(TRAININGS, results, strict=True):
                values = " | ".join(f"{value:.2f}" for value in each[:-1])
                print(f"| {name} | {trainings} | {values} |", flush=True)
                if each.is_surely_above:
                    problems.append(f"{name}, {trainings} trainings: a total above the others")
    means, least = (
        dict(zip(TRAININGS, np.mean(each, axis=0).tolist(), strict=True))
        for each in (totals, hindsights)
    )
    texts = (f"{n} trainings: {means[n]:.2f} ({least[n]:.2f} in hindsight)" for n in TRAININGS)
    print("\nMeans:", ", ".join(texts))
    if not args.cell:
        above = [n for n, most in MEAN_MAX.items() if means[n] > most]
        problems += [
            f"{n} trainings: the mean {means[n]:.2f} is above {MEAN_MAX[n]}" for n in above
        ]
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
