"""The costed plan: what a sweep would still do, for how long, at what price, within which budget.

Reads the run records that exist; submits nothing and asks Slurm nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pandas as pd
from msgspec.structs import replace

from tfscaling.plan.plan_rows import (
    EXCLUDED,
    IF_NEEDED,
    RUNS,
    TIME_LIMIT,
    BenchmarkRow,
    FailedSum,
    Plan,
    PlanRow,
    SearchCost,
    Total,
    total,
)
from tfscaling.record import benchmark_record, run_record, step_estimates
from tfscaling.record.run_record import RunRecord
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.spec import platforms, variants
from tfscaling.spec.config import Budget, Config
from tfscaling.spec.configuration import Sources, problem
from tfscaling.spec.manifest import Excluded, Manifest, PlannedBenchmark, PlannedRun
from tfscaling.spec.run_spec import Point, RunSpec
from tfscaling.tables import runs_table
from tfscaling.tables.display import one_line

if TYPE_CHECKING:
    from tfscaling.search.study_searches import StudySearch


class Estimate(NamedTuple):
    """How long a run takes, and where that comes from."""

    duration_s: float
    source: str


def make(config: Config, planned: Manifest, runs_dir: Path) -> Plan:
    """The plan of a validated configuration.

    `planned` is the manifest of the configuration. A run is still to do unless it has a record,
    valid or diverged, made with the expected parameters; one that is stale for its code or data
    is to do if `rerun: stale` asks for it.
    Raises ConfigError if no platform is on the cluster that was chosen.
    """
    from tfscaling.conclusions import communication  # loads SciPy

    platforms.check_cluster(config)
    selected = [run for run in planned.runs if config.is_selected(run.spec.point.platform)]
    # an extra repeat, too, has a row although it is not there
    wanted = tuple(replace(run, extra_repeat=False) for run in selected)
    table, _ = runs_table.run_tables(wanted, runs_dir)
    estimates: dict[Point, Estimate] = {}
    rows, kept, unneeded = [], 0, 0
    states = (table[column] for column in ("status", "reason", "record"))
    searches = searches_of(planned, runs_dir)
    searched = {point: search for search in searches for point in search.points.values()}
    shorts = _shorts(run.spec for run in planned.runs)
    for run, status, reason, record in zip(selected, *states, strict=True):
        if status in FINISHED:
            continue
        if status == RunState.STALE and pd.notna(record) and config.rerun != "stale":
            kept += 1
            continue
        point = run.spec.point
        if point in searched and not searched[point].may_be_wanted(point):
            unneeded += 1
            continue
        if point not in estimates:
            estimates[point] = _estimate(run, config, runs_dir, shorts.get(point))
        rows.append(_row(run, f"{status}: {one_line(reason)}", estimates[point]))
    finished = len(selected) - len(rows) - kept - unneeded
    for out in planned.excluded:
        if config.is_selected(out.point.platform):
            rows.append(_excluded_row(out, config))
    benchmarks = communication.to_do(
        planned.all_reduce_benchmarks,
        benchmark_record.folder_beside(runs_dir),
        config.rerun == "stale",
    )
    elsewhere = len(planned.runs) - len(selected)
    due = {run.spec.point: run for run in planned.runs} if searches else {}
    takes = {p: estimates.get(p) or _estimate(due[p], config, runs_dir) for p in searched}
    return Plan(
        rows,
        finished,
        elsewhere,
        _benchmarks(config, benchmarks),
        kept,
        FailedSum(*runs_table.failed_attempts(table)),
        [_cost_of(search, due, takes) for search in searches],
    )


def _estimate(
    run: PlannedRun, config: Config, runs_dir: Path, short: RunSpec | None = None
) -> Estimate:
    limit_s = 60.0 * config.platforms[run.spec.point.platform].runtime_min
    return estimate(run.spec, runs_dir, limit_s, short)


def _benchmarks(config: Config, benchmarks: Iterable[PlannedBenchmark]) -> list[BenchmarkRow]:
    """Rows of these benchmarks, the platform's time limit as their duration."""
    rows = []
    for benchmark in benchmarks:
        platform, nodes = benchmark.point.platform, benchmark.point.nodes
        if config.is_selected(platform):
            limit_s = 60.0 * config.platforms[platform].runtime_min
            rows.append(
                BenchmarkRow(
                    platform=platform,
                    duration_s=limit_s,
                    node_hours=nodes * limit_s / 3600.0,
                    cost_usd=platforms.run_cost_usd(benchmark.usd_per_node_hour, nodes, limit_s),
                )
            )
    return rows


def _row(run: PlannedRun, reason: str, estimated: Estimate) -> PlanRow:
    spec, shape, duration_s = run.spec, run.spec.geometry, estimated.duration_s
    return PlanRow(
        **msgspec.structs.asdict(spec.point),
        repeat=spec.repeat,
        devices=platforms.device_kind(shape.gpus_per_node, spec.measured.devices),
        feasibility=IF_NEEDED if run.extra_repeat else RUNS,
        reason=reason,
        tasks=shape.tasks,
        gpus=shape.gpus,
        cpus_per_task=spec.cpus_per_task,
        duration_s=duration_s,
        duration_from=estimated.source,
        node_hours=shape.nodes * duration_s / 3600.0,
        cost_usd=platforms.run_cost_usd(run.usd_per_node_hour, shape.nodes, duration_s),
    )


def _excluded_row(excluded: Excluded, config: Config) -> PlanRow:
    point = excluded.point
    devices = config.platforms[point.platform].devices
    return PlanRow(
        **msgspec.structs.asdict(point),
        devices=platforms.device_kind(point.gpus_per_node, devices),
        feasibility=EXCLUDED,
        reason=excluded.reason,
    )


def estimate(
    spec: RunSpec, runs_dir: Path, limit_s: float, short: RunSpec | None = None
) -> Estimate:
    """How long a planned run takes.

    The median of the point's own valid runs, else what is projected from those of `short`, the same
    training with `stop_after_steps`; else the time limit: an upper bound. Nothing is scaled
    from other points: the start and the compilation do not shrink with the epochs, and the time of
    a step depends on nodes and batch in a way that this workflow is there to measure.
    """
    if times_s := measured_s(spec, runs_dir):
        number = f"{len(times_s)} run{'s' if len(times_s) > 1 else ''}"
        return Estimate(statistics.median(times_s), f"measured, {number}")
    found = (
        [step_estimates.projected(record) for record in _records(short, runs_dir)] if short else []
    )
    times_s = [whole.phases.wall_time_s for whole in found if whole is not None]
    if times_s:
        number = f"{len(times_s)} short run{'s' if len(times_s) > 1 else ''}"
        return Estimate(statistics.median(times_s), f"projected, {number}")
    return Estimate(limit_s, TIME_LIMIT)


def _shorts(specs: Iterable[RunSpec]) -> dict[Point, RunSpec]:
    """Point → a short run of the same training there."""
    first = {spec.point: spec for spec in specs}
    wholes = variants.wholes(first.values())
    return {whole.point: first[point] for point, whole in wholes.items()}


def measured_s(spec: RunSpec, runs_dir: Path) -> list[float]:
    """Wall times in seconds of the valid runs of a planned run's point, whatever their seed."""
    return [record.phases.wall_time_s for record in _records(spec, runs_dir)]


def _records(spec: RunSpec, runs_dir: Path) -> Iterator[RunRecord]:
    """Those of the valid runs of a planned run's point, whatever their seed."""
    requested = {**spec.parameters, "seed": None}
    for path in sorted((runs_dir / spec.path).parent.glob(f"repeat=*/{run_record.RECORD}")):
        try:
            record = run_record.read(path)
        except run_record.RecordError:
            continue
        if record is None or not record.is_valid or record.axes.point != spec.point:
            continue
        if record.resumed is not None:  # its last attempt did a part only
            continue
        if {**record.parameters, "seed": None} == requested:
            yield record


def searches_of(planned: Manifest, runs_dir: Path) -> list[StudySearch]:
    """The searches by the runs of all clusters."""
    if not planned.searches:
        return []
    from tfscaling.search import study_searches  # loads SciPy

    table, _ = runs_table.run_tables(planned.runs, runs_dir, planned.targets)
    return study_searches.of_study(planned, table)


def _cost_of(
    search: StudySearch, runs: Mapping[Point, PlannedRun], takes: Mapping[Point, Estimate]
) -> SearchCost:
    from tfscaling.search import study_searches

    prices = {point: run.usd_per_node_hour for point, run in runs.items()}
    made = {search.points[each.name]: each.number for each in search.candidates}
    looks, next_runs = search.planned.search.looks, search.decision.runs_next

    def up_to(number: int) -> dict[Point, int]:
        """The runs if the points that are left get so many."""
        return {
            point: max(runs, number) if search.may_be_wanted(point) else runs
            for point, runs in made.items()
        }

    def cost(runs: Mapping[Point, float]) -> Total:
        hours = {
            point: n * point.nodes * takes[point].duration_s / 3600 for point, n in runs.items()
        }
        usd = {point: hours[point] * (prices[point] or 0.0) for point in runs}
        return Total(
            sum(runs.values()),
            sum(hours.values()),
            sum(usd.values()),
            sum(n * takes[point].duration_s for point, n in runs.items()),
            tuple(dict.fromkeys(point.platform for point in runs if prices[point] is None)),
        )

    expected = study_searches.expected_runs(search, prices)
    return SearchCost(
        ", ".join(search.work),
        len(made),
        cost(made),
        cost({p: max(n, next_runs) if search.is_next(p) else n for p, n in made.items()}),
        cost({point: max(made[point], number) for point, number in expected.items()}),
        cost(up_to(looks[-1])),
        cost({each.point: each.repeats for each in search.planned.points if each.point in made}),
    )


def budget_refusal(
    config: Config, planned: Manifest, runs_dir: Path, sources: Sources = ()
) -> str | None:
    """Why the runs still to do may not be started: the budget's first problem, or None.

    `planned` is the manifest of the configuration. Without a budget no record is read.
    """
    if config.budget == Budget():
        return None
    made = make(config, planned, runs_dir)
    return next(iter(budget_problems(config, made.runs, made.benchmarks, sources)), None)


def budget_problems(
    config: Config,
    runs: Sequence[PlanRow],
    benchmarks: Sequence[BenchmarkRow] = (),
    sources: Sources = (),
) -> list[str]:
    """One line for each key of the budget that the estimate of all these exceeds or cannot meet."""
    sums, budget = total([*runs, *benchmarks]), config.budget
    more = f" and the benchmarks ({len(benchmarks)})" if benchmarks else ""
    found = []
    if budget.usd is not None and sums.unpriced:
        name = sums.unpriced[0]
        path = ["platforms", name, "usd_per_node_hour"]
        reason = (
            f"budget.usd {budget.usd:g} needs the price of platform {name}, which has runs to do"
        )
        found.append(problem(path, None, reason, sources))
    for key, limit, unit, value in (
        ("usd", budget.usd, "US dollars", 0.0 if sums.unpriced else sums.cost_usd),
        ("node_hours", budget.node_hours, "node-hours", sums.node_hours),
    ):
        estimated = math.ceil(round(100 * value, 6)) / 100
        if limit is not None and round(value, 6) > limit:
            reason = (
                f"the {len(runs)} runs{more} still to do are estimated at {estimated:.2f} {unit} "
                f"(`snakemake plan` lists them); allowed: {estimated:.2f} or more, null for no "
                "budget, or fewer runs in the grid"
            )
            found.append(
                problem(
                    ["budget", key], int(limit) if limit.is_integer() else limit, reason, sources
                )
            )
    return found
