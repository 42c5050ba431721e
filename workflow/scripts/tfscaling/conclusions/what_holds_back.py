"""What limits a configuration: the parts of a step, and slow ranks.

Tables and sentences per point, from its valid runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import Annotated

import pandas as pd

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import (
    CONFIDENCE,
    RUNS_FOR_INTERVAL,
    median_interval,
    median_rank,
)
from tfscaling.estimation.samples import INCONCLUSIVE, SUPPORTED, TOO_FEW
from tfscaling.record.metrics import NAN
from tfscaling.record.run_states import RunState
from tfscaling.study.run_spec import Point
from tfscaling.tables.display import TextTable
from tfscaling.tables.row_types import Column, ConfigurationRow, RunRow, columns
from tfscaling.tables.row_values import axes_of, by_point, is_known, point_of
from tfscaling.tables.table_files import frame

#: A rank is slow if it computes this many times as long as the median rank, in every run.
RATIO_MIN = 1.3
#: Parts of a step, in the order in which they are shown.
PARTS = ("input", "computation", "stragglers", "communication")
_ENDS = ("", "_low", "_high")
_SHARES = {f"{part}_share{end}": Column() for part in PARTS for end in _ENDS}
_LARGEST = {f"{part}_largest": Column() for part in PARTS}


class AttributionRow(ConfigurationRow):
    """The parts of a step of a configuration, over its valid runs.

    `shares` of the step are medians with their intervals, by `<part>_share<end>`. `largest` is in
    how many runs each part, `<part>_largest`, is the largest one.
    """

    runs: int
    step_time_s: float
    shares: Annotated[dict[str, float], _SHARES]
    largest: Annotated[dict[str, int], _LARGEST]
    held_back_by: str


COLUMNS = tuple(columns(AttributionRow))


def table(study: Study) -> pd.DataFrame:
    """Return one `AttributionRow` per configuration whose steps were measured in parts."""
    valid = [run for run in study.run_rows if run.status == RunState.OK]
    measured = by_point(run for run in valid if is_known(run.synchronisation_time_s))
    return frame(AttributionRow, [_row(runs) for runs in measured.values()])


def _parts(run: RunRow) -> dict[str, float]:
    """Part → its seconds of a step of the run; a single replica neither waits nor communicates."""
    input_s = run.input_wait_s if is_known(run.input_wait_s) else 0.0
    computation_s, rest_s = run.compute_time_s, run.synchronisation_time_s
    if run.replicas == 1:
        return {"input": input_s, "computation": computation_s + rest_s}
    stragglers_s = min(rest_s, (run.straggler_ratio - 1.0) * computation_s)
    times_s = input_s, computation_s, stragglers_s, rest_s - stragglers_s
    return dict(zip(PARTS, times_s, strict=True))


def _row(runs: Sequence[RunRow]) -> AttributionRow:
    """Return the row of a configuration by its valid runs."""
    of_runs = [*map(_parts, runs)]
    leads = Counter(max(parts, key=parts.__getitem__) for parts in of_runs)
    shares: dict[str, float] = {}
    for part in of_runs[0]:
        own = [parts[part] / sum(parts.values()) for parts in of_runs]
        share = (median(own), *(median_interval(own) or (NAN, NAN)))
        shares |= {f"{part}_share{end}": value for end, value in zip(_ENDS, share, strict=True)}
    return AttributionRow(
        **axes_of(runs[0]),
        runs=len(runs),
        step_time_s=median(sum(parts.values()) for parts in of_runs),
        shares=shares,
        largest={f"{part}_largest": leads[part] for part in PARTS},
        held_back_by=" or ".join(_largest(leads)),
    )


def _largest(leads: Counter[str]) -> list[str]:
    """Return the part of a step that is largest in most runs, as a list of one.

    If chance cannot explain that lead away, the list also has the next part and all parts that may
    lead as often by chance, the likeliest first.
    """
    (first, led), *others = leads.most_common()
    rank = median_rank(leads.total()) or 1
    if leads.total() - led < rank and leads.total() >= RUNS_FOR_INTERVAL:
        return [first]
    return [first, *(part for n, (part, of) in enumerate(others) if n == 0 or of >= rank)]


def as_text(table: pd.DataFrame) -> TextTable:
    """`table` for people: shares in percent with their ranges."""
    none = "Not measured: only the workflow's own trainer without parameter servers measures this."
    notes = shown.notes("attribution")
    return shown.text_table("Bottleneck analysis", table, AttributionRow, _cells, notes, none)


def _cells(row: AttributionRow) -> dict[str, str]:
    cells = {"runs": str(row.runs), "step_time_s": f"{row.step_time_s:.5f}"}
    for part in PARTS:
        value, low, high = (row.shares.get(f"{part}_share{end}", NAN) for end in _ENDS)
        cells[part] = f"{value:.0%}" if is_known(value) else ""
        cells[part] += f" ({low:.0%}–{high:.0%})" if is_known(low) else ""
    return cells | {"what holds it back": row.held_back_by}


def slow_ranks(
    runs: Sequence[RunRow], points: Collection[Point]
) -> Iterator[tuple[Point, str, str, int]]:
    """(point, sentence, support, comparisons) of `points` with one rank that was slow in each run.

    `straggler_ratio` of a run is the time of its slowest rank over the time of the median rank.
    If R ranks are equal, one rank is the slowest in each of n runs with the probability 1 / R**(n -
    1). It is supported if that is rare among all points with several ranks; with few runs it is
    chance.
    """
    valid = (r for r in runs if r.status == RunState.OK and is_known(r.straggler_ratio))
    groups = by_point(run for run in valid if point_of(run) in points)
    ranks_of = {
        point: (own[0].replicas or 1) // max(1, point.geometry.gpus_per_task)
        for point, own in groups.items()
    }
    comparisons = sum(
        ranks_of[point] > 1 and len(own) >= RUNS_FOR_INTERVAL for point, own in groups.items()
    )
    for point, own in groups.items():
        ratios = [run.straggler_ratio for run in own]
        ranks = {run.slowest_rank for run in own}
        if len(ranks) > 1 or min(ratios) < RATIO_MIN:
            continue
        support = TOO_FEW
        if len(own) >= RUNS_FOR_INTERVAL:
            by_chance = comparisons * ranks_of[point] ** (1.0 - len(own))
            support = SUPPORTED if by_chance <= 1 - CONFIDENCE else INCONCLUSIVE
        text = shown.line(
            "slow_rank",
            rank=ranks.pop(),
            hosts=list(dict.fromkeys(run.slowest_host for run in own)),
            low=f"{min(ratios):.2f}",
            high=f"{max(ratios):.2f}",
            runs=len(own),
            comparisons=comparisons if support == INCONCLUSIVE else 0,
        )
        yield point, text, support, comparisons
