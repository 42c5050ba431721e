"""What to do next, and what it takes: runs, time, node-hours, US dollars.

A run is taken to last as long as the median of its point's valid runs, as in the costed plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import pandas as pd

from tfscaling.conclusions.evidence import Study, split
from tfscaling.record.run_states import RERUN_STALE, RunState
from tfscaling.spec import platforms
from tfscaling.spec.run_spec import Point
from tfscaling.tables.comparison import OTHER_WORK
from tfscaling.tables.display import listed, point_name, varying
from tfscaling.tables.estimates import RUNS_FOR_INTERVAL
from tfscaling.tables.significance import INCONCLUSIVE, TOO_FEW
from tfscaling.tables.table_rows import is_projected, point_of, points_of, rows_of

COLUMNS = ("text", "runs", "duration_s", "node_hours", "cost_usd")
#: Statuses of runs that another start of the sweep makes.
_TO_MAKE = (RunState.FAILED, RunState.UNFINISHED, RunState.MISSING)


@dataclass(frozen=True)
class Step:
    """`text` says what to do and what for; `cost_usd` is None where a platform has no price."""

    text: str
    runs: int = 0
    duration_s: float = 0.0
    node_hours: float = 0.0
    cost_usd: float | None = None


def table(study: Study, decision: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS: one row per step, what helps most first; `decision` is the table of that name."""
    steps = [
        *_unfinished(study),
        *_given_up(study),
        *_searches(study),
        *_same_work(study),
        *_resumed(study),
        *_repeats(study, decision),
        *_prices(study),
    ]
    return pd.DataFrame([asdict(step) for step in steps], columns=list(COLUMNS))


def _is_given_up(study: Study) -> list[bool]:
    """For each run whether a search gave it up, because it failed too often."""
    searched = {point for search in study.searches.values() for point in search.points.values()}
    failed = study.runs["failed_too_often"]
    return [
        point in searched and bool(often)
        for point, often in zip(points_of(study.runs), failed, strict=True)
    ]


def _given_up(study: Study) -> Iterator[Step]:
    runs = study.runs[_is_given_up(study)]
    if len(runs):
        rows = {point_of(row): row for row in study.points}
        vary = varying(study.points)
        names = listed([point_name(rows[p], vary) for p in dict.fromkeys(points_of(runs))])
        yield Step(
            f"Find out why {len(runs)} run{'s' * (len(runs) > 1)} failed too often ({names}); "
            "remove their folders to try them again.",
            len(runs),
        )


def _same_work(study: Study) -> Iterator[Step]:
    """What makes configurations comparable that trained different numbers of examples."""
    vary = varying(study.points)
    names = [point_name(row, vary) for row, why in study.ineligible if why.startswith(OTHER_WORK)]
    if names:
        yield Step(
            f"Let all configurations train the same number of examples ({listed(names)} did not): "
            "use `global_batch_size` with `steps_per_epoch`, or leave `steps_per_epoch` out."
        )


def _resumed(study: Study) -> Iterator[Step]:
    """What lets the times of runs count that resumed from a checkpoint."""
    number = sum(row["runs"] - row["runs_timed"] for row in study.points)
    if number:
        yield Step(
            f"Set `compare_resumed: true` in the recipe, or add repeats: the times of {number} "
            f"resumed run{'s' * (number > 1)} do not count."
        )


def _unfinished(study: Study) -> Iterator[Step]:
    runs = study.runs
    counts = Counter(runs.loc[[not each for each in _is_given_up(study)], "status"])
    named = [f"{counts[status]} {status}" for status in _TO_MAKE if counts[status]]
    if named:
        number = sum(counts[status] for status in _TO_MAKE)
        noun = "run" if number == 1 else "runs"
        yield Step(f"Start the sweep again to make the {' and '.join(named)} {noun}.", number)
    if stale := counts[RunState.STALE]:
        noun = "run" if stale == 1 else "runs"
        yield Step(f"Make the {stale} stale {noun} again with {RERUN_STALE}.", stale)


def _repeats(study: Study, decision: pd.DataFrame) -> Iterator[Step]:
    """Repeats for intervals, or twice as many where the intervals leave the answer open.

    Where some times are projected from short runs, these alone are repeated.
    """
    planned = Counter(run.spec.point for run in study.manifest.runs if not run.extra_repeat)
    durations_s = _durations_s(study)
    searched = {point for search in study.searches.values() for point in search.points.values()}
    is_short = any(map(is_projected, study.points))
    few = set(decision.loc[decision["support"] == TOO_FEW, "work"])
    is_open = (decision["support"] == INCONCLUSIVE) & ~decision["is_decided"].astype(bool)
    undecided = set(decision.loc[is_open, "work"])
    of_works = {
        work: [
            point_of(row)
            for row in split(rows, study.samples)[0]
            if is_projected(row) or not is_short
        ]
        for work, rows in study.works.items()
    }
    for works, why in ((few, "for intervals"), (undecided - few, "for narrower intervals")):
        points = [
            point
            for work in works
            for point in of_works[work]
            if point in durations_s and point in planned and point not in searched
        ]
        most = max((planned[point] for point in points), default=0)
        wanted = RUNS_FOR_INTERVAL if works is few else 2 * most
        if more := {point: wanted - planned[point] for point in points if planned[point] < wanted}:
            yield _priced(f"`repeats: {wanted}` in the grid, {why}", more, durations_s, study)


def _searches(study: Study) -> Iterator[Step]:
    """Where a search goes on, and what may decide one that ended undecided."""
    extra = {(run.spec.point, run.spec.repeat) for run in study.manifest.runs if run.extra_repeat}
    for work, search in study.searches.items():
        wanted = list(search.wanted())
        if not extra.isdisjoint(wanted):
            points, runs = len(search.decision.due), search.decision.runs_next
            yield Step(
                f"Start the sweep again: the search goes on with {points} points, up to {runs} "
                "runs of each.",
                len(wanted),
            )
        ended = [each for each in search.decision.verdicts if each.has_ended]
        if any(not each.is_decided for each in ended):
            named = f" of {work}" if len(study.searches) > 1 else ""
            yield Step(
                f"The search{named} is undecided: a larger `indifference`, which needs no further "
                "run, may decide it."
            )


def _priced(
    text: str, more: Mapping[Point, int], seconds: Mapping[Point, float], study: Study
) -> Step:
    """The step with what so many more runs of these points take, of so many seconds each."""
    prices = {run.spec.point: run.usd_per_node_hour for run in study.manifest.runs}
    runs = sum(more.values())
    duration_s = sum(number * seconds[point] for point, number in more.items())
    node_hours = sum(n * point.nodes * seconds[point] / 3600 for point, n in more.items())
    usd = [
        platforms.run_cost_usd(prices[point], point.nodes, number * seconds[point])
        for point, number in more.items()
    ]
    known = [each for each in usd if each is not None]
    cost = sum(known) if len(known) == len(usd) else None
    dollars = "" if cost is None else f", {_dollars(cost)}"
    said = (
        f"{text}: {runs} more run{'s' * (runs != 1)}, about {_about(duration_s)} one after the "
        f"other ({node_hours:.2g} node-hours{dollars})."
    )
    return Step(said, runs, duration_s, node_hours, cost)


def _dollars(cost: float) -> str:
    return "less than $0.01" if 0 < cost < 0.01 else f"${cost:.2f}"


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def _durations_s(study: Study) -> dict[Point, float]:
    """The median wall time in seconds of the valid runs of each point that has any.

    Of a run that went on from a checkpoint it is that of a part.
    """
    valid = study.runs[study.runs["status"] == RunState.OK]
    valid = valid.dropna(subset=["wall_time_s", "execution_time_s"])
    by_point: dict[Point, list[float]] = {}
    for point, seconds in zip(points_of(valid), valid["wall_time_s"].tolist(), strict=True):
        by_point.setdefault(point, []).append(seconds)
    return {point: median(times) for point, times in by_point.items()}


def _prices(study: Study) -> Iterator[Step]:
    unpriced = {run.spec.point for run in study.manifest.runs if run.usd_per_node_hour is None}
    measured = [row for row in study.points if row["runs"] > 0]
    names = dict.fromkeys(row["platform"] for row in measured if point_of(row) in unpriced)
    if names:
        platforms = listed([f"`{name}`" for name in names])
        yield Step(f"Give {platforms} a `usd_per_node_hour` under `platforms`, for costs.")


def page(table: pd.DataFrame, study: Study) -> str:
    """The page next_steps.md."""
    steps: Sequence[str] = [f"- {row['text']}" for row in rows_of(table)]
    return "\n".join(["# What to do next\n", *(steps or ["Nothing: all planned runs count."]), ""])
