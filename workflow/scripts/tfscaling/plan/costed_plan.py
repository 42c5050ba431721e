"""The costed plan: the runs that a sweep still has to do, their time, price and budget.

It is made from the records of finished runs. Slurm is not asked.
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
from tfscaling.tables.display import count, join_lines

if TYPE_CHECKING:
    from tfscaling.search.study_searches import StudySearch

#: A run that is still to do, an extra repeat that may have to be done, a point that is not run.
RUNS, IF_NEEDED, EXCLUDED = "runs", "runs if needed", "excluded"
#: `starts` of runs that Slurm can never start, or whose libraries are missing.
REFUSED = "refused"
#: `duration_from` of runs whose configuration has no measured run: the time limit is taken.
TIME_LIMIT = "time limit"


class PlanRow(Point, frozen=True, kw_only=True):
    """Runs of one configuration that are to do for the same reason, or an excluded configuration.

    Attributes:
        duration_s: Expected time of one run, in seconds.
        duration_from: Where the duration comes from.
        node_hours: Node-hours of all runs of the row.
        cost_usd: Cost of all runs of the row; None without a price.
        runs: Number of runs; None for an excluded configuration.
        submission: How a run is submitted.
        starts: When Slurm would start a run.
        slurm: Why Slurm would start none.
        wait_bound_s: Time in the queue that 95 % of similar jobs did not exceed; None if unknown.
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
        """Whether the runs can never start."""
        return self.starts == REFUSED

    @property
    def is_sbatch(self) -> bool:
        """Whether the runs are submitted with sbatch."""
        return (self.submission or "").startswith("sbatch ")


def recipes_with_different_work(
    rows: Iterable[PlanRow], recipes: Mapping[str, Recipe]
) -> list[str]:
    """Return the recipes whose configurations would train different numbers of examples."""
    found = []
    for name, own in row_values.group_by(rows, lambda row: row.recipe).items():
        recipe = recipes[variants.base(name)]
        shapes = {(row.nodes, row.gpus_per_node, row.tasks_per_node) for row in own}
        if recipe.steps_per_epoch and recipe.per_replica_batch_size and len(shapes) > 1:
            found.append(name)
    return found


#: Metrics whose limit a run may miss by its start-up alone.
TIME_LIMITS = {"execution_time_s", "time_with_queue_s"}
#: Columns of the plan's CSV file.
COLUMNS = tuple(dict.fromkeys((*POINT_AXES, "runs", *PlanRow.__struct_fields__)))


@dataclass(frozen=True)
class Total:
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
        work: Name of the search.
        costs: Sums over all clusters: "made" for finished runs, "least" if the search ends after
            its next round, "expected", "most" if all further rounds run the most expensive
            configurations, and "full grid".
        points: The configurations that the search may run.
        to_do: Expected further runs on the chosen clusters, reruns included.
    """

    work: str
    costs: Mapping[str, Total]
    points: frozenset[Point]
    to_do: Total


@dataclass(frozen=True)
class Plan:
    """What a sweep still has to do, and what it has cost so far.

    Runs that a search no longer needs, or that a smaller batch rules out, are not in the plan.

    Attributes:
        rows: The runs to do, extra repeats included, then the excluded configurations.
        finished: Number of runs with a valid record.
        elsewhere: Number of runs on clusters that were not chosen.
        stale: Number of runs of other code or data, which only `rerun: stale` repeats.
        unreadable: Why records cannot be read; these runs are rerun when the record is deleted.
        spent: Cost so far, failed attempts included.
        searches: Costs of the searches.
        startup_s: Shortest measured time from start to training among the platforms, strategies and
            recipes to run, in seconds; 0 if one of them has no valid run.
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
        """The rows without the excluded configurations."""
        return [row for row in self.rows if row.feasibility != EXCLUDED]


def sum_rows(rows: Sequence[PlanRow]) -> Total:
    """Return the sums over the runs of these rows."""
    return Total(
        sum(row.runs or 0 for row in rows),
        sum(row.node_hours or 0.0 for row in rows),
        sum(row.cost_usd or 0.0 for row in rows),
        sum((row.runs or 0) * (row.duration_s or 0.0) for row in rows),
        tuple(dict.fromkeys(row.platform for row in rows if row.cost_usd is None)),
    )


class DurationEstimate(NamedTuple):
    """The expected time of a run in seconds, and its source in words."""

    duration_s: float
    source: str


def make_plan(
    config: Config, planned: Manifest, runs_dir: Path, forced: frozenset[str] = frozenset()
) -> Plan:
    """Plan the runs that a sweep with this configuration would do.

    Args:
        config: The validated configuration.
        planned: Its manifest.
        runs_dir: The folder of all runs.
        forced: Folders of runs that are repeated although they have a record.

    Raises:
        ConfigError: If no platform is on the chosen cluster.
    """
    platforms.check_cluster(config)
    to_do = RunsToDo(config, planned.runs, runs_dir, forced)
    selected = [run for run in planned.runs if config.is_selected(run.spec.point.platform)]
    # an extra repeat, too, has a row although it is not there
    wanted = tuple(replace(run, extra_repeat=False) for run in selected)
    table, _ = runs_table.run_tables(wanted, runs_dir)
    estimates: dict[Point, DurationEstimate] = {}
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
            estimates[point] = estimate_duration(run.spec, config, runs_dir, shorts.get(point))
        feasibility = IF_NEEDED if run.is_conditional else RUNS
        due.setdefault((point, feasibility, f"{status}: {join_lines(reason)}"), []).append(run)
    rows = [
        _plan_row(runs[0], len(runs), feasibility, reason, estimates[point])
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
    takes = {
        p: estimates.get(p) or estimate_duration(first[p].spec, config, runs_dir) for p in searched
    }
    repeated = Counter(run.spec.point for run in selected if run.spec.path in to_do.repeated)
    chosen = {run.spec.point for run in selected}
    return Plan(
        rows,
        finished,
        len(planned.runs) - len(selected),
        kept,
        tuple(unreadable),
        attempts.spent(table.to_dict("records")),
        [_cost_search(search, first, takes, repeated, chosen) for search in searches],
        startup_s,
    )


def cost_runs(
    config: Config, planned: Manifest, runs: Sequence[PlannedRun], runs_dir: Path
) -> list[PlanRow]:
    """Return one row for the given runs of each configuration, with their estimated cost."""
    first = {run.spec.point: run for run in planned.runs}
    shorts = {
        w.point: first[p].spec for p, w in variants.complete_runs_by_point(planned.runs).items()
    }
    return [
        _plan_row(
            own[0],
            len(own),
            RUNS,
            "",
            estimate_duration(own[0].spec, config, runs_dir, shorts.get(point)),
        )
        for point, own in row_values.group_by(runs, lambda run: run.spec.point).items()
    ]


def _plan_row(
    run: PlannedRun, number: float, feasibility: str, reason: str, estimated: DurationEstimate
) -> PlanRow:
    """Return the plan's row for several runs of a configuration.

    Args:
        run: One of the runs.
        number: How many runs; it may be an expected value.
        feasibility: Whether they are to do.
        reason: Why.
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


def estimate_duration(
    spec: RunSpec, config: Config, runs_dir: Path, short: RunSpec | None = None
) -> DurationEstimate:
    """Return the expected time of a planned run.

    It is the median of valid runs of the same configuration, else a projection from short runs,
    else the time limit, an upper bound. Nothing is scaled from other configurations: start-up does
    not shrink with the epochs, and the time of a step depends on nodes and batch.

    Args:
        spec: The run.
        config: The configuration.
        runs_dir: The folder of all runs.
        short: The same training with `stop_after_steps` or fewer epochs, for the projection.
    """
    if made := list(find_valid_records(spec, runs_dir)):
        source = f"measured, {count(len(made), 'run')}"
        steps = [each.short_run.steps for each in made if each.short_run]
        if spec.recipe.stop_after_steps == AUTO and steps:
            source += f" of up to {max(steps):,} steps"
        return DurationEstimate(statistics.median(each.phases.wall_time_s for each in made), source)
    records = find_valid_records(short, runs_dir) if short else ()
    shorts = (step_estimates.as_short_run(record, spec.recipe.epochs) for record in records)
    found = map(step_estimates.projected, shorts)
    if times_s := [whole.phases.wall_time_s for whole in found if whole is not None]:
        number = count(len(times_s), "short run")
        return DurationEstimate(statistics.median(times_s), f"projected, {number}")
    return DurationEstimate(60.0 * config.platforms[spec.point.platform].runtime_min, TIME_LIMIT)


def find_valid_records(spec: RunSpec, runs_dir: Path) -> Iterator[RunRecord]:
    """Yield the valid records of a planned run's configuration, with any seed."""
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


def _cost_search(
    search: StudySearch,
    first: Mapping[Point, PlannedRun],
    takes: Mapping[Point, DurationEstimate],
    repeated: Mapping[Point, int],
    chosen: Set[Point],
) -> SearchCost:
    """Return the cost of a search.

    Args:
        search: The search, with its finished runs.
        first: Configuration → one of its planned runs.
        takes: Configuration → expected time of a run.
        repeated: Configuration → number of finished runs that are rerun.
        chosen: The configurations on the chosen clusters.
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
        return sum_rows(
            [_plan_row(first[p], number, RUNS, "", takes[p]) for p, number in runs.items()]
        )

    costs = {kind: total_of(runs) for kind, runs in wanted.items()}
    return SearchCost(search.planned.work, costs, frozenset(made), total_of(further))


def find_refusal(
    config: Config,
    planned: Manifest,
    runs_dir: Path,
    sources: Sources = (),
    forced: frozenset[str] = frozenset(),
) -> str | None:
    """Return why the budget or a deadline forbids the runs to do, or None.

    Without a budget and a deadline no record is read.

    Args:
        config: The configuration.
        planned: Its manifest.
        runs_dir: The folder of all runs.
        sources: Where the configuration's keys were set, for the message.
        forced: Folders of runs that are repeated although they have a record.
    """
    if config.budget == Budget() and not TIME_LIMITS & config.question.given.keys():
        return None
    made = make_plan(config, planned, runs_dir, forced)
    problems = budget_problems(config, made, sources)
    problems += deadline_problems(config, made, sources)
    return next(iter(problems), None)


def deadline_problems(config: Config, made: Plan, sources: Sources = ()) -> list[str]:
    """Return a line for each limit of time that start-up alone exceeds for all runs to do."""
    rule = f"runs took at least {made.startup_s:.3g} s before they began to train; allowed: more"
    return [
        problem(["question", "limits", name, "at_most"], limit.at_most, rule, sources)
        for name, limit in config.question.given.items()
        if name in TIME_LIMITS and limit.value < made.startup_s
    ]


def budget_problems(config: Config, made: Plan, sources: Sources = ()) -> list[str]:
    """Return a line for each key of the budget that the plan exceeds or that has no estimate.

    Searches count with their expected number of runs, which may be exceeded.
    """
    sums, budget = sum_rows(made.runs), config.budget
    searched = {point for each in made.searches for point in each.points}
    others = sum_rows([row for row in made.runs if row.point not in searched])
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


def add_submission(rows: Iterable[PlanRow], config: Config, how: Submission) -> list[PlanRow]:
    """Return the rows with the way in which their runs are submitted."""
    return [
        row
        if row.runs is None
        else replace(
            row, submission=submission_line(config.platforms[row.platform], row.geometry, how)
        )
        for row in rows
    ]
