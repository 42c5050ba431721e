"""What a whole search takes, by the estimates of its points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tfscaling.plan.plan_rows import SearchCost, Total
from tfscaling.plan.run_estimates import Estimate
from tfscaling.spec.manifest import Manifest, PlannedRun
from tfscaling.spec.run_spec import Point
from tfscaling.tables import runs_table

if TYPE_CHECKING:
    from tfscaling.search.study_searches import StudySearch


def searches(planned: Manifest, runs_dir: Path) -> list[StudySearch]:
    """The searches by the runs of all clusters."""
    if not planned.searches:
        return []
    from tfscaling.search import study_searches  # loads SciPy

    table, _ = runs_table.run_tables(planned.runs, runs_dir, planned.targets)
    return study_searches.of_study(planned, table)


def cost_of(
    search: StudySearch, runs: Mapping[Point, PlannedRun], takes: Mapping[Point, Estimate]
) -> SearchCost:
    from tfscaling.search import expected_runs

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

    expected = expected_runs.expected_runs(search, prices)
    return SearchCost(
        ", ".join(search.work),
        len(made),
        cost(made),
        cost({p: max(n, next_runs) if search.is_next(p) else n for p, n in made.items()}),
        cost({point: max(made[point], number) for point, number in expected.items()}),
        cost(up_to(looks[-1])),
        cost({each.point: each.repeats for each in search.planned.points if each.point in made}),
    )
