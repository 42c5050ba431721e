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

import msgspec
import numpy as np
import pandas as pd

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Parameters, Study, Sweep, exclusion
from tfscaling.conclusions.shown import with_spread
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.study import run_spec
from tfscaling.study.config_types import POINT_AXES
from tfscaling.study.run_spec import NO_PARAMETERS, Point, RunSpec
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import OTHER_WORK, is_same_work
from tfscaling.tables.display import TextTable, count, one_line, rounded
from tfscaling.tables.estimates import CONFIDENCE, Array, estimate
from tfscaling.tables.row_types import Cells, PointRow, RunRow
from tfscaling.tables.row_values import by_point, is_known, point_of
from tfscaling.tables.run_counts import SWEEP_RUNS

TIME, REFERENCE_TIME = "execution_time_s", "reference_execution_time_s"
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
COLUMNS = (
    *("reference", *POINT_AXES, "devices", "verdict"),
    *("reference_runs", "runs", REFERENCE_TIME, TIME),
    *("reference_runs_failed", "reference_runs_ended", "runs_failed", "runs_ended"),
    *("time_ratio", "time_ratio_low", "time_ratio_high", "comparisons", "indifference"),
    *("reason", "differs"),
)
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
    """COLUMNS: one row per point of either study; no rows without a reference.

    `runs` and `reference_runs` are the valid runs with a time; `runs_failed` of the `runs_ended`
    failed or diverged. `time_ratio` is the time here over the time in the reference, above 1 where
    it is slower here, with its interval for all `comparisons` together. `differs` names parameters
    and facts that differ between the runs of the two.
    """
    reference = study.reference
    if reference is None:
        return pd.DataFrame(columns=list(COLUMNS))
    here, there = _sides(study), _sides(reference)
    specs = {run.spec.point: run.spec for run in study.manifest.runs}
    rows, compared = [], []
    for point in dict.fromkeys((*here, *there)):
        own, other = here.get(point), there.get(point)
        row = {name: (own or there[point]).row[name] for name in (*POINT_AXES, "devices")}
        rows.append(row)
        if own is None or other is None:
            where = "this study" if own else "the reference"
            row |= {"verdict": NOT_COMPARED, "reason": f"only in {where}"}
            continue
        for before, side in (("reference_", other), ("", own)):
            row |= {f"{before}runs": len(side.timed), f"{before}{TIME}": side.row[TIME]}
            row |= {f"{before}runs_failed": side.bad, f"{before}runs_ended": side.ended}
        row["verdict"], row["reason"] = _without_times(own, other)
        parameters = reference.parameters.get(point, {})
        differs = *_other_parameters(specs[point], parameters), *_other_facts(own, other)
        row["differs"] = "; ".join(differs)
        if not row["verdict"]:
            compared.append((row, own, other))
    if compared:
        made, *sides = zip(*compared, strict=True)
        now, earlier = map(_times, sides)
        judged = judge(earlier, now, study.question.indifference)
        for row, found in zip(made, judged, strict=True):
            row |= {"verdict": found.verdict, "time_ratio": found.ratio}
            row |= {"time_ratio_low": found.low, "time_ratio_high": found.high}
            row["comparisons"] = len(compared)
    named = {"reference": str(reference.folder), "indifference": study.question.indifference}
    return pd.DataFrame([row | named for row in rows], columns=list(COLUMNS))


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
    causes = [cause for cause in found["differs"].unique() if is_known(cause)]
    optional = ["reason"] if found["reason"].fillna("").any() else []
    optional += ["differs"] if len(causes) > 1 else []

    def cells(row: Cells) -> dict[str, str]:
        return {
            "verdict": row["verdict"],
            **{name: rounded(row[name], 0) for name in ("reference_runs", "runs")},
            **{name: rounded(row[name], 1) for name in (REFERENCE_TIME, TIME)},
            "time_ratio": with_spread(row, "time_ratio", 3),
            **{name: one_line(row[name] if is_known(row[name]) else "") for name in optional},
        }

    title = "Against another sweep"
    none = "Not compared: `compare_with` in the configuration names no other study."
    if found.empty:
        return shown.text_table(title, found, cells, (), none)
    counts = Counter(found["verdict"])
    verdicts = [f"{counts[each]} {each}" for each in (*COMPARED, NOT_COMPARED) if counts[each]]
    above = f"{count(len(found), 'configuration')} against {found['reference'].iloc[0]}: "
    above += f"{', '.join(verdicts)}."
    comparisons = found["comparisons"].max()
    notes = shown.notes(
        "regressions",
        indifference=found["indifference"].iloc[0],
        comparisons=int(comparisons) if is_known(comparisons) else 0,
        causes=causes,
    )
    return shown.text_table(title, found, cells, notes, none, above=above)
