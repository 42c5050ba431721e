"""Comparison with another study (`compare_with`): which configurations became slower or faster.

The times of both sweeps are estimated together (`estimation.estimates`), and each configuration is
compared with itself in the other sweep. "Slower" and "faster" are tests by Holm (1979): the
smallest p-value must be below the m-th part of the error rate, the next below the (m-1)-th part,
and so on to the first that is not. All intervals hold together by Bonferroni, and "same" follows
from them. An interval excludes 1 if a difference is shown. No theorem covers all of it;
benchmarks/regressions.py simulates how often it is wrong.

A configuration with more than half of its runs failed is failing, whatever the times of the others
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import pandas as pd

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import Parameters, Study, Sweep, find_exclusion
from tfscaling.conclusions.rendering import format_with_interval
from tfscaling.estimation.estimates import estimate_locations
from tfscaling.estimation.intervals import CONFIDENCE, Array
from tfscaling.estimation.run_counts import SWEEP_RUNS
from tfscaling.record.metrics import NAN
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.study import run_spec
from tfscaling.study.run_spec import KEYS_WITHOUT_EFFECT, Point, RunSpec
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import DIFFERENT_WORK, are_equal_work
from tfscaling.tables.display import TextTable, count_text, format_value, join_lines
from tfscaling.tables.row_types import Column, ConfigurationRow, PointRow, RunRow, columns
from tfscaling.tables.row_values import axes_and_devices, group_by_point, is_known, point_of
from tfscaling.tables.table_files import to_frame, to_rows

#: Type of a number of runs or comparisons; null if there are none.
Count = Annotated[int | None, Column("runs", is_whole=True)]
SLOWER, FASTER, SAME, OPEN = "slower", "faster", "same", "undecided"
#: Verdict on a configuration that has valid runs in the reference, and here only failed or diverged
#: ones.
LOST = "lost"
#: Verdict on a configuration whose runs mostly failed or diverged here, see `is_failing`.
FAILING = "failing"
NOT_COMPARED = "not compared"
#: Verdicts with which `snakemake regressions` ends with status 1.
REGRESSIONS = (SLOWER, LOST, FAILING)
DECIDED = (*REGRESSIONS, FASTER, SAME)
COMPARED = (*DECIDED, OPEN)
#: Facts of runs that are compared between the two sweeps.
_COMPARED_FACTS = (*runs_table.ENVIRONMENT_FACTS, "dataset_sha256")
#: Longest text of a fact, in characters.
_FACT_LENGTH_MAX = 60


@dataclass(frozen=True)
class TimeChange:
    """The time of a configuration in the later sweep divided by the time in the earlier one.

    Attributes:
        ratio: The ratio, above 1 if it became slower.
        low: Lower end of its interval.
        high: Upper end of its interval.
        verdict: SLOWER, FASTER, SAME or OPEN.
    """

    ratio: float
    low: float
    high: float
    verdict: str


def judge_changes(before: Array, after: Array, indifference: float) -> list[TimeChange]:
    """Return the change of each configuration's time between two sweeps.

    Slower or faster: the interval of the ratio excludes 1, and the ratio is beyond the
    indifference. Same: the complete interval is within the indifference. All others are open. All
    verdicts of a kind hold together with CONFIDENCE.

    Args:
        before: Seconds in the earlier sweep, (configurations, repeats); NaN without a run. Each
            configuration has SWEEP_RUNS runs or more.
        after: Seconds in the later sweep, in the same shape.
        indifference: Fraction below which a difference does not matter.
    """
    points = len(before)
    values = np.full((2 * points, before.shape[1] + after.shape[1]), np.nan)
    # repeats of two sweeps are no blocks of both: they ran at other times
    values[:points, : before.shape[1]], values[points:, before.shape[1] :] = before, after
    found = estimate_locations(values)
    first = np.arange(points)
    middle = found.location[first + points] - found.location[first]
    is_shown = holm_significant(found.p_value(first, first + points))
    low, high = found.difference_interval(first, first + points, (1 - CONFIDENCE) / 2 / points)
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
    return [TimeChange(*each) for each in zip(*logs.tolist(), verdicts.tolist(), strict=True)]


def holm_significant(chance: Array) -> Array:
    """Return whether each p-value is significant by Holm's method: booleans, (p-values,)."""
    order = np.argsort(chance, kind="stable")
    refused = chance[order] > (1 - CONFIDENCE) / (len(chance) - np.arange(len(chance)))
    is_shown = np.empty(len(chance), bool)
    is_shown[order] = ~np.logical_or.accumulate(refused)
    return is_shown


class SweepRow(ConfigurationRow):
    """A configuration of this study, of the reference study, or of both: a row of regressions.csv.

    Numbers are null if only one study has the configuration; ratios are null if the times are not
    compared.

    Attributes:
        reference: Folder of the reference study.
        verdict: What changed, such as slower.
        runs: Valid runs with a time in this study; `reference_runs` in the reference.
        runs_failed: How many of `runs_ended` failed or diverged.
        time_ratio: Time here divided by the time in the reference, above 1 if it is slower here.
        comparisons: Number of comparisons for which all intervals hold together.
        differs: Parameters and facts that differ between the runs of the two studies.
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


class ConfigurationRuns:
    """A configuration in one of the two studies, with its runs.

    Attributes:
        row: Its row of the comparison.
        statuses: Number of runs with each status.
        valid: Its valid runs.
        timed: The valid runs that have a time; resumed runs have none.
        failed: Number of runs that failed or diverged.
        ended: Number of runs that are valid, failed or diverged.
    """

    def __init__(self, row: PointRow, runs: Sequence[RunRow]) -> None:
        self.row = row
        self.statuses = Counter[str](run.status for run in runs)
        self.valid = [run for run in runs if run.status == RunState.OK]
        #: Without runs that resumed from a checkpoint, which have no time.
        self.timed = [run for run in self.valid if is_known(run.execution_time_s)]
        #: Runs that failed or diverged, and all that ended.
        self.failed = sum(self.statuses[each] for each in (RunState.FAILED, *RESULTS[1:]))
        self.ended = self.failed + len(self.valid)


def table(study: Study) -> pd.DataFrame:
    """Return one `SweepRow` for each configuration of either study; none without a reference."""
    reference = study.reference
    if reference is None:
        return to_frame(SweepRow, [])
    here, there = _runs_by_configuration(study), _runs_by_configuration(reference)
    specs = {run.spec.point: run.spec for run in study.manifest.runs}
    rows: list[SweepRow] = []
    compared: list[tuple[SweepRow, ConfigurationRuns, ConfigurationRuns]] = []
    for point in dict.fromkeys((*here, *there)):
        own, other = here.get(point), there.get(point)
        row = SweepRow(
            **axes_and_devices((own or there[point]).row),
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
        row.runs_failed, row.reference_runs_failed = own.failed, other.failed
        row.runs_ended, row.reference_runs_ended = own.ended, other.ended
        row.verdict, row.reason = _verdict_without_times(own, other)
        parameters = reference.parameters.get(point, {})
        differs = *_differing_parameters(specs[point], parameters), *_differing_facts(own, other)
        row.differs = "; ".join(differs)
        if not row.verdict:
            compared.append((row, own, other))
    if compared:
        made, now, earlier = zip(*compared, strict=True)
        judged = judge_changes(
            _times_array(earlier), _times_array(now), study.question.indifference
        )
        for row, found in zip(made, judged, strict=True):
            row.verdict, row.time_ratio = found.verdict, found.ratio
            row.time_ratio_low, row.time_ratio_high = found.low, found.high
            row.comparisons = len(compared)
    return to_frame(SweepRow, rows)


def _runs_by_configuration(sweep: Sweep) -> dict[Point, ConfigurationRuns]:
    """Return configuration → its runs, for the planned configurations of a study."""
    runs = group_by_point(sweep.run_rows)
    rows = {point_of(row): row for row in sweep.points}
    return {
        point: ConfigurationRuns(row, runs[point]) for point, row in rows.items() if point in runs
    }


def _verdict_without_times(here: ConfigurationRuns, there: ConfigurationRuns) -> tuple[str, str]:
    """Return (verdict, reason) if the times of a configuration cannot be compared.

    The verdict is empty if they can; the reason then counts failed and diverged runs.

    Args:
        here: Its runs in this study.
        there: Its runs in the reference.
    """
    not_here, not_there = map(_exclusion_reason, (here, there))
    if not_there:
        return NOT_COMPARED, f"in the reference: {not_there}"
    if not_here:
        counts = ", ".join(f"{count} {status}" for status, count in here.statuses.items())
        has_ended = here.failed and here.ended == here.statuses.total()
        return LOST if has_ended else NOT_COMPARED, f"{not_here}: {counts}"
    own, other = (side.row["examples_trained"] for side in (here, there))
    if is_known(own) and is_known(other) and not are_equal_work(own, other):
        return NOT_COMPARED, f"{DIFFERENT_WORK}: trained {own:,.0f} examples, there {other:,.0f}"
    ended_badly = ""
    if here.failed + there.failed:
        ended_badly = f"{here.failed} of {here.ended} runs failed or diverged here"
        ended_badly += f", {there.failed} of {there.ended} there"
    if is_failing(here.failed, here.ended, there.failed, there.ended):
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


def _exclusion_reason(side: ConfigurationRuns) -> str:
    """Return why the times of a configuration in one study are not compared; "" if they are."""
    if not side.valid:
        return "no run counts"
    why = find_exclusion(side.row, side.statuses)
    return why.reason if why else ""


def is_failing(failed: int, ended: int, reference_failed: int, reference_ended: int) -> bool:
    """Return whether most runs fail here, but at most a quarter failed in the reference.

    Args:
        failed: Number of runs that failed or diverged here.
        ended: Number of runs that ended here.
        reference_failed: Number of runs that failed or diverged in the reference.
        reference_ended: Number of runs that ended in the reference.
    """
    return 2 * failed > ended and 4 * reference_failed <= reference_ended


def _differing_parameters(spec: RunSpec, there: Parameters) -> Iterator[str]:
    """Yield `key: there, now here` for each differing parameter, without possible secrets.

    Keys that this version of the workflow lacks are ignored. A key that an earlier version lacked
    had its default there.

    Args:
        spec: A run of this study.
        there: Parameters of the same configuration in the reference.
    """
    before = {**run_spec.defaults_of_omitted_keys(), **there} if there else {}
    # as a file has them
    recipe, measured = msgspec.json.decode(msgspec.json.encode((spec.recipe, spec.measured)))
    for key, value in (recipe | measured).items():
        if key in before and key not in KEYS_WITHOUT_EFFECT and value != before[key]:
            yield join_lines(run_spec.describe_change(key, before[key], value))


def _differing_facts(here: ConfigurationRuns, there: ConfigurationRuns) -> Iterator[str]:
    """Yield `fact: there, now here` for differing versions, machines and data of valid runs."""
    for fact in _COMPARED_FACTS:
        before, now = (
            dict.fromkeys(_to_short_text(run[fact]) for run in side.valid if is_known(run[fact]))
            for side in (there, here)
        )
        if before and now and before.keys() != now.keys():
            yield f"{fact}: {' and '.join(before)}, now {' and '.join(now)}"


def _to_short_text(value: object) -> str:
    """Return a value as text of at most _FACT_LENGTH_MAX characters."""
    text = join_lines(str(value))
    return text if len(text) <= _FACT_LENGTH_MAX else f"{text[:_FACT_LENGTH_MAX]}…"


def _times_array(sides: Sequence[ConfigurationRuns]) -> Array:
    """Return the times of the runs in seconds, (configurations, repeats); NaN without a run."""
    repeats = max(run.repeat for side in sides for run in side.timed)
    times = np.full((len(sides), repeats), np.nan)
    for place, side in enumerate(sides):
        for run in side.timed:
            times[place, run.repeat - 1] = run.execution_time_s
    return times


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table for the page: one row per configuration, the verdict first."""
    rows = to_rows(SweepRow, table)
    causes = [*dict.fromkeys(row.differs for row in rows if row.differs is not None)]
    has_reasons = any(row.reason for row in rows)

    def cells(row: SweepRow) -> dict[str, str]:
        return {
            "verdict": row.verdict,
            "reference_runs": format_value(row.reference_runs, 0),
            "runs": format_value(row.runs, 0),
            "reference_execution_time_s": format_value(row.reference_execution_time_s, 1),
            "execution_time_s": format_value(row.execution_time_s, 1),
            "time_ratio": format_with_interval(row, "time_ratio", 3),
            **({"reason": join_lines(row.reason)} if has_reasons else {}),
            **({"differs": join_lines(row.differs or "")} if len(causes) > 1 else {}),
        }

    title = "Against another sweep"
    none = "Not compared: `compare_with` in the configuration names no other study."
    if not rows:
        return rendering.make_text_table(title, table, SweepRow, cells, (), none)
    counts = Counter(row.verdict for row in rows)
    verdicts = [f"{counts[each]} {each}" for each in (*COMPARED, NOT_COMPARED) if counts[each]]
    above = f"{count_text(len(rows), 'configuration')} against {rows[0].reference}: "
    above += f"{', '.join(verdicts)}."
    notes = rendering.render_notes(
        "regressions",
        indifference=rows[0].indifference,
        comparisons=max(row.comparisons or 0 for row in rows),
        causes=causes,
    )
    return rendering.make_text_table(title, table, SweepRow, cells, notes, none, above=above)
