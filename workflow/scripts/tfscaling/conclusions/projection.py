"""Whole trainings from short runs: time and cost with an interval, checked by runs of the whole.

Each short run gives a time of the whole (`records.short_runs`). The interval is one for a run of
the whole that is made as the short runs were, by Student's t of the logarithms of their projected
times: it has what differs from run to run, start-up and pace alike, and what the steps within the
runs scatter where that is more. It knows nothing of what begins after the short runs end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import NamedTuple

import pandas as pd
from scipy.special import stdtrit

from tfscaling.conclusions.evidence import Study
from tfscaling.record.run_states import RunState
from tfscaling.spec import platforms, variants
from tfscaling.spec.config import POINT_AXES
from tfscaling.spec.run_spec import Point
from tfscaling.tables.display import MISSING, NAMING, Number, TextTable, cell, naming, three_digits
from tfscaling.tables.estimates import CONFIDENCE
from tfscaling.tables.rows import RunRow
from tfscaling.tables.table_rows import Row, is_known, is_projected, point_of, rows_of

TITLE = "Projected from short runs"
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


@dataclass(frozen=True)
class Projection:
    """The whole training of a point from its short runs; all durations in seconds.

    `interval` is for one run of the whole, None of too few short runs: these do not tell how much
    runs differ.
    """

    runs: int
    execution_time_s: float
    startup_s: float
    evaluation_time_s: float
    interval: Interval | None

    @classmethod
    def of(cls, runs: Sequence[RunRow]) -> Projection:
        """From the rows of the short runs of a point that count, one or more."""
        times_s = [float(run.execution_time_s) for run in runs]
        errors_s = [float(run.projection_error_s) for run in runs]
        return cls(
            len(runs),
            median(times_s),
            median(run.execution_time_s - run.train_time_s for run in runs),
            median(run.evaluation_time_s for run in runs),
            interval(times_s, errors_s),
        )


def interval(times_s: Sequence[float], errors_s: Sequence[float]) -> Interval | None:
    """Where one run of the whole is with CONFIDENCE; None of fewer than RUNS_MIN projected times.

    `errors_s` are the standard errors of the times by the steps within each run: short runs that
    agree by chance are not taken to be surer than their steps allow.
    """
    number = len(times_s)
    if number < RUNS_MIN:
        return None
    logs = [math.log(time_s) for time_s in times_s]
    within = [error_s / time_s for error_s, time_s in zip(errors_s, times_s, strict=True)]
    scatter = max(stdev(logs), math.sqrt(fmean(error**2 for error in within)))
    quantile = float(stdtrit(number - 1, (1 + CONFIDENCE) / 2))
    half = quantile * scatter * math.sqrt(1 + 1 / number)
    middle = fmean(logs)
    return Interval(math.exp(middle - half), math.exp(middle + half))


def intervals(study: Study) -> dict[Point, Interval]:
    """Point of short runs → the interval of one run of the whole training."""
    projected = {point_of(row) for row in study.points if is_projected(row)}
    runs = _valid_runs(study) if projected else {}
    found = {point: Projection.of(runs[point]).interval for point in projected & runs.keys()}
    return {point: each for point, each in found.items() if each is not None}


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per point that has short runs.

    `whole_recipe` is the recipe of the same training to its end, whose runs at the same point are
    the check: `runs_within` of its `whole_runs` took a time within the interval.
    """
    by_point = _valid_runs(study)
    wholes = variants.wholes(run.spec for run in study.manifest.runs)
    prices = {run.spec.point: run.usd_per_node_hour for run in study.manifest.runs}
    rows = []
    for shown in study.points:
        point, runs = point_of(shown), by_point.get(point_of(shown), [])
        if not is_projected(shown) or not runs:
            continue
        found = Projection.of(runs)
        row: Row = {name: shown[name] for name in COLUMNS if name in shown}
        row |= {"runs": found.runs, "execution_time_s": found.execution_time_s}
        row |= {"startup_s": found.startup_s, "evaluation_time_s": found.evaluation_time_s}
        row |= {"execution_time_s_low": None, "execution_time_s_high": None}
        for end, seconds in (("", found.execution_time_s), *_ends(found.interval)):
            row[f"execution_time_s{end}"] = seconds
            row[f"node_hours{end}"] = point.nodes * seconds / 3600
            row[f"cost_usd{end}"] = platforms.run_cost_usd(prices.get(point), point.nodes, seconds)
        whole = wholes[point].point if point in wholes else None
        rows.append(row | _check(found, whole, by_point.get(whole, []) if whole else []))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _ends(found: Interval | None) -> Iterator[tuple[str, float]]:
    if found is not None:
        yield from (("_low", found.low_s), ("_high", found.high_s))


def _valid_runs(study: Study) -> dict[Point, list[RunRow]]:
    """Point → the rows of its runs that count; of studies of before, which have no short runs."""
    runs: dict[Point, list[RunRow]] = {}
    for run in study.run_rows:
        if run.status == RunState.OK and is_known(run.execution_time_s):
            runs.setdefault(point_of(run), []).append(run)
    return runs


def _check(found: Projection, whole: Point | None, runs: Sequence[RunRow]) -> Row:
    """The columns that say what runs of the whole took."""
    row: Row = {"whole_recipe": whole.recipe if whole else None, "whole_runs": len(runs)}
    row["check"] = NOT_CHECKED
    if not runs:
        return row
    times_s = [float(run.execution_time_s) for run in runs]
    row["whole_execution_time_s"] = median(times_s)
    row["whole_evaluation_time_s"] = median(run.evaluation_time_s for run in runs)
    row["check"] = NO_INTERVAL
    if found.interval is not None:
        within = sum(found.interval.holds(time_s) for time_s in times_s)
        row["runs_within"] = within
        row["check"] = WITHIN if within == len(runs) else OUTSIDE
    return row


NOTES = (
    "projected time: execution_time_s of the whole training, the median over the short runs; in "
    f"brackets where one run of the whole is with {CONFIDENCE:.0%} (Student's t over the short "
    "runs: how start-up and pace differ from run to run, and how steps scatter). Fewer than "
    f"{RUNS_MIN} short runs have no interval.",
    "It holds for runs that are made as the short ones were. It does not know what comes later in "
    "a training: hot machines, other users, other data, checkpoints.",
    "Quality is not projected, nor is time or cost to a target.",
)


def as_text(found: pd.DataFrame) -> TextTable:
    """`table` for people."""
    if found.empty:
        note = "No projection: no recipe with `stop_after_steps` has a run that counts."
        return TextTable(TITLE, pd.DataFrame(), (note,))
    axes, fixed = naming(found, NAMING)
    names = {"runs": "short runs", "projected_from_steps": "steps"}
    names |= {"execution_time_s": "projected time (s)", "startup_s": "of it start-up (s)"}
    names |= {"node_hours": "node-hours"}
    names |= {"cost_usd": "cost (US dollars)"} if found["cost_usd"].notna().any() else {}
    names |= {"evaluation_time_s": "evaluations besides (s)"}
    checked = {
        "whole_execution_time_s": "measured time (s)",
        "whole_evaluation_time_s": "measured evaluations (s)",
        "check": "check",
    }
    names |= checked if (found["whole_runs"] > 0).any() else {}
    rows = [
        [*(cell(axis, row) for axis in axes), *(_cell(name, row) for name in names)]
        for row in rows_of(found)
    ]
    above = f"All points: {fixed}." if fixed else ""
    return TextTable.of(TITLE, [*axes, *names.values()], rows, NOTES, above)


def _cell(name: str, row: Row) -> str:
    value = row[name]
    if not is_known(value):
        return MISSING
    if name == "runs":
        return Number(str(value), value)
    if name == "check" and is_known(row["runs_within"]):
        return f"{row['runs_within']:.0f} of {row['whole_runs']} within"
    if name in ("projected_from_steps", "check"):
        return cell(name, row)
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    spread = ""
    if is_known(low) and is_known(high):
        spread = f" ({three_digits(low)}–{three_digits(high)})"
    return Number(f"{three_digits(value)}{spread}", value)
