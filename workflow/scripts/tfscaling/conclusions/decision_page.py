"""The page decision.md: choices, the points that no other beats, what is open."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tfscaling.conclusions import decision
from tfscaling.conclusions.evidence import Study, ineligible_text, remark, split
from tfscaling.record.metrics import QUALITY
from tfscaling.record.run_states import RunState
from tfscaling.spec.config import POINT_AXES
from tfscaling.tables import display
from tfscaling.tables.comparison import OF_ALL_RUNS, SPREAD
from tfscaling.tables.display import (
    TextTable,
    cell,
    counted,
    headed,
    listed,
    point_name,
    quality_name,
    varying,
)
from tfscaling.tables.estimates import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.significance import INCONCLUSIVE, pareto_set
from tfscaling.tables.table_rows import (
    QUALITY_COLUMNS,
    Row,
    is_known,
    is_projected,
    point_of,
    rows_of,
)

_WEIGHED = ("execution_time_s", "cost_usd", QUALITY)
#: Status of points without a valid run that could have one → words for one, for several.
_ABSENT = {
    "diverged": ("diverged in all its runs", "diverged in all their runs"),
    "failed": ("failed", "failed"),
    "unfinished": ("is unfinished", "are unfinished"),
    "stale": ("is stale", "are stale"),
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


def pareto(study: Study) -> pd.DataFrame:
    """The points that no other of the same work beats in time, cost and quality together.

    Points that may not be compared take no part. Medians are compared; equal points beat each other
    in nothing. Cost takes part only where every point of the work with a time has a price. Columns
    are those of the comparison, with intervals.
    """
    kept: list[Row] = []
    for rows in study.works.values():
        measured, _ = split(rows, study.samples)
        names = _weighed(measured)
        known = [row for row in measured if all(is_known(row[name]) for name in names)]
        kept += [known[position] for position in pareto_set(known, names)]
    shown = [name for name in SPREAD if name in (*_WEIGHED, *OF_ALL_RUNS)]
    ends = [f"{name}_{end}" for name in shown for end in ("min", "max", "low", "high")]
    runs = ["runs", "runs_timed", "runs_asked"]
    columns = [*POINT_AXES, "platform_title", *runs, *shown, *QUALITY_COLUMNS, *ends]
    return pd.DataFrame(kept, columns=columns)


def _weighed(measured: Sequence[Row]) -> list[str]:
    """The metrics that decide who beats whom: no cost without prices, no quality of short runs."""
    out: set[str] = set()
    if not all(is_known(row["cost_usd"]) for row in measured if row["runs_timed"] > 0):
        out.add("cost_usd")
    if measured and all(map(is_projected, measured)):
        out.add(QUALITY)
    return [name for name in _WEIGHED if name not in out]


def table(study: Study) -> pd.DataFrame:
    """One row for each choice: see `decision.of_choices`."""
    return decision.of_choices(decision.decide(study))


def page(table: pd.DataFrame, study: Study) -> str:
    """The page decision.md of `table`: choices, Pareto set, what would change them."""
    start = "Nothing is measured yet." if table.empty else rule(study.indifference)
    parts = ["# Which point to take", start]
    for work, choices in table.groupby("work", sort=False):
        named = zip(choices["title"], choices["support"], choices["text"], strict=True)
        lines = [f"- **{title}** ({support}): {text}" for title, support, text in named]
        parts += [f"## {work}", "\n".join(lines).replace("<", "\\<")]
    parts += [] if table.empty else [display.markdown(_as_text(study), 2).rstrip()]
    parts += ["## What would change this", _open(table, study).replace("<", "\\<")]
    return "\n\n".join(parts) + "\n"


def _as_text(study: Study) -> TextTable:
    best, samples, points = pareto(study), study.samples, study.works
    vary = varying(study.points)  # one table for all tasks
    names = {
        point_of(row): point_name(row, vary) + remark(row, samples)
        for rows in points.values()
        for row in rows
    }
    columns = [name for name in SPREAD if name in best and best[name].notna().any()]
    heads = headed(best, ["runs", *columns])
    rows = [[names[point_of(row)], *(cell(name, row) for name in heads)] for row in rows_of(best)]
    measured = [split(rows, samples)[0] for rows in points.values()]
    priced = all("cost_usd" in _weighed(rows) for rows in measured)
    words = ["time", *["cost"] * priced]
    if not measured or any(QUALITY in _weighed(rows) for rows in measured):
        words.append(quality_name(best))
    what = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    notes = ["Medians are compared, so the intervals in brackets may overlap."]
    if not priced:
        notes.append("Cost takes no part where a measured point has no price.")
    notes += [ineligible_text(study.ineligible, varying(study.points))] if study.ineligible else []
    title = f"Points that no other beats in {what} together"
    return TextTable.of(title, ["point", *heads.values()], rows, notes)


def _open(table: pd.DataFrame, study: Study) -> str:
    """What is not known yet: points with too few runs, failed or missing, or alike."""
    few: list[str] = []
    few_timed: list[str] = []
    searched = {point for search in study.searches.values() for point in search.points.values()}
    absent: dict[str, list[str]] = {status: [] for status in _ABSENT}
    for rows in study.works.values():
        vary = varying(rows)
        for row in rows:
            point, name = point_of(row), point_name(row, vary)
            lacking = RUNS_FOR_INTERVAL - study.samples.statuses(point)[RunState.DIVERGED]
            if 0 < row["runs"] < lacking and point not in searched:
                few.append(f"{name}, {cell('runs', row)}")
            elif row["runs"] > 0 and row["runs_timed"] < lacking and point not in searched:
                few_timed.append(f"{name}, {row['runs_timed']} of {row['runs']}")
            elif row["status"] in absent:
                absent[row["status"]].append(name)
    fewer = f"fewer than {RUNS_FOR_INTERVAL} runs"
    groups = [(few, f"has {fewer}", f"have {fewer}")]
    fewer += " with times that count"
    groups += [(few_timed, f"has {fewer}", f"have {fewer}")]
    groups += [(names, *_ABSENT[status]) for status, names in absent.items()]
    sentences = [
        f"{counted(names, one, several)}: {listed(names)}."
        for names, one, several in groups
        if names
    ]
    if searched:
        sentences.append("Points of a search have as many runs as it needed of them.")
    if (table["support"] == INCONCLUSIVE).any():
        sentences.append("More runs may decide what is not decided now.")
    enough = (
        f"Nothing that was planned is missing, and each configuration has {RUNS_FOR_INTERVAL} runs "
        "or more: only configurations outside the grid or another indifference would."
    )
    return " ".join(sentences) or ("No point is to be run." if table.empty else enough)
