"""What a costed plan is made of: rows of runs and points, sums over them, costs of searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tfscaling.spec import variants
from tfscaling.spec.config import POINT_AXES, Recipe
from tfscaling.spec.run_spec import Point

#: A run that is still to do, an extra repeat that may have to be done, a point that is not run.
RUNS, IF_NEEDED, EXCLUDED = "runs", "runs if needed", "excluded"
#: `starts` of a point that Slurm can never start, or whose libraries are missing.
REFUSED = "refused"
#: `duration_from` of a point without a measured run.
TIME_LIMIT = "time limit"
#: Where points differ in the queue by less than this, the order is chance.
_SECONDS_MIN = 60.0


class CostedRow(Point, frozen=True, kw_only=True):
    """What is still to do at a point, or an excluded point: neither sizes nor a duration.

    `duration_s` is that of one run; `node_hours` and `cost_usd` are those of all runs of the row.
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

    @property
    def point(self) -> Point:
        """The point alone."""
        return msgspec.convert(self.axes, Point)


class PlanRow(CostedRow, frozen=True, kw_only=True):
    """One run."""

    repeat: int | None = None


class PointRow(CostedRow, frozen=True, kw_only=True):
    """Runs of a point that are alike; None of an excluded point.

    `submission` says how a run is submitted, `starts` when Slurm would start one, and `slurm` what
    it says of those that it would not start. `wait_s` is the time until then, `ends_in_s` that
    with the duration of the run.
    """

    runs: int | None = None
    submission: str | None = None
    starts: str | None = None
    slurm: str | None = None
    wait_s: float | None = None
    ends_in_s: float | None = None

    @property
    def is_refused(self) -> bool:
        """Whether its runs can never start."""
        return self.starts == REFUSED

    @property
    def is_sbatch(self) -> bool:
        """Whether its runs are submitted to Slurm."""
        return (self.submission or "").startswith("sbatch ")


def of_other_work(rows: Iterable[CostedRow], recipes: Mapping[str, Recipe]) -> list[str]:
    """Recipes whose configurations train different numbers of examples by what the recipe says."""
    shapes: dict[str, set[tuple[object, ...]]] = {}
    for row in rows:
        recipe = recipes[variants.base(row.recipe)]
        if recipe.steps_per_epoch and recipe.per_replica_batch_size:
            shape = (row.nodes, row.gpus_per_node, row.tasks_per_node)
            shapes.setdefault(row.recipe, set()).add(shape)
    return [name for name, own in shapes.items() if len(own) > 1]


class BenchmarkRow(msgspec.Struct, frozen=True, kw_only=True):
    """An all-reduce benchmark that is still to do."""

    platform: str
    duration_s: float
    node_hours: float
    cost_usd: float | None


#: Of the file: what is to do first.
COLUMNS = tuple(dict.fromkeys((*POINT_AXES, "runs", *PointRow.__struct_fields__)))


class FailedSum(NamedTuple):
    """Attempts that failed so far; `cost_usd` is None if one has no price."""

    attempts: int = 0
    node_hours: float = 0.0
    cost_usd: float | None = 0.0


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
    """Cost of a whole search, finished runs included, and of the full grid.

    The least if it is decided at its next look, the most if no point leaves before its last one.
    """

    work: str
    points: int
    made: Total
    least: Total
    expected: Total
    most: Total
    full_grid: Total


@dataclass(frozen=True)
class Plan:
    """`rows`: the runs still to do, extra repeats included, and the excluded points.

    `finished` runs have a valid record, those `elsewhere` are on clusters that were not chosen.
    `benchmarks` still to do are no rows of the plan, nor are runs that a search no longer needs.
    `stale` runs of other code or data are rerun only with `rerun: stale`. `failed`
    attempts at any of the runs are paid for.
    """

    rows: list[PlanRow]
    finished: int
    elsewhere: int
    benchmarks: list[BenchmarkRow] = field(default_factory=list)
    stale: int = 0
    failed: FailedSum = field(default_factory=FailedSum)
    searches: list[SearchCost] = field(default_factory=list)

    @property
    def runs(self) -> list[PlanRow]:
        """The runs that are still to do, or may have to be."""
        return [row for row in self.rows if row.feasibility != EXCLUDED]

    @property
    def if_needed(self) -> list[PlanRow]:
        """The extra repeats of them, which are done only where an interval is too wide."""
        return [row for row in self.rows if row.feasibility == IF_NEEDED]


def total(runs: Sequence[PlanRow | BenchmarkRow]) -> Total:
    """Sums over rows of runs, or of benchmarks."""
    return Total(
        len(runs),
        sum(row.node_hours or 0.0 for row in runs),
        sum(row.cost_usd or 0.0 for row in runs),
        sum(row.duration_s or 0.0 for row in runs),
        tuple(dict.fromkeys(row.platform for row in runs if row.cost_usd is None)),
    )


def of_points(rows: Iterable[PlanRow]) -> list[PointRow]:
    """The rows of a plan with the runs together that differ in their repeat alone."""
    groups: dict[tuple[object, ...], list[PlanRow]] = {}
    for row in rows:
        alike = (*row.axes.values(), row.feasibility, row.reason)
        groups.setdefault(alike, []).append(row)
    return [_of_point(runs) for runs in groups.values()]


def _of_point(runs: Sequence[PlanRow]) -> PointRow:
    fields, sums = msgspec.structs.asdict(runs[0]), total(runs)
    if fields.pop("repeat") is None:
        return PointRow(**fields)
    fields["node_hours"] = sums.node_hours
    fields["cost_usd"] = None if sums.unpriced else sums.cost_usd
    return PointRow(**fields, runs=len(runs))


def soonest(rows: Iterable[PointRow]) -> Iterator[str]:
    """For each model and recipe which run is the shortest, and which would end first.

    Only of points whose duration was measured and which Slurm would start; nothing of fewer than
    two.
    """
    works: dict[tuple[str, str], list[PointRow]] = {}
    for row in rows:
        if row.ends_in_s is not None and row.duration_from != TIME_LIMIT:
            works.setdefault((row.model, row.recipe), []).append(row)
    for (model, recipe), points in works.items():
        if len(points) > 1:
            yield f"{model}, {recipe}: {_compared(points)}"


def _compared(points: list[PointRow]) -> str:
    times = [(row.duration_s or 0.0, row.ends_in_s or 0.0, row) for row in points]
    run_s, end_s, shortest = min(times, key=lambda each: (each[0], each[2].nodes))
    _, first_s, first = min(times, key=lambda each: (each[1], each[2].nodes))
    of_shortest = f"the shortest run is that of {_name(shortest)} ({_about(run_s)})"
    if end_s - first_s < _SECONDS_MIN:
        return f"{of_shortest}; with the queue as it is now it would end first, too."
    return (
        f"{of_shortest}, but with the queue as it is now {_name(first)} would end first: in "
        f"{_about(first_s)}, that one in {_about(end_s)}."
    )


def _name(row: PointRow) -> str:
    gpus = f" with gpus_per_node {row.gpus_per_node}" if row.gpus_per_node else ""
    return f"{row.nodes} node{'s' * (row.nodes > 1)}{gpus} on {row.platform}"


def _about(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
