"""Comparison with a reference: which configurations became slower or faster.

The reference is another study (`compare_with`), or the first revision in the same sweep
(`compare_revisions`). Each configuration is compared with the same one in the reference;
`time_changes` has the statistics.

A configuration with more than half of its runs failed is failing, whatever the times of the others
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import pandas as pd

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import (
    ComparisonExclusion,
    Parameters,
    Study,
    Sweep,
    find_exclusion,
)
from tfscaling.conclusions.rendering import format_with_interval
from tfscaling.conclusions.time_changes import (
    FASTER,
    OPEN,
    SAME,
    SLOWER,
    judge_changes,
    judge_paired_changes,
)
from tfscaling.estimation import samples
from tfscaling.estimation.intervals import Array
from tfscaling.estimation.run_counts import SWEEP_RUNS
from tfscaling.estimation.samples import weakest_support
from tfscaling.record.metrics import NAN
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.study import run_spec, variants
from tfscaling.study.run_spec import KEYS_WITHOUT_EFFECT, Point, RunSpec
from tfscaling.study.variants import base_recipe
from tfscaling.tables import run_environment
from tfscaling.tables.comparison import DIFFERENT_WORK, are_equal_work
from tfscaling.tables.display import TextTable, count_text, format_value, join_lines
from tfscaling.tables.row_types import Column, ConfigurationRow, PointRow, RunRow, columns
from tfscaling.tables.row_values import axes_and_devices, group_by_point, is_known, point_of
from tfscaling.tables.table_files import to_frame, to_rows

#: Type of a number of runs or comparisons; null if there are none.
Count = Annotated[int | None, Column("runs")]
#: Verdict on a configuration that has valid runs in the reference. Here all its runs failed or
#: diverged, or as many as show that it cannot be recommended.
LOST = "lost"
#: Verdict on a configuration whose runs mostly failed or diverged here, see `is_failing`.
FAILING = "failing"
NOT_COMPARED = "not compared"
#: Verdicts with which `snakemake regressions` ends with status 1.
REGRESSIONS = (SLOWER, LOST, FAILING)
DECIDED = (*REGRESSIONS, FASTER, SAME)
COMPARED = (*DECIDED, OPEN)
#: Facts of runs that are compared between the two sweeps.
_COMPARED_FACTS = (*run_environment.ENVIRONMENT_FACTS, "dataset_sha256")
#: Longest text of a fact, in characters.
_FACT_LENGTH_MAX = 60


class RegressionRow(ConfigurationRow):
    """A configuration of this study, of the reference, or of both: a row of regressions.csv.

    Numbers are null if only one of the two studies has the configuration. Ratios are null if the
    times are not compared.

    Attributes:
        reference: The folder of the reference study, or the recipe of the reference revision.
        verdict: What changed, such as `slower`.
        runs: Number of valid runs with a time in this study; `reference_runs` is the number in the
            reference.
        runs_failed: How many of `runs_ended` failed, diverged or ran out of memory.
        time_ratio: Time here divided by the time in the reference, above 1 if it is slower here.
        comparisons: Number of comparisons whose error rate is controlled together.
        pairs: Number of repeats in which both revisions have a time; null if the reference is
            another study.
        differs: Parameters, versions, machines and data that differ from the reference.
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
    pairs: Count = None
    indifference: float = 0.0
    reason: str = ""
    differs: str | None = None


COLUMNS = tuple(columns(RegressionRow))


class ConfigurationRuns:
    """A configuration in one of the two studies, with its runs.

    Attributes:
        row: Its row of the comparison.
        statuses: Number of runs with each status.
        valid: Its valid runs.
        timed: The valid runs that have a time; resumed runs have none.
        timed_repeats: Numbers of the repeats of the runs in `timed`.
        failed: Number of runs that failed, diverged or ran out of memory.
        ended: Number of runs that ended: `failed`, and the valid runs.
    """

    def __init__(self, row: PointRow, runs: Sequence[RunRow]) -> None:
        self.row = row
        self.statuses = Counter[str](run.status for run in runs)
        self.valid = [run for run in runs if run.status == RunState.OK]
        #: Without runs that resumed from a checkpoint, which have no time.
        self.timed = [run for run in self.valid if is_known(run.execution_time_s)]
        self.timed_repeats = {run.repeat for run in self.timed}
        #: Numbers of runs that failed, diverged or ran out of memory, and of all that ended.
        self.failed = sum(self.statuses[each] for each in (RunState.FAILED, *RESULTS[1:]))
        self.ended = self.failed + len(self.valid)


@dataclass(frozen=True)
class Counterparts:
    """The runs of a configuration in this study, and its runs in the reference.

    Attributes:
        point: The configuration.
        here: Its runs in this study; None if it is only in the reference.
        there: Its runs in the reference; None if it is only in this study.
        reference: The folder of the reference study, or the recipe of the reference revision.
        parameters: The parameters of its runs in the reference; empty if they are not known.
        is_paired: Whether both ran in the same sweep, repeat by repeat.
    """

    point: Point
    here: ConfigurationRuns | None
    there: ConfigurationRuns | None
    reference: str
    parameters: Parameters
    is_paired: bool


def table(study: Study) -> pd.DataFrame:
    """Return one `RegressionRow` for each configuration; none without a reference."""
    specs = {run.spec.point: run.spec for run in study.manifest.runs}
    counterparts = [*_pair_with_other_study(study), *_pair_with_first_revision(study, specs)]
    rows: list[RegressionRow] = []
    compared: list[tuple[RegressionRow, ConfigurationRuns, ConfigurationRuns]] = []
    for each in counterparts:
        shown_side = each.here or each.there
        assert shown_side is not None, "one of both has the configuration"
        row = RegressionRow(
            **axes_and_devices(shown_side.row),
            reference=each.reference,
            verdict=NOT_COMPARED,
            indifference=study.question.indifference,
        )
        rows.append(row)
        here, there = each.here, each.there
        if here is None or there is None:
            row.reason = f"only in {'this study' if here else 'the reference'}"
            continue
        row.runs, row.reference_runs = len(here.timed), len(there.timed)
        row.execution_time_s = here.row.execution_time_s
        row.reference_execution_time_s = there.row.execution_time_s
        row.runs_failed, row.reference_runs_failed = here.failed, there.failed
        row.runs_ended, row.reference_runs_ended = here.ended, there.ended
        if each.is_paired:
            row.pairs = len(here.timed_repeats & there.timed_repeats)
        row.verdict, row.reason = _verdict_without_times(here, there, row.pairs)
        differs = (
            *_differing_parameters(specs[each.point], each.parameters),
            *_differing_facts(here, there),
        )
        row.differs = "; ".join(differs)
        if not row.verdict:
            compared.append((row, here, there))
    if compared:
        _judge_times(compared, study)
    return to_frame(RegressionRow, rows)


def _judge_times(
    compared: Sequence[tuple[RegressionRow, ConfigurationRuns, ConfigurationRuns]], study: Study
) -> None:
    """Set verdict, ratio and interval in the rows of configurations with enough times.

    Args:
        compared: Each row with its runs here and in the reference.
        study: The study. If it has revisions, times are compared repeat by repeat.
    """
    rows, here, there = zip(*compared, strict=True)
    judge = judge_paired_changes if study.manifest.revisions else judge_changes
    repeats = max(max(side.timed_repeats) for side in (*here, *there))
    changes = judge(
        _times_array(there, repeats), _times_array(here, repeats), study.question.indifference
    )
    for row, change in zip(rows, changes, strict=True):
        row.verdict, row.time_ratio = change.verdict, change.ratio
        row.time_ratio_low, row.time_ratio_high = change.low, change.high
        row.comparisons = len(compared)


def _pair_with_other_study(study: Study) -> Iterator[Counterparts]:
    """Yield each configuration of this study and of the one in `compare_with`, paired."""
    if (reference := study.reference) is None:
        return
    here, there = _runs_by_configuration(study), _runs_by_configuration(reference)
    for point in dict.fromkeys((*here, *there)):
        yield Counterparts(
            point,
            here.get(point),
            there.get(point),
            str(reference.folder),
            reference.parameters.get(point, {}),
            is_paired=False,
        )


def _pair_with_first_revision(
    study: Study, specs: Mapping[Point, RunSpec]
) -> Iterator[Counterparts]:
    """Yield each configuration of the later revisions, paired with the first revision's."""
    if not (revisions := study.manifest.revisions):
        return
    runs = _runs_by_configuration(study)
    for point, here in runs.items():
        first = variants.reference_point(point, revisions)
        if first is None or first == point:
            continue
        spec = specs.get(first)
        parameters = (
            msgspec.to_builtins(spec.recipe) | msgspec.to_builtins(spec.measured) if spec else {}
        )
        yield Counterparts(point, here, runs.get(first), first.recipe, parameters, is_paired=True)


def _runs_by_configuration(sweep: Sweep) -> dict[Point, ConfigurationRuns]:
    """Return configuration → its runs, for the planned configurations of a study."""
    runs = group_by_point(sweep.run_rows)
    rows = {point_of(row): row for row in sweep.points}
    return {
        point: ConfigurationRuns(row, runs[point]) for point, row in rows.items() if point in runs
    }


def _verdict_without_times(
    here: ConfigurationRuns, there: ConfigurationRuns, pairs: int | None
) -> tuple[str, str]:
    """Return (verdict, reason) for a configuration that is judged without comparing its times.

    The verdict is "" if the times are to be compared. The reason is then the number of failed and
    diverged runs in words, or "" without any.

    Args:
        here: Its runs in this study.
        there: Its runs in the reference.
        pairs: Number of repeats with a time of both revisions; None if the reference is another
            study.
    """
    not_here, not_there = map(_find_exclusion, (here, there))
    if not_there:
        return NOT_COMPARED, f"in the reference: {not_there.reason}"
    if not_here:
        counts = ", ".join(f"{count} {status}" for status, count in here.statuses.items())
        has_ended = here.failed and here.ended == here.statuses.total()
        # valid runs that did other work show no failure
        is_lost = has_ended and not (here.valid and not_here.is_open)
        return LOST if is_lost else NOT_COMPARED, f"{not_here.reason}: {counts}"
    own, other = (side.row["examples_trained"] for side in (here, there))
    if is_known(own) and is_known(other) and not are_equal_work(own, other):
        return NOT_COMPARED, f"{DIFFERENT_WORK}: trained {own:,.0f} examples, there {other:,.0f}"
    ended_badly = ""
    if here.failed + there.failed:
        ended_badly = f"{here.failed} of {here.ended} runs failed or diverged here"
        ended_badly += f", {there.failed} of {there.ended} there"
    if is_failing(here.failed, here.ended, there.failed, there.ended):
        return FAILING, ended_badly
    if pairs is not None:
        if pairs < SWEEP_RUNS:
            needed = f"{SWEEP_RUNS} repeats with a time of both revisions are needed: {pairs} have"
            reason = "; ".join(filter(None, (needed, ended_badly)))
            return OPEN if pairs else NOT_COMPARED, reason
        return "", ended_badly
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


def _find_exclusion(side: ConfigurationRuns) -> ComparisonExclusion | None:
    """Return why the times of a configuration in one study are not compared; None if they are."""
    if not side.valid:
        return ComparisonExclusion("no run counts", True)
    return find_exclusion(side.row, side.statuses)


@dataclass(frozen=True)
class RevisionSummary:
    """The verdicts on all configurations of a revision.

    Attributes:
        revision: The recipe of the revision.
        rows: Its configurations with a reference.
        largest_change: The configuration with the largest significant slowdown, else with the
            largest significant speed-up; None without either.
        badge: The level of support of the least supported verdict, one of samples.WEAKEST_FIRST.
    """

    revision: str
    rows: tuple[RegressionRow, ...]
    largest_change: RegressionRow | None
    badge: str

    @property
    def counts(self) -> dict[str, int]:
        """Number of configurations with each verdict, regressions first."""
        counts = Counter(row.verdict for row in self.rows)
        return {each: counts[each] for each in (*COMPARED, NOT_COMPARED) if counts[each]}


def summarize_revisions(study: Study) -> list[RevisionSummary]:
    """Return a summary of each later revision in a sweep; none without `compare_revisions`."""
    if not study.manifest.revisions:
        return []
    found: dict[str, list[RegressionRow]] = {}
    for row in to_rows(RegressionRow, table(study)):
        found.setdefault(base_recipe(row.recipe), []).append(row)
    summaries = []
    for revision, rows in found.items():
        slower, faster = ([row for row in rows if row.verdict == each] for each in (SLOWER, FASTER))
        largest = max(slower, key=lambda row: row.time_ratio, default=None)
        most_saved = min(faster, key=lambda row: row.time_ratio, default=None)
        badge = weakest_support([_support(row) for row in rows])
        summaries.append(RevisionSummary(revision, tuple(rows), largest or most_saved, badge))
    return summaries


def _support(row: RegressionRow) -> str:
    """Return the support of a row's verdict, one of samples.WEAKEST_FIRST."""
    if row.verdict == NOT_COMPARED:
        return samples.NOT_COMPARED
    if row.verdict == OPEN:
        return samples.INCONCLUSIVE if row.comparisons else samples.TOO_FEW
    return samples.SUPPORTED


def is_failing(failed: int, ended: int, reference_failed: int, reference_ended: int) -> bool:
    """Return whether most runs fail here, but at most a quarter failed in the reference.

    Args:
        failed: Number of runs that failed, diverged or ran out of memory here.
        ended: Number of runs that ended here.
        reference_failed: Number of such runs in the reference.
        reference_ended: Number of runs that ended in the reference.
    """
    return 2 * failed > ended and 4 * reference_failed <= reference_ended


def _differing_parameters(spec: RunSpec, there: Parameters) -> Iterator[str]:
    """Yield a text such as `epochs: 3, now 5` for each parameter that differs from the reference.

    Values that may be secret are left out. Keys that this version of the workflow lacks are
    ignored. A key that the version of the reference lacked had its default there.

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
    """Yield a text such as `python: 3.11.9, now 3.12.4` for each fact of valid runs that differs.

    Facts are versions, machines and data.
    """
    for fact in _COMPARED_FACTS:
        before, now = (
            dict.fromkeys(_to_short_text(run[fact]) for run in side.valid if is_known(run[fact]))
            for side in (there, here)
        )
        if before and now and before.keys() != now.keys():
            yield f"{fact}: {' and '.join(before)}, now {' and '.join(now)}"


def _to_short_text(value: object) -> str:
    """Return a value as one line of text, cut off after _FACT_LENGTH_MAX characters."""
    text = join_lines(str(value))
    return text if len(text) <= _FACT_LENGTH_MAX else f"{text[:_FACT_LENGTH_MAX]}…"


def _times_array(sides: Sequence[ConfigurationRuns], repeats: int) -> Array:
    """Return the times of the runs in seconds, (configurations, repeats); NaN without a run."""
    times = np.full((len(sides), repeats), np.nan)
    for place, side in enumerate(sides):
        for run in side.timed:
            times[place, run.repeat - 1] = run.execution_time_s
    return times


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table for the page: one row per configuration, the verdict first."""
    rows = to_rows(RegressionRow, table)
    causes = [*dict.fromkeys(row.differs for row in rows if row.differs is not None)]
    has_reasons = any(row.reason for row in rows)

    def cells(row: RegressionRow) -> dict[str, str]:
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

    title = "Compared with a reference"
    none = "Not compared: neither `compare_with` nor `compare_revisions` is in the configuration."
    if not rows:
        return rendering.make_text_table(title, table, RegressionRow, cells, (), none)
    counts = Counter(row.verdict for row in rows)
    verdicts = [f"{counts[each]} {each}" for each in (*COMPARED, NOT_COMPARED) if counts[each]]
    above = f"{count_text(len(rows), 'configuration')} against {rows[0].reference}: "
    above += f"{', '.join(verdicts)}."
    notes = rendering.render_notes(
        "regressions",
        indifference=rows[0].indifference,
        comparisons=max(row.comparisons or 0 for row in rows),
        is_paired=any(row.pairs is not None for row in rows),
        causes=causes,
    )
    return rendering.make_text_table(title, table, RegressionRow, cells, notes, none, above=above)
