"""This study against another (`compare_with`): point by point slower, faster or the same.

The times of both sweeps are estimated together (`tables.estimates`), and each point is compared
with itself in the other sweep. "Slower" and "faster" are Holm's (1979): the smallest probability of
chance must be below the m-th part of the error, the next below the (m-1)-th part, and so on to the
first that is not. All intervals hold together by Bonferroni, and "same" follows them. An interval
leaves out 1 where a difference is shown. No theorem covers all of it; benchmarks/regressions.py
simulates how often it is wrong.

A point with more than half of its runs failed is failing, whatever the times of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import pandas as pd

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Parameters, Study, Sweep, exclusion
from tfscaling.conclusions.shown import with_spread
from tfscaling.estimation.estimates import estimate
from tfscaling.estimation.intervals import CONFIDENCE, Array
from tfscaling.estimation.run_counts import SWEEP_RUNS
from tfscaling.record.metrics import NAN
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.study import run_spec
from tfscaling.study.run_spec import NO_PARAMETERS, Point, RunSpec
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import OTHER_WORK, is_same_work
from tfscaling.tables.display import TextTable, count, one_line, rounded
from tfscaling.tables.row_types import Column, ConfigurationRow, PointRow, RunRow, columns
from tfscaling.tables.row_values import axes_of, by_point, is_known, point_of
from tfscaling.tables.table_files import frame, typed

#: A number of runs or comparisons, null where there are none.
Count = Annotated[int | None, Column("runs", is_whole=True)]
SLOWER, FASTER, SAME, OPEN = "slower", "faster", "same", "undecided"
#: Verdict on a point with runs that count in the reference, and failed or diverged runs here.
LOST = "lost"
#: Verdict on a point with most runs failed or diverged here: `is_failing`.
FAILING = "failing"
NOT_COMPARED = "not compared"
#: Verdicts on points that are compared; the first ones end `snakemake regressions` with status 1.
REGRESSIONS = (SLOWER, LOST, FAILING)
DECIDED = (*REGRESSIONS, FASTER, SAME)
COMPARED = (*DECIDED, OPEN)
#: How two sweeps were made.
_FACTS = (*runs_table.ALIKE, "dataset_sha256")
#: Characters of a fact that are shown.
_WIDTH = 60


@dataclass(frozen=True)
class Change:
    """Time after over time before, above 1 where it is slower after; its interval; a verdict."""

    ratio: float
    low: float
    high: float
    verdict: str


def judge(before: Array, after: Array, indifference: float) -> list[Change]:
    """Return the change of each point between two sweeps.

    Slower or faster: the interval of the ratio excludes 1, and the ratio is beyond the
    indifference. Unchanged: the complete interval is within the indifference. A point that differs
    by less than the indifference is undecided unless its interval is within it, too. All verdicts
    of a kind hold together with CONFIDENCE.

    Args:
        before: Seconds of the earlier sweep, shape (points, repeats); NaN where no run exists. Each
            point has SWEEP_RUNS runs or more.
        after: Seconds of the later sweep, in the same shape.
        indifference: Fraction below which a difference does not matter.
    """
    points = len(before)
    values = np.full((2 * points, before.shape[1] + after.shape[1]), np.nan)
    # repeats of two sweeps are no blocks of both: they ran at other times
    values[:points, : before.shape[1]], values[points:, before.shape[1] :] = before, after
    found = estimate(values)
    first = np.arange(points)
    middle = found.location[first + points] - found.location[first]
    is_shown = holm(found.chance(first, first + points))
    low, high = found.between(first, first + points, (1 - CONFIDENCE) / 2 / points)
    # a shown difference narrows the interval at 1 (Strassburger and Bretz 2008)
    low = np.where(is_shown & (middle > 0), np.maximum(low, 0), low)
    high = np.where(is_shown & (middle < 0), np.minimum(high, 0), high)
    limit = float(np.log1p(indifference))
    is_same = (low >= -limit) & (high <= limit)
    verdicts = np.select(
        [is_shown & (middle > limit), is_shown & (middle < -limit), is_same],
        [SLOWER, FASTER, SAME],
        OPEN,
    )
    logs = np.exp([middle, low, high])
    return [Change(*each) for each in zip(*logs.tolist(), verdicts.tolist(), strict=True)]


def holm(chance: Array) -> Array:
    """For which points a difference is shown, by their probabilities of chance: (points,)."""
    order = np.argsort(chance, kind="stable")
    refused = chance[order] > (1 - CONFIDENCE) / (len(chance) - np.arange(len(chance)))
    is_shown = np.empty(len(chance), bool)
    is_shown[order] = ~np.logical_or.accumulate(refused)
    return is_shown


class SweepRow(ConfigurationRow):
    """A configuration of this study, of the reference, or of both.

    `runs` and `reference_runs` are the valid runs with a time; `runs_failed` of the `runs_ended`
    failed or diverged. `time_ratio` is the time here over the time in the reference, above 1 where
    it is slower here, with its interval for all `comparisons` together. `differs` names parameters
    and facts that differ between the runs of the two. Numbers are null where only one of the
    studies has the configuration, and ratios where the times are not compared.
    """

    inherited_after: ClassVar[str] = "reference"

    reference: str
    verdict: str
    reference_runs: Count = None
    runs: Count = None
    reference_execution_time_s: float = NAN
    execution_time_s: float = NAN
    reference_runs_failed: Count = None
    reference_runs_ended: Count = None
    runs_failed: Count = None
    runs_ended: Count = None
    time_ratio: float = NAN
    time_ratio_low: float = NAN
    time_ratio_high: float = NAN
    comparisons: Count = None
    indifference: float = 0.0
    reason: str = ""
    differs: str | None = None


COLUMNS = tuple(columns(SweepRow))


class Side:
    """A point in one of the two studies: its row of the comparison, and the rows of its runs."""

    def __init__(self, row: PointRow, runs: Sequence[RunRow]) -> None:
        self.row = row
        self.statuses = Counter[str](run.status for run in runs)
        self.valid = [run for run in runs if run.status == RunState.OK]
        #: Without runs that resumed from a checkpoint, which have no time.
        self.timed = [run for run in self.valid if is_known(run.execution_time_s)]
        #: Runs that failed or diverged, and all that ended.
        self.bad = sum(self.statuses[each] for each in (RunState.FAILED, *RESULTS[1:]))
        self.ended = self.bad + len(self.valid)


def table(study: Study) -> pd.DataFrame:
    """Return one `SweepRow` per configuration of either study; none without a reference."""
    reference = study.reference
    if reference is None:
        return frame(SweepRow, [])
    here, there = _sides(study), _sides(reference)
    specs = {run.spec.point: run.spec for run in study.manifest.runs}
    rows: list[SweepRow] = []
    compared: list[tuple[SweepRow, Side, Side]] = []
    for point in dict.fromkeys((*here, *there)):
        own, other = here.get(point), there.get(point)
        row = SweepRow(
            **axes_of((own or there[point]).row),
            reference=str(reference.folder),
            verdict=NOT_COMPARED,
            indifference=study.question.indifference,
        )
        rows.append(row)
        if own is None or other is None:
            row.reason = f"only in {'this study' if own else 'the reference'}"
            continue
        row.runs, row.reference_runs = len(own.timed), len(other.timed)
        row.execution_time_s = own.row.execution_time_s
        row.reference_execution_time_s = other.row.execution_time_s
        row.runs_failed, row.reference_runs_failed = own.bad, other.bad
        row.runs_ended, row.reference_runs_ended = own.ended, other.ended
        row.verdict, row.reason = _without_times(own, other)
        parameters = reference.parameters.get(point, {})
        differs = *_other_parameters(specs[point], parameters), *_other_facts(own, other)
        row.differs = "; ".join(differs)
        if not row.verdict:
            compared.append((row, own, other))
    if compared:
        made, now, earlier = zip(*compared, strict=True)
        judged = judge(_times(earlier), _times(now), study.question.indifference)
        for row, found in zip(made, judged, strict=True):
            row.verdict, row.time_ratio = found.verdict, found.ratio
            row.time_ratio_low, row.time_ratio_high = found.low, found.high
            row.comparisons = len(compared)
    return frame(SweepRow, rows)


def _sides(sweep: Sweep) -> dict[Point, Side]:
    """Return the measured points with their runs, for the points that were planned."""
    runs = by_point(sweep.run_rows)
    rows = {point_of(row): row for row in sweep.points}
    return {point: Side(row, runs[point]) for point, row in rows.items() if point in runs}


def _without_times(here: Side, there: Side) -> tuple[str, str]:
    """(verdict, reason) of points whose times are not compared.

    The verdict is empty if the times are compared; `reason` then counts failed and diverged runs.
    """
    not_here, not_there = map(_why_not, (here, there))
    if not_there:
        return NOT_COMPARED, f"in the reference: {not_there}"
    if not_here:
        counts = ", ".join(f"{count} {status}" for status, count in here.statuses.items())
        has_ended = here.bad and here.ended == here.statuses.total()
        return LOST if has_ended else NOT_COMPARED, f"{not_here}: {counts}"
    own, other = (side.row["examples_trained"] for side in (here, there))
    if is_known(own) and is_known(other) and not is_same_work(own, other):
        return NOT_COMPARED, f"{OTHER_WORK}: trained {own:,.0f} examples, there {other:,.0f}"
    ended_badly = ""
    if here.bad + there.bad:
        ended_badly = f"{here.bad} of {here.ended} runs failed or diverged here"
        ended_badly += f", {there.bad} of {there.ended} there"
    if is_failing(here.bad, here.ended, there.bad, there.ended):
        return FAILING, ended_badly
    began, began_there = (
        {(run.started, run.hosts) for run in side.timed if run.started is not None}
        for side in (here, there)
    )
    if shared := len(began & began_there):
        return NOT_COMPARED, f"{shared} of its runs are in both studies"
    runs = len(here.timed), len(there.timed)
    if min(runs) < SWEEP_RUNS:
        needed = f"{SWEEP_RUNS} runs of each with a time are needed"
        reason = f"{needed}: {runs[0]} here, {runs[1]} there"
        return OPEN if min(runs) else NOT_COMPARED, "; ".join(filter(None, (reason, ended_badly)))
    return "", ended_badly


def _why_not(side: Side) -> str:
    """Why the times of a side are not compared, or an empty text."""
    if not side.valid:
        return "no run counts"
    why = exclusion(side.row, side.statuses)
    return why.reason if why else ""


def is_failing(bad: int, ended: int, bad_there: int, ended_there: int) -> bool:
    """Whether most runs fail or diverge here, and at most a quarter of those there did."""
    return 2 * bad > ended and 4 * bad_there <= ended_there


def _other_parameters(spec: RunSpec, there: Parameters) -> Iterator[str]:
    """`key: there, now here`, without values that may be secrets.

    Keys that an earlier version lacked had their defaults there; keys that this version lacks are
    not compared.
    """
    before = {**run_spec.later_defaults(), **there} if there else {}
    # as a file has them
    recipe, measured = msgspec.json.decode(msgspec.json.encode((spec.recipe, spec.measured)))
    for key, value in (recipe | measured).items():
        if key in before and key not in NO_PARAMETERS and value != before[key]:
            yield one_line(run_spec.describe_change(key, before[key], value))


def _other_facts(here: Side, there: Side) -> Iterator[str]:
    """`fact: there, now here` for versions, machines and data of the valid runs."""
    for fact in _FACTS:
        before, now = (
            dict.fromkeys(_short(run[fact]) for run in side.valid if is_known(run[fact]))
            for side in (there, here)
        )
        if before and now and before.keys() != now.keys():
            yield f"{fact}: {' and '.join(before)}, now {' and '.join(now)}"


def _short(value: object) -> str:
    text = one_line(str(value))
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


def _times(sides: Sequence[Side]) -> Array:
    """Seconds of the timed runs: (points, repeats), NaN where there is none."""
    repeats = max(run.repeat for side in sides for run in side.timed)
    times = np.full((len(sides), repeats), np.nan)
    for place, side in enumerate(sides):
        for run in side.timed:
            times[place, run.repeat - 1] = run.execution_time_s
    return times


def as_text(found: pd.DataFrame) -> TextTable:
    """`table` for people: one row per point, with the verdict first."""
    rows = typed(SweepRow, found)
    causes = [*dict.fromkeys(row.differs for row in rows if row.differs is not None)]
    has_reasons = any(row.reason for row in rows)

    def cells(row: SweepRow) -> dict[str, str]:
        return {
            "verdict": row.verdict,
            "reference_runs": rounded(row.reference_runs, 0),
            "runs": rounded(row.runs, 0),
            "reference_execution_time_s": rounded(row.reference_execution_time_s, 1),
            "execution_time_s": rounded(row.execution_time_s, 1),
            "time_ratio": with_spread(row, "time_ratio", 3),
            **({"reason": one_line(row.reason)} if has_reasons else {}),
            **({"differs": one_line(row.differs or "")} if len(causes) > 1 else {}),
        }

    title = "Against another sweep"
    none = "Not compared: `compare_with` in the configuration names no other study."
    if not rows:
        return shown.text_table(title, found, SweepRow, cells, (), none)
    counts = Counter(row.verdict for row in rows)
    verdicts = [f"{counts[each]} {each}" for each in (*COMPARED, NOT_COMPARED) if counts[each]]
    above = f"{count(len(rows), 'configuration')} against {rows[0].reference}: "
    above += f"{', '.join(verdicts)}."
    notes = shown.notes(
        "regressions",
        indifference=rows[0].indifference,
        comparisons=max(row.comparisons or 0 for row in rows),
        causes=causes,
    )
    return shown.text_table(title, found, SweepRow, cells, notes, none, above=above)
