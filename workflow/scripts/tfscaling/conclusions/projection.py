"""Time and cost of complete trainings, projected from short runs and checked by complete ones.

Each short run gives a time of the complete training (`record.step_estimates`). The interval is for
one complete run under the same conditions, by Student's t of the logarithms of the projected times.
It includes differences from run to run, and the scatter of steps within the runs if that is larger.
It cannot include effects that begin after the short runs end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import scipy

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.record.metrics import NAN
from tfscaling.record.run_states import RunState
from tfscaling.study import platforms, variants
from tfscaling.study.config_types import POINT_AXES
from tfscaling.study.run_spec import Point
from tfscaling.tables.display import (
    PROJECTED_COLUMN,
    FormattedNumber,
    TextTable,
    format_cell,
    format_three_digits,
    format_value,
)
from tfscaling.tables.row_types import Column, ConfigurationRow, PointRow, RunRow, Steps, columns
from tfscaling.tables.row_values import (
    axes_and_devices,
    group_by_point,
    is_known,
    is_projected,
    point_of,
)
from tfscaling.tables.table_files import to_frame, to_rows

WITHIN, OUTSIDE, NOT_CHECKED, NO_INTERVAL = "within", "outside", "not checked", "no interval"
#: Minimum number of short runs for an interval: from two it may be hundreds of times as wide.
RUNS_MIN = 3


class ProjectionRow(ConfigurationRow):
    """Times and costs of the complete training of a configuration that has short runs.

    Columns that end in `_low` and `_high` are the interval of one complete run.

    Attributes:
        runs: Number of valid short runs.
        projected_from_steps: Steps that the short runs trained.
        projected_to_steps: Steps of the complete training.
        execution_time_s: Median of the projected times, in seconds.
        startup_s: Median start-up in seconds: the execution time without the training.
        whole_recipe: Recipe of the complete training, whose runs check the projection; null if
            none is planned.
        whole_runs: Number of complete runs of the same configuration.
        whole_execution_time_s: Median time of the complete runs.
        runs_within: Number of complete runs whose time is within the projected interval; null
            without complete runs or without an interval.
        check: `within` if all complete runs are within the interval, else `outside`; `no interval`
            or `not checked` if they cannot be compared.
    """

    runs: int
    projected_from_steps: Steps
    projected_to_steps: Steps
    execution_time_s: float
    execution_time_s_low: float
    execution_time_s_high: float
    startup_s: float
    train_time_s: float
    evaluation_time_s: float
    node_hours: float
    node_hours_low: float
    node_hours_high: float
    cost_usd: float
    cost_usd_low: float
    cost_usd_high: float
    whole_recipe: str | None = None
    whole_runs: int = 0
    whole_execution_time_s: float = NAN
    whole_evaluation_time_s: float = NAN
    runs_within: Annotated[int | None, Column("runs")] = None
    check: str = NOT_CHECKED


COLUMNS = tuple(columns(ProjectionRow))


class Interval(NamedTuple):
    """An interval of times.

    Attributes:
        low_s: Lower end in seconds.
        high_s: Upper end in seconds.
    """

    low_s: float
    high_s: float

    def contains(self, seconds: float) -> bool:
        """Return whether a time is in the interval."""
        return self.low_s <= seconds <= self.high_s

    def __str__(self) -> str:
        """Return the interval as a sentence about one complete run."""
        low, high = format_three_digits(self.low_s), format_three_digits(self.high_s)
        return f"One run of the whole training takes {low}–{high} s ({CONFIDENCE:.0%})."


def projection_interval(times_s: Sequence[float], errors_s: Sequence[float]) -> Interval | None:
    """Return the interval of one complete run's time, or None for fewer than RUNS_MIN times.

    Args:
        times_s: Projected time of each short run, in seconds.
        errors_s: Standard error of each time, from the steps within the run, in seconds. Short runs
            that agree by chance do not narrow the interval below it.
    """
    number = len(times_s)
    if number < RUNS_MIN:
        return None
    logs = [math.log(time_s) for time_s in times_s]
    within = [error_s / time_s for error_s, time_s in zip(errors_s, times_s, strict=True)]
    scatter = max(stdev(logs), math.sqrt(fmean(error**2 for error in within)))
    quantile = float(scipy.special.stdtrit(number - 1, (1 + CONFIDENCE) / 2))
    half = quantile * scatter * math.sqrt(1 + 1 / number)
    middle = fmean(logs)
    return Interval(math.exp(middle - half), math.exp(middle + half))


@functools.lru_cache(maxsize=1)  # the answers to all questions need the same intervals
def projection_intervals(study: Study) -> dict[Point, Interval]:
    """Return configuration with short runs → interval of the time of one complete run."""
    projected = {point_of(row) for row in study.points if is_projected(row)}
    runs = _valid_runs(study) if projected else {}
    found = {point: _interval_of_runs(runs[point]) for point in projected & runs.keys()}
    return {point: each for point, each in found.items() if each is not None}


def _interval_of_runs(runs: Sequence[RunRow]) -> Interval | None:
    """Return the interval for the time of one complete run, from the rows of short runs.

    It is None for fewer than RUNS_MIN rows.
    """
    times_s = [float(run.execution_time_s) for run in runs]
    return projection_interval(times_s, [float(run.projection_error_s) for run in runs])


def _valid_runs(study: Study) -> dict[Point, list[RunRow]]:
    """Return configuration → the rows of its valid runs that have an execution time."""
    valid = (run for run in study.run_rows if run.status == RunState.OK)
    return group_by_point(run for run in valid if is_known(run.execution_time_s))


def table(study: Study) -> pd.DataFrame:
    """Return one `ProjectionRow` for each configuration with valid short runs."""
    valid = _valid_runs(study)
    wholes = variants.complete_runs_by_point(study.manifest.runs)
    rows = []
    for each in study.points:
        point = point_of(each)
        if is_projected(each) and point in valid:
            whole = wholes[point].point if point in wholes else None
            row = _projection_row(each, valid[point], study.prices.get(point), whole)
            _add_check(row, valid.get(whole, []) if whole else [])
            rows.append(row)
    return to_frame(ProjectionRow, rows)


def _projection_row(
    row: PointRow, runs: Sequence[RunRow], price: float | None, complete: Point | None
) -> ProjectionRow:
    """Return a configuration's row with its projection, before `_add_check` sets further columns.

    Args:
        row: The row of the configuration in the comparison.
        runs: Its valid runs.
        price: US dollars per node and hour; None without a price.
        complete: The configuration of the complete training; None if it is not planned.
    """
    found = _interval_of_runs(runs)
    middle_s = median(float(run.execution_time_s) for run in runs)
    times_s = (middle_s, *(found or (NAN, NAN)))
    hours = [row.nodes * seconds / 3600 for seconds in times_s]
    costs = [platforms.run_cost_usd(price, row.nodes, seconds) for seconds in times_s]
    usd = [NAN if cost is None else cost for cost in costs]
    return ProjectionRow(
        **axes_and_devices(row),
        runs=len(runs),
        projected_from_steps=row.projected_from_steps,
        projected_to_steps=row.projected_to_steps,
        execution_time_s=times_s[0],
        execution_time_s_low=times_s[1],
        execution_time_s_high=times_s[2],
        startup_s=median(run.execution_time_s - run.train_time_s for run in runs),
        train_time_s=row.train_time_s,
        evaluation_time_s=median(run.evaluation_time_s for run in runs),
        node_hours=hours[0],
        node_hours_low=hours[1],
        node_hours_high=hours[2],
        cost_usd=usd[0],
        cost_usd_low=usd[1],
        cost_usd_high=usd[2],
        whole_recipe=complete.recipe if complete else None,
    )


def add_intervals(comparison: pd.DataFrame, projections: pd.DataFrame) -> pd.DataFrame:
    """Return the comparison with the intervals of projected times and costs as further columns.

    Args:
        comparison: The table of configurations.
        projections: The table of projections.
    """
    made, known = comparison.copy(), projections.set_index(list(POINT_AXES))
    keys = pd.MultiIndex.from_frame(made[[*POINT_AXES]])
    for name in ("execution_time_s", "cost_usd", "node_hours"):
        for end in ("low", "high"):
            interval = known[f"{name}_{end}"].reindex(keys).to_numpy(float)
            made[f"{name}_{end}"] = made[f"{name}_{end}"].where(np.isnan(interval), interval)
    is_projected_here = keys.isin(known.index)
    for name in ("core_hours", "gpu_hours"):  # in proportion to the node-hours
        for end in ("low", "high"):
            part = made[f"node_hours_{end}"] * (made[name] / made["node_hours"])
            made[f"{name}_{end}"] = made[f"{name}_{end}"].mask(is_projected_here, part)
    return made


def _add_check(row: ProjectionRow, runs: Sequence[RunRow]) -> None:
    """Compare a projected interval with complete runs, and set the row's columns with the result.

    Args:
        row: The row of a projection.
        runs: The complete runs of the same configuration; without any, nothing is changed.
    """
    if not runs:
        return
    times_s = [float(run.execution_time_s) for run in runs]
    row.whole_runs, row.whole_execution_time_s = len(runs), median(times_s)
    row.whole_evaluation_time_s = median(run.evaluation_time_s for run in runs)
    row.check = NO_INTERVAL
    if is_known(row.execution_time_s_low):
        found = Interval(row.execution_time_s_low, row.execution_time_s_high)
        row.runs_within = sum(map(found.contains, times_s))
        row.check = WITHIN if row.runs_within == len(runs) else OUTSIDE


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table of projections with texts as cells, for the page."""
    rows = to_rows(ProjectionRow, table)
    has_costs = any(is_known(row.cost_usd) for row in rows)
    is_checked = any(row.whole_runs for row in rows)

    def cells(row: ProjectionRow) -> dict[str, str]:
        def format_interval(name: str) -> str:
            low, high = f"{name}_low", f"{name}_high"
            return format_value(row[name], None, *((row[low], row[high]) if low in row else ()))

        texts = {
            "short runs": FormattedNumber(str(row.runs), row.runs),
            "steps": format_cell(PROJECTED_COLUMN, row),
            "projected time (s)": format_interval("execution_time_s"),
            "of it start-up (s)": format_interval("startup_s"),
            "node-hours": format_interval("node_hours"),
            **({"cost (US dollars)": format_interval("cost_usd")} if has_costs else {}),
            "evaluations besides (s)": format_interval("evaluation_time_s"),
        }
        if is_checked:
            within = row.runs_within
            texts["measured time (s)"] = format_interval("whole_execution_time_s")
            texts["measured evaluations (s)"] = format_interval("whole_evaluation_time_s")
            texts["check"] = row.check if within is None else f"{within} of {row.whole_runs} within"
        return texts

    notes = rendering.render_notes("projection", runs_min=RUNS_MIN)
    none = "No projection: no recipe with `stop_after_steps` has a run that counts."
    title = "Projected from short runs"
    return rendering.make_text_table(title, table, ProjectionRow, cells, notes, none)
