"""The interim analyses of a search: who is eliminated, who is the best, who needs more runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from scipy.special import stdtrit

from tfscaling.spec.config import LOOKS, Limit, Question, Search
from tfscaling.tables import estimates
from tfscaling.tables.comparison import OF_ALL_RUNS
from tfscaling.tables.estimates import CONFIDENCE, PRIOR_FREEDOM, Array, Estimates

#: Where a run may miss a target or a limit, a candidate is named from this many runs on, if all of
#: them kept it: with 95 %, no more than 24 % of its runs miss it.
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
    NOT_ALLOWED = "beyond a limit"


class Allowed(StrEnum):
    """Whether a candidate keeps all limits."""

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
class Decision:
    """What is known after the last interim analysis, and what the next one needs.

    `best` may be worse than the best by the fraction `bound`; None where nothing may be named.
    `cheapest` is the cheapest of the survivors shown to be within the indifference of the best.
    Nothing is compared, so nothing decided, where fewer than two candidates have a valid run.
    `unresolved` were eliminated because they do not run or miss the target, and their valid runs
    are not shown to be worse than the runs of `best`.

    `runs` of each candidate were analysed last. The next analysis needs `runs_next` runs of each
    `wanted` candidate: none and 0 when the search has ended. Those that are `waiting` only run if
    the runs of the others leave it open.
    """

    best: str | None
    bound: float
    is_decided: bool
    has_ended: bool
    survivors: tuple[str, ...]
    eliminated: tuple[Elimination, ...]
    cheapest: str | None
    rounds: int
    is_compared: bool
    unresolved: tuple[str, ...]
    runs: Mapping[str, int]
    wanted: tuple[str, ...]
    runs_next: int
    allowed: Mapping[str, Allowed]
    waiting: tuple[str, ...] = ()

    @property
    def due(self) -> tuple[str, ...]:
        """The candidates whose runs the next analysis needs."""
        return tuple(name for name in self.wanted if name not in self.waiting)


#: Runs at an analysis → the least distance of logarithms that eliminates a candidate.
EARLY_GAPS = {1: math.log(3.5), 2: math.log(1.45), 3: math.log(1.35), 4: math.log(1.2)}
#: The share of the error of each interim analysis.
SHARES = (0.4, 0.2, *(0.4 / 6,) * 6)
#: A screen by one run has this share of the error. It assumes that runs scatter by at most
#: SCREEN_SCATTER and that no run takes more than SCREEN_DISTURBED times as long as usual.
SCREEN_SHARE, SCREEN_SCATTER, SCREEN_DISTURBED = 0.2, 0.10, 3.0
#: The share of bounds by linear speed-up, for both parts of the first round together.
BOUNDS_SHARE = 0.2
#: Amounts are claimed from this many runs on.
CLAIM_RUNS = 4
#: The limits' share of the error; the goal has the rest.
LIMITS_SHARE = 0.2


@dataclass(frozen=True)
class Locations(Estimates):
    """Estimates with the least gap that counts, by candidate."""

    gap_min: Array

    def margin(self, first: Array | int, other: Array | int, tail: float) -> Array:
        """By how much the first must be behind the other to be eliminated."""
        return np.maximum(self.half_width(first, other, tail), self.gap_min[first])


Estimator = Callable[[Array], Locations]


def estimate(values: Array) -> Locations:
    """Locations of values by candidate and block, as `tables.estimates.estimate`."""
    runs = np.isfinite(values).sum(axis=1)
    gaps = np.array([EARLY_GAPS.get(int(n), 0.0) for n in runs])
    return Locations(**vars(estimates.estimate(values)), gap_min=gaps)


def error(search: Search, analysis: int) -> float:
    """The error that an interim analysis may make, from 0."""
    share = 1 - SCREEN_SHARE * search.screen - BOUNDS_SHARE * search.at_most_linear
    shares = SHARES[: len(search.looks)]
    return share * (1 - CONFIDENCE) * SHARES[analysis] / sum(shares)


def screen_factor(search: Search, comparisons: int) -> float:
    """The least ratio of a single run to the best one that eliminates by the screen."""
    tail = SCREEN_SHARE * (1 - CONFIDENCE) / max(comparisons, 1)
    quantile = NormalDist().inv_cdf(1 - tail)
    return SCREEN_DISTURBED * math.exp(quantile * math.sqrt(2) * SCREEN_SCATTER)


def decide(
    candidates: Sequence[Candidate],
    search: Search,
    goal: str,
    limits: Mapping[str, Limit] | None = None,
    indifference: float = Question().indifference,
    estimator: Estimator = estimate,
) -> Decision:
    """What the runs show after the last interim analysis that has all its runs.

    Runs have the values of the `goal` and of the metrics of `limits`.
    """
    state = _Search(candidates, search, goal, limits or {}, indifference, estimator)
    if search.screen and not state.screen():
        return state.decision()
    if search.at_most_linear and not state.bound_waiting():
        return state.decision()
    for number, runs in enumerate(search.looks):
        if not state.is_complete(runs):
            break
        state.analyse(number)
    return state.decision()


def lacking(decision: Decision, candidates: Sequence[Candidate]) -> list[tuple[int, str]]:
    """(block from 0, candidate) of the runs that the next analysis lacks, block by block."""
    due = [each for each in candidates if each.name in decision.due]
    found = ((block, each.name) for each in due for block in each.lacks(decision.runs_next))
    return sorted(found)


class _Search:
    """The analyses of the runs of some candidates, in their order.

    Candidates are numbers, in the order of their names. `values` of the goal are (candidates,
    blocks) with NaN for no run. `seen` marks the runs that count, by candidate and block: of
    eliminated candidates the runs that they had.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        search: Search,
        goal: str,
        limits: Mapping[str, Limit],
        indifference: float,
        estimator: Estimator,
    ) -> None:
        self.candidates = sorted(candidates, key=lambda each: each.name)
        self.names = [each.name for each in self.candidates]
        self.count = len(self.names)
        if len(set(self.names)) < self.count:
            raise ValueError("two candidates have the same name")
        self.search, self.goal, self.limits, self.estimator = search, goal, limits, estimator
        self.indifference = indifference
        self.values = self._metric(goal)
        runs = (run for each in self.candidates for run in each.runs[: self.values.shape[1]])
        if (self.values <= 0).any() or any(run is not None and goal not in run for run in runs):
            raise ValueError(f"{goal}: a goal needs a value above zero of every run")
        self.alive = set(range(self.count))
        self.eliminated: list[Elimination] = []
        self.unresolved: set[int] = set()
        self.best: int | None = None
        self.cheapest: int | None = None
        self.bound = math.inf
        self.is_decided = self.has_ended = False
        self.used = np.zeros(self.count, int)
        self.seen = np.zeros(self.values.shape, bool)
        self.allowed = [Allowed.OPEN if limits else Allowed.IN] * self.count
        self.goal_share = 1 - LIMITS_SHARE if limits else 1.0
        self.number = 0
        self.waiting: set[int] = set()
        self.is_screened = not search.screen

    def _metric(self, metric: str) -> Array:
        """Values by candidate and block, NaN where there is no run or the run has no value."""
        found = np.full((self.count, self.search.looks[-1]), np.nan)
        for n, each in enumerate(self.candidates):
            for block, run in enumerate(each.runs[: found.shape[1]]):
                if run is not None:
                    found[n, block] = run.get(metric, math.nan)
        return found

    @property
    def wanted(self) -> list[int]:
        """The candidates that need more runs: the survivors until the search has ended."""
        return [] if self.has_ended else sorted(self.alive)

    def is_complete(self, runs: int) -> bool:
        """Whether every candidate that still runs has its runs, or cannot have them."""
        wanted = [self.candidates[n] for n in self.wanted if n not in self.waiting]
        return bool(wanted) and all(
            not each.lacks(runs) or each.cannot_run(runs) for each in wanted
        )

    def screen(self) -> bool:
        """Eliminate candidates far behind in their only run. False while one lacks its run.

        A run that did not reach its end eliminates nothing, and is not eliminated.
        """
        if not self.is_complete(1):
            return False
        self.is_screened = True
        factor = screen_factor(self.search, self.count - 1)
        firsts = {n: self.values[n, 0] for n in self.alive if np.isfinite(self.values[n, 0])}
        best = min(firsts, key=firsts.__getitem__, default=-1)
        for n, value in firsts.items():
            if value > factor * firsts[best]:
                self._eliminate(n, Reason.SCREENED, best, float(value / firsts[best]) - 1)
                self._see(n, 1)
        return True

    def bound_waiting(self) -> bool:
        """Eliminate what cannot be the best by the runs of others. False while runs are missing.

        The smallest candidate of each line runs first, then the largest ones.
        """
        runs = self.search.looks[0]
        share = BOUNDS_SHARE * (1 - CONFIDENCE) / 2  # of each part
        lines: dict[str, list[int]] = {}
        for n, candidate in enumerate(self.candidates):
            lines.setdefault(candidate.line, []).append(n)
        ordered = [sorted(line, key=lambda n: self.candidates[n].nodes) for line in lines.values()]
        due = set(range(self.count))
        for place in (0, -1):
            due -= {line[place] for line in ordered}
            self.waiting = due & set(self.wanted)
            if not self.waiting:
                break
            if len(self.waiting) < len(self.wanted):
                if not self.is_complete(runs):
                    return False
                self._use(runs, share)
                self._eliminate_by_bounds(self.goal_share * share)
        self.waiting = set()
        return True

    def analyse(self, number: int) -> None:
        """The interim analysis `number`, from 0."""
        runs, share = self.search.looks[number], error(self.search, number)
        self.number = number + 1
        self._use(runs, share)
        self._analyse(runs, self.goal_share * share)

    def decision(self) -> Decision:
        best, cheapest = (None if n is None else self.names[n] for n in (self.best, self.cheapest))
        bounded = sum(each.reason is Reason.BOUNDED for each in self.eliminated)
        ran = np.isfinite(np.where(self.seen, self.values, np.nan)).any(axis=1).sum()
        is_compared = bool(ran + bounded >= 2)
        is_decided = self.is_decided and is_compared
        runs_next = self.search.looks[self.number] if self.is_screened and self.wanted else 1
        return Decision(
            best=best,
            bound=math.expm1(self.bound),
            is_decided=is_decided,
            has_ended=self.has_ended,
            survivors=tuple(self.names[n] for n in sorted(self.alive)),
            eliminated=tuple(self.eliminated),
            cheapest=cheapest if is_decided else best,
            rounds=self.number,
            is_compared=is_compared,
            unresolved=tuple(self.names[n] for n in sorted(self.unresolved)),
            runs={
                each.name: int(used) - len(each.lacks(used))
                for each, used in zip(self.candidates, self.used.tolist(), strict=True)
            },
            wanted=tuple(self.names[n] for n in self.wanted),
            runs_next=runs_next if self.wanted else 0,
            allowed=dict(zip(self.names, self.allowed, strict=True)),
            waiting=tuple(self.names[n] for n in self.wanted if n in self.waiting),
        )

    def _use(self, runs: int, error: float) -> None:
        """Count the runs of those that run and do not wait, and judge them by the limits."""
        running = set(self.wanted) - self.waiting
        lost = {n for n in running if self.candidates[n].lacks(runs)}
        for n in running:
            self._see(n, self.search.looks[-1] if n in lost else runs)
        self._drop(lost, Reason.DOES_NOT_RUN)
        if self.limits:
            self._judge(LIMITS_SHARE * error / self.count / len(self.limits))

    def _see(self, n: int, runs: int) -> None:
        self.used[n] = max(self.used[n], runs)
        self.seen[n, self.candidates[n].blocks(runs)] = True

    def _counted(self, values: Array) -> Array:
        """The values of the runs that count, up to the last block that has one."""
        blocks = 1 + int(np.flatnonzero(self.seen.any(axis=0))[-1])
        return np.where(self.seen, values, np.nan)[:, :blocks]

    def _eliminate(
        self, n: int, reason: Reason, rival: int, gap: float, at_least: float | None = None
    ) -> None:
        self.alive.discard(n)
        names = self.names[n], self.names[rival]
        self.eliminated.append(Elimination(names[0], self.number, reason, names[1], gap, at_least))

    def _drop(self, gone: set[int], reason: Reason) -> None:
        """Eliminate candidates by their own runs.

        Candidates that were eliminated behind one of them run again.
        """
        found = sorted(self.alive & gone)
        self.eliminated += [Elimination(self.names[n], self.number, reason) for n in found]
        self.alive -= set(found)
        rivals = {self.names[n] for n in found}
        back = [
            each.name
            for each in self.eliminated
            if each.rival in rivals and each.reason in (Reason.NOT_THE_BEST, Reason.SCREENED)
        ]
        self.eliminated = [each for each in self.eliminated if each.name not in back]
        self.alive |= {self.names.index(name) for name in back}

    def _judge(self, tail: float) -> None:
        """Which candidates keep all limits, miss one, or leave it open."""
        judged = [self._keeps(name, limit, tail) for name, limit in self.limits.items()]
        keeps = np.all([each for each, _ in judged], axis=0)
        misses = np.any([each for _, each in judged], axis=0)
        for n in range(self.count):
            if self.allowed[n] is not Allowed.OUT:
                known = Allowed.IN if keeps[n] else Allowed.OPEN
                self.allowed[n] = Allowed.OUT if misses[n] else known
        out = {n for n in range(self.count) if self.allowed[n] is Allowed.OUT}
        self._drop(out, Reason.NOT_ALLOWED)

    def _keeps(self, metric: str, limit: Limit, tail: float) -> tuple[Array, Array]:
        """(whether each candidate is shown to keep a limit, whether to miss it).

        It keeps the limit as in `estimates.keeps_limit`: in every run, and with the interval of the
        mean, here with moderated variances. One run beyond the limit misses it.
        """
        values, most = estimates.as_costs_with_limit(self._counted(self._metric(metric)), limit)
        known = np.isfinite(values)
        runs = known.sum(axis=1)
        own = np.maximum(runs - 1.0, 0)
        mean = np.where(known, values, 0).sum(axis=1) / np.maximum(runs, 1)
        squares = (np.where(known, values - mean[:, None], 0) ** 2).sum(axis=1)
        pooled = own.sum()
        prior = min(PRIOR_FREEDOM, pooled)
        variance = (prior * squares.sum() / max(pooled, 1) + squares) / np.maximum(prior + own, 1)
        quantile = -stdtrit(np.maximum(np.minimum(prior + own, pooled), 1), tail)
        half_width = quantile * np.sqrt(variance / np.maximum(runs, 1))
        missed = (np.where(known, values, -np.inf) > most).any(axis=1) & (runs >= 2)
        misses = missed | ((runs >= 2) & (mean - half_width > most))
        return (runs >= 2) & ~misses & (mean + half_width <= most), misses

    def _leaders(self, values: Array, rows: Sequence[int]) -> list[int]:
        """The candidates that may be named the best, and may eliminate others."""
        return [
            n
            for n in rows
            if n in self.alive and self.allowed[n] is Allowed.IN and not np.isinf(values[n]).any()
        ]

    def _eliminate_by_bounds(self, error: float) -> None:
        """Eliminate waiting candidates that linear speed-up would not make the best.

        On n times the nodes a candidate takes at least the n-th part of the time of the largest
        smaller one on its line, and costs at least as much.
        """
        values = self._counted(self.values)
        rows = _with_runs(values)
        leaders = self._leaders(values, rows)
        if not leaders:
            return
        found, tail = self.estimator(values[rows]), error / max(self.count - 1, 1)
        place, is_cost = {n: row for row, n in enumerate(rows)}, self.goal.startswith("cost_")
        best = min(leaders, key=lambda n: found.high[place[n]])
        for n in sorted(self.alive & self.waiting):
            own = self.candidates[n]
            smaller = {
                row: self.candidates[row].nodes
                for row in rows
                if self.candidates[row].line == own.line
                and self.candidates[row].nodes < own.nodes
                and not np.isinf(values[row]).any()
            }
            if not smaller:
                continue
            reference = max(smaller, key=smaller.__getitem__)
            if is_cost and reference in leaders:
                self._eliminate(n, Reason.BOUNDED, reference, 0.0)
                continue
            row = place[reference]
            shorter = 0.0 if is_cost else math.log(smaller[reference] / own.nodes)
            ahead = float(found.low[row] + shorter - found.high[place[best]])
            if reference != best and ahead > found.margin(row, place[best], tail):
                self._eliminate(n, Reason.BOUNDED, best, math.expm1(ahead))

    def _analyse(self, runs: int, error: float) -> None:
        values = self._counted(self.values)
        missed = set(np.flatnonzero(np.isinf(values).any(axis=1)).tolist())
        self._drop(missed, Reason.NOT_REACHED)
        gone = {
            self.names.index(each.name)
            for each in self.eliminated
            if each.reason in (Reason.DOES_NOT_RUN, Reason.NOT_REACHED)
        }
        self.unresolved = {n for n in gone if np.isfinite(values[n]).any()}
        rows = sorted({*_with_runs(values), *self.unresolved})
        self.best, self.bound = None, math.inf
        if self._leaders(values, rows):
            self._compare(rows, self.estimator(values[rows]), error)
        if self.alive - set(rows):  # too few of their runs have a value
            self.bound = math.inf
        self.is_decided = self._is_near(self.best, self.bound)
        is_last = runs == self.search.looks[-1]
        self.has_ended = self.is_decided or is_last or not self.alive

    def _is_near(self, n: int | None, bound: float) -> bool:
        """Whether a candidate is shown to be near the best, by enough runs to be named."""
        kept = KEPT_RUNS if self.limits or self.goal in OF_ALL_RUNS else 0
        is_near = bound <= math.log1p(self.indifference)
        return n is not None and is_near and self.used[n] >= min(kept, self.search.looks[-1])

    def _compare(self, rows: list[int], found: Locations, error: float) -> None:
        """Eliminate candidates; find the best, its bound, and the cheapest that is as good."""
        alive = [row for row, n in enumerate(rows) if n in self.alive]
        leaders = [row for row in alive if self.allowed[rows[row]] is Allowed.IN]
        tail = error / max(self.count - 1, 1)
        best = min(leaders, key=lambda row: found.high[row])
        for row in [row for row, n in enumerate(rows) if n in self.unresolved]:
            if found.low[row] - found.high[best] > found.margin(row, best, tail):
                self.unresolved.discard(rows[row])
        others = np.array([row for row in alive if row != best], int)
        ahead = found.low[others] - found.high[best]
        is_behind = ahead > found.margin(others, best, tail)
        pairs = self.count * (self.count - 1)
        for row, gap in zip(others[is_behind].tolist(), ahead[is_behind].tolist(), strict=True):
            least = gap - float(found.half_width(row, best, error / pairs))
            is_claimed = self.search.looks[self.number - 1] >= CLAIM_RUNS and least > 0
            at_least = math.expm1(least) if is_claimed else None
            self._eliminate(rows[row], Reason.NOT_THE_BEST, rows[best], math.expm1(gap), at_least)
        alive = [row for row in alive if rows[row] in self.alive]
        bounds = {row: _bound(found, row, alive, tail) for row in leaders if row in alive}
        self.best, self.bound = rows[best], bounds[best]
        near = [rows[row] for row in bounds if self._is_near(rows[row], bounds[row])]
        costs = {n: cost for n in near if (cost := self.candidates[n].cost) is not None}
        self.cheapest = self.best
        if near and len(costs) == len(near):
            self.cheapest = min(near, key=lambda n: (costs[n], n != self.best))


def _with_runs(values: Array) -> list[int]:
    """The candidates with at least two runs that reached their end."""
    return [int(n) for n in np.flatnonzero(np.isfinite(values).sum(axis=1) >= 2)]


def _bound(found: Locations, row: int, alive: Sequence[int], tail: float) -> float:
    """How far, in logarithms, a candidate may be behind the best of the survivors."""
    others = np.array([other for other in alive if other != row], int)
    behind = found.high[row] - found.low[others] + found.margin(others, row, tail)
    return float(behind.max(initial=0.0))
