"""The looks at the runs of a search: who leaves, who is the best, who is run on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

from tfscaling.search import bounds
from tfscaling.search.locations import Locations, estimate
from tfscaling.search.terms import (
    CLAIM_RUNS,
    CONSTRAINT_SHARE,
    KEPT_RUNS,
    Allowed,
    Candidate,
    Claim,
    Constraint,
    Decision,
    Goal,
    Left,
    Run,
    Settings,
    Verdict,
    Why,
)
from tfscaling.tables.estimates import PRIOR_FREEDOM, Array

Estimator = Callable[[Array], Locations]

USUAL = Settings()


def decide(
    candidates: Sequence[Candidate],
    goals: Sequence[Goal],
    settings: Settings = USUAL,
    constraint: Constraint | None = None,
    estimator: Estimator = estimate,
) -> Decision:
    """What the runs show after the last look for which all runs are there."""
    search = _Search(candidates, goals, settings, constraint, estimator)
    if settings.is_screened and not search.screen():
        return search.decision()
    if settings.is_bounded and not search.bound():
        return search.decision()
    for number, runs in enumerate(settings.looks):
        if not search.is_complete(runs):
            break
        search.look(number)
    return search.decision()


def lacking(decision: Decision, candidates: Sequence[Candidate]) -> list[tuple[int, str]]:
    """(block from 0, candidate) of the runs that the next look lacks, block by block."""
    due = [each for each in candidates if each.name in decision.due]
    found = ((block, each.name) for each in due for block in each.lacks(decision.runs_next))
    return sorted(found)


@dataclass
class _Race:
    """The candidates of a goal; the values are (candidates, blocks) with NaN for no run."""

    goal: Goal
    values: Array
    alive: set[int]
    left: list[Left] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    unresolved: set[int] = field(default_factory=set)
    best: int | None = None
    bound: float = math.inf
    cheapest: int | None = None
    is_decided: bool = False
    has_ended: bool = False
    rounds: int = 0


class _Search:
    """The looks at the runs of some candidates, in their order."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        goals: Sequence[Goal],
        settings: Settings,
        constraint: Constraint | None,
        estimator: Estimator,
    ) -> None:
        self.candidates = sorted(candidates, key=lambda each: each.name)
        self.names = [each.name for each in self.candidates]
        if len(set(self.names)) < len(self.names):
            raise ValueError("two candidates have the same name")
        self.settings, self.constraint, self.estimator = settings, constraint, estimator
        self.races = [_Race(goal, self._values(goal), set(range(self.count))) for goal in goals]
        self.used = np.zeros(self.count, int)
        self.seen = np.zeros((self.count, settings.looks[-1]), bool)
        self.allowed = [Allowed.OPEN if constraint else Allowed.IN] * self.count
        shared = 1 - CONSTRAINT_SHARE if constraint else 1.0
        self.goal_share = shared / max(len(goals), 1)
        self.number = 0
        self.waiting: set[int] = set()
        self.is_screened = not settings.is_screened

    @property
    def count(self) -> int:
        return len(self.candidates)

    @property
    def wanted(self) -> list[int]:
        """The candidates that still run: survivors of a race that has not ended."""
        return sorted({n for race in self.races if not race.has_ended for n in race.alive})

    def is_complete(self, runs: int) -> bool:
        """Whether every candidate that still runs has its runs, or cannot have them."""
        wanted = [self.candidates[n] for n in self.wanted if n not in self.waiting]
        return bool(wanted) and all(
            not each.lacks(runs) or each.cannot_run(runs) for each in wanted
        )

    def screen(self) -> bool:
        """Let leave what is far behind in its only run, if each has one: whether that is so.

        A run that did not reach its end screens nothing, and is not screened.
        """
        if not self.is_complete(1):
            return False
        self.is_screened = True
        factor = self.settings.screen_factor((self.count - 1) * len(self.races))
        for race in self.races:
            firsts = {n: race.values[n, 0] for n in race.alive if np.isfinite(race.values[n, 0])}
            if not firsts:
                continue
            best = min(firsts, key=lambda n: firsts[n])
            for n, value in firsts.items():
                if value > factor * firsts[best]:
                    gap = float(value / firsts[best]) - 1
                    race.alive.discard(n)
                    race.left.append(Left(self.names[n], 0, Why.SCREENED, self.names[best], gap))
                    self._see(n, 1)
        return True

    def bound(self) -> bool:
        """Let leave what cannot be the best by the runs of others: whether these are all there.

        The smallest of each line have their runs first, then the largest.
        """
        runs, error = self.settings.looks[0], self.settings.bounds_error
        due = set(range(self.count))
        for wave in bounds.waves(self.candidates):
            due -= wave
            self.waiting = due & set(self.wanted)
            if not self.waiting:
                break
            if len(self.waiting) < len(self.wanted):
                if not self.is_complete(runs):
                    return False
                self._use(runs, error)
                for race in self.races:
                    self._leave_by_bounds(race, self.goal_share * error)
        self.waiting = set()
        return True

    def look(self, number: int) -> None:
        runs = self.settings.looks[number]
        self.number = number + 1
        error = self.settings.error(number)
        self._use(runs, error)
        for race in self.races:
            if not race.has_ended:
                self._look_at(race, runs, self.goal_share * error)

    def _use(self, runs: int, error: float) -> None:
        """Count the runs of those that run and do not wait, and judge them by the constraint."""
        running = set(self.wanted) - self.waiting
        lost = {n for n in running if self.candidates[n].lacks(runs)}
        for n in running:
            self._see(n, self.settings.looks[-1] if n in lost else runs)
        self._drop(lost, Why.DOES_NOT_RUN)
        if self.constraint:
            self._judge(self.constraint, CONSTRAINT_SHARE * error / self.count)

    def _see(self, n: int, runs: int) -> None:
        self.used[n] = max(self.used[n], runs)
        self.seen[n, self.candidates[n].blocks(runs)] = True

    def decision(self) -> Decision:
        looks = self.settings.looks
        wanted = tuple(self.names[n] for n in self.wanted)
        return Decision(
            tuple(self._verdict(race) for race in self.races),
            {
                each.name: int(used) - len(each.lacks(used))
                for each, used in zip(self.candidates, self.used.tolist(), strict=True)
            },
            wanted,
            (looks[self.number] if self.is_screened else 1) if wanted else 0,
            dict(zip(self.names, self.allowed, strict=True)),
            tuple(self.names[n] for n in self.wanted if n in self.waiting),
        )

    def _values(self, goal: Goal) -> Array:
        found = self._metric(goal.metric)
        if (found <= 0).any() or any(goal.metric not in run for run in self._runs()):
            raise ValueError(f"{goal.metric}: a goal needs a value above zero of every run")
        factors = [goal.factors.get(name, 1.0) for name in self.names]
        return found * np.array(factors)[:, None]

    def _metric(self, metric: str) -> Array:
        """Values by candidate and block, NaN where there is no run or the run has no value."""
        found = np.full((self.count, self.settings.looks[-1]), np.nan)
        for n, each in enumerate(self.candidates):
            for block, run in enumerate(each.runs[: found.shape[1]]):
                if run is not None:
                    found[n, block] = run.get(metric, math.nan)
        return found

    def _runs(self) -> Iterator[Run]:
        """All that there are of those that the search may need."""
        for each in self.candidates:
            runs = each.runs[: self.settings.looks[-1]]
            yield from (run for run in runs if run is not None)

    def _at_look(self, values: Array) -> Array:
        """The values that a look goes by: of those that left, as many as they had."""
        return np.where(self.seen, values, np.nan)[
            :, : 1 + int(np.flatnonzero(self.seen.any(axis=0))[-1])
        ]

    def _drop(self, leaving: set[int], why: Why) -> None:
        for race in self.races:
            self._drop_from(race, leaving, why)

    def _drop_from(self, race: _Race, leaving: set[int], why: Why) -> None:
        found = sorted(race.alive & leaving) if not race.has_ended else []
        race.left += [Left(self.names[n], self.number, why) for n in found]
        race.alive -= set(found)
        self._take_back(race, set(found))

    def _take_back(self, race: _Race, gone: set[int]) -> None:
        """Let those run again that left behind one that may no longer be named."""
        rivals = {self.names[n] for n in gone}
        back = [
            each.name
            for each in race.left
            if each.rival in rivals and each.why in (Why.NOT_THE_BEST, Why.SCREENED)
        ]
        race.left = [each for each in race.left if each.name not in back]
        race.claims = [each for each in race.claims if each.better not in rivals]
        race.alive |= {self.names.index(name) for name in back}

    def _judge(self, constraint: Constraint, tail: float) -> None:
        """Which candidates are in, out, or open: moderated variances of the quality.

        One of which a run missed the limit, by more than the indifference, is out.
        """
        sign = -1 if constraint.is_most else 1
        values = self._at_look(sign * self._metric(constraint.metric))
        known = np.isfinite(values)
        runs = known.sum(axis=1)
        rows = np.flatnonzero(runs >= 2)
        values, own = np.where(known, values, 0)[rows], runs[rows] - 1.0
        mean = values.sum(axis=1) / runs[rows]
        squares = (np.where(known[rows], values - mean[:, None], 0) ** 2).sum(axis=1)
        pooled = own.sum()
        prior = min(PRIOR_FREEDOM, pooled)
        variance = (prior * squares.sum() / max(pooled, 1) + squares) / (prior + own)
        quantile = -stdtrit(np.minimum(prior + own, pooled), tail)
        half_width = quantile * np.sqrt(variance / runs[rows])
        limit, near = sign * constraint.limit, constraint.indifference
        missed = set(
            rows[(np.where(known[rows], values, np.inf) < limit - near).any(axis=1)].tolist()
        )
        for n, low, high in zip(rows, mean - half_width, mean + half_width, strict=True):
            if self.allowed[n] is not Allowed.OUT:
                is_out = n in missed or high <= limit + near
                outside = Allowed.OUT if is_out else Allowed.OPEN
                is_in = n not in missed and low >= limit - near
                self.allowed[n] = Allowed.IN if is_in else outside
        out = {n for n in range(self.count) if self.allowed[n] is Allowed.OUT}
        self._drop(out, Why.NOT_ALLOWED)

    def _leave_by_bounds(self, race: _Race, error: float) -> None:
        values = self._at_look(race.values)
        rows = _with_runs(values)
        leaders = self._leaders(race, values, rows)
        if not leaders:
            return
        found = self.estimator(values[rows])
        best = min((row for row, n in enumerate(rows) if n in leaders), key=found.high.__getitem__)
        seen = bounds.Seen(self.candidates, values, rows, found, leaders, race.goal.is_cost)
        waiting = sorted(race.alive & self.waiting)
        for each in seen.leaving(waiting, best, error / max(self.count - 1, 1)):
            name, rival = self.names[each.n], self.names[each.rival]
            race.alive.discard(each.n)
            race.left.append(Left(name, self.number, Why.BOUNDED, rival, each.gap))

    def _look_at(self, race: _Race, runs: int, error: float) -> None:
        values = self._at_look(race.values)
        self._drop_from(
            race, set(np.flatnonzero(np.isinf(values).any(axis=1)).tolist()), Why.NOT_REACHED
        )
        race.rounds = self.number
        gone = {
            self.names.index(each.name)
            for each in race.left
            if each.why in (Why.DOES_NOT_RUN, Why.NOT_REACHED)
        }
        race.unresolved = {n for n in gone if np.isfinite(values[n]).any()}
        rows = sorted({*_with_runs(values), *race.unresolved})
        race.best, race.bound = None, math.inf
        if self._leaders(race, values, rows):
            self._compare(race, rows, self.estimator(values[rows]), error)
        if race.alive - set(rows):  # too few of their runs have a value
            race.bound = math.inf
        race.is_decided = self._is_near(race, race.best, race.bound)
        is_last = runs == self.settings.looks[-1]
        race.has_ended = race.is_decided or is_last or not race.alive

    def _leaders(self, race: _Race, values: Array, rows: Sequence[int]) -> set[int]:
        """Those that may be named the best, and may let others leave."""
        return {
            n
            for n in rows
            if n in race.alive and self.allowed[n] is Allowed.IN and not np.isinf(values[n]).any()
        }

    def _is_near(self, race: _Race, n: int | None, bound: float) -> bool:
        """Whether a candidate is shown to be near the best, by runs enough to be named."""
        kept = KEPT_RUNS if self.constraint or race.goal.has_target else 0
        is_near = bound <= math.log1p(self.settings.indifference)
        return n is not None and is_near and self.used[n] >= min(kept, self.settings.looks[-1])

    def _compare(self, race: _Race, rows: list[int], found: Locations, error: float) -> None:
        """Who leaves, the best, its bound, and the cheapest that is as good."""
        alive = [row for row, n in enumerate(rows) if n in race.alive]
        leaders = [row for row in alive if self.allowed[rows[row]] is Allowed.IN]
        tail = error / max(self.count - 1, 1)
        best = min(leaders, key=lambda row: found.high[row])
        for row in [row for row, n in enumerate(rows) if n in race.unresolved]:
            if found.low[row] - found.high[best] > found.margin(row, best, tail):
                race.unresolved.discard(rows[row])
        others = np.array([row for row in alive if row != best], int)
        ahead = found.low[others] - found.high[best]
        leaves = ahead > found.margin(others, best, tail)
        for row, gap in zip(others[leaves].tolist(), ahead[leaves].tolist(), strict=True):
            names = self.names[rows[row]], self.names[rows[best]]
            race.left.append(
                Left(names[0], self.number, Why.NOT_THE_BEST, names[1], math.expm1(gap))
            )
            race.alive.discard(rows[row])
            self._claim(race, names, gap - self._pair_width(found, row, best, error))
        alive = [row for row in alive if rows[row] in race.alive]
        bounds = {row: _bound(found, row, alive, tail) for row in leaders if row in alive}
        race.best, race.bound = rows[best], bounds[best]
        near = [rows[row] for row in bounds if self._is_near(race, rows[row], bounds[row])]
        race.cheapest = self._cheapest(race.best, near)

    def _pair_width(self, found: Locations, first: int, other: int, error: float) -> float:
        return float(found.half_width(first, other, error / (self.count * (self.count - 1))))

    def _claim(self, race: _Race, names: tuple[str, str], at_least: float) -> None:
        if self.settings.looks[self.number - 1] >= CLAIM_RUNS and at_least > 0:
            race.claims.append(Claim(names[1], names[0], math.expm1(at_least)))

    def _cheapest(self, best: int, near: list[int]) -> int:
        costs = {n: self.candidates[n].cost for n in near}
        known = {n: cost for n, cost in costs.items() if cost is not None}
        if not near or len(known) < len(near):
            return best
        return min(known, key=lambda n: (known[n], n != best))

    def _verdict(self, race: _Race) -> Verdict:
        best, cheapest = (None if n is None else self.names[n] for n in (race.best, race.cheapest))
        bounded = sum(each.why is Why.BOUNDED for each in race.left)
        ran = np.isfinite(np.where(self.seen, race.values, np.nan)).any(axis=1).sum()
        is_compared = bool(ran + bounded >= 2)
        is_decided = race.is_decided and is_compared
        return Verdict(
            race.goal.name,
            best,
            math.expm1(race.bound),
            is_decided,
            race.has_ended,
            tuple(self.names[n] for n in sorted(race.alive)),
            tuple(race.left),
            tuple(race.claims),
            cheapest if is_decided else best,
            race.rounds,
            is_compared,
            tuple(self.names[n] for n in sorted(race.unresolved)),
        )


def _with_runs(values: Array) -> list[int]:
    """The candidates with two runs or more that reached their end."""
    return [int(n) for n in np.flatnonzero(np.isfinite(values).sum(axis=1) >= 2)]


def _bound(found: Locations, row: int, alive: Sequence[int], tail: float) -> float:
    """How far, in logarithms, a candidate may be behind the best of those that are alive."""
    others = np.array([other for other in alive if other != row], int)
    behind = found.high[row] - found.low[others] + found.margin(others, row, tail)
    return float(behind.max(initial=0.0))
