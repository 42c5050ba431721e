"""The interim analyses of a search: who is eliminated, who is the best, who needs more runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from scipy.special import stdtrit

from tfscaling.record.metrics import QUALITY
from tfscaling.spec.config import LOOKS, Search, SearchLimit
from tfscaling.tables import estimates
from tfscaling.tables.comparison import OF_ALL_RUNS
from tfscaling.tables.estimates import PRIOR_FREEDOM, Array, Estimates

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
    NOT_ALLOWED = "outside the constraint"


class Allowed(StrEnum):
    """What is known of a candidate and the constraint."""

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
class Verdict:
    """What is known for a goal after its last interim analysis.

    `best` may be worse than the best by the fraction `bound`; None where nothing may be named.
    `cheapest` is the cheapest of the survivors shown to be within the indifference of the best.
    Nothing is compared, so nothing decided, where fewer than two candidates have a valid run.
    `unresolved` were eliminated because they do not run or miss the target, and their valid runs
    are not shown to be worse than the runs of `best`.
    """

    goal: str
    best: str | None
    bound: float
    is_decided: bool
    has_ended: bool
    survivors: tuple[str, ...]
    eliminated: tuple[Elimination, ...]
    cheapest: str | None
    rounds: int
    is_compared: bool = True
    unresolved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """A verdict for each goal, and what the next interim analysis needs.

    `runs` of each candidate were analysed last. The next analysis needs `runs_next` runs of each
    `wanted` candidate: none and 0 when the search has ended. Those that are `waiting` only run if
    the runs of the others leave it open.
    """

    verdicts: tuple[Verdict, ...]
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
#: The constraint's share of the error; the goals divide the rest.
CONSTRAINT_SHARE = 0.2


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
    return share * (1 - search.confidence) * SHARES[analysis] / sum(shares)


def screen_factor(search: Search, comparisons: int) -> float:
    """The least ratio of a single run to the best one that eliminates by the screen."""
    tail = SCREEN_SHARE * (1 - search.confidence) / max(comparisons, 1)
    quantile = NormalDist().inv_cdf(1 - tail)
    return SCREEN_DISTURBED * math.exp(quantile * math.sqrt(2) * SCREEN_SCATTER)


def decide(
    candidates: Sequence[Candidate], search: Search, estimator: Estimator = estimate
) -> Decision:
    """What the runs show after the last interim analysis that has all its runs.

    The limit of a constraint is one of the metric QUALITY of the runs.
    """
    state = _Search(candidates, search, estimator)
    if (search.screen and not state.screen()) or (search.at_most_linear and not state.bound()):
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


@dataclass
class _Progress:
    """The state of a goal; the values are (candidates, blocks) with NaN for no run."""

    goal: str
    values: Array
    alive: set[int]
    eliminated: list[Elimination] = field(default_factory=list)
    unresolved: set[int] = field(default_factory=set)
    best: int | None = None
    bound: float = math.inf
    cheapest: int | None = None
    is_decided: bool = False
    has_ended: bool = False
    rounds: int = 0


class _Search:
    """The analyses of the runs of some candidates, in their order.

    Candidates are numbers, in the order of their names. `seen` marks the runs that count, by
    candidate and block: of eliminated candidates the runs that they had.
    """

    def __init__(
        self, candidates: Sequence[Candidate], search: Search, estimator: Estimator
    ) -> None:
        self.candidates = sorted(candidates, key=lambda each: each.name)
        self.names = [each.name for each in self.candidates]
        self.count = len(self.names)
        if len(set(self.names)) < self.count:
            raise ValueError("two candidates have the same name")
        self.search, self.estimator = search, estimator
        self.limit = next(iter(search.constraint.values()), None)
        self.goals = [_Progress(g, self._values(g), set(range(self.count))) for g in search.goals]
        self.used = np.zeros(self.count, int)
        self.seen = np.zeros((self.count, search.looks[-1]), bool)
        self.allowed = [Allowed.OPEN if self.limit else Allowed.IN] * self.count
        shared = 1 - CONSTRAINT_SHARE if self.limit else 1.0
        self.goal_share = shared / max(len(search.goals), 1)
        self.number = 0
        self.waiting: set[int] = set()
        self.is_screened = not search.screen

    def _values(self, goal: str) -> Array:
        found = self._metric(goal)
        runs = (run for each in self.candidates for run in each.runs[: found.shape[1]])
        if (found <= 0).any() or any(run is not None and goal not in run for run in runs):
            raise ValueError(f"{goal}: a goal needs a value above zero of every run")
        return found

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
        """The candidates that need more runs: survivors for a goal that has not ended."""
        return sorted({n for each in self.goals if not each.has_ended for n in each.alive})

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
        factor = screen_factor(self.search, (self.count - 1) * len(self.goals))
        for each in self.goals:
            firsts = {n: each.values[n, 0] for n in each.alive if np.isfinite(each.values[n, 0])}
            best = min(firsts, key=firsts.__getitem__, default=-1)
            for n, value in firsts.items():
                if value > factor * firsts[best]:
                    gap = float(value / firsts[best]) - 1
                    self._eliminate(each, n, Reason.SCREENED, best, gap)
                    self._see(n, 1)
        return True

    def bound(self) -> bool:
        """Eliminate what cannot be the best by the runs of others. False while runs are missing.

        The smallest candidate of each line runs first, then the largest ones.
        """
        runs = self.search.looks[0]
        share = BOUNDS_SHARE * (1 - self.search.confidence) / 2  # of each part
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
                for each in self.goals:
                    self._eliminate_by_bounds(each, self.goal_share * share)
        self.waiting = set()
        return True

    def analyse(self, number: int) -> None:
        """The interim analysis `number`, from 0."""
        runs, share = self.search.looks[number], error(self.search, number)
        self.number = number + 1
        self._use(runs, share)
        for each in self.goals:
            if not each.has_ended:
                self._analyse(each, runs, self.goal_share * share)

    def decision(self) -> Decision:
        wanted = self.wanted
        return Decision(
            tuple(map(self._verdict, self.goals)),
            {
                each.name: int(used) - len(each.lacks(used))
                for each, used in zip(self.candidates, self.used.tolist(), strict=True)
            },
            tuple(self.names[n] for n in wanted),
            (self.search.looks[self.number] if self.is_screened else 1) if wanted else 0,
            dict(zip(self.names, self.allowed, strict=True)),
            tuple(self.names[n] for n in wanted if n in self.waiting),
        )

    def _verdict(self, goal: _Progress) -> Verdict:
        best, cheapest = (None if n is None else self.names[n] for n in (goal.best, goal.cheapest))
        bounded = sum(each.reason is Reason.BOUNDED for each in goal.eliminated)
        ran = np.isfinite(np.where(self.seen, goal.values, np.nan)).any(axis=1).sum()
        is_compared = bool(ran + bounded >= 2)
        is_decided = goal.is_decided and is_compared
        return Verdict(
            goal.goal,
            best,
            math.expm1(goal.bound),
            is_decided,
            goal.has_ended,
            tuple(self.names[n] for n in sorted(goal.alive)),
            tuple(goal.eliminated),
            cheapest if is_decided else best,
            goal.rounds,
            is_compared,
            tuple(self.names[n] for n in sorted(goal.unresolved)),
        )

    def _use(self, runs: int, error: float) -> None:
        """Count the runs of those that run and do not wait, and judge them by the constraint."""
        running = set(self.wanted) - self.waiting
        lost = {n for n in running if self.candidates[n].lacks(runs)}
        for n in running:
            self._see(n, self.search.looks[-1] if n in lost else runs)
        self._drop(lost, Reason.DOES_NOT_RUN)
        if self.limit:
            self._judge(self.limit, CONSTRAINT_SHARE * error / self.count)

    def _see(self, n: int, runs: int) -> None:
        self.used[n] = max(self.used[n], runs)
        self.seen[n, self.candidates[n].blocks(runs)] = True

    def _counted(self, values: Array) -> Array:
        """The values of the runs that count, up to the last block that has one."""
        blocks = 1 + int(np.flatnonzero(self.seen.any(axis=0))[-1])
        return np.where(self.seen, values, np.nan)[:, :blocks]

    def _eliminate(
        self,
        goal: _Progress,
        n: int,
        reason: Reason,
        rival: int,
        gap: float,
        at_least: float | None = None,
    ) -> None:
        goal.alive.discard(n)
        names = self.names[n], self.names[rival]
        found = Elimination(names[0], self.number, reason, names[1], gap, at_least)
        goal.eliminated.append(found)

    def _drop(self, gone: set[int], reason: Reason, goals: Sequence[_Progress] = ()) -> None:
        """Eliminate candidates for `goals`, or all, by their own runs.

        Candidates that were eliminated behind one of them run again.
        """
        for goal in goals or self.goals:
            found = sorted(goal.alive & gone) if not goal.has_ended else []
            goal.eliminated += [Elimination(self.names[n], self.number, reason) for n in found]
            goal.alive -= set(found)
            rivals = {self.names[n] for n in found}
            back = [
                each.name
                for each in goal.eliminated
                if each.rival in rivals and each.reason in (Reason.NOT_THE_BEST, Reason.SCREENED)
            ]
            goal.eliminated = [each for each in goal.eliminated if each.name not in back]
            goal.alive |= {self.names.index(name) for name in back}

    def _judge(self, asked: SearchLimit, tail: float) -> None:
        """Which candidates are in, out, or open: moderated variances of the quality.

        A candidate is out if one of its runs missed the limit by more than the indifference.
        """
        sign = 1 if asked.at_most is None else -1
        limit = sign * ((asked.at_least if sign == 1 else asked.at_most) or 0.0)
        values = self._counted(sign * self._metric(QUALITY))
        known = np.isfinite(values)
        runs = known.sum(axis=1)
        rows = np.flatnonzero(runs >= 2)
        values, known, runs = values[rows], known[rows], runs[rows]
        own = runs - 1.0
        mean = np.where(known, values, 0).sum(axis=1) / runs
        squares = (np.where(known, values - mean[:, None], 0) ** 2).sum(axis=1)
        pooled = own.sum()
        prior = min(PRIOR_FREEDOM, pooled)
        variance = (prior * squares.sum() / max(pooled, 1) + squares) / (prior + own)
        quantile = -stdtrit(np.minimum(prior + own, pooled), tail)
        half_width = quantile * np.sqrt(variance / runs)
        near = asked.indifference
        missed = (np.where(known, values, np.inf) < limit - near).any(axis=1)
        is_out = missed | (mean + half_width <= limit + near)
        is_in = ~missed & (mean - half_width >= limit - near)
        for n, within, outside in zip(rows.tolist(), is_in, is_out, strict=True):
            if self.allowed[n] is not Allowed.OUT:
                self.allowed[n] = Allowed.IN if within else Allowed.OUT if outside else Allowed.OPEN
        out = {n for n in range(self.count) if self.allowed[n] is Allowed.OUT}
        self._drop(out, Reason.NOT_ALLOWED)

    def _leaders(self, goal: _Progress, values: Array, rows: Sequence[int]) -> list[int]:
        """The candidates that may be named the best, and may eliminate others."""
        return [
            n
            for n in rows
            if n in goal.alive and self.allowed[n] is Allowed.IN and not np.isinf(values[n]).any()
        ]

    def _eliminate_by_bounds(self, goal: _Progress, error: float) -> None:
        """Eliminate waiting candidates that linear speed-up would not make the best.

        On n times the nodes a candidate takes at least the n-th part of the time of the largest
        smaller one on its line, and costs at least as much.
        """
        values = self._counted(goal.values)
        rows = _with_runs(values)
        leaders = self._leaders(goal, values, rows)
        if not leaders:
            return
        found, tail = self.estimator(values[rows]), error / max(self.count - 1, 1)
        place, is_cost = {n: row for row, n in enumerate(rows)}, goal.goal.startswith("cost_")
        best = min(leaders, key=lambda n: found.high[place[n]])
        for n in sorted(goal.alive & self.waiting):
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
                self._eliminate(goal, n, Reason.BOUNDED, reference, 0.0)
                continue
            row = place[reference]
            shorter = 0.0 if is_cost else math.log(smaller[reference] / own.nodes)
            ahead = float(found.low[row] + shorter - found.high[place[best]])
            if reference != best and ahead > found.margin(row, place[best], tail):
                self._eliminate(goal, n, Reason.BOUNDED, best, math.expm1(ahead))

    def _analyse(self, goal: _Progress, runs: int, error: float) -> None:
        values = self._counted(goal.values)
        missed = set(np.flatnonzero(np.isinf(values).any(axis=1)).tolist())
        self._drop(missed, Reason.NOT_REACHED, [goal])
        goal.rounds = self.number
        gone = {
            self.names.index(each.name)
            for each in goal.eliminated
            if each.reason in (Reason.DOES_NOT_RUN, Reason.NOT_REACHED)
        }
        goal.unresolved = {n for n in gone if np.isfinite(values[n]).any()}
        rows = sorted({*_with_runs(values), *goal.unresolved})
        goal.best, goal.bound = None, math.inf
        if self._leaders(goal, values, rows):
            self._compare(goal, rows, self.estimator(values[rows]), error)
        if goal.alive - set(rows):  # too few of their runs have a value
            goal.bound = math.inf
        goal.is_decided = self._is_near(goal, goal.best, goal.bound)
        is_last = runs == self.search.looks[-1]
        goal.has_ended = goal.is_decided or is_last or not goal.alive

    def _is_near(self, goal: _Progress, n: int | None, bound: float) -> bool:
        """Whether a candidate is shown to be near the best, by enough runs to be named."""
        kept = KEPT_RUNS if self.limit or goal.goal in OF_ALL_RUNS else 0
        is_near = bound <= math.log1p(self.search.indifference)
        return n is not None and is_near and self.used[n] >= min(kept, self.search.looks[-1])

    def _compare(self, goal: _Progress, rows: list[int], found: Locations, error: float) -> None:
        """Eliminate candidates; find the best, its bound, and the cheapest that is as good."""
        alive = [row for row, n in enumerate(rows) if n in goal.alive]
        leaders = [row for row in alive if self.allowed[rows[row]] is Allowed.IN]
        tail = error / max(self.count - 1, 1)
        best = min(leaders, key=lambda row: found.high[row])
        for row in [row for row, n in enumerate(rows) if n in goal.unresolved]:
            if found.low[row] - found.high[best] > found.margin(row, best, tail):
                goal.unresolved.discard(rows[row])
        others = np.array([row for row in alive if row != best], int)
        ahead = found.low[others] - found.high[best]
        is_behind = ahead > found.margin(others, best, tail)
        pairs = self.count * (self.count - 1)
        for row, gap in zip(others[is_behind].tolist(), ahead[is_behind].tolist(), strict=True):
            least = gap - float(found.half_width(row, best, error / pairs))
            is_claimed = self.search.looks[self.number - 1] >= CLAIM_RUNS and least > 0
            at_least = math.expm1(least) if is_claimed else None
            behind = rows[row], Reason.NOT_THE_BEST, rows[best], math.expm1(gap), at_least
            self._eliminate(goal, *behind)
        alive = [row for row in alive if rows[row] in goal.alive]
        bounds = {row: _bound(found, row, alive, tail) for row in leaders if row in alive}
        goal.best, goal.bound = rows[best], bounds[best]
        near = [rows[row] for row in bounds if self._is_near(goal, rows[row], bounds[row])]
        costs = {n: cost for n in near if (cost := self.candidates[n].cost) is not None}
        goal.cheapest = goal.best
        if near and len(costs) == len(near):
            goal.cheapest = min(near, key=lambda n: (costs[n], n != goal.best))


def _with_runs(values: Array) -> list[int]:
    """The candidates with at least two runs that reached their end."""
    return [int(n) for n in np.flatnonzero(np.isfinite(values).sum(axis=1) >= 2)]


def _bound(found: Locations, row: int, alive: Sequence[int], tail: float) -> float:
    """How far, in logarithms, a candidate may be behind the best of the survivors."""
    others = np.array([other for other in alive if other != row], int)
    behind = found.high[row] - found.low[others] + found.margin(others, row, tail)
    return float(behind.max(initial=0.0))
