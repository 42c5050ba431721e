"""What holds a configuration back: input, computation, slower ranks or communication.

One row per point whose recipe asks for it, from the records of its valid runs; and ranks that
compute longer than the others in several runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pandas as pd

from tfscaling.conclusions.evidence import Study
from tfscaling.record import run_record
from tfscaling.record.run_record import Attribution, StepParts
from tfscaling.spec.config import POINT_AXES
from tfscaling.spec.run_spec import Point
from tfscaling.tables.display import TextTable, cell, of_points
from tfscaling.tables.estimates import (
    CONFIDENCE,
    RUNS_FOR_INTERVAL,
    median_interval,
    median_rank,
)
from tfscaling.tables.significance import INCONCLUSIVE, SUPPORTED, TOO_FEW
from tfscaling.tables.table_rows import Row, point_of, points_of

#: A rank is slow if it computes this many times as long as the median rank, in every run.
RATIO_MIN = 1.3


class RunRanks(NamedTuple):
    """How the ranks of a run differ; `straggler_ratio` is the slowest over the median one's."""

    replicas: int
    straggler_ratio: float
    slowest_rank: int
    slowest_host: str


def find(
    runs: pd.DataFrame, points: Collection[Point] | None = None
) -> Iterator[tuple[Point, str, str, int]]:
    """(point, sentence, support, comparisons) of each point of which one rank was slow in each run.

    That the same of R ranks that are alike is the slowest in each of n runs has the probability
    1 / R**(n - 1). It is supported if that is rare among all points with several ranks; with few
    runs it is chance. `points`: those to look at, all if not given.
    """
    groups = _by_point(runs)
    if points is not None:
        groups = {point: own for point, own in groups.items() if point in points}
    ranks_of = {point: _ranks(point, own[0].replicas) for point, own in groups.items()}
    comparisons = sum(
        ranks_of[point] > 1 and len(own) >= RUNS_FOR_INTERVAL for point, own in groups.items()
    )
    for point, own in groups.items():
        ratios = [run.straggler_ratio for run in own]
        ranks = {run.slowest_rank for run in own}
        hosts = list(dict.fromkeys(run.slowest_host for run in own))
        if len(ranks) > 1 or min(ratios) < RATIO_MIN:
            continue
        low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        ratio = low if low == high else f"{low} to {high}"
        where = f"on {hosts[0]}" if len(hosts) == 1 else f"on {len(hosts)} hosts"
        made = "its only run" if len(own) == 1 else f"all {len(own)} runs"
        text = (
            f"Rank {int(ranks.pop())} {where} computes {ratio} times as long as the median rank, "
            f"in {made}: the others wait for it at each step."
        )
        support = TOO_FEW
        if len(own) >= RUNS_FOR_INTERVAL:
            by_chance = comparisons * ranks_of[point] ** (1.0 - len(own))
            support = SUPPORTED if by_chance <= 1 - CONFIDENCE else INCONCLUSIVE
        if support == INCONCLUSIVE:
            text += f" Among {comparisons} points with several ranks that can be chance."
        yield point, text, support, comparisons


def _by_point(runs: pd.DataFrame) -> dict[Point, list[RunRanks]]:
    """The valid runs of each point whose ranks' computation was measured."""
    valid = runs[(runs["status"] == "ok") & runs["straggler_ratio"].notna()]
    columns = (valid[name].tolist() for name in RunRanks._fields)
    found: dict[Point, list[RunRanks]] = {}
    for point, *values in zip(points_of(valid), *columns, strict=True):
        found.setdefault(point, []).append(RunRanks(*values))
    return found


def _ranks(point: Point, replicas: int) -> int:
    """How many ranks train."""
    return int(replicas) // max(1, point.geometry.gpus_per_task)


#: Parts of a step, in the order in which they are shown.
PARTS = ("input", "computation", "stragglers", "communication")
_ENDS = ("", "_low", "_high")
COLUMNS = (
    *POINT_AXES,
    *("devices", "runs", "rounds", "step_time_s"),
    *(f"{part}_share{end}" for part in PARTS for end in _ENDS),
    *(f"{part}_largest" for part in PARTS),
    *("input_rank", "input_host", "held_back_by", "text"),
)
#: Parts that only several replicas can have.
_OF_SEVERAL = ("stragglers", "communication")
#: What a part is called in a sentence.
_WORDS = {
    "input": "input",
    "computation": "computation",
    "stragglers": "waiting for slower ranks",
    "communication": "communication",
}
#: A share of a step of this size is not worth a word.
SMALL_SHARE = 0.1
NOTES = (
    "Measured after the training, by blocks of steps on the same ranks in random order: with real "
    "input and on a batch that is there already, with all-reduce and update and without. "
    "Computation is forward and backward pass of the median rank (of an even number the faster of "
    "the two in the middle), stragglers what the slowest rank takes above that. Input is what real "
    "input adds to a step, communication what all-reduce and update add, each the mean of with and "
    "without the other: what goes on at the same time is shared by both.",
    "Shares are medians over the rounds of all runs of a point, in brackets with their "
    f"{CONFIDENCE:.0%} interval. A part holds a step back if it is the largest of so many rounds "
    f"that this is no chance ({CONFIDENCE:.0%}). Nothing but computation holds it back where that "
    f"is more than {1 - SMALL_SHARE:.0%} of a step by the whole interval. Rounds of one run share "
    "its machines: whether other runs differ only other runs show.",
    "A pipeline that has more than twenty batches of its own ready (prefetch) looks better here "
    "than in the training: `input_wait_s` is measured there.",
)


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per point that was measured so; no rows if none was."""
    asked = {run.spec.point: run.spec for run in study.manifest.runs if run.spec.recipe.attribution}
    found: dict[Point, list[Attribution]] = {}
    if asked:
        valid = study.runs[study.runs["status"] == "ok"]
        for point, path in zip(points_of(valid), valid["record"], strict=True):
            if point in asked and (measured := _measured(Path(path))) is not None:
                found.setdefault(point, []).append(measured)
    devices = {point_of(row): row["devices"] for row in study.points}
    rows = [
        _row(point, own, str(asked[point].dataset)) | {"devices": devices[point]}
        for point, own in found.items()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _measured(path: Path) -> Attribution | None:
    """What a run measured; None if its record is not there any more."""
    try:
        record = run_record.read(path)
    except run_record.RecordError:
        return None
    return record.metrics.attribution if record else None


def _row(point: Point, measured: Sequence[Attribution], dataset: str) -> Row:
    rounds = [_seconds(each) for attribution in measured for each in attribution.rounds]
    shares = {part: _share([each[part] / sum(each.values()) for each in rounds]) for part in PARTS}
    leads = Counter(max(each, key=lambda part: each[part]) for each in rounds)
    longest = max(measured, key=lambda each: median(part.input_s for part in each.rounds))
    row: Row = {**point.axes, "runs": len(measured), "rounds": len(rounds)}
    row["step_time_s"] = median(sum(each.values()) for each in rounds)
    for part, share in shares.items():
        if part in _OF_SEVERAL and not any(each[part] for each in rounds):
            continue  # a single replica has none
        row |= {f"{part}_share{end}": value for end, value in zip(_ENDS, share, strict=True)}
    row |= {f"{part}_largest": leads[part] for part in PARTS}
    row |= {"input_rank": longest.input_rank, "input_host": longest.input_host}
    largest = _largest(leads)
    text = " or ".join(f"{_WORDS[part]} ({_percent(shares[part])})" for part in largest)
    others = sorted(set(shares) - set(largest), key=lambda part: -shares[part][0])
    more = [f"{_WORDS[p]} ({shares[p][0]:.0%})" for p in others if shares[p][0] > SMALL_SHARE]
    if largest == ["computation"] and (shares["computation"][1] or 0.0) > 1 - SMALL_SHARE:
        text = f"nothing but {text}"
    elif len(largest) == 1 and more:
        text = f"mostly {text}, then {', '.join(more)}"
    if "input" in largest:
        rank = f"rank {longest.input_rank} on {longest.input_host}"
        text += f"; the input is {dataset}, slowest on {rank}"
    return row | {"held_back_by": " or ".join(largest), "text": f"Held back by {text}."}


def _seconds(parts: StepParts) -> dict[str, float]:
    """Part → its seconds of a step."""
    return {part: getattr(parts, f"{part}_s") for part in PARTS}


def _share(of_rounds: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The median with its interval, which few rounds do not have."""
    return median(of_rounds), *(median_interval(of_rounds) or (None, None))


def _largest(leads: Counter[str]) -> list[str]:
    """The part that is the largest of a step, by how many rounds it is the largest of.

    Where chance is not ruled out it and the next one, with all that lead as often as chance may
    have it, the likeliest first.
    """
    (first, led), *others = leads.most_common()
    rank = median_rank(leads.total()) or 1
    if leads.total() - led < rank and leads.total() >= RUNS_FOR_INTERVAL:
        return [first]
    return [first, *(part for n, (part, of) in enumerate(others) if n == 0 or of >= rank)]


def _percent(share: tuple[float, float | None, float | None]) -> str:
    value, low, high = share
    return f"{value:.0%} of a step" + ("" if low is None else f", {low:.0%} to {high:.0%}")


def as_text(table: pd.DataFrame) -> TextTable:
    """`table` for people: shares in percent with their ranges."""
    none = "Not measured: no recipe of the grid has `attribution: true`."
    return of_points(table, "What holds it back", _cells, NOTES, none)


def _cells(row: Row, axes: Sequence[str]) -> dict[str, str]:
    cells = {axis: cell(axis, row) for axis in axes}
    cells |= {"runs": str(row["runs"]), "rounds": str(row["rounds"])}
    cells["step_time_s"] = f"{row['step_time_s']:.5f}"
    for part in PARTS:
        value, low, high = (row[f"{part}_share{end}"] for end in _ENDS)
        cells[part] = "" if pd.isna(value) else f"{value:.0%}"
        cells[part] += "" if pd.isna(low) else f" ({low:.0%}–{high:.0%})"
    return cells | {"what holds it back": row["text"]}
