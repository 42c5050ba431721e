"""The costed plan: what a sweep would still do, for how long, at what price, how it is submitted.

Reads the run records that are there; submits nothing and asks Slurm nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pandas as pd
from msgspec.structs import replace

from tfscaling.plan import run_estimates, search_costs
from tfscaling.plan.plan_rows import (
    EXCLUDED,
    IF_NEEDED,
    RUNS,
    BenchmarkRow,
    FailedSum,
    Plan,
    PlanRow,
)
from tfscaling.plan.run_estimates import Estimate
from tfscaling.record import benchmark_record
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.spec import platforms
from tfscaling.spec.config import Config
from tfscaling.spec.manifest import Excluded, Manifest, PlannedBenchmark, PlannedRun
from tfscaling.spec.run_spec import Point, RunSpec
from tfscaling.tables import runs_table
from tfscaling.tables.display import one_line


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
    searches = search_costs.searches(planned, runs_dir)
    searched = {point: search for search in searches for point in search.points.values()}
    shorts = run_estimates.shorts(run.spec for run in planned.runs)
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
        _failed(table),
        [search_costs.cost_of(search, due, takes) for search in searches],
    )


def _failed(runs: pd.DataFrame) -> FailedSum:
    """The sums over the failed attempts of a table of runs."""
    failed = runs[runs["failed_attempts"] > 0]
    if failed.empty:
        return FailedSum()
    usd = failed["lost_cost_usd"]
    return FailedSum(
        int(failed["failed_attempts"].sum()),
        float((failed["lost_time_s"] * failed["nodes"]).sum()) / 3600.0,
        float(usd.sum()) if usd.notna().all() else None,
    )


def _estimate(
    run: PlannedRun, config: Config, runs_dir: Path, short: RunSpec | None = None
) -> Estimate:
    limit_s = 60.0 * config.platforms[run.spec.point.platform].runtime_min
    return run_estimates.estimate(run.spec, runs_dir, limit_s, short)


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
