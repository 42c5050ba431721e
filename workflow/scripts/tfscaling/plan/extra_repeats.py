"""Extra repeats: of points whose interval is still too wide, and those that a search needs.

Repeats are added in rounds: all runs of a round end, then the points are looked at again. A point
is repeated up to the next number of runs at which its interval can be narrower at all: that of the
median ends at order statistics, which move inwards at 9, 12, 15, ... runs only. A search asks for
the runs of its next look.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import msgspec
import pandas as pd
from msgspec import Meta

from tfscaling.record import run_record
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.search import study_searches
from tfscaling.search.study_searches import StudySearch
from tfscaling.spec.manifest import Manifest, PlannedRun
from tfscaling.spec.run_spec import Point
from tfscaling.tables import runs_table, table_rows
from tfscaling.tables.estimates import RUNS_FOR_INTERVAL, median_interval, median_rank
from tfscaling.tables.rows import RunRow
from tfscaling.tables.table_rows import is_known, point_of

METRIC = "execution_time_s"
NARROW, WIDE, EXHAUSTED = "narrow enough", "too wide", "too wide at repeats_max"
HALF_DIVERGED = "at least half of the runs diverged"


class RepeatedPoint(Point, frozen=True, kw_only=True):
    """A point that has an interval to reach and whose runs are all there, none of them stale.

    Runs that diverged are done, but have no part in the interval; nor have those without times.
    """

    repeats: int
    diverged: int
    median_s: float | None
    relative_interval: Annotated[float | None, Meta(description="Null below 6 valid runs.")]
    verdict: str


class SearchedWork(msgspec.Struct, frozen=True, kw_only=True):
    """Where a search stands, for a model and recipe."""

    model: str
    recipe: str
    points: Annotated[int, Meta(description="From which the search chooses.")]
    left: Annotated[tuple[str, ...], Meta(description="Points that left it, by their paths.")]
    wanted: Annotated[tuple[str, ...], Meta(description="Points that are run on.")]
    runs_next: Annotated[int, Meta(description="Runs of each of these at the next look, or 0.")]
    is_decided: bool


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """round=<n>.json: the extra repeats to make."""

    round: int
    runs: Annotated[tuple[str, ...], Meta(description="Paths of those of all rounds up to this.")]
    added: Annotated[int, Meta(description="How many of them are new.")]
    points: tuple[RepeatedPoint, ...]
    searches: tuple[SearchedWork, ...] = ()


def read(path: Path) -> Round | None:
    """The round in a file, or None if there is none. Raises RecordError."""
    return run_record.decoded(path, msgspec.json.Decoder(Round), 0)


def next_round(planned: Manifest, runs_dir: Path, before: Collection[str], number: int) -> Round:
    """What round `number` adds to the runs of every block and those of the rounds `before`.

    A point of which at least half of the runs diverged gets no extra repeats.
    """
    points: dict[Point, list[PlannedRun]] = {}
    for run in planned.runs:
        if run.relative_interval is not None:
            points.setdefault(run.spec.point, []).append(run)
    table, _ = runs_table.run_tables(planned.runs, runs_dir, planned.targets)
    done = _done(table)
    found, runs = [], list(before)
    for point, of_point in points.items():
        due = [run for run in of_point if not run.extra_repeat or run.spec.path in before]
        made = [row for run in due if (row := done.get((point, run.spec.repeat))) is not None]
        if len(made) < len(due):
            continue  # some are failed, stale, or on another cluster than the chosen one
        valid = [getattr(row, METRIC) for row in made if row.status == RunState.OK]
        times = list(filter(is_known, valid))  # runs that went on from a checkpoint have none
        width, diverged = relative_interval(times), len(made) - len(valid)
        wide = width is None or width > (of_point[0].relative_interval or 0.0)
        more: list[PlannedRun] = []
        if wide and 2 * diverged < len(made):
            more = of_point[len(due) : len(due) + next_number(len(times)) - len(times)]
        runs += [run.spec.path for run in more]
        verdict = (WIDE if more else EXHAUSTED) if wide else NARROW
        found.append(
            RepeatedPoint(
                **msgspec.structs.asdict(point),
                repeats=len(due),
                diverged=diverged,
                median_s=median(times) if times else None,
                relative_interval=width,
                verdict=HALF_DIVERGED if 2 * diverged >= len(made) else verdict,
            )
        )
    searched = study_searches.of_study(planned, table)
    runs += _of_searches(searched, planned, before)
    return Round(
        round=number,
        runs=tuple(runs),
        added=len(runs) - len(before),
        points=tuple(found),
        searches=tuple(map(_standing, searched)),
    )


def _of_searches(
    searched: Sequence[StudySearch], planned: Manifest, before: Collection[str]
) -> list[str]:
    """Paths of the extra repeats that the next looks lack and no round asked for before."""
    extra = {(run.spec.point, run.spec.repeat): run for run in planned.runs if run.extra_repeat}
    wanted = (extra.get(run) for search in searched for run in search.wanted())
    return [run.spec.path for run in wanted if run and run.spec.path not in before]


def _standing(search: StudySearch) -> SearchedWork:
    decision = search.decision
    left = [each.name for verdict in decision.verdicts for each in verdict.left]
    return SearchedWork(
        model=search.planned.model,
        recipe=search.planned.recipe,
        points=len(search.points),
        left=tuple(dict.fromkeys(left)),
        wanted=decision.wanted,
        runs_next=decision.runs_next,
        is_decided=all(verdict.is_decided for verdict in decision.verdicts),
    )


def relative_interval(times_s: Sequence[float]) -> float | None:
    """Width of the interval of the median over the median; None if there are too few runs."""
    interval = median_interval(times_s)
    middle = median(times_s) if interval else 0.0
    return (interval[1] - interval[0]) / middle if interval and middle else None


def next_number(runs: int) -> int:
    """The next number of runs whose interval ends further inside the sample than that of `runs`."""
    if runs < RUNS_FOR_INTERVAL:
        return RUNS_FOR_INTERVAL
    more = runs + 1
    while (median_rank(more) or 0) <= (median_rank(runs) or 0):
        more += 1
    return more


def _done(runs: pd.DataFrame) -> dict[tuple[Point, int], RunRow]:
    """Point and repeat → row of the runs that the tables count as results, valid or diverged."""
    done = runs[runs["status"].isin([*FINISHED])]
    return {(point_of(row), row.repeat): row for row in table_rows.typed(RunRow, done)}
