"""The costed plan: what a sweep would still do, for how long, and at what price.

Reads the run records that exist; submits nothing and asks Slurm nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pandas as pd
from msgspec.structs import replace

from tfscaling.plan.run_durations import Estimate, RunDurations
from tfscaling.plan.to_do import RunsToDo
from tfscaling.record import attempts
from tfscaling.record.attempts import Spent
from tfscaling.record.run_states import RunState
from tfscaling.snakemake_adapter.submission import Submission, submission_line
from tfscaling.study import platforms, variants
from tfscaling.study.config_types import POINT_AXES, Config, Recipe
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.study.run_spec import Point
from tfscaling.tables import row_values, runs_table
from tfscaling.tables.display import one_line

if TYPE_CHECKING:
    from tfscaling.search.study_searches import StudySearch

#: A run that is still to do, an extra repeat that may have to be done, a point that is not run.
RUNS, IF_NEEDED, EXCLUDED = "runs", "runs if needed", "excluded"
#: `starts` of a point that Slurm can never start, or whose libraries are missing.
REFUSED = "refused"


class PlanRow(Point, frozen=True, kw_only=True):
    """Runs of a point that are still to do for the same reason, or an excluded point.

    `duration_s` is for one run; `node_hours` and `cost_usd` are for all runs of the row. An
    excluded point has neither runs nor sizes. `submission` says how a run is submitted, `starts`
    when Slurm would start one, and `slurm` why it would start none. `wait_bound_s` holds for 95 %
    of similar jobs by the partition's history; None if that is unknown.
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
        return msgspec.convert(self.axes, Point)

    @property
    def is_refused(self) -> bool:
        return self.starts == REFUSED

    @property
    def is_sbatch(self) -> bool:
        return (self.submission or "").startswith("sbatch ")


def of_other_work(rows: Iterable[PlanRow], recipes: Mapping[str, Recipe]) -> list[str]:
    """Recipes whose configurations train different numbers of examples by what the recipe says."""
    found = []
    for name, own in row_values.grouped(rows, lambda row: row.recipe).items():
        recipe = recipes[variants.base(name)]
        shapes = {(row.nodes, row.gpus_per_node, row.tasks_per_node) for row in own}
        if recipe.steps_per_epoch and recipe.per_replica_batch_size and len(shapes) > 1:
            found.append(name)
    return found


#: Columns of the plan's CSV file, which lists outstanding work first.
COLUMNS = tuple(dict.fromkeys((*POINT_AXES, "runs", *PlanRow.__struct_fields__)))


@dataclass(frozen=True)
class Total:
    """Sums over runs; `cost_usd` is of those with a price, `unpriced` are the other platforms."""

    runs: float
    node_hours: float
    cost_usd: float
    duration_s: float
    unpriced: tuple[str, ...]


@dataclass(frozen=True)
class SearchCost:
    """Costs of a whole search, finished runs included, and of the "full grid".

    What is "made"; the "least" if it is decided after its next round; what is "expected"; the
    "most" if all further rounds run the most expensive points.

    Attributes:
        work: What the search is called.
        costs: Sums by the names above, over all clusters.
        points: The configurations that the search may run.
        to_do: Expected further runs on the chosen clusters, and runs that are repeated.
    """

    work: str
    costs: Mapping[str, Total]
    points: frozenset[Point]
    to_do: Total


@dataclass(frozen=True)
class Plan:
    """`rows`: the runs still to do, extra repeats included, and then the excluded points.

    `finished` runs have a valid record, those `elsewhere` are on clusters that were not chosen.
    Runs that a search no longer needs, or that a smaller batch rules out, are no rows of the plan.
    `stale` runs of other code or data are rerun only with `rerun: stale`. `unreadable` has why a
    record cannot be read: these runs are rerun when the record is deleted. `spent` is what was paid
    for so far, failed attempts at any of the runs included. `startup_s` is the shortest time from
    start to training that runs with the platforms, strategies and recipes of the runs still to do
    took; 0 if one has no valid run.
    """

    rows: list[PlanRow]
    finished: int
    elsewhere: int
    stale: int = 0
    unreadable: tuple[str, ...] = ()
    spent: Spent = field(default_factory=Spent)
    searches: list[SearchCost] = field(default_factory=list)
    startup_s: float = 0.0

    @property
    def runs(self) -> list[PlanRow]:
        """The rows of runs that are still to do, or may have to be."""
        return [row for row in self.rows if row.feasibility != EXCLUDED]


def total(rows: Sequence[PlanRow]) -> Total:
    return Total(
        sum(row.runs or 0 for row in rows),
        sum(row.node_hours or 0.0 for row in rows),
        sum(row.cost_usd or 0.0 for row in rows),
        sum((row.runs or 0) * (row.duration_s or 0.0) for row in rows),
        tuple(dict.fromkeys(row.platform for row in rows if row.cost_usd is None)),
    )


def make(
    config: Config, planned: Manifest, runs_dir: Path, forced: frozenset[str] = frozenset()
) -> Plan:
    """Plan the runs to do of a validated configuration, as the sweep does.

    Args:
        config: The configuration.
        planned: Its manifest.
        runs_dir: The folder of all runs.
        forced: Folders of runs that are repeated although they have a record.

    Raises:
        ConfigError: If no platform is on the cluster that was chosen.
    """
    platforms.check_cluster(config)
    # an extra repeat, too, has a row although it was not run
    runs = tuple(replace(run, extra_repeat=False) for run in planned.runs)
    all_runs, _ = runs_table.run_tables(runs, runs_dir, planned.targets)
    is_selected = [config.is_selected(run.spec.point.platform) for run in planned.runs]
    selected, table = [*compress(planned.runs, is_selected)], all_runs[is_selected]
    to_do = RunsToDo(config, planned.runs, runs_dir, forced)
    searches = _searches_of(planned, all_runs)  # by the runs of all clusters
    durations = RunDurations(config, planned.runs, runs_dir)
    sorted_runs = _sort_runs(selected, table, to_do, searches)
    rows = [
        _row(own[0], len(own), feasibility, reason, durations.estimate(point))
        for (point, feasibility, reason), own in sorted_runs.due.items()
    ]
    startup_s = _shortest_startup_s(table, rows)
    rows += _excluded_rows(config, planned)
    repeated = Counter(run.spec.point for run in selected if run.spec.path in to_do.repeated)
    chosen = {run.spec.point for run in selected}
    first = {run.spec.point: run for run in planned.runs}
    return Plan(
        rows=rows,
        finished=sorted_runs.finished,
        elsewhere=len(planned.runs) - len(selected),
        stale=sorted_runs.stale,
        unreadable=sorted_runs.unreadable,
        spent=attempts.spent(table.to_dict("records")),
        searches=[_cost_of(each, first, durations, repeated, chosen) for each in searches],
        startup_s=startup_s,
    )


class _SortedRuns(NamedTuple):
    """The `due` runs by point, feasibility and reason, and what the others are."""

    due: Mapping[tuple[Point, str, str], Sequence[PlannedRun]]
    finished: int
    stale: int
    unreadable: tuple[str, ...]


def _sort_runs(
    selected: Sequence[PlannedRun],
    table: pd.DataFrame,
    to_do: RunsToDo,
    searches: Sequence[StudySearch],
) -> _SortedRuns:
    """Sort the runs of the chosen clusters, which are the rows of `table`.

    Runs that nobody needs any more are left out: those of a batch whose smaller one did not fit in
    memory, and those that their search does not need.
    """
    searched = {point: search for search in searches for point in search.all_points.values()}
    due: dict[tuple[Point, str, str], list[PlannedRun]] = {}
    finished, stale, unreadable = 0, 0, []
    for run, status, reason in zip(selected, table["status"], table["reason"], strict=True):
        point, path = run.spec.point, run.spec.path
        if why := to_do.unreadable.get(path):
            unreadable.append(why)
        elif path not in to_do.paths:
            stale += status == RunState.STALE
            finished += status != RunState.STALE
        elif status == RunState.MISSING and reason.startswith(f"{runs_table.NOT_RUN}:"):
            continue  # a smaller batch did not fit
        elif point not in searched or searched[point].may_be_wanted(point):
            feasibility = IF_NEEDED if run.is_conditional else RUNS
            key = point, feasibility, f"{status}: {one_line(reason)}"
            due.setdefault(key, []).append(run)
    return _SortedRuns(due, finished, stale, tuple(unreadable))


def _searches_of(planned: Manifest, all_runs: pd.DataFrame) -> list[StudySearch]:
    """Return the searches of a manifest, from the table of all its runs."""
    if not planned.searches:
        return []
    from tfscaling.search import study_searches  # loads SciPy

    return study_searches.of_study(planned, all_runs)


def _shortest_startup_s(table: pd.DataFrame, due: Sequence[PlanRow]) -> float:
    """Return the shortest time from start to training of runs like those due; 0 if unknown."""
    startups_s = table["execution_time_s"] - table["train_time_s"]
    kinds = [table["platform"], table["strategy"], table["recipe"]]
    shortest_s = startups_s.groupby(kinds).min().dropna().to_dict()
    due_kinds = {(row.platform, row.strategy, row.recipe) for row in due}
    return min((shortest_s.get(kind, 0.0) for kind in due_kinds), default=0.0)


def _excluded_rows(config: Config, planned: Manifest) -> list[PlanRow]:
    """Return a row for each excluded point on the chosen clusters."""
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
    """Return a row for the runs of each configuration, with the estimates of `make`."""
    durations = RunDurations(config, planned.runs, runs_dir)
    return [
        _row(own[0], len(own), RUNS, "", durations.estimate(point))
        for point, own in row_values.grouped(runs, lambda run: run.spec.point).items()
    ]


def _row(
    run: PlannedRun, number: float, feasibility: str, reason: str, estimated: Estimate
) -> PlanRow:
    """Return a plan row of `number` runs of the point of `run`."""
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


def _cost_of(
    search: StudySearch,
    first: Mapping[Point, PlannedRun],
    durations: RunDurations,
    repeated: Mapping[Point, int],
    chosen: Set[Point],
) -> SearchCost:
    """Return what a search costs.

    Args:
        search: The search, with its finished runs.
        first: A planned run of each point.
        durations: How long a run of each point takes.
        repeated: How many finished runs of each point are rerun.
        chosen: The points on the chosen clusters.
    """
    from tfscaling.search import study_searches

    prices = {point: run.usd_per_node_hour for point, run in first.items()}
    made, points = search.made, search.all_points
    next_runs = {points[name]: runs for name, runs in search.decision.wanted.items()}
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

    def total_of(runs: Mapping[Point, float]) -> Total:
        rows = ((first[p], number, durations.estimate(p)) for p, number in runs.items())
        return total([_row(run, number, RUNS, "", estimate) for run, number, estimate in rows])

    costs = {kind: total_of(runs) for kind, runs in wanted.items()}
    return SearchCost(search.planned.work, costs, frozenset(made), total_of(further))


def submitted(rows: Iterable[PlanRow], config: Config, how: Submission) -> list[PlanRow]:
    """Return the rows with the `submission` of their runs."""
    return [
        row
        if row.runs is None
        else replace(
            row, submission=submission_line(config.platforms[row.platform], row.geometry, how)
        )
        for row in rows
    ]
