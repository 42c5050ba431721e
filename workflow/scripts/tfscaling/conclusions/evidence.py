"""Evidence for conclusions: tables, plan, and which configurations may be compared.

A configuration that trained another number of examples than the others, or half of whose runs or
more diverged, is excluded from decisions, findings, forecasts and clouds. A configuration with
fewer diverged runs, or with failed runs, is included, and every sentence that recommends it says
so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
import pandas as pd

from tfscaling.record.metrics import QUALITY
from tfscaling.record.run_states import RESULTS, RunState, words
from tfscaling.search import study_searches
from tfscaling.search.study_searches import StudySearch, work_of
from tfscaling.spec.config import POINT_AXES, WORK_AXES, Limit, Published, Question
from tfscaling.spec.configuration import REFERENCE_FILES, ConfigError
from tfscaling.spec.manifest import Manifest
from tfscaling.spec.platforms import device_kind
from tfscaling.spec.run_spec import Point
from tfscaling.tables import table_rows
from tfscaling.tables.comparison import OTHER_WORK, SAME_WORK_TOLERANCE, is_same_work, runs_differ
from tfscaling.tables.display import axis_text, listed, point_name, value
from tfscaling.tables.estimates import CONFIDENCE, Samples, keeps_limit
from tfscaling.tables.published_results import PublishedResult
from tfscaling.tables.rows import RunRow
from tfscaling.tables.table_rows import (
    Row,
    columns_of,
    is_known,
    lacking_energy_parts,
    metric_of,
    point_of,
    rows_of,
)

#: Why a configuration is not compared whose runs ran out of memory.
NO_MEMORY = "does not fit in memory"
#: The name of the only question where one is chosen among all configurations.
ALL = "all configurations"


def split(
    rows: Sequence[Row], samples: Samples | None = None
) -> tuple[list[Row], list[tuple[Row, str]]]:
    """(points that are compared, points that are not, with the reason), of one question.

    The runs are counted by `samples`, or else by the columns of the rows.
    """
    most = _examples_of_works(rows)
    eligible: list[Row] = []
    ineligible: list[tuple[Row, str]] = []
    for row in rows:
        statuses = samples.statuses(point_of(row)) if samples else _counted(row)
        if reason := why_not(row, statuses, most.get(work_name(row), 0.0)):
            ineligible.append((row, reason))
        elif row["runs"] > 0:
            eligible.append(row)
    return eligible, ineligible


#: States of runs that show that their configuration cannot be recommended.
_LASTING = (RunState.DIVERGED, RunState.DOES_NOT_FIT)


@dataclass(frozen=True)
class NotCovered:
    """A planned configuration about which a statement says nothing, and why.

    `is_open`: its runs may still change the answer. Not where the runs themselves show that it
    cannot be recommended: they diverged, all of them missed the target, or they are worse.
    `missed` are columns with a limit of the question that its runs show it to miss, `undecided`
    those where they show nothing.
    """

    row: Row
    reason: str
    is_open: bool = True
    missed: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


def not_covered(rows: Sequence[Row], samples: Samples) -> list[NotCovered]:
    """The planned configurations of one task that are in no comparison."""
    most = _examples_of_works(rows)
    found = []
    for row in rows:
        statuses = samples.statuses(point_of(row))
        if reason := why_not(row, statuses, most.get(work_name(row), 0.0)):
            found.append(NotCovered(row, reason, not any(statuses[each] for each in _LASTING)))
        elif row["runs"] == 0 and row["status"] != "excluded":
            made = ", ".join(f"{count} {status}" for status, count in statuses.items())
            found.append(NotCovered(row, f"no valid run ({made or row['status']})"))
    return found


def not_covered_text(found: Sequence[NotCovered], vary: Sequence[str] = ()) -> str:
    """A sentence that names them and the reasons; empty if there are none."""
    if not found:
        return ""
    return f"Not compared: {listed([f'{point_name(n.row, vary)}, {n.reason}' for n in found])}."


def _examples_of_works(rows: Sequence[Row]) -> dict[str, float]:
    """Work → its number of examples (`work_of`)."""
    known = [row for row in rows if is_known(row.get("examples_trained"))]
    works = table_rows.grouped(known, work_name)
    return {work: work_of([row["examples_trained"] for row in own]) for work, own in works.items()}


def work_name(row: Row, axes: Sequence[str] = WORK_AXES) -> str:
    """The values of these axes, which name a work or a question."""
    return ", ".join(axis_text(axis, row) for axis in axes if axis in row)


def why_not(row: Row, statuses: Counter[str], work: float = 0.0) -> str:
    """Why the point is excluded from comparisons; "" if it is included, or was not measured.

    `work` is the number of examples of the work. A point that did all of it, or more, is included,
    even if it has no speed-up because its baseline did less. A point whose runs differ in work is
    excluded.
    """
    if is_known(row.get("examples_trained")):
        trained = row["examples_trained"]
        if work - trained > SAME_WORK_TOLERANCE * work:
            made = f"trained {trained:,.0f} examples, another configuration {work:,.0f}"
            return f"{OTHER_WORK}: {made}"
    if is_known(row.get("examples_trained_min")):
        least, most = int(row["examples_trained_min"]), int(row["examples_trained_max"])
        if not is_same_work(least, most):
            return runs_differ(least, most)
    ended = sum(statuses[each] for each in RESULTS)
    unfit, diverged = statuses[RunState.DOES_NOT_FIT], statuses[RunState.DIVERGED]
    if unfit and 2 * (unfit + diverged) >= ended:
        return f"{NO_MEMORY}{'' if unfit == ended else f' ({unfit} of {ended} runs)'}"
    if diverged and 2 * diverged >= ended:
        return f"{diverged} of {ended} runs diverged"
    return ""


def remark(row: Row, samples: Samples) -> str:
    """`; 2 of 6 runs diverged, 12 of 18 attempts failed`: what a recommendation must not hide."""
    statuses = samples.statuses(point_of(row))
    total = sum(statuses.values())
    counts = [
        f"{count} of {total} runs {words(status)}"
        for status, count in sorted(statuses.items(), key=lambda item: item[0] != RunState.DIVERGED)
        if count and status != "ok"
    ]
    if is_known(row.get("runs_at_target")) and (missed := row["runs"] - row["runs_at_target"]):
        counts.append(f"{missed:.0f} of {row['runs']} runs missed the target")
    failed = samples.failed_attempts[point_of(row)]
    if failed > statuses[RunState.FAILED]:
        ended = sum(statuses[each] for each in RESULTS)
        counts.append(f"{failed} of {failed + ended} attempts failed")
    return f"; {', '.join(counts)}" if counts else ""


def works_of(rows: Iterable[Row], axes: Sequence[str] = WORK_AXES) -> dict[str, list[Row]]:
    """Values of the axes, by default model and recipe → the points that have them."""
    return table_rows.grouped(rows, lambda row: work_name(row, axes) or ALL)


def _counted(row: Row) -> Counter[str]:
    """How many runs of a point count and diverged."""
    names = {RunState.OK: "runs", RunState.DIVERGED: "runs_diverged"}
    return Counter({status: row[name] for status, name in names.items() if is_known(row.get(name))})


def _against(column: str, row: Row, limit: Limit, rows: Sequence[Row]) -> str:
    """`cost 41.2 (39.8–43.1) US dollars, at most 40`."""
    shown = value(column, row) if is_known(row[column]) else "not reported"
    if column == "energy_kwh" and (parts := lacking_energy_parts(row, rows)):
        shown += f" without {parts}"
    bound = "at least" if limit.at_most is None else "at most"
    return f"{metric_of(column, row).title} {shown}, {bound} {limit.value:g}"


#: Keys of a recipe and of a platform that can change a run, with their values as JSON has them.
Parameters = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Sweep:
    """What was measured: `comparison` has one row per point and `runs` one per run.

    Both are as `table_rows.read_table` gives them.
    """

    comparison: pd.DataFrame
    runs: pd.DataFrame

    @cached_property
    def run_rows(self) -> Sequence[RunRow]:
        """The rows of the table of runs."""
        return table_rows.typed(RunRow, self.runs)

    @cached_property
    def points(self) -> Sequence[Row]:
        """The rows of the comparison."""
        return rows_of(self.comparison)


@dataclass(frozen=True, eq=False)
class Reference(Sweep):
    """Another study, with which this one is compared; `parameters` belong to its points."""

    folder: Path
    parameters: Mapping[Point, Parameters]

    @classmethod
    def read(cls, folder: Path) -> Reference:
        """The study of a folder `results/<study>`, of this or of another version of the workflow.

        Raises ConfigError with the file that is missing or cannot be read.
        """
        manifest, comparison, runs = (folder / name for name in REFERENCE_FILES)
        try:
            return cls(
                table_rows.read_table(comparison, POINT_AXES),
                table_rows.read_table(runs, POINT_AXES),
                folder,
                _parameters(manifest),
            )
        except (OSError, ValueError) as error:  # of pandas and msgspec
            raise ConfigError(f"compare_with: {folder}: {error}") from error


class _Spec(msgspec.Struct):
    """Of a specification in a manifest what stays the same from version to version."""

    point: Point
    recipe: dict[str, object]
    measured: dict[str, object]


class _Run(msgspec.Struct):
    spec: _Spec


class _Manifest(msgspec.Struct):
    runs: tuple[_Run, ...]


def _parameters(manifest: Path) -> dict[Point, Parameters]:
    runs = msgspec.json.decode(manifest.read_bytes(), type=_Manifest).runs
    return {run.spec.point: run.spec.recipe | run.spec.measured for run in runs}


@dataclass(frozen=True, eq=False)
class Study(Sweep):
    """The evidence for all conclusions, read once.

    `published_tolerance` is the fraction by which the `published_results` may lie outside the
    measured range. `indifference` is the fraction below which a difference between points does
    not matter. `reference` is the study that `compare_with` names; `forecast_nodes` are the numbers
    of nodes of `forecast`.
    """

    manifest: Manifest
    published_results: Sequence[PublishedResult] = ()
    published_tolerance: float = Published().tolerance
    reference: Reference | None = None
    forecast_nodes: Sequence[int] = ()
    question: Question = field(default_factory=Question)

    def compared(self, rows: Sequence[Row], goal: str) -> tuple[list[Row], list[NotCovered]]:
        """(the configurations of a question that are compared, the others with their reasons).

        Those that are not shown to keep the limits are others; those that report no quality cannot
        keep its limit.
        """
        measured, _ = split(rows, self.samples)
        others = not_covered(rows, self.samples)
        error = (1 - CONFIDENCE) / 2 / max(1, len(measured) * len(self.question.given))
        kept = []
        for row in measured:
            limits = self.question.limits_for(goal, row.get("quality_metric"))
            point = point_of(row)
            missed: list[str] = []
            undecided: list[str] = []
            for column, limit in limits.items():
                values = self.samples.measured(point, column)
                scatter = self.samples.projection_error(point, column)
                keeps = keeps_limit(values, limit, error, scatter)
                # further runs would not report a quality either
                if keeps is False or (column == QUALITY and not values):
                    missed.append(column)
                elif (
                    not keeps
                    or self.samples.statuses(point)[RunState.DIVERGED]
                    or (column == "energy_kwh" and lacking_energy_parts(row, measured))
                ):
                    undecided.append(column)
            if missed or undecided:
                words = "misses a limit" if missed else "is not shown to keep a limit"
                against = [
                    _against(name, row, limits[name], measured) for name in missed or undecided
                ]
                reason = f"{words}: {', '.join(against)}"
                others.append(NotCovered(row, reason, not missed, (*missed,), (*undecided,)))
            else:
                kept.append(row)
        return kept, others

    @cached_property
    def samples(self) -> Samples:
        """The values of the runs by point."""
        return Samples(self.runs)

    @cached_property
    def works(self) -> dict[str, list[Row]]:
        """The questions of the study → the points of each, without short runs of searches."""
        shorts = {each.short for search in self.manifest.searches for each in search.points}
        rows = [row for row in self.points if not shorts or point_of(row) not in shorts]
        return works_of(rows, self.question.separate)

    @cached_property
    def ineligible(self) -> list[tuple[Row, str]]:
        """(point, reason) of every point that is excluded from comparisons."""
        return [pair for rows in self.works.values() for pair in split(rows, self.samples)[1]]

    @cached_property
    def prices(self) -> dict[Point, float | None]:
        """Point → US dollars per node and hour."""
        return {run.spec.point: run.usd_per_node_hour for run in self.manifest.runs}

    @cached_property
    def searches(self) -> dict[str, StudySearch]:
        """Question → the search for its answer."""
        found = {}
        for search in study_searches.of_study(self.manifest, self.runs):
            row = self.shown(point := search.planned.points[0].point)
            row["platform_title"] = self.manifest.platforms[point.platform].title or point.platform
            found[work_name(row, self.question.separate) or ALL] = search
        return found

    def named(self, work: str) -> list[Row]:
        """Rows with the axes of a question's points, also of those that a search has not run."""
        search = self.searches.get(work)
        return [*self.works[work], *map(self.shown, search.points.values() if search else ())]

    def shown(self, point: Point) -> Row:
        """What names a point, whether it was run or not."""
        devices = self.manifest.platforms[point.platform].devices
        return columns_of(point) | {"devices": device_kind(point.gpus_per_node, devices)}

    @cached_property
    def searched(self) -> set[Point]:
        """The points of all searches, also of short runs."""
        return {point for search in self.searches.values() for point in search.all_points.values()}
