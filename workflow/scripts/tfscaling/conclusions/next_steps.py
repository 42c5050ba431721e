"""What to do next, and what it takes: runs, time, node-hours, US dollars.

A run is taken to last as long as the median of its point's valid runs, as in the costed plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import msgspec
import pandas as pd

from tfscaling.conclusions.decision import DecisionRow
from tfscaling.conclusions.evidence import Study, split
from tfscaling.conclusions.shown import sentences
from tfscaling.record.metrics import NAN, number
from tfscaling.record.run_states import RERUN_STALE, RunState
from tfscaling.spec import platforms
from tfscaling.tables.comparison import OTHER_WORK
from tfscaling.tables.estimates import INCONCLUSIVE, RUNS_FOR_INTERVAL, TOO_FEW
from tfscaling.tables.rows import columns
from tfscaling.tables.table_rows import by_point, frame, is_known, is_projected, point_of, typed

#: Statuses of runs that another start of the sweep makes.
_TO_MAKE = (RunState.FAILED, RunState.UNFINISHED, RunState.MISSING)


class Step(msgspec.Struct):
    """`kind` and `text` say what to do and what for; `cost_usd` is NaN without a price."""

    kind: str
    text: str = ""
    runs: int = 0
    duration_s: float = 0.0
    node_hours: float = 0.0
    cost_usd: float = NAN


COLUMNS = tuple(columns(Step))


#: A step, and what its sentence names.
Found = tuple[Step, dict[str, Any]]


def table(study: Study, decision: pd.DataFrame) -> pd.DataFrame:
    """One `Step` per row, what helps most first; `decision` is the table of that name."""
    found = [*_unfinished(study), *_searches(study), *_not_compared(study)]
    found += [*_repeats(study, typed(DecisionRow, decision)), *_prices(study)]
    for step, named in found:
        values = msgspec.structs.asdict(step) | named
        step.text = sentences("next_step", study.points, study.samples, **values)
    return frame(Step, [step for step, _ in found])


def _unfinished(study: Study) -> Iterator[Found]:
    """Runs that another start makes, those made with other parameters, and those given up."""
    failed_often = (run for run in study.run_rows if run.failed_too_often)
    given_up = [run for run in failed_often if point_of(run) in study.searched]
    counts = Counter(run.status for run in study.run_rows)
    counts.subtract(run.status for run in given_up)
    to_make = {status: counts[status] for status in _TO_MAKE if counts[status]}
    if to_make:
        yield Step("unfinished", runs=sum(to_make.values())), {"counts": to_make}
    if counts[RunState.STALE]:
        yield Step("stale", runs=counts[RunState.STALE]), {"rerun_stale": RERUN_STALE}
    if given_up:
        failed = dict.fromkeys(map(point_of, given_up))
        rows = [row for row in study.points if point_of(row) in failed]
        yield Step("failing", runs=len(given_up)), {"points": rows}


def _searches(study: Study) -> Iterator[Found]:
    """Searches that need more runs, and what may decide one that ended undecided."""
    extra = {(run.spec.point, run.spec.repeat) for run in study.manifest.runs if run.extra_repeat}
    for work, search in study.searches.items():
        wanted = list(search.wanted())
        if not extra.isdisjoint(wanted):
            yield Step("search", runs=len(wanted)), {"due": len(search.decision.wanted)}
        if search.decision.has_ended and not search.decision.is_decided:
            named = {"work": work, "is_named": len(study.searches) > 1}
            yield Step("undecided search"), named


def _not_compared(study: Study) -> Iterator[Found]:
    """Configurations that trained different numbers of examples, and resumed runs."""
    others = [row for row, why in study.ineligible if why.startswith(OTHER_WORK)]
    if others:
        yield Step("work"), {"points": others}
    resumed = sum(row["runs"] - row["runs_timed"] for row in study.points)
    if resumed:
        yield Step("resumed"), {"resumed": resumed}


def _repeats(study: Study, decision: Sequence[DecisionRow]) -> Iterator[Found]:
    """Repeats for intervals, or twice as many where the intervals leave the answer open.

    Where some times are projected from short runs, these alone are repeated.
    """
    planned = Counter(run.spec.point for run in study.manifest.runs if not run.extra_repeat)
    # a run that resumed from a checkpoint has the wall time of its last attempt: it is left out
    valid = (run for run in study.run_rows if run.status == RunState.OK)
    timed = by_point(run for run in valid if is_known(run.wall_time_s + run.execution_time_s))
    durations_s = {point: median(run.wall_time_s for run in runs) for point, runs in timed.items()}
    is_short = any(map(is_projected, study.points))
    too_few = {row.work for row in decision if row.support == TOO_FEW}
    undecided = {row.work for row in decision if row.support == INCONCLUSIVE and not row.is_decided}
    for works, few in ((too_few, True), (undecided - too_few, False)):
        points = [
            point
            for work, rows in study.works.items()
            if work in works
            for row in split(rows, study.samples)[0]
            if (point := point_of(row)) in durations_s
            and point in planned
            and point not in study.searched
            and (is_projected(row) or not is_short)
        ]
        most = max((planned[point] for point in points), default=0)
        wanted = RUNS_FOR_INTERVAL if few else 2 * most
        if more := {point: wanted - planned[point] for point in points if planned[point] < wanted}:
            all_s = {point: number_of * durations_s[point] for point, number_of in more.items()}
            costs = (platforms.run_cost_usd(study.prices[p], p.nodes, s) for p, s in all_s.items())
            hours = sum(n * p.nodes * durations_s[p] / 3600 for p, n in more.items())
            usd, total_s = sum(map(number, costs)), sum(all_s.values())
            named = {"repeats": wanted, "few": few, "duration": _about(total_s)}
            yield Step("repeats", "", sum(more.values()), total_s, hours, usd), named


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def _prices(study: Study) -> Iterator[Found]:
    unpriced = {run.spec.point for run in study.manifest.runs if run.usd_per_node_hour is None}
    measured = [row for row in study.points if row["runs"] > 0]
    names = dict.fromkeys(f"`{row['platform']}`" for row in measured if point_of(row) in unpriced)
    if names:
        yield Step("price"), {"platforms": list(names)}


def page(table: pd.DataFrame, _: Study) -> str:
    """The page next_steps.md."""
    steps = [f"- {step.text}" for step in typed(Step, table)]
    return "\n".join(["# What to do next\n", *(steps or ["Nothing: all planned runs count."]), ""])
