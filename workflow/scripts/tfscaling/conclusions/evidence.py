"""Evidence for conclusions: tables, plan, and which configurations may be compared.

A configuration is excluded from decisions, findings, forecasts and clouds if its own runs show
that it cannot be recommended (`run_counts.is_ruled_out`): they diverged or ran out of memory. One
that trained another number of examples than the others is excluded, too, and leaves an answer
open. A configuration with fewer such runs, or with failed runs, is included, and every sentence
that recommends it says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import pandas as pd

from tfscaling.conclusions.answers import details, efficiency
from tfscaling.conclusions.answers.efficiency import Verdict
from tfscaling.conclusions.answers.goals import ENERGY, GOALS, answered_goals
from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.estimation.run_counts import is_ruled_out
from tfscaling.estimation.samples import Samples
from tfscaling.record.metrics import FINISH_TIME, QUALITY
from tfscaling.record.run_states import RESULTS, RunState, status_words
from tfscaling.search import study_searches
from tfscaling.search.study_searches import StudySearch, most_common_examples
from tfscaling.study import platforms
from tfscaling.study.config_types import (
    CAMPAIGN_METRICS,
    EFFICIENCIES,
    POINT_AXES,
    TASK_AXES,
    Limit,
    Published,
    Question,
)
from tfscaling.study.config_validation import REFERENCE_FILES, ConfigError
from tfscaling.study.manifest import Manifest
from tfscaling.study.run_spec import Point
from tfscaling.tables import row_values, table_files
from tfscaling.tables.comparison import (
    DIFFERENT_WORK,
    SAME_WORK_TOLERANCE,
    all_runs_reached_target,
    are_equal_work,
    varying_work_reason,
)
from tfscaling.tables.display import (
    axis_text,
    format_metric,
    limit_text,
    point_name,
    varying_axes,
)
from tfscaling.tables.published_results import PublishedResult
from tfscaling.tables.row_types import PointRow, RunRow
from tfscaling.tables.row_values import (
    axis_columns,
    group_by,
    is_known,
    missing_energy_parts,
    point_of,
)
from tfscaling.tables.run_samples import read_samples
from tfscaling.tables.runs_table import NOT_RUN

#: Reason of a configuration that is not compared because its runs ran out of memory.
OUT_OF_MEMORY = "does not fit in memory"
#: Name of the only question of a study that chooses among all configurations.
ALL_CONFIGURATIONS = "all configurations"


class ComparisonExclusion(NamedTuple):
    """Why a configuration is not compared.

    Attributes:
        reason: The reason in words.
        is_open: Whether the configuration may still change the answer.
    """

    reason: str
    is_open: bool


def find_exclusion(
    row: PointRow, statuses: Counter[str], examples: float = 0.0
) -> ComparisonExclusion | None:
    """Return why a configuration is excluded from comparisons; None if it is included.

    Args:
        row: The configuration.
        statuses: Number of its planned runs with each status.
        examples: Number of examples that most configurations with the same model and recipe train.
            A configuration that trained fewer is excluded; 0 disables this check.
    """
    trained = row.examples_trained
    if trained is not None and examples - trained > SAME_WORK_TOLERANCE * examples:
        made = f"trained {trained:,.0f} examples, another configuration {examples:,.0f}"
        return ComparisonExclusion(f"{DIFFERENT_WORK}: {made}", True)
    least, most = row.examples_trained_min, row.examples_trained_max
    if least is not None and most is not None and not are_equal_work(least, most):
        return ComparisonExclusion(varying_work_reason(least, most), True)
    planned = statuses.total()
    unfit, diverged = statuses[RunState.DOES_NOT_FIT], statuses[RunState.DIVERGED]
    if is_ruled_out(unfit + diverged, planned):
        if unfit:
            return ComparisonExclusion(f"{OUT_OF_MEMORY} ({unfit} of {planned} runs)", False)
        return ComparisonExclusion(f"{diverged} of {planned} runs diverged", False)
    if row.runs == 0 and row.status != "excluded":
        made = ", ".join(
            f"{count} {status_words(status)}" for status, count in statuses.items() if count
        )
        return ComparisonExclusion(f"no valid run ({made or row.status})", True)
    return None


def examples_by_task(rows: Sequence[PointRow]) -> dict[tuple[str, str], float]:
    """Return (model, recipe) → number of examples that most of its configurations train."""
    known = [row for row in rows if row.examples_trained is not None]
    return {
        task: most_common_examples([row.examples_trained or 0 for row in own])
        for task, own in group_by(known, _model_and_recipe).items()
    }


def _model_and_recipe(row: PointRow) -> tuple[str, str]:
    """Return model and recipe of a row."""
    return row.model, row.recipe


def failure_remark(row: PointRow, samples: Samples) -> str:
    """Return how many runs and attempts of a configuration have no good result, in words.

    These are runs that are not valid or missed the target, and failed attempts. A sentence that
    recommends the configuration must mention them. Example: `2 of 6 runs diverged, 12 of 18
    attempts failed`; "" without any.
    """
    statuses = samples.status_counts(point_of(row))
    total = sum(statuses.values())
    counts = [
        f"{count} of {total} runs {status_words(status)}"
        for status, count in sorted(statuses.items(), key=lambda item: item[0] != RunState.DIVERGED)
        if count and status != "ok"
    ]
    if row.runs_at_target is not None and (missed := row.runs - row.runs_at_target):
        counts.append(f"{missed:.0f} of {row.runs} runs missed the target")
    failed = samples.failed_attempts[point_of(row)]
    if failed > statuses[RunState.FAILED]:
        ended = sum(statuses[each] for each in RESULTS)
        counts.append(f"{failed} of {failed + ended} attempts failed")
    return ", ".join(counts)


#: Values of the axes that distinguish a question from others.
TaskKey = tuple[str, ...]


def group_by_task(
    rows: Iterable[PointRow], axes: Sequence[str] = TASK_AXES
) -> dict[TaskKey, list[PointRow]]:
    """Return (values of these axes) → rows with these values; by default model and recipe."""
    return group_by(rows, lambda row: tuple(str(row[axis]) for axis in axes))


def task_name(row: PointRow, axes: Sequence[str] = TASK_AXES) -> str:
    """Return a name for a row's question: its values of these axes in words, platforms by title."""
    return ", ".join(axis_text(axis, row) for axis in axes) or ALL_CONFIGURATIONS


@dataclass(frozen=True)
class ConfigurationFacts:
    """What the tables show about one configuration, for any goal of a question.

    Attributes:
        name: The axes that distinguish the configuration from the others, in words.
        remark: Runs that are not valid or missed the target, and failed attempts, in words, by
            `failure_remark`; "" without any.
        excluded: Why the configuration is in no comparison; None if it may be compared.
        is_begun: Whether one of its runs was begun.
        values: Goal → median as text, with interval and unit, for goals with a known value.
        limited: Metric with a limit → its value and the limit as text, by `_limit_text`; empty for
            an excluded configuration.
        lacking_energy: Parts, such as GPUs, that the energy of other configurations includes and
            its energy does not; "" if none, or without a limit of the energy.
        is_at_target: Whether all runs reached the target.
        verdicts: Metric → verdict on its limit, for limits that a configuration's own runs do not
            decide alone: efficiencies, and the time and cost of a campaign. Empty for an excluded
            configuration.
        details: Metric → its title, value and unit, by `details.describe_metrics`; empty for a
            question without limits.
    """

    name: str
    remark: str
    excluded: ComparisonExclusion | None
    is_begun: bool
    values: Mapping[str, str]
    limited: Mapping[str, str]
    lacking_energy: str
    is_at_target: bool
    verdicts: Mapping[str, Verdict]
    details: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class QuestionEvidence:
    """The evidence for one question: the configurations among which one is chosen.

    Attributes:
        name: The axes that distinguish the question from others, in words, from `task_name`.
        rows: Rows of the comparison, without the short runs of a search.
        all_rows: `rows`, then one row for each configuration of `search`, in which only the axes
            are filled (`Study.axes_row`). So configurations without a row in `rows` have one, too;
            a configuration with runs has two, the complete one first.
        search: The search that chooses among the configurations; None without one.
        goals: Goal → its title, for the goals by which the question is answered.
        facts: Configuration → facts about it from the tables.
    """

    name: str
    rows: Sequence[PointRow]
    all_rows: Sequence[PointRow]
    search: StudySearch | None = None
    goals: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[Point, ConfigurationFacts] = field(default_factory=dict)


def _limit_text(column: str, row: PointRow, limit: Limit, lacking: str) -> str:
    """Return a metric's value and its limit: `cost 41.2 (39.8–43.1) US dollars, at most 40`.

    Args:
        column: The metric with the limit.
        row: The configuration.
        limit: The limit.
        lacking: Parts, such as GPUs, whose energy the measurement does not include.
    """
    without = f" without {lacking}" if column == ENERGY and lacking else ""
    return limit_text(column, row, limit, without)


#: Keys of a recipe and of a platform that can change a run, with values as in JSON.
Parameters = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Sweep:
    """The tables of a measured sweep.

    Attributes:
        comparison: The table of configurations, from `table_files.read_table`.
        runs: The table of runs, from `table_files.read_table`.
    """

    comparison: pd.DataFrame
    runs: pd.DataFrame

    @cached_property
    def run_rows(self) -> Sequence[RunRow]:
        """The rows of the table of runs."""
        return table_files.to_rows(RunRow, self.runs)

    @cached_property
    def points(self) -> Sequence[PointRow]:
        """The rows of the comparison."""
        return table_files.to_rows(PointRow, self.comparison)


@dataclass(frozen=True, eq=False)
class Reference(Sweep):
    """Another study, with which this one is compared.

    Attributes:
        folder: Its folder.
        parameters: Configuration → parameters of its runs.
    """

    folder: Path
    parameters: Mapping[Point, Parameters]

    @classmethod
    def read(cls, folder: Path) -> Reference:
        """Read a reference study from its folder `results/<study>`, written by any version.

        Raises:
            ConfigError: If a file is missing or cannot be read; the message names it.
        """
        manifest, comparison, runs = (folder / name for name in REFERENCE_FILES)
        try:
            return cls(
                table_files.read_table(comparison, POINT_AXES),
                table_files.read_table(runs, POINT_AXES),
                folder,
                _read_parameters(manifest),
            )
        except (OSError, ValueError) as error:  # of pandas and msgspec
            raise ConfigError(f"compare_with: {folder}: {error}") from error


class _ReferenceSpec(msgspec.Struct):
    """The fields of a planned run that are read from the manifest of a reference study.

    The manifests of all tfscaling versions have these fields. Other fields are ignored.

    Attributes:
        point: The configuration.
        recipe: Key of the recipe → value.
        measured: Key of the platform that can change the run → value.
    """

    point: Point
    recipe: dict[str, object]
    measured: dict[str, object]


class _ReferenceRun(msgspec.Struct):
    """A run in the manifest of a reference study."""

    spec: _ReferenceSpec


class _ReferenceManifest(msgspec.Struct):
    """The part of a reference study's manifest that is read."""

    runs: tuple[_ReferenceRun, ...]


def _read_parameters(manifest: Path) -> dict[Point, Parameters]:
    """Return configuration → parameters of its runs, from a manifest."""
    runs = msgspec.json.decode(manifest.read_bytes(), type=_ReferenceManifest).runs
    return {run.spec.point: run.spec.recipe | run.spec.measured for run in runs}


@dataclass(frozen=True, eq=False)
class Study(Sweep):
    """The evidence for all conclusions: a sweep with its manifest and question, read once.

    Attributes:
        manifest: The planned runs.
        published_results: Published results of the same configurations.
        published_tolerance: Fraction by which a published value may be outside the measured range.
        reference: The study that `compare_with` names; None without one.
        forecast_nodes: The numbers of nodes to forecast.
        question: The configured question.
    """

    manifest: Manifest
    published_results: Sequence[PublishedResult] = ()
    published_tolerance: float = Published().tolerance
    reference: Reference | None = None
    forecast_nodes: Sequence[int] = ()
    question: Question = field(default_factory=Question)

    @cached_property
    def run_rows(self) -> Sequence[RunRow]:
        """The rows of all runs except the ones that the grid's key `explain` adds."""
        grid = row_values.without_points(self.runs, self.manifest.explaining_points)
        return table_files.to_rows(RunRow, grid)

    @cached_property
    def explaining_rows(self) -> Sequence[RunRow]:
        """The rows of the runs on one replica that the grid's key `explain` adds."""
        if not (added := self.manifest.explaining_points):
            return []
        rows = table_files.to_rows(RunRow, self.runs)
        return [row for row in rows if point_of(row) in added]

    @cached_property
    def samples(self) -> Samples:
        """The measured values of all runs, by configuration and metric."""
        return read_samples(self.runs)

    @cached_property
    def tasks(self) -> list[QuestionEvidence]:
        """The evidence for each question, with goals and facts, in the order of the comparison."""
        synchronous = self.manifest.synchronous_strategies
        return [
            replace(
                task,
                goals=answered_goals(self.question, synchronous, task.rows),
                facts=self._read_facts(task),
            )
            for task in self._tasks_without_facts
        ]

    def _read_facts(self, task: QuestionEvidence) -> dict[Point, ConfigurationFacts]:
        """Return configuration → facts from the tables, for all configurations of a question."""
        vary = varying_axes(task.all_rows)
        compared = [
            row
            for row in task.rows
            if row.status != "excluded" and point_of(row) not in self.excluded
        ]
        quality = next((row.quality_metric for row in task.all_rows if row.quality_metric), None)
        limits = self.question.limits_for("", quality)
        statements = len(compared) * len(self.question.limits_in_force)
        may_be_compared, found = {*map(point_of, compared)}, {}
        reported = {*GOALS, *limits, *details.DETAIL_COLUMNS} if limits else set[str]()
        reported -= {*CAMPAIGN_METRICS}
        for row in task.all_rows:
            point = point_of(row)
            if point in found:  # the name alone of one that was run
                continue
            has_energy = ENERGY in limits and is_known(row.energy_kwh)
            lacking = missing_energy_parts(row, compared) if has_energy else ""
            found[point] = ConfigurationFacts(
                name=point_name(row, vary),
                remark=failure_remark(row, self.samples),
                excluded=self.excluded.get(point),
                is_begun=bool(self.samples.status_counts(point).keys() - {RunState.MISSING}),
                values={
                    goal: format_metric(goal, row)
                    for goal in GOALS
                    if goal != FINISH_TIME and is_known(row[goal])
                },
                limited={
                    name: _limit_text(name, row, limit, lacking)
                    for name, limit in limits.items()
                    if point in may_be_compared
                    and name not in CAMPAIGN_METRICS  # `answers.campaign_answers` adds them
                    and (name != QUALITY or row.quality_metric)
                },
                lacking_energy=lacking,
                is_at_target=row.runs_at_target is not None and all_runs_reached_target(row),
                verdicts={
                    name: self.judge_efficiency(row, name, limit, statements)
                    for name, limit in limits.items()
                    if name in EFFICIENCIES and point in may_be_compared
                },
                details=details.describe_metrics(self.samples, row, reported, limits),
            )
        return found

    def judge_efficiency(self, row: PointRow, name: str, limit: Limit, statements: int) -> Verdict:
        """Judge whether a configuration keeps a limit of an efficiency.

        Args:
            row: The configuration.
            name: The efficiency.
            limit: Its limit.
            statements: Number of verdicts, one for each configuration and limit, that are all true
                with CONFIDENCE: the error rate is divided by this number.
        """
        base = next((r for r in self.points if point_of(r).path == row.baseline_point), None)
        why = self.excluded.get(point_of(base)) if base else None
        error = (1 - CONFIDENCE) / 2 / statements
        return efficiency.judge_efficiency(
            self.samples, row, base, why.reason if why else "", name, limit, error
        )

    @cached_property
    def _tasks_without_facts(self) -> list[QuestionEvidence]:
        """The evidence for each question, before its goals and facts are added."""
        shorts = {each.short for search in self.manifest.searches for each in search.points}
        rows = [row for row in self.points if not shorts or point_of(row) not in shorts]
        axes = self.question.separating_axes
        searches = {
            self._task_key(search.planned.points[0].point): search
            for search in study_searches.decide_searches(self.manifest, self.runs)
        }
        found = group_by_task(rows, axes)
        tasks = []
        for key in dict.fromkeys([*found, *searches]):
            own, search = found.get(key, []), searches.get(key)
            all_rows = [*own, *map(self.axes_row, search.points.values() if search else ())]
            tasks.append(QuestionEvidence(task_name(all_rows[0], axes), own, all_rows, search))
        return tasks

    def _task_key(self, point: Point) -> TaskKey:
        """Return the values of the axes that distinguish the question of a configuration."""
        return tuple(str(axis_columns(point)[axis]) for axis in self.question.separating_axes)

    @property
    def searches(self) -> list[tuple[QuestionEvidence, StudySearch]]:
        """Pairs of a question and its search, for questions that have one."""
        return [(task, task.search) for task in self.tasks if task.search]

    def _find_exclusion(self, row: PointRow, examples: float) -> ComparisonExclusion | None:
        """Return why a configuration is not compared; None if it is included.

        Args:
            row: The configuration.
            examples: Number of examples that most configurations with its model and recipe train;
                0 if unknown.
        """
        statuses = self.samples.status_counts(point_of(row))
        found = find_exclusion(row, statuses, examples)
        if found and statuses and statuses.keys() <= {RunState.MISSING}:
            reasons = {run.reason for run in self.runs_by_point[point_of(row)]}
            why = next((each for each in reasons if each.startswith(f"{NOT_RUN}:")), "not run yet")
            return ComparisonExclusion(
                why, not self._is_smaller_batch_too_large(point_of(row).path)
            )
        return found

    def _is_smaller_batch_too_large(self, folder: str) -> bool:
        """Return whether runs show that a smaller batch of a configuration does not fit in memory.

        A grid can try rising batch sizes until one does not fit: larger ones are then not run.

        Args:
            folder: Path of the configuration below the folder of the runs.
        """
        smaller = {run.spec.point.path: run.smaller for run in self.manifest.runs if run.smaller}
        statuses = {run.spec.point.path: run.spec.point for run in self.manifest.runs}
        while folder := smaller.get(folder) or "":
            counts = self.samples.status_counts(statuses[folder])
            if counts.keys() != {RunState.MISSING}:
                return counts.keys() == {RunState.DOES_NOT_FIT} and is_ruled_out(
                    *[counts.total()] * 2
                )
        return False

    @cached_property
    def excluded(self) -> dict[Point, ComparisonExclusion]:
        """Excluded configuration → why it is not compared."""
        groups = [task.rows for task in self._tasks_without_facts]
        of_tasks = {point_of(row) for rows in groups for row in rows}
        groups.append([row for row in self.points if point_of(row) not in of_tasks])
        found = {}
        for rows in groups:
            examples = examples_by_task(rows)
            for row in rows:
                if why := self._find_exclusion(row, examples.get(_model_and_recipe(row), 0.0)):
                    found[point_of(row)] = why
        return found

    @cached_property
    def runs_by_point(self) -> Mapping[Point, Sequence[RunRow]]:
        """Configuration → the rows of its runs."""
        return row_values.group_by_point(self.run_rows)

    @cached_property
    def compared_rows(self) -> list[PointRow]:
        """Rows of the configurations that have valid runs and are not `excluded`."""
        return [row for row in self.points if row.runs > 0 and point_of(row) not in self.excluded]

    @cached_property
    def prices(self) -> dict[Point, float | None]:
        """Configuration → price of a node per hour in US dollars; None without a price."""
        return {run.spec.point: run.usd_per_node_hour for run in self.manifest.runs}

    def axes_row(self, point: Point) -> PointRow:
        """Return a row that only names a configuration: axes, devices, title of the platform."""
        named = self.manifest.platforms
        devices = platforms.device_kind(point.gpus_per_node, named[point.platform].devices)
        title = platforms.unique_titles(named)[point.platform]
        axes = axis_columns(point)
        return PointRow(**axes, devices=devices, platform_title=title)  # type: ignore[arg-type]

    @cached_property
    def searched_points(self) -> set[Point]:
        """The configurations of all searches, and the configurations of their short runs."""
        return {point for _, search in self.searches for point in search.all_points.values()}
