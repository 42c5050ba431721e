"""The costed plan: what a sweep would still do, for how long, at what price, how it is submitted.

Reads the run records that are there; submits nothing and asks Slurm nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tfscaling.analysis import communication
from tfscaling.records import benchmark_record, prepared_data, run_record, run_states
from tfscaling.study import costs, grid, manifest, platforms, user_code
from tfscaling.study.config import AXES, BATCH_SIZE_KEYS, POINT_AXES, Budget, Config
from tfscaling.study.configuration import Sources, problem
from tfscaling.study.geometry import Geometry
from tfscaling.study.manifest import Manifest, PlannedBenchmark, PlannedRun
from tfscaling.tables import runs_table
from tfscaling.tables.display import one_line

Row = dict[str, Any]

COLUMNS = (
    *AXES,
    *("devices", "feasibility", "reason", "tasks", "gpus", "cpus_per_task"),
    *("duration_s", "duration_from", "node_hours", "cost_usd", "submission"),
)
BENCHMARK_COLUMNS = ("platform", "duration_s", "node_hours", "cost_usd")
TIME_LIMIT = "time limit"
#: A run that is still to do, a further repeat that may have to be done, a point that is not run.
RUNS, IF_NEEDED, EXCLUDED = "runs", "runs if needed", "excluded"


@dataclass(frozen=True)
class Plan:
    """`rows` as in COLUMNS: the runs still to do, further repeats included, the excluded points.

    `finished` runs have a valid record, those `elsewhere` are on clusters that were not chosen.
    `benchmarks` still to do are no rows of the plan: each has BENCHMARK_COLUMNS.
    """

    rows: list[Row]
    finished: int
    elsewhere: int
    benchmarks: list[Row] = field(default_factory=list)

    @property
    def runs(self) -> list[Row]:
        """The runs that are still to do, or may have to be."""
        return [row for row in self.rows if row["feasibility"] != EXCLUDED]

    @property
    def if_needed(self) -> list[Row]:
        """The further repeats of them, which are done only where an interval is too wide."""
        return [row for row in self.rows if row["feasibility"] == IF_NEEDED]


@dataclass(frozen=True)
class Total:
    """Sums over runs; `cost_usd` is of those with a price, `unpriced` are the other platforms."""

    runs: int
    node_hours: float
    cost_usd: float
    duration_s: float
    unpriced: tuple[str, ...]


def make(config: Config, planned: Manifest, runs_dir: Path) -> Plan:
    """The plan of a validated configuration; `submission` is left to `submission.add`.

    `planned` is the manifest of the configuration. A run is still to do unless it has a record,
    valid or diverged, made with the expected parameters.
    Raises ConfigError if no platform is on the cluster that was chosen.
    """
    platforms.check_cluster(config)
    expected = manifest.as_dict(planned)
    selected = [e for e in expected["runs"] if is_selected(config, e["axes"]["platform"])]
    runs = [
        msgspec.structs.replace(run, extra_repeat=False)
        for run in planned.runs
        if config.is_selected(run.spec.point.platform)
    ]
    table, _ = runs_table.run_tables(runs, runs_dir)
    estimates: dict[tuple[Any, ...], tuple[float, str]] = {}
    rows = []
    for entry, status, reason in zip(selected, table["status"], table["reason"], strict=True):
        if status in run_states.FINISHED:
            continue
        point = tuple(entry["axes"][axis] for axis in POINT_AXES)
        if point not in estimates:
            limit_min = config.platforms[entry["axes"]["platform"]].runtime_min
            estimates[point] = estimate(entry, runs_dir, 60.0 * limit_min)
        rows.append(_row(entry, f"{status}: {one_line(reason)}", *estimates[point]))
    finished = len(selected) - len(rows)
    for out in expected["excluded"]:
        if is_selected(config, out["axes"]["platform"]):
            why = {"feasibility": EXCLUDED, "reason": out["reason"]}
            why["devices"] = platforms.device_kind(
                out["axes"]["gpus_per_node"],
                config.platforms[out["axes"]["platform"]].devices,
            )
            rows.append({**dict.fromkeys(COLUMNS), **out["axes"], **why})
    benchmarks = communication.to_do(
        planned.all_reduce_benchmarks, benchmark_record.folder_beside(runs_dir)
    )
    elsewhere = len(expected["runs"]) - len(selected)
    return Plan(rows, finished, elsewhere, _benchmarks(config, benchmarks))


def _benchmarks(config: Config, planned: Sequence[PlannedBenchmark]) -> list[Row]:
    """Rows of these benchmarks, the platform's time limit as their duration."""
    rows = []
    for benchmark in planned:
        platform, nodes = benchmark.point.platform, benchmark.point.nodes
        limit_s = 60.0 * config.platforms[platform].runtime_min
        cost_usd = costs.run_cost_usd(benchmark.usd_per_node_hour, nodes, limit_s)
        row = (platform, limit_s, nodes * limit_s / 3600.0, cost_usd)
        if is_selected(config, platform):
            rows.append(dict(zip(BENCHMARK_COLUMNS, row, strict=True)))
    return rows


def is_selected(config: Config, platform: str) -> bool:
    """Whether the platform is on the cluster that was chosen with --config cluster=NAME."""
    return config.is_selected(platform)


def _row(entry: Mapping[str, Any], reason: str, duration_s: float, source: str) -> Row:
    axes = entry["axes"]
    shape = Geometry.of(axes)
    return {
        **axes,
        "devices": platforms.device_kind(shape.gpus_per_node, entry["parameters"]["devices"]),
        "feasibility": IF_NEEDED if entry["further"] else RUNS,
        "reason": reason,
        "tasks": shape.tasks,
        "gpus": shape.gpus,
        "cpus_per_task": entry["parameters"]["cpus_per_node"] // shape.tasks_per_node_max,
        "duration_s": duration_s,
        "duration_from": source,
        "node_hours": shape.nodes * duration_s / 3600.0,
        "cost_usd": costs.run_cost_usd(entry["usd_per_node_hour"], shape.nodes, duration_s),
        "submission": None,
    }


def estimate(entry: Mapping[str, Any], runs_dir: Path, limit_s: float) -> tuple[float, str]:
    """(seconds, where they come from) of an expected run.

    The median of the point's own valid runs, else the time limit: an upper bound. Nothing is scaled
    from other points: the start and the compilation do not shrink with the epochs, and the time of
    a step depends on nodes and batch in a way that this workflow is there to measure.
    """
    times = measured_s(entry, runs_dir)
    if not times:
        return limit_s, TIME_LIMIT
    return statistics.median(times), f"measured, {len(times)} run{'s' if len(times) > 1 else ''}"


def measured_s(entry: Mapping[str, Any], runs_dir: Path) -> list[float]:
    """Wall times in seconds of the valid runs of an expected run's point, whatever their seed."""
    times = []
    for path in sorted((runs_dir / entry["path"]).parent.glob(f"repeat=*/{run_record.RECORD}")):
        try:
            record = run_record.read(path)
        except run_record.RecordError:
            continue
        if record is None or not record.is_valid:
            continue
        same_point = {**record.axes.axes, "repeat": None} == {**entry["axes"], "repeat": None}
        made, asked = record.parameters, entry["parameters"]
        if same_point and {**made, "seed": None} == {**asked, "seed": None}:
            times.append(record.phases.wall_time_s)
    return times


def total(runs: Sequence[Row]) -> Total:
    """Sums over rows of runs, or of benchmarks."""
    return Total(
        len(runs),
        sum(row["node_hours"] for row in runs),
        sum(row["cost_usd"] or 0.0 for row in runs),
        sum(row["duration_s"] for row in runs),
        tuple(dict.fromkeys(row["platform"] for row in runs if row["cost_usd"] is None)),
    )


def refusal(config: Config, planned: Manifest, runs_dir: Path, sources: Sources = ()) -> str | None:
    """Why the runs still to do may not be started: the budget's first problem, or None.

    `planned` is the manifest of the configuration. Without a budget no record is read.
    """
    if config.budget == Budget():
        return None
    made = make(config, planned, runs_dir)
    return next(iter(budget_problems(config, made.runs, made.benchmarks, sources)), None)


def batch_problem(
    config: Config, runs: Iterable[PlannedRun], datasets_dir: Path, sources: Sources = ()
) -> str | None:
    """Why a run's global batch is larger than the data of a function of the user's, or None.

    Only of data that is prepared already: nothing else says how much there is. What is known of
    datasets with a name has excluded such points before.
    """
    known: dict[str, int | None] = {}
    for run in runs:
        spec, recipe = run.spec, run.spec.recipe
        name, point = spec.dataset, spec.point
        if not user_code.is_reference(name) or not config.is_selected(point.platform):
            continue
        if name not in known:
            facts = prepared_data.facts(datasets_dir / f"{name}.npz")
            known[name] = facts.examples.x_train if facts else None
        why = grid.beyond_dataset(spec.global_batch_size, name, recipe, known[name])
        if why is not None:
            shape = f"nodes {point.nodes}, gpus_per_node {point.gpus_per_node}"
            allowed = f"with {shape} {why}; allowed: a smaller batch, or leave out such points"
            given = {key: getattr(recipe, key) for key in BATCH_SIZE_KEYS}
            shown = {key: value for key, value in given.items() if value is not None}
            return problem(["recipes", point.recipe], shown, allowed, sources)
    return None


def budget_problems(
    config: Config,
    runs: Sequence[Row],
    benchmarks: Sequence[Row] = (),
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
