"""The answer to each question: every configuration with its state, and the one to take.

All that a study says of its question is a view of an `Answer`: headline, decision, next steps,
console, page, plots and proposal. Only this module decides which configuration is compared, out of
the running, or open. Only configurations of the same model and recipe are compared, unless
`question.choose` has these axes: then by time and cost to a target and by quality.

A configuration is out only if its own runs show it (`run_counts.is_closed`). What was not run,
failed, or has no value keeps the answer open, unless its runs show that it is worse.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tfscaling.conclusions.contest import Contest, contest, is_worse, ranked
from tfscaling.conclusions.evidence import Study, Task, remark
from tfscaling.conclusions.projection import Interval, intervals
from tfscaling.record.metrics import QUALITY
from tfscaling.record.run_states import RunState, words
from tfscaling.search.interim import Reason
from tfscaling.search.study_searches import StudySearch
from tfscaling.spec.config import Limit
from tfscaling.spec.run_spec import Point
from tfscaling.tables.comparison import OF_ALL_RUNS, OTHER_WORK, all_at_target
from tfscaling.tables.display import (
    listed,
    point_name,
    rounded,
    target_text,
    three_digits,
    value,
    varying,
)
from tfscaling.tables.estimates import (
    CONFIDENCE,
    INCONCLUSIVE,
    NOT_COMPARED,
    RUNS_FOR_INTERVAL,
    SUPPORTED,
    TOO_FEW,
    Difference,
    Samples,
    count_beyond_limit,
    keeps_limit,
    median_interval,
    weakest,
)
from tfscaling.tables.rows import PointRow
from tfscaling.tables.run_counts import KEPT_RUNS, is_closed, missed_at_most
from tfscaling.tables.table_rows import (
    NOT_MEASURED,
    grouped,
    is_known,
    is_projected,
    lacking_energy_parts,
    line_of,
    metric_of,
    point_of,
    qualities_of,
)

#: A goal where it is measured, and goals where the configuration names them.
ENERGY, WITH_QUEUE, NODE_HOURS = "energy_kwh", "time_with_queue_s", "node_hours"
TIME = "execution_time_s"
#: Metric → what is taken for it; the quality or the target of the task follows what ends so.
GOALS = {
    WITH_QUEUE: "Shortest time with the wait in the queue",
    TIME: "Shortest time",
    "cost_usd": "Lowest cost",
    NODE_HOURS: "Fewest node-hours",
    ENERGY: "Lowest energy",
    QUALITY: "Best ",
    "time_to_target_s": "Shortest time to ",
    "cost_to_target_usd": "Lowest cost to ",
}
#: Phases before the steady state, which more nodes do not divide.
STARTUP = (
    *("import_time_s", "rendezvous_time_s", "data_time_s", "build_time_s", "first_step_time_s"),
)
#: What the answer to a question with limits reports, besides its goal and its limits.
_REPORTED = ("cost_usd", QUALITY, "rank_memory_gb", "gpu_memory_gb")


class State(StrEnum):
    """What is known about a configuration of a question by a goal."""

    #: It is compared with the others.
    COMPARED = "compared"
    #: It has the metric, and too few runs to be compared.
    TOO_FEW = "too few runs"
    #: Its runs show neither that it keeps a limit or target nor that it misses it.
    UNDECIDED = "undecided"
    #: Its runs show that it misses a limit or the target.
    INFEASIBLE = "infeasible"
    #: Its runs show that it is worse, or cannot be recommended, or the grid excludes it.
    EXCLUDED = "excluded"
    #: It failed, or lacks the metric: further runs may change the answer.
    OPEN = "open"
    #: None of its runs was begun.
    NOT_RUN = "not run"


_BY_LINE = str(Reason.BY_ITS_LINE)
#: States that leave an answer open.
_OPEN = (State.UNDECIDED, State.OPEN, State.NOT_RUN)


@dataclass(frozen=True)
class Candidate:
    """A configuration of a question.

    `name` has what distinguishes it from the others; `value` the goal with its interval and unit;
    `remark` what a recommendation must not hide. `missed` are columns with a limit of the question
    that its runs show it to miss, `undecided` those where they show nothing. `kept_runs` is how
    many of its runs kept the limits or the target, None without either. `worse` is how much worse
    it is than the recommended one. `is_equal`: it is shown to be within the indifference of the
    best, `is_alike`: it is not shown to be worse than the recommended one.
    """

    row: PointRow
    name: str
    state: State
    reason: str = ""
    value: str = ""
    remark: str = ""
    runs: int = 0
    missed: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    kept_runs: int | None = None
    worse: Difference | None = None
    is_equal: bool = False
    is_alike: bool = False

    @property
    def point(self) -> Point:
        """The configuration's axes."""
        return point_of(self.row)

    @property
    def noted(self) -> str:
        """Its name with what must not be hidden."""
        return f"{self.name} ({self.remark})" if self.remark else self.name

    @property
    def is_open(self) -> bool:
        """Whether it is in no comparison, and its runs may still change the answer."""
        return self.state in _OPEN

    @property
    def has_value(self) -> bool:
        """Whether it is compared by the goal, or has too few runs for that."""
        return self.state in (State.COMPARED, State.TOO_FEW)


@dataclass(frozen=True)
class StartUp:
    """What start-up is of the recommended configuration's time, and who trains fastest without it.

    `ratio` is how many times as long the recommended one trains as `fastest`.
    """

    share: float
    fastest: Candidate
    ratio: float


@dataclass(frozen=True)
class Answer:
    """The answer to a question by a goal.

    Attributes:
        work: Name of the question.
        goal: The metric that is to be best.
        title: What the recommended configuration is best for.
        candidates: All configurations of the question, the best median first.
        recommended: The configuration to take, None where the runs name none.
        leader: The recommended one, or else the best median.
        rival: What a headline compares it with.
        support: How sure it is.
        bound: By what fraction the recommended one may be worse than the best; None: not known.
        is_best: Whether every other compared one is shown to be worse.
        is_near_best: Whether it is shown to be within the indifference of the best, with enough
            runs of all that are compared.
        is_only: Whether no other is shown to keep the limits, and some miss them or are worse.
        how: Why it is taken and none of its equals.
        after: The next best estimate.
        comparisons: Number of comparisons that hold together.
        limits: Limits of the question by column.
        reported: Metrics of the leader with their margins to the limits, in words.
        whole_run: Interval of one run of the complete training, where it is projected.
        search: The search that decided.
        startup: Where start-up is more than half of the leader's time.
        repeats: Runs of each configuration that may settle what is open; None: more do not help.
        statuses: How many runs have which status, of a question without a valid run.
        other_goals: The same question by the other goals: what the recommended one costs.
    """

    work: str
    goal: str
    title: str
    indifference: float
    candidates: tuple[Candidate, ...] = ()
    recommended: Candidate | None = None
    leader: Candidate | None = None
    rival: Candidate | None = None
    support: str = NOT_MEASURED
    bound: float | None = None
    is_best: bool = False
    is_near_best: bool = False
    is_only: bool = False
    how: str = ""
    after: Candidate | None = None
    comparisons: int = 0
    limits: Mapping[str, Limit] | None = None
    reported: str = ""
    whole_run: Interval | None = None
    search: StudySearch | None = None
    startup: StartUp | None = None
    repeats: int | None = None
    statuses: Mapping[str, int] | None = None
    other_goals: tuple[Answer, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether the question has runs that tell something of its goal."""
        return self.statuses is None

    @property
    def point(self) -> Point | None:
        """The configuration to take."""
        return self.recommended.point if self.recommended else None

    @property
    def compared(self) -> tuple[Candidate, ...]:
        """Those with the metric, the best median first."""
        return tuple(each for each in self.candidates if each.has_value)

    @property
    def few(self) -> tuple[Candidate, ...]:
        """Those with too few runs to be compared."""
        return tuple(each for each in self.candidates if each.state == State.TOO_FEW)

    @property
    def equals(self) -> tuple[Candidate, ...]:
        """The others that are shown to be within the indifference of the best."""
        return tuple(each for each in self.candidates if each.is_equal)

    @property
    def alike(self) -> tuple[Candidate, ...]:
        """The others that are not shown to be worse than the recommended one."""
        return tuple(each for each in self.candidates if each.is_alike)

    @property
    def not_covered(self) -> tuple[Candidate, ...]:
        """Planned configurations that are in no comparison, each with its reason."""
        others = (each for each in self.candidates if not each.has_value)
        planned = (each for each in others if each.row.status != "excluded")
        if self.search is None:
            return tuple(planned)
        # the verdict of a search covers what it has not run
        return tuple(e for e in planned if e.state != State.NOT_RUN and e.reason != _BY_LINE)

    @property
    def is_open(self) -> bool:
        """Whether a configuration that was not compared may change the answer."""
        return any(each.is_open for each in self.candidates)

    @property
    def is_kept(self) -> bool:
        """Whether enough runs of the recommended one kept the limits and the target."""
        kept = self.recommended.kept_runs if self.recommended else None
        return kept is None or kept >= KEPT_RUNS

    @property
    def is_decided(self) -> bool:
        """Whether the runs decide among those that were compared."""
        return self.is_near_best and self.is_kept

    @property
    def kept_text(self) -> str:
        """A sentence about how many runs kept the limits; empty without limits."""
        kept = self.recommended.kept_runs if self.recommended else None
        if not kept:
            return ""
        what = "target" if self.goal in OF_ALL_RUNS and not self.limits else "limits"
        misses = f"with {CONFIDENCE:.0%} fewer than {missed_at_most(kept):.0%} of its runs miss"
        return f"Its {kept} runs kept the {what}; {misses} {'it' if what == 'target' else 'one'}."

    def not_covered_text(self, among: Iterable[Candidate] | None = None) -> str:
        """A sentence that names those in no comparison; empty if there are none."""
        found = [*(self.not_covered if among is None else among)]
        names = [f"{each.name}, {each.reason}" for each in found]
        return f"Not compared: {listed(names)}." if names else ""


@functools.lru_cache(maxsize=1)  # all views show the same answers
def answer(study: Study) -> tuple[Answer, ...]:
    """Return the answer to each question by the goal that is asked, with those by other goals."""
    found = []
    for task in study.tasks:
        goals = {goal: _by_goal(study, task, goal) for goal in _goals(study, task)}
        asked = goals.pop(study.question.goal, None) or _without_runs(study, task)
        found.append(replace(asked, other_goals=tuple(goals.values())))
    return tuple(found)


def by_goals(study: Study) -> Iterator[Answer]:
    """Yield the measured answers of all questions, by each goal in the order of GOALS."""
    for asked in answer(study):
        each = [own for own in (asked, *asked.other_goals) if own.is_measured]
        yield from sorted(each, key=lambda own: [*GOALS].index(own.goal))


def _goals(study: Study, task: Task) -> list[str]:
    """The goals that are answered: none where nothing was measured."""
    not_asked = {WITH_QUEUE, NODE_HOURS} - {study.question.goal}
    if not any(row.runs for row in task.rows):
        return []
    return [goal for goal in GOALS if goal not in not_asked and _title(goal, task.rows) is not None]


def _without_runs(study: Study, task: Task) -> Answer:
    """The answer where no run tells anything of the goal."""
    own = {point_of(row) for row in task.named}
    counts = Counter(words(run.status) for run in study.run_rows if point_of(run) in own)
    statuses = Counter[str]() if counts.keys() <= {RunState.MISSING} else counts
    vary = varying(task.named)
    candidates = tuple(
        _candidate(study, study.question.goal, row, vary, State.NOT_RUN if not counts else None)
        for row in task.rows
    )
    goal, indifference = study.question.goal, study.question.indifference
    found = Answer(task.name, goal, "", indifference, candidates, search=task.search)
    return replace(found, statuses=statuses)


def _title(goal: str, rows: Sequence[PointRow]) -> str | None:
    """What is best, in words; None if no row has energy, or the task has no target."""
    if goal == QUALITY:
        (quality,) = qualities_of(rows).values()
        return GOALS[goal] + quality.title
    if goal == ENERGY and not any(is_known(row.energy_kwh) for row in rows):
        return None
    if goal not in OF_ALL_RUNS:
        return GOALS[goal]
    if any(map(is_projected, rows)):  # short runs do not tell when the whole reaches it
        return None
    target = next((target_text(row) for row in rows if is_known(row.target)), None)
    return None if target is None else GOALS[goal] + target


def _by_goal(study: Study, task: Task, goal: str) -> Answer:
    """The answer to a question by one goal."""
    title = _title(goal, task.rows) or ""
    metric = next((row.quality_metric for row in task.named if row.quality_metric), None)
    limits = study.question.limits_for(goal, metric)
    found = Answer(task.name, goal, title, study.question.indifference, limits=limits)
    if task.search and goal == task.search.planned.goal:
        found = _searched(study, task, replace(found, search=task.search))
    else:
        found = _contested(study, found, [*_judged(study, task, found)])
    leader = found.leader
    if leader is None:
        return found
    whole = intervals(study).get(leader.point) if goal == TIME else None
    reported = _reported(study.samples, leader, goal, limits) if limits else ""
    return replace(found, whole_run=whole, reported=reported, startup=_startup(found))


# states of candidates


def _candidate(
    study: Study, goal: str, row: PointRow, vary: Sequence[str], state: State | None = None
) -> Candidate:
    """A configuration, with the state that its runs show before any comparison."""
    point, why = point_of(row), study.excluded.get(point_of(row))
    if state is None:
        state = State.COMPARED
        if row.status == "excluded" or (why and not why.is_open):
            state = State.EXCLUDED
        elif why:
            is_begun = study.samples.statuses(point).keys() - {RunState.MISSING}
            state = State.OPEN if is_begun else State.NOT_RUN
    reason = why.reason if why else row.reason if row.status == "excluded" else ""
    return Candidate(
        row,
        point_name(row, vary),
        state,
        reason,
        value(goal, row) if is_known(row[goal]) else "",
        remark(row, study.samples),
        len(study.samples.values(point, goal)),
    )


def _judged(study: Study, task: Task, asked: Answer) -> Iterator[Candidate]:
    """The configurations of a question, each with its state by the limits and by what it lacks."""
    vary, samples, goal, limits = varying(task.named), study.samples, asked.goal, asked.limits or {}
    found = [_candidate(study, goal, row, vary) for row in task.rows]
    measured = [each.row for each in found if each.state == State.COMPARED]
    error = (1 - CONFIDENCE) / 2 / max(1, len(measured) * len(study.question.given))
    parts = _usual_parts(measured) if goal == ENERGY else None
    for each in found:
        if each.state == State.COMPARED and limits:
            other_parts = lacking_energy_parts(each.row, measured) if ENERGY in limits else ""
            each = _by_limits(each, samples, limits, error, other_parts)
        if each.state == State.COMPARED:
            each = _by_value(each, goal, parts)
        if each.state == State.COMPARED and not samples.has_enough(goal, each.point):
            each = replace(each, state=State.TOO_FEW)
        if each.has_value and goal in OF_ALL_RUNS:
            kept = [each.kept_runs, each.row.runs_at_target]
            each = replace(each, kept_runs=min((n for n in kept if n is not None), default=0))
        yield each


def _by_limits(
    each: Candidate, samples: Samples, limits: Mapping[str, Limit], error: float, other_parts: str
) -> Candidate:
    """Return the candidate with its state by the limits: compared if it is shown to keep all.

    Args:
        each: The configuration.
        samples: The values of its runs.
        limits: Limits of the question by column.
        error: Error rate of each limit, one-sided.
        other_parts: Parts whose energy the measurements of others include, and its own do not.
    """
    values = {name: samples.measured(each.point, name) for name in limits}
    if lacking := [name for name, own in values.items() if not own]:
        title = metric_of(lacking[0], each.row).title
        is_short = is_projected(each.row) and lacking[0] == QUALITY
        short = ", which is not projected from short runs" * is_short
        return replace(each, state=State.OPEN, reason=f"reports no {title}{short}")
    statuses = samples.statuses(each.point)
    has_endless = statuses[RunState.DIVERGED] or statuses[RunState.DOES_NOT_FIT]
    judged = {
        name: (values[name], limit, error, samples.projection_error(each.point, name))
        for name, limit in limits.items()
    }
    planned = statuses.total()
    missed = tuple(n for n, own in judged.items() if is_closed(count_beyond_limit(*own), planned))
    is_part = {ENERGY} if other_parts else set()
    undecided = tuple(
        name
        for name, own in judged.items()
        if name not in missed and (has_endless or name in is_part or not keeps_limit(*own))
    )
    if not missed + undecided:
        return replace(each, kept_runs=min(map(len, values.values())))
    words = "misses a limit" if missed else "is not shown to keep a limit"
    against = [_against(name, each.row, limits[name], other_parts) for name in missed or undecided]
    return replace(
        each,
        state=State.INFEASIBLE if missed else State.UNDECIDED,
        reason=f"{words}: {', '.join(against)}",
        missed=missed,
        undecided=undecided,
    )


def _against(column: str, row: PointRow, limit: Limit, other_parts: str) -> str:
    """`cost 41.2 (39.8–43.1) US dollars, at most 40`."""
    bound = "at least" if limit.at_most is None else "at most"
    without = f" without {other_parts}" if column == ENERGY and other_parts else ""
    return f"{metric_of(column, row).title} {value(column, row)}{without}, {bound} {limit.value:g}"


def _usual_parts(rows: Sequence[PointRow]) -> str | None:
    """The parts that most energies include."""
    counted = Counter(row.energy_of for row in rows if is_known(row.energy_kwh))
    return next((name for name, _ in counted.most_common(1)), None)


def _by_value(each: Candidate, goal: str, parts: str | None) -> Candidate:
    """The candidate as it is if it has the metric, else with what it lacks."""
    row = each.row
    if is_known(row[goal]):
        if goal == ENERGY and row.energy_of != parts:
            return replace(each, state=State.OPEN, reason=f"its energy includes {row.energy_of}")
        return each
    needed = row.runs if goal in OF_ALL_RUNS else 1
    if goal != QUALITY and row.runs_timed < needed:
        reason = "no time that counts" + " of every run" * (goal in OF_ALL_RUNS)
    elif goal in OF_ALL_RUNS and not all_at_target(row):
        reached, ended = row.runs_at_target or 0, row.runs + (row.runs_diverged or 0)
        is_missed = is_closed(ended - reached, row.runs_asked or ended)
        state = State.INFEASIBLE if is_missed else State.UNDECIDED
        return replace(each, state=state, reason=f"reached the target in {reached} of {ended} runs")
    elif goal == QUALITY:
        short = ", which is not projected from short runs" * is_projected(row)
        reason = f"no {metric_of(goal, row).title}{short}"
    elif goal in OF_ALL_RUNS and not is_known(row.time_to_target_s):
        reason = "no known time to the target"
    else:
        lack = {WITH_QUEUE: "measured wait in a queue", ENERGY: "energy"}.get(goal, "price")
        reason = f"no {lack}"
    return replace(each, state=State.OPEN, reason=reason)


# the configuration to take


def _contested(study: Study, asked: Answer, candidates: Sequence[Candidate]) -> Answer:
    """The answer by the runs of all configurations."""
    goal, samples = asked.goal, study.samples
    by_point = {each.point: each for each in candidates}
    known = ranked(goal, [each.row for each in candidates if each.has_value])
    order = [*map(point_of, known), *(p for p, each in by_point.items() if not each.has_value)]
    asked = replace(asked, candidates=tuple(by_point[point] for point in order))
    if not known:
        has_any = any(is_known(each.row[goal]) for each in candidates)
        support = INCONCLUSIVE if asked.is_open else NOT_COMPARED
        asked = replace(asked, support=support if has_any else NOT_MEASURED)
        return replace(asked, repeats=_repeats(study, asked))
    compared = [row for row in known if by_point[point_of(row)].state == State.COMPARED]
    if by_point[point_of(known[0])].state == State.TOO_FEW:
        support = TOO_FEW if known[1:] else NOT_COMPARED
        asked = replace(asked, leader=by_point[point_of(known[0])], support=support)
    else:
        undecided = [each for each in candidates if each.state == State.UNDECIDED]
        found = contest(goal, compared, samples, asked.indifference, len(undecided))
        asked = _taken(asked, found, samples, undecided)
    asked = _with_rival(asked, samples)
    return replace(asked, repeats=_repeats(study, asked))


def _taken(
    asked: Answer, found: Contest, samples: Samples, undecided: Sequence[Candidate]
) -> Answer:
    """The answer with what a contest has shown."""
    taken, against = point_of(found.taken), found.against or {}
    equals = {*map(point_of, found.equals)}
    others = _worse(asked.goal, taken, undecided, samples, len(against) + len(undecided))

    def judged(each: Candidate) -> Candidate:
        point, difference = each.point, against.get(each.point)
        if point in others:
            return replace(each, state=State.EXCLUDED, reason=f"is worse, and {each.reason}")
        is_alike = difference is not None and not is_worse(difference)
        return replace(each, worse=difference, is_equal=point in equals, is_alike=is_alike)

    candidates = tuple(map(judged, asked.candidates))
    by_point = {each.point: each for each in candidates}
    is_only = not found.comparisons and not asked.few and any(e.missed for e in candidates)
    is_only |= bool(others) and not against
    has_compared = bool(against)
    is_near = found.bound is not None and found.bound <= asked.indifference
    asked = replace(
        asked,
        candidates=candidates,
        recommended=by_point[taken],
        leader=by_point[taken],
        bound=found.bound,
        is_best=found.is_best if has_compared else False,
        is_only=is_only,
        how=found.how,
        after=by_point[point_of(found.order[0])] if found.order else None,
        comparisons=found.comparisons,
    )
    is_near_best = is_near and (has_compared or is_only) and not asked.few
    asked = replace(asked, is_near_best=is_near_best)
    support = weakest(
        [SUPPORTED]
        + [NOT_COMPARED] * (not has_compared and not is_only)
        + [TOO_FEW] * bool(asked.few)
        + [INCONCLUSIVE] * (asked.is_open or not is_near or not asked.is_kept)
    )
    return replace(asked, support=support)


def _worse(
    goal: str, taken: Point, undecided: Sequence[Candidate], samples: Samples, rivals: int
) -> set[Point]:
    """The configurations, undecided by a limit, that are shown to be worse than the one taken."""
    pairs = [(taken, each.point) for each in undecided]
    found = samples.differences(goal, pairs, max(1, rivals))
    return {pair[1] for pair, each in zip(pairs, found, strict=True) if each and is_worse(each)}


def _with_rival(asked: Answer, samples: Samples) -> Answer:
    """The answer with what its headline compares: the other end of its line, or the next best."""
    taken, compared = asked.leader, asked.compared
    if taken is None or asked.support == NOT_COMPARED:
        return asked
    lines = grouped((each.row for each in compared), line_of)
    line = sorted(lines[line_of(taken.row)], key=lambda row: row.nodes)
    ends = [line[-1] if taken.row is line[0] else line[0], *(each.row for each in compared)]
    other = next((row for row in ends if row is not taken.row), None)
    rival = next((each for each in compared if each.row is other), None)
    if rival and rival.worse is None:  # the two were not compared yet
        pair = taken.point, rival.point
        (difference,) = samples.differences(asked.goal, [pair], max(1, len(compared) - 1))
        rival = replace(rival, worse=difference)
    return replace(asked, rival=rival)


def _searched(study: Study, task: Task, asked: Answer) -> Answer:
    """The answer that the search has found, or would give now."""
    search, vary = task.search, varying(task.named)
    assert search is not None
    verdict = search.decision
    name_of = {point: name for name, point in search.points.items()}
    rows = {point_of(row): row for row in reversed(task.named)}
    found = [
        _by_search(_candidate(study, asked.goal, row, vary), search, name_of.get(point))
        for point, row in rows.items()
    ]
    known = [each for each in found if each.has_value]
    order = [*map(point_of, ranked(asked.goal, [each.row for each in known]))]
    found.sort(key=lambda each: order.index(each.point) if each.point in order else len(order))
    asked = replace(asked, candidates=tuple(found))
    best = search.points.get(verdict.best or "")
    taken = next((each for each in found if each.point == best), None)
    if taken is None:
        return replace(asked, support=INCONCLUSIVE if verdict.has_ended else TOO_FEW)
    bound = asked.indifference if verdict.is_decided else verdict.bound
    survivors = {search.points[name] for name in verdict.survivors if name != verdict.best}
    alike = [replace(each, is_alike=each.point in survivors) for each in found]
    asked = replace(
        asked,
        candidates=tuple(alike),
        recommended=taken,
        leader=taken,
        is_near_best=verdict.is_decided,
        bound=bound if math.isfinite(bound) else None,
        comparisons=len(search.points) - 1,
    )
    is_sure = verdict.is_decided and not asked.is_open and asked.is_kept
    return replace(asked, support=SUPPORTED if is_sure else INCONCLUSIVE)


def _by_search(each: Candidate, search: StudySearch, name: str | None) -> Candidate:
    """The candidate with its state in a search, whose verdict is by the goal and the limits."""
    verdict, goal = search.decision, search.planned.goal
    if each.point in search.other_work:
        return replace(each, state=State.OPEN, reason=OTHER_WORK)
    if name is None:
        return each
    took = f", its valid runs {value(goal, each.row)}" * is_known(each.row[goal])
    if reason := verdict.failed.get(name):
        state = State.EXCLUDED
        if name in verdict.unresolved:
            state = State.UNDECIDED if reason is Reason.NOT_SHOWN else State.OPEN
        return replace(each, state=state, reason=f"{reason}{took}")
    standing = verdict.standings[name]
    out = standing.reason
    if out is Reason.NOT_ALLOWED:
        return replace(each, state=State.INFEASIBLE, reason=str(out))
    if not each.runs and (verdict.is_decided or out is Reason.BY_ITS_LINE):
        return replace(each, state=State.EXCLUDED, reason=_BY_LINE)
    if not each.runs:
        return replace(each, state=State.NOT_RUN, reason=each.reason or "not run yet")
    may_miss = bool(search.planned.limits) or goal in OF_ALL_RUNS
    kept_runs = standing.runs if may_miss else None
    return replace(each, state=State.COMPARED, reason="", kept_runs=kept_runs)


# what the answer reports besides


def _reported(samples: Samples, leader: Candidate, goal: str, limits: Mapping[str, Limit]) -> str:
    """Time, goal, price, quality and memory, with the margins to their limits."""
    texts, row = [], leader.row
    for name in dict.fromkeys([TIME, goal, *limits, *_REPORTED]):
        if not is_known(row[name]):
            continue
        metric, shown = metric_of(name, row), value(name, row)
        interval = median_interval(samples.measured(leader.point, name))
        if interval and f"{name}_low" not in row:
            shown = f"{rounded(row[name], metric.digits, *interval)} {metric.unit}".rstrip()
        text = f"{metric.title} {shown}"
        if limit := limits.get(name):
            side = "below" if limit.at_least is None else "above"
            text += f", {three_digits(abs(limit.value - row[name]))} {side} its limit"
        texts.append(text)
    return "; ".join(texts)


def _startup(asked: Answer) -> StartUp | None:
    """Where start-up is more than half of the time, who trains fastest without it."""
    taken = asked.leader
    if taken is None or asked.goal != TIME or not is_known(taken.row.train_time_s):
        return None
    spent_s = sum(number for name in STARTUP if is_known(number := taken.row[name]))
    share = spent_s / taken.row.execution_time_s if is_known(taken.row.execution_time_s) else 0.0
    training = [each for each in asked.compared if each.row.train_time_s > 0]
    if share <= 0.5 or not training:
        return None
    fastest = min(training, key=lambda each: each.row.train_time_s)
    return StartUp(share, fastest, taken.row.train_time_s / fastest.row.train_time_s)


def _repeats(study: Study, asked: Answer) -> int | None:
    """How many runs of each configuration may settle what is open; None if more do not help."""
    if asked.support == TOO_FEW:
        return RUNS_FOR_INTERVAL
    if asked.support != INCONCLUSIVE:
        return None
    own = {each.point for each in asked.candidates}
    planned = Counter(
        run.spec.point
        for run in study.manifest.runs
        if not run.extra_repeat and run.spec.point in own
    )
    most = max(planned.values(), default=0)
    has_undecided = any(each.state == State.UNDECIDED for each in asked.candidates)
    if (asked.compared and not asked.is_near_best) or has_undecided:
        return max(2 * most, KEPT_RUNS * (asked.limits is not None and not asked.is_kept))
    return None if asked.is_kept else max(KEPT_RUNS, most)
