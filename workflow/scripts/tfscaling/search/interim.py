"""The interim analyses of a search: what the runs show, and which runs come next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import scipy

from tfscaling.estimation import intervals
from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.estimation.run_counts import (
    CLOSE_LEADER_RUNS,
    KEPT_RUNS,
    LEADER_RUNS,
    is_closed,
)
from tfscaling.search.scaling_model import POOLED_FREEDOM, SCATTER, Array, Fit, Runs, ScalingModel
from tfscaling.study.config_types import SHORT_RUNS_MAX, Limit, Question, Search
from tfscaling.tables.comparison import OF_ALL_RUNS

#: A search ends undecided after this many rounds.
ROUNDS_MAX = 40

#: Metric → value of a run; infinite: it diverged or did not reach the target; NaN: not known.
Run = Mapping[str, float]


@dataclass(frozen=True)
class Candidate:
    """A candidate and its runs by block; None: no run, or the infrastructure ended it.

    In `failed_blocks`, numbered from 0, the run failed too often to be tried again, or ran out of
    memory; the latter are `unfit_blocks`, too. Later blocks replace `skipped_blocks`, up to
    `blocks_max`. Candidates on the same `line` differ only in their nodes. `short` has the short
    runs of the same training: their values are projected, and their PROJECTION_ERROR is the
    projection's standard error as a fraction, from the steps within the run.
    """

    name: str
    runs: tuple[Run | None, ...] = ()
    failed_blocks: frozenset[int] = frozenset()
    skipped_blocks: frozenset[int] = frozenset()
    blocks_max: int = Search().repeats_max
    line: str = ""
    nodes: int = 1
    short: Candidate | None = None
    unfit_blocks: frozenset[int] = frozenset()

    @property
    def number(self) -> int:
        return sum(run is not None for run in self.runs)

    def blocks(self, runs: int) -> list[int]:
        """Return the blocks of the candidate's first `runs` runs, from 0."""
        return [n for n in range(self.blocks_max) if n not in self.skipped_blocks][:runs]

    def lacks(self, runs: int) -> list[int]:
        """Return the blocks of the candidate's first `runs` runs in which it has no run."""
        had = len(self.runs)
        return [n for n in self.blocks(runs) if n >= had or self.runs[n] is None]

    def made(self, runs: int) -> list[Run]:
        """Return the existing runs among the candidate's first `runs`."""
        own = [self.runs[n] for n in self.blocks(runs) if n < len(self.runs)]
        return [run for run in own if run is not None]


class Reason(StrEnum):
    """Why a candidate is not the answer."""

    NOT_THE_BEST = "not the best"
    BY_ITS_LINE = "not run, behind by its line"
    DOES_NOT_RUN = "does not run"
    NO_MEMORY = "does not fit in memory"
    DIVERGED = "diverged"
    NOT_REACHED = "does not reach the target reliably"
    NOT_ALLOWED = "misses a limit"
    NOT_SHOWN = "not shown to keep the limits"


#: A candidate that left for one of these may be better than the one that is named.
FAILED = (
    *(Reason.DOES_NOT_RUN, Reason.NO_MEMORY, Reason.DIVERGED, Reason.NOT_REACHED),
    Reason.NOT_SHOWN,
)


class Allowed(StrEnum):
    """Whether a candidate keeps all limits."""

    IN = "in"
    OUT = "out"
    OPEN = "open"


@dataclass(frozen=True)
class Standing:
    """What is known about a candidate.

    `runs` and `short_runs` were analysed. `behind`: by what fraction it is behind the best, by
    estimate; negative where the best was chosen for its certainty. `chance` is the probability that
    it is better than the best by more than the indifference. Both are None before the first
    analysis. `reason` is None for the best and those not excluded. `trial` is None without both
    short and complete runs.
    """

    runs: int
    behind: float | None
    chance: float | None
    reason: Reason | None
    allowed: Allowed
    short_runs: int = 0
    trial: Trial | None = None


@dataclass(frozen=True)
class Trial:
    """The goal of a candidate: projected from its short runs, and measured by complete runs.

    The projection has an interval of CONFIDENCE; the measured value is the mean.
    """

    projected: float
    low: float
    high: float
    measured: float

    @property
    def holds(self) -> bool:
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Decision:
    """What is known after the last interim analysis, and what the next one needs.

    `best` may be worse than the best by the fraction `bound`; None where nothing may be named.
    Nothing is compared, so nothing decided, where fewer than two candidates have a valid run.
    `unresolved` left without being closed (they do not run, or some of their runs diverged or
    missed a limit or the target), and no runs show that they are worse than `best`. `beat_by`: a
    candidate without runs would have to be better than its line says by this fraction, to be better
    than the best by more than the indifference; None if every candidate has a run.

    The next analysis needs this many runs of each candidate, and of each `short`, in `wanted`,
    which is empty when the search has ended. Those in `open` may be run later.
    """

    best: str | None
    bound: float
    is_decided: bool
    has_ended: bool
    is_compared: bool
    rounds: int
    standings: Mapping[str, Standing]
    unresolved: tuple[str, ...]
    beat_by: float | None
    wanted: Mapping[str, int]
    open: tuple[str, ...]

    @property
    def survivors(self) -> tuple[str, ...]:
        return tuple(name for name, each in self.standings.items() if each.reason is None)

    @property
    def runs(self) -> dict[str, int]:
        """The number of analysed complete runs by candidate."""
        return {name: each.runs for name, each in self.standings.items()}

    @property
    def failed(self) -> dict[str, Reason]:
        """Return the candidates that were eliminated for a reason in FAILED."""
        reasons = {name: each.reason for name, each in self.standings.items()}
        return {name: why for name, why in reasons.items() if why in FAILED}


#: A search is decided if the chances of all candidates add up to this: two fifths of the error.
RISK_MAX = 0.4 * (1 - CONFIDENCE)
#: Runs → a candidate with so few runs is behind only from the first ratio on, or from the second,
#: if the others' runs give it a chance of SURPRISE to be the best: its runs may all be of a slow
#: mode, and cannot show that it scatters more than its rivals.
EARLY_RATIOS = {1: (1.3, 4.5), 2: (1.15, 1.45), 3: (1.1, 1.35), 4: (1.0, 1.2)}
SURPRISE = 0.1
#: A rival that is not further behind is close: CLOSE_LEADER_RUNS of the best are needed.
CLOSE = math.log(1.08)
#: The lines are not smooth if this many configurations lie further from the others' projection than
#: ODD standard deviations, or if the errors exceed the model's intervals by more than MISSES_MAX.
ODD_MAX, ODD, MISSES_MAX = 2, 3.0, 1.3
#: Values projected from the short runs of a candidate have a common error. Its standard deviation
#: is no less than PROJECTION, with the weight of this many trials next to the actual ones.
PROJECTION, PROJECTION_FREEDOM = 0.02, 2.0
#: In a short run: the standard error of its value as a fraction, by the steps within the run.
PROJECTION_ERROR = "projection_error"
#: The freedom of a comparison is within this range.
FREEDOM = (4.0, 30.0)
#: A round has the share 1 / BATCH of the candidates, and no fewer runs than BATCH_MIN.
BATCH, BATCH_MIN = 12, 3


def batch_size(candidates: int) -> int:
    """Return the number of runs in a round after the first."""
    return max(BATCH_MIN, round(candidates / BATCH))


def decide(
    candidates: Sequence[Candidate],
    search: Search,
    goal: str,
    limits: Mapping[str, Limit] | None = None,
    indifference: float = Question().indifference,
) -> Decision:
    """Decide what the runs show after the last interim analysis with all its runs.

    The analyses are repeated from the first, each with the runs it had: the decision is a
    function of the runs.

    Args:
        candidates: The configurations with their runs so far.
        search: The settings of the search.
        goal: The metric to minimise; runs have its value.
        limits: Limits by metric; runs have their values.
        indifference: Fraction by which the result may be worse than the best.
    """
    state = _Search(candidates, search, goal, limits or {}, math.log1p(indifference))
    due = state.first()
    while due and state.take(due):
        due = state.analyse()
    return state.decision(due)


def lacking(decision: Decision, candidates: Sequence[Candidate]) -> list[tuple[int, str]]:
    """Return (block from 0, candidate) of the runs that the next analysis lacks, block by block."""
    runs = decision.wanted
    each = [*candidates, *(own.short for own in candidates if own.short)]
    return sorted((n, own.name) for own in each for n in own.lacks(runs.get(own.name, 0)))


class _Search:
    """The analyses of the runs of some candidates, in their order.

    Candidates are numbers, in the order of their names; with `count` added, their short runs.
    `used` runs of each are in the analyses: (2 candidates,). `seen` of them have a value,
    `complete` of these are complete, and `missed` diverged or missed the target: (candidates,).
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        search: Search,
        goal: str,
        limits: Mapping[str, Limit],
        near: float,
    ) -> None:
        self.candidates = sorted(candidates, key=lambda each: each.name)
        self.count = len(self.candidates)
        if len({each.name for each in candidates}) < self.count:
            raise ValueError("two candidates have the same name")
        self.search, self.goal, self.limits, self.near = search, goal, limits, near
        self.nodes = np.array([each.nodes for each in self.candidates], float)
        self.lines = [each.line for each in self.candidates]
        self.is_cost = goal.startswith("cost_")
        self.may_miss = bool(limits) or goal in OF_ALL_RUNS
        self.model = ScalingModel(self.nodes, self.lines, self.is_cost)
        self.is_smooth = search.is_smooth
        shorts = [each.short for each in self.candidates]
        self.series = [*self.candidates, *(short or Candidate("") for short in shorts)]
        #: With short runs, and none of them gave no time or failed too often.
        self.is_projected = np.array([short is not None for short in shorts])
        self.within: list[list[float]] = [[] for _ in shorts]
        self.values: list[tuple[int, int, float, bool]] = []
        self.used = np.zeros(2 * self.count, int)
        self.seen = np.zeros(self.count, int)
        self.complete = np.zeros(self.count, int)
        self.missed = np.zeros(self.count, int)
        self.trials: dict[int, Trial] = {}
        self.projection = PROJECTION**2
        self.gone: dict[int, Reason] = {}
        self.allowed = [Allowed.OPEN if limits else Allowed.IN] * self.count
        self.rounds = 0
        self.fit: Fit | None = None
        self.best: int | None = None
        self.tails = self.gaps = np.full(self.count, np.nan)
        self.has_gates = True
        self.is_decided = False
        self.unresolved: list[int] = []

    # ------------------------------------------------------------ runs
    def first(self) -> list[int]:
        """Every candidate, or the smallest and the largest one of each line."""
        if not self.is_smooth:
            return self._kinds(range(self.count))
        ends: dict[str, list[int]] = {}
        for n in np.argsort(self.nodes, kind="stable"):
            ends.setdefault(self.lines[n], []).append(int(n))
        return self._kinds(sorted({own[end] for own in ends.values() for end in (0, -1)}))

    def _kinds(self, chosen: Sequence[int], is_trial: bool = False) -> list[int]:
        """Return the next runs of candidates: short ones while they help, then complete ones.

        Short runs help as long as their mean scatters about as much as they err together, and until
        only the final confirmation run is missing. With `is_trial`, all runs of the best are
        complete.
        """
        most = np.rint(2 * self._scatter / self._projection**2)
        most = np.clip(most, LEADER_RUNS - 1, SHORT_RUNS_MAX)
        found: list[int] = []
        for n in chosen:
            short = n + self.count
            is_more = self.used[short] + found.count(short) < most[n]
            is_short = self.is_projected[n] and is_more and not (is_trial and n == self.best)
            found.append(short if is_short else n)
        return found

    def take(self, due: Sequence[int]) -> bool:
        """Take the next runs of candidates. False, and nothing is taken, while one is missing."""
        needed = {n: int(self.used[n]) + runs for n, runs in Counter(due).items()}
        own = self.series
        lost = [n for n, runs in needed.items() if own[n].failed_blocks & {*own[n].lacks(runs)}]
        if any(own[n].lacks(runs) for n, runs in needed.items() if n not in lost):
            return False
        for n, runs in needed.items():
            for run in own[n].made(runs)[len(own[n].made(int(self.used[n]))) :]:
                self._add(n, run)
            self.used[n] = runs
        self.is_projected[[n - self.count for n in lost if n >= self.count]] = False
        for n in lost:
            if n < self.count:
                # a failure of another kind may have hidden that it fits
                is_unfit = own[n].failed_blocks <= own[n].unfit_blocks and not own[n].number
                self.gone[n] = Reason.NO_MEMORY if is_unfit else Reason.DOES_NOT_RUN
        self.rounds += 1
        return True

    def _add(self, series: int, run: Run) -> None:
        is_short, n = divmod(series, self.count)
        value = run.get(self.goal, 0.0)
        if value <= 0:
            raise ValueError(f"{self.goal}: a goal needs a value above zero of every run")
        if math.isinf(value):
            self.missed[n] += 1
        elif not math.isnan(value):
            self.values.append((n, self.rounds, math.log(value), bool(is_short)))
            self.seen[n] += 1
            self.complete[n] += not is_short
            self.within[n] += [run.get(PROJECTION_ERROR, 0.0)] * is_short
        elif is_short:
            self.is_projected[n] = False
        if _leaves(int(self.missed[n]), int(self.missed[n] + self.seen[n])):
            has_target = self.goal in OF_ALL_RUNS
            self.gone[n] = Reason.NOT_REACHED if has_target else Reason.DIVERGED

    # ------------------------------------------------------------ analysis
    def analyse(self) -> list[int]:
        """Return the candidates that run next, as often as listed; none if the search has ended."""
        self._judge()
        self.best = None
        leaders = [n for n in np.flatnonzero(self.seen) if n not in self.gone]
        if not leaders:
            return self._kinds(self._next([n for n in range(self.count) if not self.seen[n]]))
        effects = np.zeros(0) if self.fit is None else self.fit.effects
        runs = Runs(*(np.array(each) for each in zip(*self.values, strict=True)))
        self._try(runs)
        self.fit = fit = self.model.fit(runs, effects, self._projection)
        sure = fit.mean + np.sqrt(fit.variance) / 2
        self.best = best = int(min(leaders, key=lambda n: sure[n]))
        self.gaps = fit.mean - fit.mean[best]
        self.tails = self._tails(self.near)
        is_refuted = fit.misses > MISSES_MAX or int((fit.errors > ODD).sum()) >= ODD_MAX
        self.is_smooth = self.is_smooth and not is_refuted
        gates = self._gates(fit)
        self.unresolved = [n for n in self._failed() if self._may_be_better(n, gates)]
        others = [n for n in range(self.count) if n not in self.gone]
        self.has_gates = bool(gates[others].any())
        is_sure = self.tails[others].sum() <= RISK_MAX and not self.has_gates
        is_named = self._lacking <= 0 and self.allowed[best] is Allowed.IN
        if is_sure and is_named:
            self.is_decided = not self.unresolved and len(np.flatnonzero(self.seen)) >= 2
            return []
        has_all = self.limits or (is_sure and self.seen[best] >= self._needed)
        return self._kinds(self._next(self._chosen(fit, gates, is_sure)), bool(has_all))

    def _failed(self) -> list[int]:
        """Return the candidates that left before their runs showed them to be out."""
        return [n for n, why in self.gone.items() if why in FAILED and not self._is_closed(n)]

    def _is_closed(self, n: int) -> bool:
        """Return whether the runs of a candidate that left show that it cannot be recommended."""
        if self.gone[n] in (Reason.DIVERGED, Reason.NOT_REACHED):
            return is_closed(int(self.missed[n]), int(self.missed[n] + self.seen[n]))
        return self.gone[n] is Reason.NO_MEMORY

    def _may_be_better(self, n: int, gates: Array) -> bool:
        """Return whether the runs of a candidate that failed do not show that it is worse."""
        return bool(not self.seen[n] or gates[n] or self.tails[n] > self._least)

    @property
    def _scatter(self) -> float:
        """The pooled variance of runs."""
        return self.fit.scatter if self.fit else SCATTER**2

    @property
    def _projection(self) -> Array:
        """Standard deviations of the errors that the short runs of a candidate have in common."""
        within = [np.mean(np.square(own)) if own else 0.0 for own in self.within]
        return np.sqrt(np.array(within) + self.projection)

    def _try(self, runs: Runs) -> None:
        """Compare the complete runs of candidates with the projections by their short runs."""
        freedom = np.clip(self.fit.freedom if self.fit else 0.0, *FREEDOM)
        quantile = float(scipy.special.stdtrit(freedom, (1 + CONFIDENCE) / 2))
        within = self._projection**2 - self.projection
        squares, weight = PROJECTION_FREEDOM * PROJECTION**2, PROJECTION_FREEDOM
        for n in np.flatnonzero((self.complete > 0) & (self.complete < self.seen)).tolist():
            own = runs.owners == n
            short, complete = runs.logs[own & runs.is_short], runs.logs[own & ~runs.is_short]
            projected, measured = float(short.mean()), float(complete.mean())
            scatter = self._scatter * (1 / len(short) + 1 / len(complete)) + within[n]
            half = quantile * math.sqrt(scatter + PROJECTION**2)
            ends = projected, projected - half, projected + half, measured
            self.trials[n] = Trial(*map(math.exp, ends))
            squares += max(0.0, (measured - projected) ** 2 - scatter)
            weight += 1
        self.projection = max(PROJECTION**2, squares / weight)

    @property
    def _least(self) -> float:
        """The least chance of a candidate that is not excluded."""
        return RISK_MAX / (4 * self.count)

    @property
    def _needed(self) -> int:
        """The runs of the best before it may be named."""
        rivals = [gap for n, gap in enumerate(self.gaps) if n != self.best and n not in self.gone]
        is_close = min(rivals, default=math.inf) <= CLOSE
        runs = CLOSE_LEADER_RUNS if is_close else LEADER_RUNS
        return KEPT_RUNS if self.may_miss else min(runs, self.search.repeats_max)

    @property
    def _lacking(self) -> int:
        """The runs that the best lacks to be named; one of them is complete: its trial."""
        best = int(self.best or 0)
        runs = self.complete if self.limits else self.seen
        return max(self._needed - int(runs[best]), 1 - int(self.complete[best]))

    def _next(self, chosen: Sequence[int]) -> list[int]:
        """Return the chosen candidates that may run."""
        may = [n for n in chosen if n not in self.gone and self.used[n] < self.search.repeats_max]
        return may if self.rounds < ROUNDS_MAX else []

    def _judge(self) -> None:
        """Judge which candidates keep all limits, miss one, or leave it open.

        A candidate misses a limit as in `is_closed`. It keeps the limits as in
        `intervals.keeps_limit`, from KEPT_RUNS on. It leaves without either if fewer than half of
        its runs miss one, or after its last run.
        """
        for n, own in enumerate(self.candidates if self.limits else ()):
            runs = own.made(int(self.used[n]))
            known = {
                name: [run[name] for run in runs if not math.isnan(run.get(name, math.nan))]
                for name in self.limits
            }
            beyond = max(
                intervals.count_beyond_limit(known[name], limit)
                for name, limit in self.limits.items()
            )
            if is_closed(beyond, len(runs)):
                self.allowed[n] = Allowed.OUT
                self.gone.setdefault(n, Reason.NOT_ALLOWED)
            elif min(map(len, known.values())) >= KEPT_RUNS and all(
                intervals.keeps_limit(known[name], limit, RISK_MAX / 4 / len(self.limits))
                for name, limit in self.limits.items()
            ):
                self.allowed[n] = Allowed.IN
            elif _leaves(beyond, len(runs)) or self.used[n] >= self.search.repeats_max:
                self.gone.setdefault(n, Reason.NOT_SHOWN)

    def _tails(self, near: float) -> Array:
        """Return each candidate's chance to be better than the best by more than `near`."""
        if self.fit is None or self.best is None:
            return np.full(self.count, np.nan)
        sd = self.fit.misses * self.fit.difference_sd(self.best)
        runs = np.minimum(self.seen, self.seen[self.best])
        own = np.minimum(POOLED_FREEDOM - 1 + runs, self.fit.freedom)
        freedom = np.clip(np.where(self.seen > 0, own, self.fit.freedom), *FREEDOM)
        tails = np.asarray(scipy.special.stdtr(freedom, -(self.gaps + near) / sd))
        tails[self.best] = 0
        return tails

    def _gates(self, fit: Fit) -> Array:
        """Return the candidates with too few runs to be judged worse than the best."""
        gates = np.zeros(self.count, bool) if self.is_smooth else self.seen == 0
        with np.errstate(invalid="ignore"):
            ahead = (fit.mean[self.best] - self.near - fit.left_out) / fit.left_out_sd
            chance = np.nan_to_num(scipy.special.stdtr(np.clip(fit.freedom, *FREEDOM), ahead))
        for runs, (ratio, surprising) in EARLY_RATIOS.items():
            least = np.where(chance > SURPRISE, math.log(surprising), math.log(ratio))
            gates |= (self.seen == runs) & (self.gaps < least - self.near)
        gates[self.best] = False
        may_run = self.used[: self.count] < self.search.repeats_max
        return np.asarray(gates & (may_run | (self.seen == 0)))

    def _chosen(self, fit: Fit, gates: Array, is_sure: bool) -> list[int]:
        """Return the next round's runs: the best, and those most likely better for their cost.

        If the others are surely behind (`is_sure`), only the best lacks runs to be recommended.
        """
        best, batch = int(self.best or 0), batch_size(self.count)
        is_new = (self.used[: self.count] == 0) & (self.seen == 0)
        if not self.is_smooth and (unseen := self._next(np.flatnonzero(is_new).tolist())):
            return unseen
        takes = np.exp(fit.mean) * (1 if self.is_cost else self.nodes)
        score = np.where(gates, np.maximum(self.tails, 0.02), self.tails)
        score[best] = 0
        rank = score / np.sqrt(takes / takes.mean())
        ranked = [int(n) for n in np.argsort(-rank, kind="stable") if score[n] > self._least]
        # the least likely may keep their chances, which are half of RISK_MAX together
        sums = np.array([self.tails[self.tails <= tail].sum() for tail in self.tails])
        must_fall = gates | (sums > RISK_MAX / 2)
        order = [] if is_sure else self._next([n for n in ranked if must_fall[n]])
        # after a miss it leaves, and the other runs of its round would be in vain
        most = max(1, int(self.complete[best])) if self.may_miss else batch
        lacks = min(self._lacking, most)
        # it needs its runs for the limits anyway, and they may show that rivals are behind
        if self.limits and lacks > 0 and self._next([best]):
            order = [n for n in order if gates[n]]
        is_unsure = not order or fit.variance[best] >= 0.8 * fit.variance[order[0]]
        chosen = [best] if lacks > 0 or is_unsure else []
        for n in order:
            is_known_soon = any(self._are_neighbours(n, other) for other in chosen)
            if len(chosen) < batch and (self.seen[n] or not is_known_soon):
                chosen.append(n)
        chosen += [best] * min(batch - len(chosen), lacks - chosen.count(best))
        return self._next(chosen) or self._next([best]) or self._next(ranked[:batch])

    def _are_neighbours(self, n: int, other: int) -> bool:
        """Return whether both are without runs, on the same line and within an octave."""
        octaves = abs(math.log2(self.nodes[n] / self.nodes[other]))
        is_near = self.lines[n] == self.lines[other] and octaves < 1.01
        return is_near and not self.seen[n] and not self.seen[other]

    # ------------------------------------------------------------ decision
    def decision(self, due: Sequence[int]) -> Decision:
        """Return the decision if the runs `due` are missing."""
        names = [each.name for each in self.candidates]
        wanted = Counter(due)
        best = self.best
        is_named = (
            best is not None
            and self.allowed[best] is Allowed.IN
            and self.complete[best] > 0
            and not self.missed[best]
        )
        unseen = [n for n in range(self.count) if not self.seen[n] and n not in self.gone]
        beat_by = None
        if unseen and best is not None:
            beat_by = -math.expm1(-float(self.gaps[unseen].min()) - self.near)
        can_run = [] if not due else self._next(range(self.count))
        can_run += [n + self.count for n in can_run if self.is_projected[n]]
        names += [each.name for each in self.series[self.count :]]
        return Decision(
            best=names[best] if is_named and best is not None else None,
            bound=self._bound() if is_named else math.inf,
            is_decided=self.is_decided,
            has_ended=not due,
            is_compared=len(np.flatnonzero(self.seen)) >= 2,
            rounds=self.rounds,
            standings={each.name: self._standing(n) for n, each in enumerate(self.candidates)},
            unresolved=tuple(names[n] for n in self.unresolved),
            beat_by=beat_by,
            wanted={names[n]: int(self.used[n]) + runs for n, runs in wanted.items()},
            open=tuple(names[n] for n in can_run),
        )

    def _standing(self, n: int) -> Standing:
        reason = self.gone.get(n)
        if reason is None and n != self.best and self.tails[n] <= self._least:
            reason = Reason.NOT_THE_BEST if self.seen[n] else Reason.BY_ITS_LINE
        behind = chance = None
        if not math.isnan(self.gaps[n]):
            behind, chance = math.expm1(self.gaps[n]), float(self.tails[n])
        used = ((each, int(self.used[each])) for each in (n, n + self.count))
        runs, short = (count - len(self.series[each].lacks(count)) for each, count in used)
        allowed, trial = self.allowed[n], self.trials.get(n)
        return Standing(runs, behind, chance, reason, allowed, short, trial)

    def _bound(self) -> float:
        """Return by which fraction no candidate may be better at most; infinite with open gates."""
        if self.has_gates or not all(self.seen[n] for n in self.unresolved):
            return math.inf
        counted = [n for n in range(self.count) if n not in self.gone or n in self.unresolved]
        low, high = 0.0, 5.0
        if self._tails(low)[counted].sum() <= RISK_MAX:
            return low
        for _ in range(30):
            middle = (low + high) / 2
            is_enough = self._tails(middle)[counted].sum() <= RISK_MAX
            low, high = (low, middle) if is_enough else (middle, high)
        return math.expm1(high)


def _leaves(missed: int, runs: int) -> bool:
    """Return whether a candidate gets no more runs, because some missed a limit or the target.

    It cannot be named any more. It gets further runs only while the next may close it.
    """
    return missed > 0 and (is_closed(missed, runs) or 2 * missed < runs)
