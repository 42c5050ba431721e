"""Forecasts: the time on numbers of nodes that were not run, or why there is none.

Forecasts are never part of a decision. A run on n replicas is start-up, computation that n share,
and an all-reduce in each step: around a ring each rank sends 2 (n - 1) / n of the gradient, up and
down a tree the complete gradient 2 log2(n) times (Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH", 2005).

All weights are at least 0. A model is judged by the points that its fit has not seen: each but the
smallest left out alone, and those beyond half of the largest left out together. That tests a factor
of two beyond the range; it cannot show a network that saturates further out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.special import stdtrit

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.spec import platforms
from tfscaling.spec.config import LINE_AXES
from tfscaling.spec.run_spec import Point
from tfscaling.tables.display import MISSING, NAMING, Number, TextTable, three_digits
from tfscaling.tables.estimates import CONFIDENCE, Array
from tfscaling.tables.table_rows import Row, is_known, point_of, rows_of

#: A model that misses a point that was left out by more than this fraction forecasts nothing.
LEFT_OUT_ERROR_MAX = 0.20
#: With fewer points, a model has hardly more of them than unknowns.
POINTS_MIN = 5
#: By how much the logarithm of a time may leave the trend for each doubling beyond the range: with
#: it the intervals hold the times of other people's sweeps on twice the nodes.
ERROR_PER_DOUBLING = 0.15
RING, TREE = "ring", "tree"
MODELS = (RING, TREE)


@dataclass(frozen=True)
class Line:
    """Points that differ in the number of replicas `n`, which rises; arrays of shape (points,).

    `steps` of a run, `seconds` of the whole run. `is_weak`: more replicas make fewer steps.
    """

    n: Array
    steps: Array
    seconds: Array
    is_weak: bool = True

    def only(self, keep: Array) -> Line:
        """The points that `keep`, an array of truth values, marks."""
        return Line(self.n[keep], self.steps[keep], self.seconds[keep], self.is_weak)

    def predict(self, model: str, n: float) -> float:
        """Seconds on `n` replicas by the model fitted to the line, by its relative errors."""
        steps = self.steps[-1] * (self.n[-1] / n if self.is_weak else 1.0)
        design = self._columns(model, self.n, self.steps) / self.seconds[:, None]
        weights = nnls(design, np.ones(len(self.n)))[0]
        return float((self._columns(model, np.array([n]), np.array([steps])) @ weights)[0])

    def _columns(self, model: str, n: Array, steps: Array) -> Array:
        """Start-up, computation and communication by their weights: (points, 3)."""
        # of a ring with few messages the bandwidth alone; its latency is like start-up in each step
        exchange = np.log2(n) if model == TREE else (n - 1) / n
        return np.stack([np.ones_like(n), 1 / n, steps / self.steps.max() * exchange], axis=1)

    def log_predict(self, model: str, n: float) -> float:
        """The logarithm of `predict`, also where that is 0."""
        return float(np.log(max(self.predict(model, n), np.finfo(float).tiny)))


class Errors(NamedTuple):
    """Errors on points left out: logarithms of the expected over the measured time, by point.

    `alone`: one point at a time; `beyond`: the points beyond half of the largest n together. The
    largest are fractions of the measured time.
    """

    alone: Array
    beyond: Array

    @property
    def alone_max(self) -> float:
        return float(np.abs(np.expm1(self.alone)).max())

    @property
    def beyond_max(self) -> float:
        return float(np.abs(np.expm1(self.beyond)).max())

    @property
    def most(self) -> float:
        return max(self.alone_max, self.beyond_max)


def refusal(line: Line) -> str:
    """Why no model is fitted to the line, or an empty text."""
    if len(line.n) < POINTS_MIN:
        return f"{len(line.n)} numbers of replicas measured, {POINTS_MIN} are needed"
    if np.count_nonzero(line.n <= line.n[-1] / 2) < POINTS_MIN - 2:
        return "too few of the measured configurations are at half of the largest or below"
    return ""


def left_out(model: str, line: Line) -> Errors:
    """How far the model misses measured points that its fit has not seen."""
    places = np.arange(len(line.n))

    def errors(out: Array) -> Array:
        logs = [line.only(~out).log_predict(model, n) for n in line.n[out]]
        return np.array(logs) - np.log(line.seconds[out])

    alone = np.concatenate([errors(places == place) for place in places[1:]])
    return Errors(alone, errors(line.n > line.n[-1] / 2))


def interval(model: str, line: Line, n: float, errors: Errors) -> tuple[float, float]:
    """The interval of the seconds on `n` replicas, if the line continues as measured.

    By Student's t of two parts: how far the forecast moves if a point is left out of the fit
    (jackknife), and how far the model misses points that it has not seen, `errors`. Beyond the
    range ERROR_PER_DOUBLING widens it.
    """
    places = np.arange(len(line.n))
    moved = np.array([line.only(places != place).log_predict(model, n) for place in places])
    fit = (len(places) - 1) * float(np.var(moved))
    missed = float(np.mean(np.concatenate(errors) ** 2))
    quantile = float(stdtrit(len(places) - 2, (1 + CONFIDENCE) / 2))
    further = ERROR_PER_DOUBLING * max(0.0, np.log2(n / line.n[-1]))
    half = np.hypot(quantile * np.sqrt(fit + missed), further)
    middle = line.log_predict(model, n)
    return float(np.exp(middle - half)), float(np.exp(middle + half))


FORECAST, REFUSED = "forecast", "refused"
COLUMNS = (
    *(*LINE_AXES, "nodes", "devices", "batch_scaling", "replicas", "model_of_time"),
    *("status", "reason", "forecast_time_s", "forecast_time_s_low", "forecast_time_s_high"),
    *("node_hours", "cost_usd", "nodes_measured_max", "times_beyond", "points"),
    *("left_out_error_max", "beyond_error_max"),
)


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: a row per line of points, number of nodes to forecast and model of the time.

    The points of a line differ in the number of nodes only. `times_beyond` is the number of nodes
    over the largest that was measured, above 1 outside the measured range. The errors are
    fractions: of points left out of the fit one at a time, and of those beyond half of the largest
    together. The interval of the time is for a line that continues as measured: `interval`.
    """
    prices = {run.spec.point: run.usd_per_node_hour for run in study.manifest.runs}
    out = {point_of(row) for row, _ in study.ineligible}
    lines: dict[tuple[str | int, ...], list[Row]] = {}
    for row in study.points:
        if row["runs_timed"] > 0 and point_of(row) not in out:
            lines.setdefault(tuple(row[axis] for axis in LINE_AXES), []).append(row)
    rows: list[Row] = []
    for points in lines.values():
        # points without a number of examples are left out where others of the line have one
        telling = [row for row in points if is_known(row["examples_trained"])]
        ordered = sorted(telling or points, key=lambda row: row["nodes"])
        rows += _of_line(ordered, study.forecast_nodes, prices)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_line(
    points: Sequence[Row], nodes: Sequence[int], prices: dict[Point, float | None]
) -> Iterator[Row]:
    line, last = line_of(points), points[-1]
    measured = {row["nodes"] for row in points}
    wanted = [number for number in nodes if number not in measured]
    reason = refusal(line)
    for model in MODELS if wanted else ():
        row: Row = {name: last[name] for name in (*LINE_AXES, "devices", "batch_scaling")}
        row |= {"model_of_time": model, "status": REFUSED, "reason": reason}
        row |= {"nodes_measured_max": last["nodes"], "points": len(points)}
        errors = None if reason else left_out(model, line)
        if errors is not None:
            row |= {"left_out_error_max": errors.alone_max, "beyond_error_max": errors.beyond_max}
            if errors.most <= LEFT_OUT_ERROR_MAX:
                row["status"] = FORECAST
            else:
                row["reason"] = f"misses a configuration that was left out by {errors.most:.0%}"
        for number in wanted:
            replicas = last["replicas"] * number / last["nodes"]
            own = row | {"nodes": number, "replicas": round(replicas)}
            own["times_beyond"] = number / last["nodes"]
            if errors is not None and row["status"] == FORECAST:
                time_s = line.predict(model, replicas)
                low_s, high_s = interval(model, line, replicas, errors)
                price = prices[point_of(last)]
                own |= {"forecast_time_s": time_s, "node_hours": number * time_s / 3600}
                own |= {"forecast_time_s_low": low_s, "forecast_time_s_high": high_s}
                own["cost_usd"] = platforms.run_cost_usd(price, number, time_s)
            yield own


def line_of(points: Sequence[Row]) -> Line:
    """The line of these points: all have a number of trained examples, or none has."""
    n, batch, whole, seconds = (
        np.array([row[name] for row in points], float)
        for name in ("replicas", "per_replica_batch_size", "global_batch_size", "execution_time_s")
    )
    # a program that reports no examples trains equally many at each point, by its recipe
    examples = [float(e) if is_known(e := row["examples_trained"]) else 1.0 for row in points]
    return Line(n, np.array(examples) / whole, seconds, np.allclose(batch, batch[0], rtol=0.02))


def as_text(found: pd.DataFrame) -> TextTable:
    """`table` for people: one row per line and model, one column per number of nodes."""
    by_line: dict[tuple[object, ...], dict[int, Row]] = {}
    key = (*LINE_AXES, "model_of_time")
    for row in rows_of(found):
        by_line.setdefault(tuple(row[n] for n in key), {})[row["nodes"]] = row
    has_reasons = (found["status"] == REFUSED).any()

    def cells(row: Row) -> dict[str, str]:
        error, by_nodes = MISSING, by_line[tuple(row[n] for n in key)]
        if is_known(alone := row["left_out_error_max"]):
            beyond = row["beyond_error_max"]
            error = Number(f"{alone:.1%}, {beyond:.1%}", max(alone, beyond))
        return {
            "model": row["model_of_time"],
            "measured to": f"{row['nodes_measured_max']} nodes",
            "points": str(row["points"]),
            "error left out": error,
            **{f"{n} nodes": _time(by_nodes.get(n)) for n in sorted(found["nodes"].unique())},
            **({"reason": str(row["reason"])} if has_reasons else {}),
        }

    return shown.text_table(
        "Forecast",
        found.drop_duplicates(list(key)),
        cells,
        shown.notes("forecast", error_max=LEFT_OUT_ERROR_MAX),
        "No forecast: `forecast.nodes` names no number of nodes that was not measured.",
        names=[name for name in NAMING if name != "nodes"],
        each="lines",
    )


def _time(row: Row | None) -> str:
    if row is None:
        return MISSING
    if row["status"] == REFUSED:
        return REFUSED
    value, low, high = (row[f"forecast_time_s{end}"] for end in ("", "_low", "_high"))
    ends = f"{three_digits(low)}–{three_digits(high)}"
    return Number(f"{three_digits(value)} s ({ends}; {row['times_beyond']:.3g}×)", value)
