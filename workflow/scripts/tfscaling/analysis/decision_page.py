"""The page decision.md: choices, the points that no other beats, what is open."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tfscaling.analysis.decision import Choice, varying, works
from tfscaling.analysis.eligibility import barred, remark, split, unfit_points
from tfscaling.records.metrics import METRICS
from tfscaling.records.run_states import RunState
from tfscaling.study.grid import POINT_AXES
from tfscaling.tables import formats
from tfscaling.tables.comparison import OF_ALL_RUNS, SPREAD
from tfscaling.tables.display import TextTable, cell
from tfscaling.tables.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.significance import INCONCLUSIVE, Samples, point_of
from tfscaling.tables.wording import Row, counted, listed, place

_WEIGHED = ("execution_time_s", "cost_usd", "test_accuracy")
#: Status of points without a valid run that could have one → what is said of one, of several.
_ABSENT = {
    "diverged": ("diverged in all its runs", "diverged in all their runs"),
    "failed": ("failed", "failed"),
    "unfinished": ("is unfinished", "are unfinished"),
    "stale": ("was run with other parameters", "were run with other parameters"),
    "missing": ("is missing", "are missing"),
}


def rule(indifference: float) -> str:
    """When a point is recommended."""
    return (
        f"“Use” stands only where a point is shown to be within {100 * indifference:g}% of the "
        "best of the same model and recipe (`comparison.indifference`), or to be the best, among "
        f"all points that can be compared: with {CONFIDENCE:.0%} for all comparisons of a choice "
        f"together. Below {RUNS_FOR_INTERVAL} runs nothing is decided."
    )


def pareto(comparison: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The points that no other of the same work beats in time, cost and test accuracy together.

    Points that may not be compared take no part. Medians are compared; equal points beat each other
    in nothing. Cost takes part only where every measured point of the work has a price. Columns are
    those of the comparison, with intervals.
    """
    kept: list[Row] = []
    samples = Samples(runs)
    for _, rows in works(comparison):
        measured, _ = split(rows, samples)
        names = _weighed(measured)
        known = [row for row in measured if all(pd.notna(row[name]) for name in names)]
        values = [
            [row[n] * (-1 if METRICS[n].direction == "higher" else 1) for n in names]
            for row in known
        ]
        best = [row for row, own in zip(known, values, strict=True) if not _is_beaten(own, values)]
        kept += sorted(best, key=lambda row: row["execution_time_s"])
    shown = [name for name in SPREAD if name in (*_WEIGHED, *OF_ALL_RUNS)]
    ends = [f"{name}_{end}" for name in shown for end in ("min", "max", "low", "high")]
    columns = [*POINT_AXES, "platform_title", "runs", "runs_asked", *shown, *ends]
    return pd.DataFrame(kept, columns=columns)


def _weighed(measured: Sequence[Row]) -> list[str]:
    """The metrics that decide who beats whom."""
    priced = all(pd.notna(row["cost_usd"]) for row in measured)
    return [name for name in _WEIGHED if name != "cost_usd" or priced]


def _is_beaten(own: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    return any(
        other != own and all(theirs <= mine for theirs, mine in zip(other, own, strict=True))
        for other in others
    )


def markdown(comparison: pd.DataFrame, runs: pd.DataFrame, choices: Sequence[Choice]) -> str:
    """The page decision.md: choices, Pareto set, what would change the decision."""
    start = rule(choices[0].indifference) if choices else "Nothing is measured yet."
    parts = ["# Which point to take", start]
    for work in dict.fromkeys(choice.work for choice in choices):
        own = [choice for choice in choices if choice.work == work]
        lines = [f"- **{c.title}** ({c.support}): {c.text}" for c in own]
        parts += [f"## {work}", "\n".join(lines).replace("<", "\\<")]
    parts += [formats.markdown(_shown(comparison, runs), 2).rstrip()] if choices else []
    parts += ["## What would change this", _open(comparison, runs, choices).replace("<", "\\<")]
    return "\n\n".join(parts) + "\n"


def _shown(comparison: pd.DataFrame, runs: pd.DataFrame) -> TextTable:
    best, samples = pareto(comparison, runs), Samples(runs)
    points = dict(works(comparison))
    names = {
        point_of(row): place(row, varying(rows)) + remark(row, samples)
        for rows in points.values()
        for row in rows
    }
    columns = [name for name in SPREAD if name in best and best[name].notna().any()]
    rows = [
        [names[point_of(row)], *(cell(name, row) for name in ("runs", *columns))]
        for row in best.to_dict("records")
    ]
    measured = [split(rows, samples)[0] for rows in points.values()]
    priced = all("cost_usd" in _weighed(rows) for rows in measured)
    what = "time, cost and test accuracy" if priced else "time and test accuracy"
    notes = ["Medians are compared, so the intervals in brackets may overlap."]
    if not priced:
        notes.append("Cost takes no part where a measured point has no price.")
    unfit = barred(unfit_points(comparison, samples))
    notes += [unfit] if unfit else []
    title = f"Points that no other beats in {what} together"
    return TextTable.of(title, ["point", "runs", *columns], rows, notes)


def _open(comparison: pd.DataFrame, runs: pd.DataFrame, choices: Sequence[Choice]) -> str:
    """What is not known yet: points with too few runs, failed or missing, or alike."""
    samples = Samples(runs)
    few: list[str] = []
    absent: dict[str, list[str]] = {status: [] for status in _ABSENT}
    for _, rows in works(comparison):
        also = varying(rows)
        for row in rows:
            ended = row["runs"] + samples.statuses(point_of(row))[RunState.DIVERGED]
            if row["runs"] > 0 and ended < RUNS_FOR_INTERVAL:
                few.append(f"{place(row, also)}, {cell('runs', dict(row))}")
            elif row["status"] in absent:
                absent[row["status"]].append(place(row, also))
    fewer = f"fewer than {RUNS_FOR_INTERVAL} runs"
    told = [(few, f"has {fewer}", f"have {fewer}")]
    told += [(names, *_ABSENT[status]) for status, names in absent.items()]
    said = [
        f"{counted(names, one, several)}: {listed(names)}." for names, one, several in told if names
    ]
    if any(choice.support == INCONCLUSIVE for choice in choices):
        said.append("More runs may decide what is not decided now.")
    enough = f"Every measured point has at least {RUNS_FOR_INTERVAL} runs, and none is missing."
    return " ".join(said) or (enough if choices else "No point is to be run.")
