"""The costed plan: the runs that a sweep still has to do, their time, price and budget.

It is made from the records of finished runs. Slurm is not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from tfscaling.plan.run_durations import DurationEstimate, RunDurations
from tfscaling.plan.to_do import RunsToDo
from tfscaling.record import attempts
from tfscaling.record.attempts import SpentNodeHours
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.snakemake_adapter.submission import Submission, describe_submission
from tfscaling.study import platforms, variants
from tfscaling.study.config_types import POINT_AXES, Config, Recipe
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.study.run_spec import Point
from tfscaling.tables import row_values, runs_table, table_files
from tfscaling.tables.display import join_lines
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.row_values import is_known

if TYPE_CHECKING:
    from tfscaling.search.study_searches import StudySearch

#: Feasibility of a row: runs that are to do, extra repeats that may have to be done, a
#: configuration that is not run.
RUNS, IF_NEEDED, EXCLUDED = "runs", "runs if needed", "excluded"
#: Feasibility of a row with runs to do that `explain` adds.
EXPLAINS = "runs to explain steps"
#: Value of `starts` for runs that Slurm can never start, or whose libraries are missing.
REFUSED = "refused"


class PlanRow(Point, frozen=True, kw_only=True):
    """Runs of one configuration that are to do for the same reason, or an excluded configuration.

    Attributes:
        devices: Kind of devices on which the runs train.
        feasibility: RUNS; IF_NEEDED, for conditional runs; EXPLAINS, for runs that only show where
            the time of other runs goes; EXCLUDED; or REFUSED. Results of other runs decide whether
            a conditional run is made.
        reason: Why the runs are to do, or why the configuration is excluded.
        tasks: Number of tasks of a run; None for an excluded configuration, like all further
            fields.
        gpus: Number of GPUs of a run.
        cpus_per_task: CPUs of each task.
        duration_s: Expected time of one run, in seconds.
        duration_from: Source of the duration: "measured, 3 runs", "projected, 2 short runs", or
            TIME_LIMIT.
        node_hours: Node-hours of all runs of the row.
        cost_usd: Cost of all runs of the row; None without a price.
        runs: Number of runs.
        submission: The command that submits a run, such as its sbatch line, or how else it is
            started; None before `add_submission`.
        starts: When Slurm would start a run: "at once", a local time, "waits", or REFUSED; None
            if Slurm was not queried.
        slurm: Why Slurm refuses the runs or lets them wait; None if it does neither.
        wait_bound_s: Upper bound of a run's time in the queue, in seconds, from similar past jobs;
            None if unknown.
    """

    devices: str
    feasibility: str
    reason: str
    tasks: int | None = None
    gpus: int | None = None
    cpus_per_task: int | None = None
    duration_s: float | None = None
    duration_from: str | None = None
    node_hours: float | None = None
    cost_usd: float | None = None
    runs: float | None = None
    submission: str | None = None
    starts: str | None = None
    slurm: str | None = None
    wait_bound_s: float | None = None

    @property
    def point(self) -> Point:
        """The configuration."""
        return msgspec.convert(self.axes, Point)

    @property
    def is_refused(self) -> bool:
        """Whether the runs can never start: Slurm refuses them, or CUDA's libraries are missing."""
        return self.starts == REFUSED

    @property
    def is_sbatch(self) -> bool:
        """Whether the runs are submitted with sbatch."""
        return (self.submission or "").startswith("sbatch ")


def recipes_with_different_examples(
    rows: Iterable[PlanRow], recipes: Mapping[str, Recipe]
) -> list[str]:
    """Return names of recipes whose configurations would train different numbers of examples.

    Args:
        rows: The rows of a plan.
        recipes: Name → recipe.
    """
    found = []
    for name, own in row_values.group_by(rows, lambda row: row.recipe).items():
        recipe = recipes[variants.base_recipe(name)]
        shapes = {(row.nodes, row.gpus_per_node, row.tasks_per_node) for row in own}
        if recipe.steps_per_epoch and recipe.per_replica_batch_size and len(shapes) > 1:
            found.append(name)
    return found


#: Columns of the plan's CSV file.
COLUMNS = tuple(dict.fromkeys((*POINT_AXES, "runs", *PlanRow.__struct_fields__)))


@dataclass(frozen=True)
class RunTotals:
    """Sums over the runs of several rows.

    Attributes:
        runs: Number of runs.
        node_hours: Their node-hours.
        cost_usd: Cost of runs on platforms with a price.
        duration_s: Time of all runs one after the other, in seconds.
        unpriced: Platforms without a price.
    """

    runs: float
    node_hours: float
    cost_usd: float
    duration_s: float
    unpriced: tuple[str, ...]


@dataclass(frozen=True)
class SearchCost:
    """Costs of a complete search, finished runs included, and of the full grid.

    Attributes:
        question: Name of the training task that is searched, as in `PlannedSearch`.
        costs: Kind of sum → sum over all clusters. Kinds: "made" (finished runs), "least" (the
            search ends after its next round), "expected", "most" (all further rounds run the most
            expensive configurations), "full grid".
        points: The configurations that the search may run.
        to_do: Totals of the expected further runs on the chosen clusters, reruns included.
        end_verdict: The verdict, as text, of a search that ended because its next round would
            cost more than it is expected to save; "" for all other searches.
    """

    question: str
    costs: Mapping[str, RunTotals]
    points: frozenset[Point]
    to_do: RunTotals
    end_verdict: str


@dataclass(frozen=True)
class Plan:
    """The runs that a sweep still has to do, with their cost, and the cost so far.

    The plan leaves out runs that a search no longer needs, and runs whose configuration ran out of
    memory with a smaller batch.

    Attributes:
        rows: The runs to do, extra repeats included, then the excluded configurations.
        finished: Number of runs with a current record, diverged runs included.
        on_other_clusters: Number of planned runs on clusters that were not chosen.
        stale: Number of runs whose record is from other code or data; only `rerun: stale` repeats
            them.
        unreadable: For each record that cannot be read, the reason. Its run is not to do until the
            record is deleted.
        spent: Cost so far, failed attempts included.
        searches: Costs of the searches.
        startup_s: Shortest measured time from the start of a run to its training, in seconds. Only
            runs with the platform, strategy and recipe of a run to do count; 0 if one of these
            combinations has no measurement.
    """

    rows: list[PlanRow]
    finished: int
    on_other_clusters: int
    stale: int = 0
    unreadable: tuple[str, ...] = ()
    spent: SpentNodeHours = field(default_factory=SpentNodeHours)
    searches: list[SearchCost] = field(default_factory=list)
    startup_s: float = 0.0

    @property
    def runs(self) -> list[PlanRow]:
        """The rows without the excluded configurations."""
        return [row for row in self.rows if row.feasibility != EXCLUDED]


def sum_rows(rows: Sequence[PlanRow]) -> RunTotals:
    """Return the sums over the runs of these rows."""
    return RunTotals(
        sum(row.runs or 0 for row in rows),
        sum(row.node_hours or 0.0 for row in rows),
        sum(row.cost_usd or 0.0 for row in rows),
        sum((row.runs or 0) * (row.duration_s or 0.0) for row in rows),
        tuple(dict.fromkeys(row.platform for row in rows if row.cost_usd is None)),
    )


def make_plan(
    config: Config, planned: Manifest, runs_dir: Path, forced: frozenset[str] = frozenset()
) -> Plan:
    """Return the costed plan of a sweep with this configuration.

    Args:
        config: The validated configuration.
        planned: Its manifest.
        runs_dir: The folder of all runs.
        forced: Folders of runs that are repeated although they have a record.

    Raises:
        ConfigError: If no platform is on the chosen cluster.
    """
    platforms.check_cluster(config)
    # an extra repeat, too, has a row although it was not run
    runs = tuple(replace(run, extra_repeat=False) for run in planned.all_runs)
    all_rows = runs_table.run_rows(runs, runs_dir, planned.targets).runs
    is_selected = [config.is_selected(run.spec.point.platform) for run in planned.all_runs]
    selected = [*compress(planned.all_runs, is_selected)]
    own = [*compress(all_rows, is_selected)]
    to_do = RunsToDo(config, planned.all_runs, runs_dir, forced)
    searches = _decide_searches(planned, all_rows)  # by the runs of all clusters
    durations = RunDurations(config, planned.all_runs, runs_dir)
    sorted_runs = _sort_runs(selected, own, to_do, searches)
    rows = [
        _plan_row(due[0], len(due), feasibility, reason, durations.estimate(point))
        for (point, feasibility, reason), due in sorted_runs.due.items()
    ]
    startup_s = _shortest_startup_s(own, rows)
    rows += _excluded_rows(config, planned)
    repeated = Counter(  # to a search, stale runs are missing: it requests what it needs of them
        run.spec.point
        for run, row in zip(selected, own, strict=True)
        if run.spec.path in to_do.forced_again and row.status in RESULTS
    )
    chosen = {run.spec.point for run in selected}
    first = {run.spec.point: run for run in planned.all_runs}
    return Plan(
        rows=rows,
        finished=sorted_runs.finished,
        on_other_clusters=len(planned.all_runs) - len(selected),
        stale=sorted_runs.stale,
        unreadable=sorted_runs.unreadable,
        spent=attempts.sum_node_hours(
            {name: row[name] for name in attempts.SPENT_COLUMNS} for row in own
        ),
        searches=[_cost_search(each, first, durations, repeated, chosen) for each in searches],
        startup_s=startup_s,
    )


class _SortedRuns(NamedTuple):
    """The runs of the chosen clusters, sorted by whether they are to do.

    Attributes:
        due: (configuration, kind of runs, why they are to do) → these runs. The kind is RUNS,
            IF_NEEDED or EXPLAINS, as in `PlanRow.feasibility`.
        finished: Number of runs with a current record, diverged runs included.
        stale: Number of runs whose record is from other code or data.
        unreadable: For each record that cannot be read, the reason.
    """

    due: Mapping[tuple[Point, str, str], Sequence[PlannedRun]]
    finished: int
    stale: int
    unreadable: tuple[str, ...]


def _sort_runs(
    selected: Sequence[PlannedRun],
    rows: Sequence[RunRow],
    to_do: RunsToDo,
    searches: Sequence[StudySearch],
) -> _SortedRuns:
    """Sort the runs of the chosen clusters by whether they are to do.

    Runs that will not be made are left out: runs whose configuration did not fit in memory with a
    smaller batch, runs of a search that failed too often, and runs that it does not need.

    Args:
        selected: The runs.
        rows: Their rows in the table of runs, in the same order.
        to_do: Which runs of the study are to do.
        searches: The searches of the study.
    """
    searched = {point: search for search in searches for point in search.all_points.values()}
    due: dict[tuple[Point, str, str], list[PlannedRun]] = {}
    finished, stale, unreadable = 0, 0, []
    for run, row in zip(selected, rows, strict=True):
        point, path, status, reason = run.spec.point, run.spec.path, row.status, row.reason
        if why := to_do.unreadable.get(path):
            unreadable.append(why)
        elif path not in to_do.folders_to_do:
            stale += status == RunState.STALE
            finished += status != RunState.STALE
        elif path in to_do.forced_again:
            key = point, EXPLAINS if run.explains else RUNS, "forced"
            due.setdefault(key, []).append(run)
        elif status == RunState.MISSING and reason.startswith(f"{runs_table.NOT_RUN}:"):
            continue  # a smaller batch did not fit
        elif point in searched and status == RunState.FAILED and row.failed_too_often:
            continue  # its search gave it up
        elif point not in searched or searched[point].may_need_runs(point):
            usual = EXPLAINS if run.explains else RUNS
            feasibility = IF_NEEDED if run.is_conditional else usual
            key = point, feasibility, f"{status}: {join_lines(reason)}"
            due.setdefault(key, []).append(run)
    return _SortedRuns(due, finished, stale, tuple(unreadable))


def _decide_searches(planned: Manifest, rows: Sequence[RunRow]) -> list[StudySearch]:
    """Return the searches of a manifest with their decisions, from the rows of all its runs."""
    if not planned.searches:
        return []
    from tfscaling.search import study_searches  # loads SciPy

    return study_searches.decide_searches(planned, table_files.to_frame(RunRow, rows))


def _shortest_startup_s(rows: Iterable[RunRow], due: Sequence[PlanRow]) -> float:
    """Return the shortest measured time from a run's start to its training, in seconds.

    Only runs with the platform, strategy and recipe of a run to do are considered.

    Args:
        rows: Rows of the table of runs.
        due: Rows of the runs to do.

    Returns:
        0 if such a combination of platform, strategy and recipe has no measurement.
    """
    shortest_s: dict[tuple[str, str, str], float] = {}
    for row in rows:
        startup_s = row.execution_time_s - row.train_time_s
        if is_known(startup_s):
            kind = row.platform, row.strategy, row.recipe
            shortest_s[kind] = min(startup_s, shortest_s.get(kind, startup_s))
    due_kinds = {(row.platform, row.strategy, row.recipe) for row in due}
    return min((shortest_s.get(kind, 0.0) for kind in due_kinds), default=0.0)


def _excluded_rows(config: Config, planned: Manifest) -> list[PlanRow]:
    """Return a row for each excluded configuration on the chosen clusters."""
    rows = []
    for out in planned.excluded:
        if config.is_selected(out.point.platform):
            devices = config.platforms[out.point.platform].devices
            kind = platforms.device_kind(out.point.gpus_per_node, devices)
            axes = msgspec.structs.asdict(out.point)
            rows.append(PlanRow(**axes, devices=kind, feasibility=EXCLUDED, reason=out.reason))
    return rows


def cost_runs(
    config: Config, planned: Manifest, runs: Sequence[PlannedRun], runs_dir: Path
) -> list[PlanRow]:
    """Return one row of a plan for each configuration of some runs, with their estimated cost.

    Args:
        config: The configuration.
        planned: Its manifest.
        runs: The runs to cost.
        runs_dir: The folder of all runs, whose records give the durations.
    """
    durations = RunDurations(config, planned.all_runs, runs_dir)
    return [
        _plan_row(own[0], len(own), RUNS, "", durations.estimate(point))
        for point, own in row_values.group_by(runs, lambda run: run.spec.point).items()
    ]


def _plan_row(
    run: PlannedRun, number: float, feasibility: str, reason: str, estimated: DurationEstimate
) -> PlanRow:
    """Return the plan's row for several runs of a configuration.

    Args:
        run: One of the runs.
        number: How many runs; it may be an expected value.
        feasibility: RUNS, IF_NEEDED or EXPLAINS.
        reason: Why the runs are to do.
        estimated: The expected time of a run.
    """
    spec, shape, duration_s = run.spec, run.spec.point.geometry, estimated.duration_s
    price, all_s = run.usd_per_node_hour, number * duration_s
    return PlanRow(
        **msgspec.structs.asdict(spec.point),
        devices=platforms.device_kind(shape.gpus_per_node, spec.measured.devices),
        feasibility=feasibility,
        reason=reason,
        tasks=shape.tasks,
        gpus=shape.gpus,
        cpus_per_task=spec.cpus_per_task,
        duration_s=duration_s,
        duration_from=estimated.source,
        node_hours=shape.nodes * all_s / 3600.0,
        cost_usd=platforms.run_cost_usd(price, shape.nodes, all_s),
        runs=number,
    )


def _cost_search(
    search: StudySearch,
    first: Mapping[Point, PlannedRun],
    durations: RunDurations,
    repeated: Mapping[Point, int],
    chosen: Set[Point],
) -> SearchCost:
    """Return the cost of a search.

    Args:
        search: The search, with its finished runs.
        first: Configuration → one of its planned runs.
        durations: The expected times of runs.
        repeated: Configuration → number of finished runs that are rerun.
        chosen: The configurations on the chosen clusters.
    """
    from tfscaling.conclusions.search_results import verdict_text
    from tfscaling.search import study_searches

    prices = {point: run.usd_per_node_hour for point, run in first.items()}
    made, points = search.finished_runs, search.all_points
    next_runs = {points[name]: runs for name, runs in search.decision.runs_to_start.items()}
    node_hours = {point: point.nodes * durations.estimate(point).duration_s for point in made}

    expected = study_searches.expected_runs(search, prices)
    wanted: dict[str, Mapping[Point, float]] = {
        "made": made,
        "least": {point: max(runs, next_runs.get(point, 0)) for point, runs in made.items()},
        "expected": {point: max(made[point], number) for point, number in expected.items()},
        "most": search.most_runs(node_hours),
        "full grid": {p.point: p.repeats for p in search.planned.points if p.point in made},
    }
    further = {
        point: max(0.0, number - made[point]) + repeated.get(point, 0)
        for point, number in wanted["expected"].items()
        if point in chosen
    }

    def total_of(runs: Mapping[Point, float]) -> RunTotals:
        rows = ((first[p], number, durations.estimate(p)) for p, number in runs.items())
        return sum_rows(
            [_plan_row(run, number, RUNS, "", estimate) for run, number, estimate in rows]
        )

    costs = {kind: total_of(runs) for kind, runs in wanted.items()}
    verdict = verdict_text(search) if search.decision.not_worth_it else ""
    return SearchCost(search.planned.question, costs, frozenset(made), total_of(further), verdict)


def add_submission(
    rows: Iterable[PlanRow], config: Config, job_submission: Submission
) -> list[PlanRow]:
    """Return the rows with the command by which their runs are submitted.

    Args:
        rows: The rows.
        config: The configuration, with the platforms.
        job_submission: How Snakemake submits jobs.
    """
    return [
        row
        if row.runs is None
        else replace(
            row,
            submission=describe_submission(
                config.platforms[row.platform], row.geometry, job_submission
            ),
        )
        for row in rows
    ]
