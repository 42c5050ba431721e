"""Evidence for conclusions: tables, plan, and which configurations may be compared.

A configuration that trained another number of examples than the others, or half of whose runs or
more diverged, is excluded from decisions, findings, scaling laws and clouds. A configuration with
fewer diverged runs, or with failed runs, is included, and every sentence that recommends it says
so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import pandas as pd

from tfscaling.record.run_states import RunState
from tfscaling.search import study_searches
from tfscaling.search.study_searches import StudySearch, work_of
from tfscaling.spec.config import POINT_AXES, Comparison, Published
from tfscaling.spec.configuration import REFERENCE_FILES, ConfigError
from tfscaling.spec.manifest import Manifest
from tfscaling.spec.run_spec import Point
from tfscaling.tables import table_rows
from tfscaling.tables.comparison import (
    OTHER_WORK,
    SAME_WORK_TOLERANCE,
    is_same_work,
    runs_differ,
)
from tfscaling.tables.display import listed, point_name
from tfscaling.tables.published_results import PublishedResult
from tfscaling.tables.rows import RunRow
from tfscaling.tables.significance import Samples
from tfscaling.tables.table_rows import Row, is_known, point_of, rows_of

#: Points that share these do the same work.
WORK_AXES = ("model", "recipe")


def split(
    rows: Sequence[Row], samples: Samples | None = None
) -> tuple[list[Row], list[tuple[Row, str]]]:
    """(points that are compared, points that are not, with the reason), of points of one work.

    The runs are counted by `samples`, or else by the columns of the rows.
    """
    most = examples_of_work(rows)
    eligible: list[Row] = []
    ineligible: list[tuple[Row, str]] = []
    for row in rows:
        reason = why_not(row, samples.statuses(point_of(row)) if samples else _counted(row), most)
        if reason:
            ineligible.append((row, reason))
        elif row["runs"] > 0:
            eligible.append(row)
    return eligible, ineligible


@dataclass(frozen=True)
class NotCovered:
    """A planned configuration about which a statement says nothing, and why.

    `is_open`: its runs may still change the answer. Not where the runs themselves show that it
    cannot be recommended: they diverged, or all of them missed the target.
    """

    row: Row
    reason: str
    is_open: bool = True


def not_covered(rows: Sequence[Row], samples: Samples) -> list[NotCovered]:
    """The planned configurations of one task that are in no comparison."""
    most = examples_of_work(rows)
    found = []
    for row in rows:
        statuses = samples.statuses(point_of(row))
        if reason := why_not(row, statuses, most):
            found.append(NotCovered(row, reason, not statuses[RunState.DIVERGED]))
        elif row["runs"] == 0 and row["status"] != "excluded":
            made = ", ".join(f"{count} {status}" for status, count in statuses.items())
            found.append(NotCovered(row, f"no valid run ({made or row['status']})"))
    return found


def not_covered_text(found: Sequence[NotCovered], vary: Sequence[str] = ()) -> str:
    """A sentence that names them and the reasons; empty if there are none."""
    if not found:
        return ""
    return f"Not compared: {listed([f'{point_name(n.row, vary)}, {n.reason}' for n in found])}."


def examples_of_work(rows: Sequence[Row]) -> float:
    """The number of examples that is the work of these configurations (`work_of`)."""
    return work_of(row["examples_trained"] for row in rows if _is_known(row, "examples_trained"))


def why_not(row: Row, statuses: Counter[str], work: float = 0.0) -> str:
    """Why the point takes no part in comparisons; nothing if it does, or was not measured.

    `work` is the number of examples of the work. A point that did all of it, or more, takes part,
    though its baseline did less and it has no speed-up for that; not one whose runs differ in that.
    """
    if _is_known(row, "examples_trained"):
        trained = row["examples_trained"]
        if work - trained > SAME_WORK_TOLERANCE * work:
            return f"{OTHER_WORK}: trained {trained:,.0f} examples, another point {work:,.0f}"
    if _is_known(row, "examples_trained_min") and not is_same_work(
        row["examples_trained_min"], row["examples_trained_max"]
    ):
        return runs_differ(int(row["examples_trained_min"]), int(row["examples_trained_max"]))
    diverged, ended = statuses[RunState.DIVERGED], statuses[RunState.DIVERGED] + statuses["ok"]
    if diverged and 2 * diverged >= ended:
        return f"{diverged} of {ended} runs diverged"
    return ""


def remark(row: Row, samples: Samples) -> str:
    """`; 2 of 6 runs diverged, 12 of 18 attempts failed`: what a recommendation must not hide."""
    statuses = samples.statuses(point_of(row))
    total = sum(statuses.values())
    counts = [
        f"{count} of {total} runs {status}"
        for status, count in sorted(statuses.items(), key=lambda item: item[0] != RunState.DIVERGED)
        if count and status != "ok"
    ]
    if _is_known(row, "runs_at_target") and (missed := row["runs"] - row["runs_at_target"]):
        counts.append(f"{missed:.0f} of {row['runs']} runs missed the target")
    failed = samples.failed_attempts(point_of(row))
    if failed > statuses[RunState.FAILED]:
        ended = statuses[RunState.OK] + statuses[RunState.DIVERGED]
        counts.append(f"{failed} of {failed + ended} attempts failed")
    return f"; {', '.join(counts)}" if counts else ""


def ineligible_text(ineligible: Sequence[tuple[Row, str]], vary: Sequence[str] = ()) -> str:
    """A sentence that names configurations that are not compared, with reasons; or empty."""
    return not_covered_text([NotCovered(*pair) for pair in ineligible], vary)


def works_of(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Model and recipe → the points that do this work."""
    works: dict[str, list[Row]] = {}
    for row in rows:
        works.setdefault(", ".join(str(row[axis]) for axis in WORK_AXES), []).append(row)
    return works


def _counted(row: Row) -> Counter[str]:
    """How many runs of a point count and diverged."""
    names = {RunState.OK: "runs", RunState.DIVERGED: "runs_diverged"}
    return Counter({status: row[name] for status, name in names.items() if _is_known(row, name)})


def _is_known(row: Row, name: str) -> bool:
    return name in row and is_known(row[name])


#: Keys of a recipe and of a platform that can change a run, with their values as JSON has them.
Parameters = Mapping[str, object]


@dataclass(frozen=True)
class Sweep:
    """What was measured: `comparison` has one row per point and `runs` one per run.

    Both are as `table_rows.read_table` gives them.
    """

    comparison: pd.DataFrame
    runs: pd.DataFrame

    @cached_property
    def samples(self) -> Samples:
        """The values of the runs by point."""
        return Samples(self.runs)

    @cached_property
    def run_rows(self) -> Sequence[RunRow]:
        """The rows of the table of runs."""
        return table_rows.typed(RunRow, self.runs)

    @cached_property
    def points(self) -> Sequence[Row]:
        """The rows of the comparison."""
        return rows_of(self.comparison)

    @cached_property
    def works(self) -> dict[str, list[Row]]:
        """Model and recipe → the points that do this work."""
        return works_of(self.points)

    @cached_property
    def ineligible(self) -> list[tuple[Row, str]]:
        """(point, reason) of every point that takes no part in comparisons."""
        return [pair for rows in self.works.values() for pair in split(rows, self.samples)[1]]


@dataclass(frozen=True)
class Reference(Sweep):
    """Another study, with which this one is compared; `parameters` are those of its points."""

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
    return {run.spec.point: {**run.spec.recipe, **run.spec.measured} for run in runs}


@dataclass(frozen=True)
class Study(Sweep):
    """The evidence for all conclusions, read once.

    `published_tolerance` is the fraction by which the `published_results` may lie outside the
    measured range. `indifference` is the fraction below which a difference between points does
    not matter. The all-reduce benchmarks lie below `benchmarks_dir`. `reference` is the study that
    `compare_with` names; `forecast_nodes` are the numbers of nodes of `forecast`. `decision_time`
    is the metric by which the point with the shortest time is chosen.
    """

    manifest: Manifest
    published_results: Sequence[PublishedResult] = ()
    published_tolerance: float = Published().tolerance
    indifference: float = Comparison().indifference
    benchmarks_dir: Path = Path("results/all_reduce")
    reference: Reference | None = None
    forecast_nodes: Sequence[int] = ()
    decision_time: str = Comparison().time

    @cached_property
    def searches(self) -> dict[str, StudySearch]:
        """Model and recipe → the search for the best of the points that do this work."""
        found = study_searches.of_study(self.manifest, self.runs)
        return {", ".join(search.work): search for search in found}

    @cached_property
    def searched(self) -> set[Point]:
        """The points of all searches."""
        return {point for search in self.searches.values() for point in search.points.values()}
