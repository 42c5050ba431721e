"""Bottlenecks of a configuration: the parts of a training step, and slow ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import Annotated, NamedTuple

import pandas as pd

from tfscaling.conclusions import rendering
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
from tfscaling.tables.row_values import axes_and_devices, group_by_point, is_known, point_of
from tfscaling.tables.table_files import to_frame

#: A rank is slow if it computes this many times as long as the median rank, in every run.
SLOW_RANK_RATIO = 1.3
#: Parts of a training step, in the order of the tables.
STEP_PARTS = ("input", "computation", "stragglers", "communication")
_ENDS = ("", "_low", "_high")
_SHARES = {f"{part}_share{end}": Column() for part in STEP_PARTS for end in _ENDS}
_LARGEST = {f"{part}_largest": Column() for part in STEP_PARTS}


class AttributionRow(ConfigurationRow):
    """The parts of a configuration's training step, over its valid runs.

    Attributes:
        step_time_s: Time of a step in seconds.
        shares: Median share of each part in the step, with its interval: `<part>_share<end>`.
        largest: In how many runs each part is the largest: `<part>_largest`.
        held_back_by: The parts that are the bottleneck.
    """

    runs: int
    step_time_s: float
    shares: Annotated[dict[str, float], _SHARES]
    largest: Annotated[dict[str, int], _LARGEST]
    held_back_by: str


COLUMNS = tuple(columns(AttributionRow))


def table(study: Study) -> pd.DataFrame:
    """Return one `AttributionRow` for each configuration whose steps were measured in parts."""
    valid = [run for run in study.run_rows if run.status == RunState.OK]
    measured = group_by_point(run for run in valid if is_known(run.synchronisation_time_s))
    return to_frame(AttributionRow, [_attribution_row(runs) for runs in measured.values()])


def _step_parts(run: RunRow) -> dict[str, float]:
    """Return part → its seconds in a step of the run.

    A single replica neither waits for stragglers nor communicates.
    """
    input_s = run.input_wait_s if is_known(run.input_wait_s) else 0.0
    computation_s, rest_s = run.compute_time_s, run.synchronisation_time_s
    if run.replicas == 1:
        return {"input": input_s, "computation": computation_s + rest_s}
    stragglers_s = min(rest_s, (run.straggler_ratio - 1.0) * computation_s)
    times_s = input_s, computation_s, stragglers_s, rest_s - stragglers_s
    return dict(zip(STEP_PARTS, times_s, strict=True))


def _attribution_row(runs: Sequence[RunRow]) -> AttributionRow:
    """Return the row of a configuration: each part's share of the step time over its `runs`."""
    of_runs = [*map(_step_parts, runs)]
    leads = Counter(max(parts, key=parts.__getitem__) for parts in of_runs)
    shares: dict[str, float] = {}
    for part in of_runs[0]:
        own = [parts[part] / sum(parts.values()) for parts in of_runs]
        share = (median(own), *(median_interval(own) or (NAN, NAN)))
        shares |= {f"{part}_share{end}": value for end, value in zip(_ENDS, share, strict=True)}
    return AttributionRow(
        **axes_and_devices(runs[0]),
        runs=len(runs),
        step_time_s=median(sum(parts.values()) for parts in of_runs),
        shares=shares,
        largest={f"{part}_largest": leads[part] for part in STEP_PARTS},
        held_back_by=" or ".join(_likely_bottlenecks(leads)),
    )


def _likely_bottlenecks(leads: Counter[str]) -> list[str]:
    """Return the parts of a step that may be its bottleneck, the likeliest first.

    The first part is the largest one in most runs. It is the only one unless its lead may be
    chance.

    Args:
        leads: Part → number of runs in which it is the largest.
    """
    (first, led), *others = leads.most_common()
    rank = median_rank(leads.total()) or 1
    if leads.total() - led < rank and leads.total() >= RUNS_FOR_INTERVAL:
        return [first]
    return [first, *(part for n, (part, of) in enumerate(others) if n == 0 or of >= rank)]


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table for the page: shares in percent with their ranges."""
    none = "Not measured: only the workflow's own trainer without parameter servers measures this."
    notes = rendering.render_notes("attribution")
    return rendering.make_text_table(
        "Bottleneck analysis", table, AttributionRow, _cells, notes, none
    )


def _cells(row: AttributionRow) -> dict[str, str]:
    """Return heading → text of each cell in a row of the page's table."""
    cells = {"runs": str(row.runs), "step_time_s": f"{row.step_time_s:.5f}"}
    for part in STEP_PARTS:
        value, low, high = (row.shares.get(f"{part}_share{end}", NAN) for end in _ENDS)
        cells[part] = f"{value:.0%}" if is_known(value) else ""
        cells[part] += f" ({low:.0%}–{high:.0%})" if is_known(low) else ""
    return cells | {"what holds it back": row.held_back_by}


class SlowRank(NamedTuple):
    """A configuration in which the same rank was slow in every run.

    Attributes:
        point: The configuration.
        text: The finding as a sentence.
        support: Level of support, one of `samples.WEAKEST_FIRST`.
        comparisons: Number of configurations that were tested together.
    """

    point: Point
    text: str
    support: str
    comparisons: int


def find_slow_ranks(runs: Sequence[RunRow], points: Collection[Point]) -> Iterator[SlowRank]:
    """Yield each configuration with one rank that was slow in every run.

    If R ranks are equal, one rank is the slowest in each of n runs with probability 1 / R**(n - 1).
    The finding is supported if this is improbable for all configurations together.

    Args:
        runs: The rows of all runs.
        points: The configurations to test.
    """
    valid = (r for r in runs if r.status == RunState.OK and is_known(r.straggler_ratio))
    groups = group_by_point(run for run in valid if point_of(run) in points)
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
        if len(ranks) > 1 or min(ratios) < SLOW_RANK_RATIO:
            continue
        support = TOO_FEW
        if len(own) >= RUNS_FOR_INTERVAL:
            by_chance = comparisons * ranks_of[point] ** (1.0 - len(own))
            support = SUPPORTED if by_chance <= 1 - CONFIDENCE else INCONCLUSIVE
        text = rendering.render_line(
            "slow_rank",
            rank=ranks.pop(),
            hosts=list(dict.fromkeys(run.slowest_host for run in own)),
            low=f"{min(ratios):.2f}",
            high=f"{max(ratios):.2f}",
            runs=len(own),
            comparisons=comparisons if support == INCONCLUSIVE else 0,
        )
        yield SlowRank(point, text, support, comparisons)
