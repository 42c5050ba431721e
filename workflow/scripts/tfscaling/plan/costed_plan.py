"""The costed plan: what a sweep would still do, for how long, at what price, within which budget.

Reads the run records that exist; submits nothing and asks Slurm nothing.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from tfscaling.plan.to_do import RunsToDo
from tfscaling.record import attempts, run_record, step_estimates
from tfscaling.record.attempts import Spent
from tfscaling.record.run_record import RunRecord
from tfscaling.record.run_states import RunState
from tfscaling.snakemake_adapter.submission import Submission, submission_line
from tfscaling.study import platforms, variants
from tfscaling.study.config_types import AUTO, POINT_AXES, Budget, Config, Recipe
from tfscaling.study.config_validation import Sources, problem
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.study.run_spec import Point, RunSpec
from tfscaling.tables import row_values, runs_table
from tfscaling.tables.display import count, one_line

if TYPE_CHECKING:
    from tfscaling.search.study_searches import StudySearch

#: A run that is still to do, an extra repeat that may have to be done, a point that is not run.
RUNS, IF_NEEDED, EXCLUDED = "runs", "runs if needed", "excluded"
#: `starts` of a point that Slurm can never start, or whose libraries are missing.
REFUSED = "refused"
#: `duration_from` of a point without a measured run.
TIME_LIMIT = "time limit"


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


#: Limits that a run may miss by its start-up alone.
TIME_LIMITS = {"execution_time_s", "time_with_queue_s"}
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


class Estimate(NamedTuple):
    """How long a run takes, and where that comes from."""

    duration_s: float
    source: str


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
    to_do = RunsToDo(config, planned.runs, runs_dir, forced)
    selected = [run for run in planned.runs if config.is_selected(run.spec.point.platform)]
    # an extra repeat, too, has a row although it is not there
    wanted = tuple(replace(run, extra_repeat=False) for run in selected)
    table, _ = runs_table.run_tables(wanted, runs_dir)
    estimates: dict[Point, Estimate] = {}
    due: dict[tuple[Point, str, str], list[PlannedRun]] = {}
    kept, unneeded = 0, 0
    unreadable: list[str] = []
    states = (table[column] for column in ("status", "reason"))
    searches: list[StudySearch] = []
    if planned.searches:  # by the runs of all clusters
        from tfscaling.search import study_searches  # loads SciPy

        every, _ = runs_table.run_tables(planned.runs, runs_dir, planned.targets)
        searches = study_searches.of_study(planned, every)
    searched = {point: search for search in searches for point in search.all_points.values()}
    first = {run.spec.point: run for run in planned.runs}
    wholes = variants.complete_runs_by_point(planned.runs)
    shorts = {whole.point: first[point].spec for point, whole in wholes.items()}
    for run, status, reason in zip(selected, *states, strict=True):
        if why := to_do.unreadable.get(run.spec.path):
            unreadable.append(why)
            continue
        if run.spec.path not in to_do.paths:
            kept += status == RunState.STALE
            continue
        point = run.spec.point
        if status == RunState.MISSING and reason.startswith(f"{runs_table.NOT_RUN}:"):
            unneeded += 1  # a smaller batch did not fit
            continue
        if point in searched and not searched[point].may_be_wanted(point):
            unneeded += 1
            continue
        if point not in estimates:
            estimates[point] = estimate(run.spec, config, runs_dir, shorts.get(point))
        feasibility = IF_NEEDED if run.is_conditional else RUNS
        due.setdefault((point, feasibility, f"{status}: {one_line(reason)}"), []).append(run)
    rows = [
        _row(runs[0], len(runs), feasibility, reason, estimates[point])
        for (point, feasibility, reason), runs in due.items()
    ]
    left_out = kept + unneeded + len(unreadable)
    finished = len(selected) - sum(map(len, due.values())) - left_out
    startups_s = table["execution_time_s"] - table["train_time_s"]
    kinds = [table["platform"], table["strategy"], table["recipe"]]
    shortest_s = startups_s.groupby(kinds).min().dropna().to_dict()
    due_kinds = {(row.platform, row.strategy, row.recipe) for row in rows}
    startup_s = min((shortest_s.get(kind, 0.0) for kind in due_kinds), default=0.0)
    for out in planned.excluded:
        if config.is_selected(out.point.platform):
            devices = config.platforms[out.point.platform].devices
            kind = platforms.device_kind(out.point.gpus_per_node, devices)
            axes = msgspec.structs.asdict(out.point)
            rows.append(PlanRow(**axes, devices=kind, feasibility=EXCLUDED, reason=out.reason))
    takes = {p: estimates.get(p) or estimate(first[p].spec, config, runs_dir) for p in searched}
    repeated = Counter(run.spec.point for run in selected if run.spec.path in to_do.repeated)
    chosen = {run.spec.point for run in selected}
    return Plan(
        rows,
        finished,
        len(planned.runs) - len(selected),
        kept,
        tuple(unreadable),
        attempts.spent(table.to_dict("records")),
        [_cost_of(search, first, takes, repeated, chosen) for search in searches],
        startup_s,
    )


def cost_runs(
    config: Config, planned: Manifest, runs: Sequence[PlannedRun], runs_dir: Path
) -> list[PlanRow]:
    """Return a row for the runs of each configuration, with the estimates of `make`."""
    first = {run.spec.point: run for run in planned.runs}
    shorts = {
        w.point: first[p].spec for p, w in variants.complete_runs_by_point(planned.runs).items()
    }
    return [
        _row(own[0], len(own), RUNS, "", estimate(own[0].spec, config, runs_dir, shorts.get(point)))
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


def estimate(
    spec: RunSpec, config: Config, runs_dir: Path, short: RunSpec | None = None
) -> Estimate:
    """How long a planned run takes.

    The median of the point's own valid runs, else a projection from the runs of `short`, the same
    training with `stop_after_steps` or fewer epochs; else the time limit: an upper bound. Nothing
    is scaled from other points: the start and the compilation do not shrink with the epochs, and
    the time of a step depends on nodes and batch, as this workflow measures.
    """
    if made := list(records_of(spec, runs_dir)):
        source = f"measured, {count(len(made), 'run')}"
        steps = [each.short_run.steps for each in made if each.short_run]
        if spec.recipe.stop_after_steps == AUTO and steps:
            source += f" of up to {max(steps):,} steps"
        return Estimate(statistics.median(each.phases.wall_time_s for each in made), source)
    records = records_of(short, runs_dir) if short else ()
    shorts = (step_estimates.as_short_run(record, spec.recipe.epochs) for record in records)
    found = map(step_estimates.projected, shorts)
    if times_s := [whole.phases.wall_time_s for whole in found if whole is not None]:
        number = count(len(times_s), "short run")
        return Estimate(statistics.median(times_s), f"projected, {number}")
    return Estimate(60.0 * config.platforms[spec.point.platform].runtime_min, TIME_LIMIT)


def records_of(spec: RunSpec, runs_dir: Path) -> Iterator[RunRecord]:
    """Yield the valid records of a planned run's point, with any seed."""
    requested = {**spec.parameters, "seed": None}
    for path in sorted((runs_dir / spec.point.path).glob(f"repeat=*/*/{run_record.RECORD}")):
        try:
            record = run_record.read(path)
        except run_record.RecordError:
            continue
        if record is None or not record.is_valid or record.axes.point != spec.point:
            continue
        # the last attempt of a resumed run trained only a part
        if record.resumed is None and {**record.parameters, "seed": None} == requested:
            yield record


def _cost_of(
    search: StudySearch,
    first: Mapping[Point, PlannedRun],
    takes: Mapping[Point, Estimate],
    repeated: Mapping[Point, int],
    chosen: Set[Point],
) -> SearchCost:
    """Return what a search costs.

    Args:
        search: The search, with its finished runs.
        first: A planned run of each point.
        takes: How long a run of each point takes.
        repeated: How many finished runs of each point are rerun.
        chosen: The points on the chosen clusters.
    """
    from tfscaling.search import study_searches

    prices = {point: run.usd_per_node_hour for point, run in first.items()}
    made, points = search.made, search.all_points
    next_runs = {points[name]: runs for name, runs in search.decision.wanted.items()}
    node_hours = {point: point.nodes * takes[point].duration_s for point in made}

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
        return total([_row(first[p], number, RUNS, "", takes[p]) for p, number in runs.items()])

    costs = {kind: total_of(runs) for kind, runs in wanted.items()}
    return SearchCost(search.planned.work, costs, frozenset(made), total_of(further))


def refusal(
    config: Config,
    planned: Manifest,
    runs_dir: Path,
    sources: Sources = (),
    forced: frozenset[str] = frozenset(),
) -> str | None:
    """Return why the runs still to do may not be started: the first problem, or None.

    Without budget and deadline no record is read. The arguments are as in `make`, and the sources
    of the configuration.
    """
    if config.budget == Budget() and not TIME_LIMITS & config.question.given.keys():
        return None
    made = make(config, planned, runs_dir, forced)
    problems = budget_problems(config, made, sources)
    problems += deadline_problems(config, made, sources)
    return next(iter(problems), None)


def deadline_problems(config: Config, made: Plan, sources: Sources = ()) -> list[str]:
    """One line for each limit of time that is over before any run still to do begins to train."""
    rule = f"runs took at least {made.startup_s:.3g} s before they began to train; allowed: more"
    return [
        problem(["question", "limits", name, "at_most"], limit.at_most, rule, sources)
        for name, limit in config.question.given.items()
        if name in TIME_LIMITS and limit.value < made.startup_s
    ]


def budget_problems(config: Config, made: Plan, sources: Sources = ()) -> list[str]:
    """Return one line for each key of the budget that the estimate exceeds or cannot meet.

    Searches count with their expected runs, which may be exceeded.
    """
    sums, budget = total(made.runs), config.budget
    searched = {point for each in made.searches for point in each.points}
    others = total([row for row in made.runs if row.point not in searched])
    parts = [others, *(each.to_do for each in made.searches)]
    cost_usd = 0.0 if sums.unpriced else sum(part.cost_usd for part in parts)
    node_hours = sum(part.node_hours for part in parts)
    which = f"the {sums.runs} runs still to do are estimated at"
    if made.searches:
        which = "the runs still to do, with the expected runs of searches, are estimated at"
    found = []
    if budget.usd is not None and sums.unpriced:
        name = sums.unpriced[0]
        needed = f"needs the price of platform {name}, which has runs to do"
        reason = f"budget.usd {budget.usd:g} {needed}"
        found.append(problem(["platforms", name, "usd_per_node_hour"], None, reason, sources))
    for key, limit, unit, value in (
        ("usd", budget.usd, "US dollars", cost_usd),
        ("node_hours", budget.node_hours, "node-hours", node_hours),
    ):
        if limit is None or round(value, 6) <= limit:
            continue
        estimated = math.ceil(round(100 * value, 6)) / 100
        reason = (
            f"{which} {estimated:.2f} {unit} "
            f"(`snakemake plan` lists them); allowed: {estimated:.2f} or more, null for no "
            "budget, or fewer runs in the grid"
        )
        shown = int(limit) if limit.is_integer() else limit
        found.append(problem(["budget", key], shown, reason, sources))
    return found


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
