"""What a search has cost, compared with the full grid of its configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tfscaling.record.metrics import NAN
from tfscaling.record.run_states import RunState
from tfscaling.study import platforms
from tfscaling.study.manifest import PlannedSearch
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.row_values import axes_without_nodes, is_known


class RunCosts(NamedTuple):
    """The cost of some runs; NaN where it is unknown.

    Attributes:
        runs: Number of runs.
        node_hours: Their node-hours.
        cost_usd: Their cost in US dollars.
    """

    runs: int
    node_hours: float
    cost_usd: float

    @classmethod
    def from_times(
        cls, nodes: int, price: float | None, seconds: Sequence[float], repeats: int
    ) -> RunCosts:
        """Return the cost of runs that take the mean of some measured times.

        Args:
            nodes: Nodes of a run.
            price: US dollars per node and hour; None if unknown.
            seconds: Measured times.
            repeats: Number of runs.
        """
        if not repeats:
            return cls(0, 0.0, 0.0)
        if not seconds:
            return cls(repeats, NAN, NAN)
        total_s = repeats * sum(seconds) / len(seconds)
        usd = platforms.run_cost_usd(price, nodes, total_s)
        return cls(repeats, nodes * total_s / 3600, NAN if usd is None else usd)


class CandidateCosts(NamedTuple):
    """The cost of a configuration of a search.

    Attributes:
        made: Cost of its finished runs, short ones included.
        full_grid: What its runs in the full grid would cost.
    """

    made: RunCosts
    full_grid: RunCosts


class SearchSaving(NamedTuple):
    """The cost of a search compared with the full grid.

    Attributes:
        made: Cost of all runs of the search.
        full_grid: What all runs of the full grid would cost.
        unrun: Number of configurations without runs.
        is_cost: Whether the goal of the search is a cost; its saving is in dollars then, else in
            node-hours.
    """

    made: RunCosts
    full_grid: RunCosts
    unrun: int
    is_cost: bool

    @classmethod
    def from_candidates(cls, candidates: Iterable[CandidateCosts], goal: str) -> SearchSaving:
        """Return the sums over the configurations of a search for a goal."""
        each = list(candidates)
        made, full_grid = (
            RunCosts(*map(sum, zip(*costs, strict=True))) for costs in zip(*each, strict=True)
        )
        unrun = sum(not own.made.runs for own in each)
        return cls(made, full_grid, unrun, goal.startswith("cost_"))


def candidate_costs(
    search: PlannedSearch,
    rows: Mapping[Point, Sequence[RunRow]],
    prices: Mapping[Point, float | None],
) -> dict[Point, CandidateCosts]:
    """Return configuration → its cost in a search and in the full grid.

    A run of the full grid is assumed to take

    - the mean time of the complete runs, without resumed ones: their wall time is of the last
      attempt only;
    - without complete runs, the time that short runs project;
    - without any run, the time by a linear speed-up, which is the lowest cost, if the search
      assumes smooth lines; otherwise the cost is unknown.

    Args:
        search: The search.
        rows: Configuration → its rows in the table of runs, for all configurations of the study.
        prices: Configuration → US dollars per node and hour; None without a price.
    """
    seconds: dict[Point, list[float]] = {}
    whole: dict[Point, list[float]] = {}
    for point, runs in rows.items():
        for run in runs:
            if not is_known(run.wall_time_s):
                continue
            seconds.setdefault(point, []).append(run.wall_time_s)
            if run.status != RunState.OK or is_known(run.execution_time_s):
                is_short = is_known(run.projected_from_steps)
                takes_s = run.execution_time_s if is_short else run.wall_time_s
                whole.setdefault(point, []).append(takes_s)
    found = {}
    for each in search.points:
        point, own = each.point, seconds.get(each.point, [])
        takes = whole.get(point) or own
        if each.short:
            own = own + seconds.get(each.short, [])
            takes = takes or whole.get(each.short, [])
        if not takes and search.search.assumes_smooth_lines:  # linear speed-up on the same line
            alike = [
                p for p in whole if axes_without_nodes(p.axes) == axes_without_nodes(point.axes)
            ]
            least = min(alike, key=lambda p: p.nodes, default=point)
            takes = [least.nodes / point.nodes * value for value in whole.get(least, [])]
        price = prices.get(point)
        made = RunCosts.from_times(point.nodes, price, own, len(own))
        full_grid = RunCosts.from_times(point.nodes, price, takes, each.repeats)
        found[point] = CandidateCosts(made, full_grid)
    return found
