"""What limits a configuration: the parts of a step, and slow ranks.

Tables and sentences per point, from the records of its valid runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from statistics import median

import pandas as pd

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.record import run_record
from tfscaling.record.run_record import Attribution, StepParts
from tfscaling.spec.config import POINT_AXES
from tfscaling.spec.run_spec import Point
from tfscaling.tables.display import TextTable
from tfscaling.tables.estimates import (
    CONFIDENCE,
    INCONCLUSIVE,
    RUNS_FOR_INTERVAL,
    SUPPORTED,
    TOO_FEW,
    median_interval,
    median_rank,
)
from tfscaling.tables.table_rows import Row, point_of, points_of, rows_of

#: A rank is slow if it computes this many times as long as the median rank, in every run.
RATIO_MIN = 1.3
#: Parts of a step, in the order in which they are shown.
PARTS = ("input", "computation", "stragglers", "communication")
_ENDS = ("", "_low", "_high")
COLUMNS = (
    *POINT_AXES,
    *("devices", "runs", "rounds", "step_time_s"),
    *(f"{part}_share{end}" for part in PARTS for end in _ENDS),
    *(f"{part}_largest" for part in PARTS),
    *("input_rank", "input_host", "held_back_by"),
)

#: A finding about a point: (point, sentence, support, comparisons).
Found = tuple[Point, str, str, int]


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per point whose recipe has `attribution: true`, if it was measured."""
    asked = {run.spec.point for run in study.manifest.runs if run.spec.recipe.attribution}
    found: dict[Point, list[Attribution]] = {}
    valid = study.runs[study.runs["status"] == "ok"] if asked else study.runs[:0]
    for point, path in zip(points_of(valid), valid["record"], strict=True):
        try:
            record = run_record.read(Path(path)) if point in asked else None
        except run_record.RecordError:
            continue  # a run that lost its record
        if record is not None and record.metrics.attribution is not None:
            found.setdefault(point, []).append(record.metrics.attribution)
    devices = {point_of(row): row["devices"] for row in study.points}
    rows = [_row(point, own) | {"devices": devices[point]} for point, own in found.items()]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(point: Point, measured: Sequence[Attribution]) -> Row:
    rounds = [_seconds(each) for attribution in measured for each in attribution.rounds]
    leads = Counter(max(each, key=each.__getitem__) for each in rounds)
    longest = max(measured, key=lambda each: median(part.input_s for part in each.rounds))
    row: Row = {**point.axes, "runs": len(measured), "rounds": len(rounds)}
    row["step_time_s"] = median(sum(each.values()) for each in rounds)
    for part in PARTS:
        row[f"{part}_largest"] = leads[part]
        # a single replica neither waits nor communicates
        if part in ("input", "computation") or any(each[part] for each in rounds):
            of_rounds = [each[part] / sum(each.values()) for each in rounds]
            share = (median(of_rounds), *(median_interval(of_rounds) or (None, None)))
            row |= {f"{part}_share{end}": value for end, value in zip(_ENDS, share, strict=True)}
    row |= {"input_rank": longest.input_rank, "input_host": longest.input_host}
    return row | {"held_back_by": " or ".join(_largest(leads))}


def _seconds(parts: StepParts) -> dict[str, float]:
    """Part → its seconds of a step."""
    return {part: getattr(parts, f"{part}_s") for part in PARTS}


def _largest(leads: Counter[str]) -> list[str]:
    """The part that is the largest of a step, by the number of rounds in which it leads.

    Where chance is not ruled out also the next part, and all that may lead as often by chance, the
    likeliest first.
    """
    (first, led), *others = leads.most_common()
    rank = median_rank(leads.total()) or 1
    if leads.total() - led < rank and leads.total() >= RUNS_FOR_INTERVAL:
        return [first]
    return [first, *(part for n, (part, of) in enumerate(others) if n == 0 or of >= rank)]


def as_text(table: pd.DataFrame) -> TextTable:
    """`table` for people: shares in percent with their ranges."""
    none = "Not measured: no recipe of the grid has `attribution: true`."
    notes = shown.notes("attribution")
    return shown.text_table("Bottleneck analysis", table, _cells, notes, none)


def _cells(row: Row) -> dict[str, str]:
    cells = {"runs": str(row["runs"]), "rounds": str(row["rounds"])}
    cells["step_time_s"] = f"{row['step_time_s']:.5f}"
    for part in PARTS:
        value, low, high = (row[f"{part}_share{end}"] for end in _ENDS)
        cells[part] = "" if pd.isna(value) else f"{value:.0%}"
        cells[part] += "" if pd.isna(low) else f" ({low:.0%}–{high:.0%})"
    cells["slowest input"] = f"rank {row['input_rank']} on {row['input_host']}"
    return cells | {"what holds it back": row["held_back_by"]}


def slow_ranks(runs: pd.DataFrame, points: Collection[Point] | None = None) -> Iterator[Found]:
    """The points, all or some, with one rank that was slow in each run.

    `straggler_ratio` of a run is the time of its slowest rank over the time of the median rank.
    If R ranks are equal, one rank is the slowest in each of n runs with the probability 1 / R**(n -
    1). It is supported if that is rare among all points with several ranks; with few runs it is
    chance.
    """
    valid = runs[(runs["status"] == "ok") & runs["straggler_ratio"].notna()]
    columns = ("replicas", "straggler_ratio", "slowest_rank", "slowest_host")
    groups: dict[Point, list[Row]] = {}
    for point, run in zip(points_of(valid), rows_of(valid, columns), strict=True):
        if points is None or point in points:
            groups.setdefault(point, []).append(run)
    ranks_of = {
        point: int(own[0]["replicas"]) // max(1, point.geometry.gpus_per_task)
        for point, own in groups.items()
    }
    comparisons = sum(
        ranks_of[point] > 1 and len(own) >= RUNS_FOR_INTERVAL for point, own in groups.items()
    )
    for point, own in groups.items():
        ratios = [run["straggler_ratio"] for run in own]
        ranks = {run["slowest_rank"] for run in own}
        if len(ranks) > 1 or min(ratios) < RATIO_MIN:
            continue
        support = TOO_FEW
        if len(own) >= RUNS_FOR_INTERVAL:
            by_chance = comparisons * ranks_of[point] ** (1.0 - len(own))
            support = SUPPORTED if by_chance <= 1 - CONFIDENCE else INCONCLUSIVE
        text = shown.line(
            "slow_rank",
            rank=int(ranks.pop()),
            hosts=list(dict.fromkeys(run["slowest_host"] for run in own)),
            low=f"{min(ratios):.2f}",
            high=f"{max(ratios):.2f}",
            runs=len(own),
            comparisons=comparisons if support == INCONCLUSIVE else 0,
        )
        yield point, text, support, comparisons
