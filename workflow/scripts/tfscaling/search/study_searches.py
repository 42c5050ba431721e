"""The searches of a study: their candidates from the table of runs, and what these show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import pandas as pd

from tfscaling.record.attempts import Kind
from tfscaling.record.metrics import QUALITY
from tfscaling.record.run_states import RunState
from tfscaling.search.looks import decide, lacking
from tfscaling.search.terms import (
    Candidate,
    Constraint,
    Decision,
    Goal,
    Run,
    Settings,
    Verdict,
)
from tfscaling.spec.config import LINE_AXES, Search
from tfscaling.spec.manifest import Manifest, PlannedSearch
from tfscaling.spec.run_spec import Point
from tfscaling.tables import table_rows
from tfscaling.tables.comparison import OF_ALL_RUNS, is_same_work
from tfscaling.tables.rows import RunRow
from tfscaling.tables.table_rows import is_known, point_of

#: Columns of the table of runs that a search goes by, besides its goals.
#: Causes of failures that say nothing of the point: a run that they ended is replaced by the next.
_INFRASTRUCTURE: frozenset[Kind] = frozenset(
    {"launch_failed", "launcher_failed", "missing_gpus", "node_failed", "preempted", "requeued"}
)
#: So many runs of a point are replaced; with more it does not run.
_REPLACED_MAX = 2


@dataclass(frozen=True)
class StudySearch:
    """A search as far as its runs are there.

    `points` are those of the candidates by their names; `other_work` are points whose runs trained
    fewer examples than others, so that they are no candidates.
    """

    planned: PlannedSearch
    points: Mapping[str, Point]
    other_work: tuple[Point, ...]
    candidates: tuple[Candidate, ...]
    decision: Decision

    @property
    def work(self) -> tuple[str, str]:
        """Model and recipe."""
        return self.planned.model, self.planned.recipe

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Goal → what is known."""
        return {verdict.goal: verdict for verdict in self.decision.verdicts}

    def wanted(self) -> Iterator[tuple[Point, int]]:
        """(point, repeat) of the runs that the next look lacks, block by block."""
        for block, name in lacking(self.decision, self.candidates):
            yield self.points[name], block + 1

    def is_next(self, point: Point) -> bool:
        """Whether the next look needs runs of the point, made or not."""
        return any(self.points[name] == point for name in self.decision.due)

    def may_be_wanted(self, point: Point) -> bool:
        """Whether a later look may need further runs of the point."""
        return any(self.points[name] == point for name in self.decision.wanted)


def of_study(planned: Manifest, runs: pd.DataFrame) -> list[StudySearch]:
    """The searches of a manifest, by its table of runs."""
    if not planned.searches:
        return []
    by_point: dict[Point, list[RunRow]] = {}
    for row in table_rows.typed(RunRow, runs):
        by_point.setdefault(point_of(row), []).append(row)
    return [_search(each, by_point) for each in planned.searches]


def _search(planned: PlannedSearch, by_point: Mapping[Point, Sequence[RunRow]]) -> StudySearch:
    rows = {each.point: by_point.get(each.point, ()) for each in planned.points}
    trained = {point: _examples(own) for point, own in rows.items()}
    work = work_of(number for number in trained.values() if number is not None)
    other = [
        point
        for point, number in trained.items()
        if number is not None and number < work and not is_same_work(number, work)
    ]
    points = {point.path: point for point in rows if point not in other}
    search = planned.search
    costs = {name: _median(rows[point], "cost_usd") for name, point in points.items()}
    if None in costs.values():
        costs = {name: _node_seconds(rows[point], point) for name, point in points.items()}
    candidates = tuple(
        replace(
            _candidate(name, rows[point], search, costs[name]),
            line=str([getattr(point, axis) for axis in LINE_AXES]),
            nodes=point.nodes,
        )
        for name, point in points.items()
    )
    return StudySearch(planned, points, tuple(other), candidates, decision_of(candidates, search))


def decision_of(candidates: Sequence[Candidate], search: Search) -> Decision:
    """What the runs of the candidates show."""
    settings = Settings(
        search.indifference,
        search.confidence,
        search.repeats_max,
        is_screened=search.screen,
        is_bounded=search.at_most_linear,
    )
    goals = [
        Goal(goal, goal, is_cost=goal.startswith("cost_"), has_target=goal in OF_ALL_RUNS)
        for goal in search.goals
    ]
    return decide(candidates, goals, settings, _constraint(search))


def _constraint(search: Search) -> Constraint | None:
    for limit in search.constraint.values():
        is_most = limit.at_most is not None
        value = limit.at_most if is_most else limit.at_least
        return Constraint(QUALITY, value or 0.0, limit.indifference, is_most)
    return None


def _examples(rows: Sequence[RunRow]) -> float | None:
    """The fewest examples that a run of the point trained."""
    known = (row.examples_trained for row in rows if row.status == RunState.OK)
    return min((number for number in known if is_known(number)), default=None)


def work_of(examples: Iterable[float]) -> float:
    """The work of points that trained these numbers of examples: the most frequent one.

    A number counts with those that are the same work; of several the largest. 0 if there is none.
    """
    known = list(examples)
    alike = {own: sum(is_same_work(each, own) for each in known) for own in known}
    return max(known, key=lambda own: (alike[own], own), default=0.0)


def _node_seconds(rows: Sequence[RunRow], point: Point) -> float | None:
    """The median time on all nodes, with the time of attempts before success."""
    valid = [row for row in rows if row.status == RunState.OK]
    times_s = [
        row.execution_time_s + (row.lost_time_s if is_known(row.lost_time_s) else 0.0)
        for row in valid
        if is_known(row.execution_time_s)
    ]
    return point.nodes * median(times_s) if times_s else None


def _median(rows: Sequence[RunRow], column: str) -> float | None:
    """Of the valid runs that have a value: one that went on from a checkpoint has no times."""
    values = (getattr(row, column) for row in rows if row.status == RunState.OK)
    known = list(filter(is_known, values))
    return median(known) if known else None


def _candidate(name: str, rows: Sequence[RunRow], search: Search, cost: float | None) -> Candidate:
    runs: list[Run | None] = [None] * search.looks[-1]
    failed: set[int] = set()
    replaced: set[int] = set()
    for row in rows:
        block = int(row.repeat) - 1
        if block >= len(runs):
            continue
        if row.status in (RunState.OK, RunState.DIVERGED):
            values: dict[str, float] = {goal: _value(row, goal) for goal in search.goals}
            if search.constraint and row.status == RunState.OK and is_known(row.quality):
                values[QUALITY] = float(row.quality)
            runs[block] = values
        elif row.failed_too_often:
            kind = str(row.reason).partition(":")[0]
            (replaced if kind in _INFRASTRUCTURE else failed).add(block)
    if len(replaced) > _REPLACED_MAX:
        failed, replaced = failed | replaced, set()
    return Candidate(name, tuple(runs), frozenset(failed), frozenset(replaced), len(runs), cost)


def _value(row: RunRow, goal: str) -> float:
    """Infinite if a run diverged, or did not reach its target; NaN if the value is not known.

    A run that went on from a checkpoint has no times: of these it says nothing.
    """
    if row.status != RunState.OK:
        return math.inf
    if is_known(getattr(row, goal)):
        return float(getattr(row, goal))
    told = row.target_reached
    if goal in OF_ALL_RUNS and is_known(told):
        return math.nan if told else math.inf
    return math.inf if is_known(row.execution_time_s) else math.nan
