"""Runs in rounds: for intervals that are too wide, searches without a result, larger batches.

All runs of a round end before the next round is decided. A point is repeated up to the next number
of runs at which its interval can be narrower: the interval of the median ends at order statistics,
which move inwards at 9, 12, 15, ... runs only. A search asks for the runs of its next analysis. A
batch of doublings is run if all runs of the next smaller batch fit in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import msgspec
from msgspec import Meta

from tfscaling.record import run_record
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.search import study_searches
from tfscaling.search.study_searches import StudySearch
from tfscaling.spec.manifest import Manifest, PlannedRun
from tfscaling.spec.run_spec import Point
from tfscaling.tables import runs_table, table_rows
from tfscaling.tables.estimates import RUNS_FOR_INTERVAL, median_interval, median_rank
from tfscaling.tables.rows import RunRow
from tfscaling.tables.table_rows import is_known, point_of

NARROW, WIDE, EXHAUSTED = "narrow enough", "too wide", "too wide at repeats_max"
HALF_DIVERGED, NO_MEMORY = "at least half of the runs diverged", "does not fit in memory"


class RepeatedPoint(Point, frozen=True, kw_only=True):
    """A point that has an interval to reach and whose runs are all there, none of them stale.

    The interval excludes runs that diverged and runs without times.
    """

    repeats: int
    diverged: int
    median_s: float | None
    relative_interval: Annotated[float | None, Meta(description="Null below 6 valid runs.")]
    verdict: str


class SearchState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a search, for a question."""

    work: str
    points: Annotated[int, Meta(description="From which the search chooses.")]
    left: Annotated[tuple[str, ...], Meta(description="Excluded configurations, by their paths.")]
    wanted: Annotated[tuple[str, ...], Meta(description="Configurations that run next.")]
    is_decided: bool

    @classmethod
    def of(cls, search: StudySearch) -> SearchState:
        decision = search.decision
        return cls(
            work=search.planned.work,
            points=len(search.points),
            left=tuple(name for name, each in decision.standings.items() if each.reason),
            wanted=tuple(decision.wanted),
            is_decided=decision.is_decided,
        )


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """round=<n>.json: the conditional runs to make."""

    round: int
    runs: Annotated[
        tuple[str, ...], Meta(description="Paths of the runs in all rounds up to this one.")
    ]
    added: Annotated[int, Meta(description="How many of them are new.")]
    points: tuple[RepeatedPoint, ...]
    searches: tuple[SearchState, ...] = ()


def read(path: Path) -> Round | None:
    """The round in a file, or None if there is none. Raises RecordError."""
    return run_record.decoded(path, msgspec.json.Decoder(Round), 0)


def next_round(planned: Manifest, runs_dir: Path, before: Collection[str], number: int) -> Round:
    """Return round `number`: the runs of the rounds `before`, and what intervals and searches need.

    A point gets no extra repeats if at least half of its runs diverged.
    """
    table, _ = runs_table.run_tables(planned.runs, runs_dir, planned.targets)
    done = table[table["status"].isin([*RESULTS])]
    rows = {(point_of(row), row.repeat): row for row in table_rows.typed(RunRow, done)}
    runs: dict[Point, list[PlannedRun]] = {}
    due_at: dict[str, list[RunRow | None]] = {}
    for run in planned.runs:
        if not run.is_conditional or run.spec.path in before:
            row = rows.get((run.spec.point, run.spec.repeat))
            due_at.setdefault(run.spec.point.path, []).append(row)
        if run.relative_interval is not None:
            runs.setdefault(run.spec.point, []).append(run)
    found, wanted = [], []
    for point, own in runs.items():
        due = [run for run in own if not run.is_conditional or run.spec.path in before]
        made = [row for run in due if (row := rows.get((point, run.spec.repeat)))]
        # others have failed or stale runs, or runs on another cluster than the chosen one
        if due and len(made) == len(due):
            judged, more = _judged(point, made, own[0].relative_interval or 0.0)
            more = min(more, len(own) - len(due))
            if judged.verdict == WIDE and not more:
                judged = msgspec.structs.replace(judged, verdict=EXHAUSTED)
            found.append(judged)
            wanted += own[len(due) : len(due) + more]
    searches = study_searches.of_study(planned, table)
    extra = {(run.spec.point, run.spec.repeat): run for run in planned.runs if run.extra_repeat}
    wanted += [extra[run] for search in searches for run in search.wanted() if run in extra]
    wanted += [run for run in planned.runs if run.smaller and not run.extra_repeat]
    wanted = [run for run in wanted if not run.smaller or _fits(due_at.get(run.smaller, ()))]
    added = [run.spec.path for run in wanted if run.spec.path not in before]
    return Round(
        round=number,
        runs=(*before, *added),
        added=len(added),
        points=tuple(found),
        searches=tuple(map(SearchState.of, searches)),
    )


def _fits(smaller: Sequence[RunRow | None]) -> bool:
    """Whether all due runs with the next smaller batch have ended and fit in memory."""
    return bool(smaller) and all(row and row.status != RunState.DOES_NOT_FIT for row in smaller)


def _judged(point: Point, made: Sequence[RunRow], width_max: float) -> tuple[RepeatedPoint, int]:
    """The interval of a point by its runs, and how many more runs can make it narrower."""
    valid = [row.execution_time_s for row in made if row.status == RunState.OK]
    times_s = list(filter(is_known, valid))  # runs that resumed from a checkpoint have none
    width = relative_interval(times_s)
    diverged = sum(row.status == RunState.DIVERGED for row in made)
    verdict, more = NARROW, 0
    if any(row.status == RunState.DOES_NOT_FIT for row in made):
        verdict = NO_MEMORY
    elif 2 * diverged >= len(made):
        verdict = HALF_DIVERGED
    elif width is None or width > width_max:
        verdict, more = WIDE, next_number(len(times_s)) - len(times_s)
    judged = RepeatedPoint(
        **msgspec.structs.asdict(point),
        repeats=len(made),
        diverged=diverged,
        median_s=median(times_s) if times_s else None,
        relative_interval=width,
        verdict=verdict,
    )
    return judged, more


def relative_interval(times_s: Sequence[float]) -> float | None:
    """Width of the interval of the median over the median; None if there are too few runs."""
    interval = median_interval(times_s)
    middle = median(times_s) if interval else 0.0
    return (interval[1] - interval[0]) / middle if interval and middle else None


def next_number(runs: int) -> int:
    """The next number of runs whose interval ends further inside the sample than with `runs`."""
    if runs < RUNS_FOR_INTERVAL:
        return RUNS_FOR_INTERVAL
    more = runs + 1
    while (median_rank(more) or 0) <= (median_rank(runs) or 0):
        more += 1
    return more
