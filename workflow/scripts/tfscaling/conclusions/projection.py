"""Whole trainings from short runs: time and cost with an interval, checked by runs of the whole.

Each short run gives a time of the whole (`record.short_runs`). The interval is one for a run of
the whole that is made as the short runs were, by Student's t of the logarithms of their projected
times: it has what differs from run to run, start-up and pace alike, and the scatter of the steps
within the runs where that is more. It knows nothing of what begins after the short runs end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.record.run_states import RunState
from tfscaling.spec import platforms, variants
from tfscaling.spec.config import POINT_AXES
from tfscaling.spec.run_spec import Point
from tfscaling.tables.display import PROJECTED, Number, TextTable, cell, rounded, three_digits
from tfscaling.tables.estimates import CONFIDENCE
from tfscaling.tables.rows import Cells, RunRow
from tfscaling.tables.table_rows import by_point, is_known, is_projected, point_of

WITHIN, OUTSIDE, NOT_CHECKED, NO_INTERVAL = "within", "outside", "not checked", "no interval"
#: Short runs that an interval needs: two that differ a little make it hundreds of times as wide.
RUNS_MIN = 3
COLUMNS = (
    *(*POINT_AXES, "devices", "runs", "projected_from_steps", "projected_to_steps"),
    *("execution_time_s", "execution_time_s_low", "execution_time_s_high"),
    *("startup_s", "train_time_s", "evaluation_time_s"),
    *("node_hours", "node_hours_low", "node_hours_high"),
    *("cost_usd", "cost_usd_low", "cost_usd_high"),
    *("whole_recipe", "whole_runs", "whole_execution_time_s", "whole_evaluation_time_s"),
    *("runs_within", "check"),
)


class Interval(NamedTuple):
    """In seconds."""

    low_s: float
    high_s: float

    def holds(self, seconds: float) -> bool:
        return self.low_s <= seconds <= self.high_s

    def __str__(self) -> str:
        low, high = three_digits(self.low_s), three_digits(self.high_s)
        return f"One run of the whole training takes {low}–{high} s ({CONFIDENCE:.0%})."


def interval(times_s: Sequence[float], errors_s: Sequence[float]) -> Interval | None:
    """The interval of one run of the whole; None for fewer than RUNS_MIN projected times.

    `errors_s` are the standard errors of the times by the steps within each run: short runs that
    agree by chance are not taken to be surer than their steps allow.
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


def intervals(study: Study) -> dict[Point, Interval]:
    """Point of short runs → the interval of one run of the whole training."""
    projected = {point_of(row) for row in study.points if is_projected(row)}
    runs = _valid_runs(study) if projected else {}
    found = {point: _of_runs(runs[point]) for point in projected & runs.keys()}
    return {point: each for point, each in found.items() if each is not None}


def _of_runs(runs: Sequence[RunRow]) -> Interval | None:
    times_s = [float(run.execution_time_s) for run in runs]
    return interval(times_s, [float(run.projection_error_s) for run in runs])


def _valid_runs(study: Study) -> dict[Point, list[RunRow]]:
    """Point → the rows of its runs that count."""
    valid = (run for run in study.run_rows if run.status == RunState.OK)
    return by_point(run for run in valid if is_known(run.execution_time_s))


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per point that has short runs.

    `whole_recipe` is the recipe of the same training to its end, whose runs at the same point are
    the check: `runs_within` of its `whole_runs` took a time within the interval.
    """
    valid = _valid_runs(study)
    wholes = variants.wholes(study.manifest.runs)
    rows = []
    for each in study.points:
        point, runs = point_of(each), valid.get(point_of(each), [])
        if not is_projected(each) or not runs:
            continue
        found = _of_runs(runs)
        row: dict[str, object] = {name: each[name] for name in COLUMNS if name in each}
        row["runs"] = len(runs)
        row["startup_s"] = median(run.execution_time_s - run.train_time_s for run in runs)
        row["evaluation_time_s"] = median(run.evaluation_time_s for run in runs)
        row |= {"execution_time_s_low": None, "execution_time_s_high": None}
        times_s = {"": median(float(run.execution_time_s) for run in runs)}
        times_s |= {"_low": found.low_s, "_high": found.high_s} if found else {}
        for end, seconds in times_s.items():
            row[f"execution_time_s{end}"] = seconds
            row[f"node_hours{end}"] = point.nodes * seconds / 3600
            row[f"cost_usd{end}"] = platforms.run_cost_usd(
                study.prices.get(point), point.nodes, seconds
            )
        whole = wholes[point].point if point in wholes else None
        row["whole_recipe"] = whole.recipe if whole else None
        rows.append(row | _check(found, valid.get(whole, []) if whole else []))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def with_intervals(comparison: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """The comparison; projected times and costs have the intervals of `table`."""
    made, known = comparison.copy(), found.set_index(list(POINT_AXES))
    keys = pd.MultiIndex.from_frame(made[[*POINT_AXES]])
    for name in ("execution_time_s", "cost_usd", "node_hours"):
        for end in ("low", "high"):
            interval = known[f"{name}_{end}"].reindex(keys).to_numpy(float)
            made[f"{name}_{end}"] = made[f"{name}_{end}"].where(np.isnan(interval), interval)
    return made


def _check(found: Interval | None, runs: Sequence[RunRow]) -> dict[str, object]:
    """The columns by the runs of the whole."""
    if not runs:
        return {"whole_runs": 0, "check": NOT_CHECKED}
    times_s = [float(run.execution_time_s) for run in runs]
    row: dict[str, object] = {
        "whole_runs": len(runs),
        "whole_execution_time_s": median(times_s),
        "whole_evaluation_time_s": median(run.evaluation_time_s for run in runs),
        "check": NO_INTERVAL,
    }
    if found is not None:
        row["runs_within"] = within = sum(map(found.holds, times_s))
        row["check"] = WITHIN if within == len(runs) else OUTSIDE
    return row


def as_text(found: pd.DataFrame) -> TextTable:
    """`table` for people."""
    has_costs, is_checked = found["cost_usd"].notna().any(), (found["whole_runs"] > 0).any()

    def cells(row: Cells) -> dict[str, str]:
        def with_ends(name: str) -> str:
            low, high = f"{name}_low", f"{name}_high"
            return rounded(row[name], None, *((row[low], row[high]) if low in row else ()))

        texts = {
            "short runs": Number(str(row["runs"]), row["runs"]),
            "steps": cell(PROJECTED, row),
            "projected time (s)": with_ends("execution_time_s"),
            "of it start-up (s)": with_ends("startup_s"),
            "node-hours": with_ends("node_hours"),
            **({"cost (US dollars)": with_ends("cost_usd")} if has_costs else {}),
            "evaluations besides (s)": with_ends("evaluation_time_s"),
        }
        if is_checked:
            within, runs = row["runs_within"], row["whole_runs"]
            texts["measured time (s)"] = with_ends("whole_execution_time_s")
            texts["measured evaluations (s)"] = with_ends("whole_evaluation_time_s")
            texts["check"] = f"{within:.0f} of {runs} within" if is_known(within) else row["check"]
        return texts

    notes = shown.notes("projection", runs_min=RUNS_MIN)
    none = "No projection: no recipe with `stop_after_steps` has a run that counts."
    return shown.text_table("Projected from short runs", found, cells, notes, none)
