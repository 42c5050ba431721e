"""Forecasts: the time on numbers of nodes that were not run, or why there is none.

Forecasts are never part of a decision. By `ring` and `tree` a run is start-up by ranks, and steps
of computation by batch and an all-reduce by latency and bandwidth: around a ring each rank sends
2 (n - 1) / n of the gradient in 2 (n - 1) messages, up and down a tree the complete gradient
2 log2(n) times (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
Operations in MPICH", 2005). Measured parts are fitted separately; where only the total time is
known, their sum is. `amdahl` and `usl` are the laws of `scaling_laws`, of the total time.

All weights are at least 0. A model is judged by the points that its fit has not seen: each but the
smallest left out alone, and those beyond half of the largest left out together. That tests a factor
of two beyond the range; it cannot show a network that saturates further out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.special import stdtrit

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.scaling_laws import Times, solve, terms
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
RING, TREE, AMDAHL, USL = "ring", "tree", "amdahl", "usl"
MODELS = (RING, TREE, AMDAHL, USL)


@dataclass(frozen=True)
class Line:
    """Points that differ in the number of replicas `n`, which rises; arrays of shape (points,).

    `steps` of a run and examples of a replica in a step, its `batch`; `seconds` of the whole run.
    `parts`, of shape (3, points), are seconds of start-up, of a step's computation, and of what a
    step takes above it; None where they were not measured.
    """

    n: Array
    batch: Array
    steps: Array
    seconds: Array
    parts: Array | None

    def only(self, keep: Array) -> Line:
        """The points that `keep`, an array of truth values, marks."""
        parts = None if self.parts is None else self.parts[:, keep]
        return Line(self.n[keep], self.batch[keep], self.steps[keep], self.seconds[keep], parts)

    @property
    def is_weak(self) -> bool:
        """Whether the batch of a replica is the same at all points."""
        return bool(np.allclose(self.batch, self.batch[0], rtol=0.02))

    def at(self, n: float) -> Line:
        """The same training on `n` replicas, not measured: a line of one point."""
        share = self.n[-1] / n  # of weak scaling the steps, of strong scaling the batch
        batch = self.batch[-1:] * (1.0 if self.is_weak else share)
        steps = self.steps[-1:] * (share if self.is_weak else 1.0)
        return Line(np.array([n]), batch, steps, np.full(1, np.nan), None)


class Split(NamedTuple):
    """Seconds of a run by its parts; for Amdahl's law and the USL only the sum has a meaning."""

    startup_s: float
    compute_s: float
    exchange_s: float

    @property
    def whole_s(self) -> float:
        return self.startup_s + self.compute_s + self.exchange_s


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


def predict(model: str, line: Line, point: Line) -> Split:
    """Seconds of `point`, a line of one, by the model fitted to `line`."""
    if model in (RING, TREE) and line.parts is not None:
        return _by_parts(model, line, line.parts, point)

    def columns(of: Line) -> Array:
        """The parts of the whole time, by their weights."""
        if model not in (RING, TREE):
            return terms(of.n, 3 if model == USL else 2)
        # of a ring with few messages the bandwidth alone; its latency is like start-up in each step
        exchange = np.log2(of.n) if model == TREE else (of.n - 1) / of.n
        shares = of.steps / line.steps.max()
        return np.stack([np.ones_like(of.n), 1 / of.n, shares * exchange], axis=1)

    found = solve(Times.of(line.n.tolist(), line.seconds.tolist()), columns(line))
    first, second, *rest = (columns(point) * found.seconds)[0].tolist()
    if model in (RING, TREE):
        return Split(first, second, *rest)
    return Split(second, first, sum(rest))


def _by_parts(model: str, line: Line, parts: Array, point: Line) -> Split:
    startup_s, compute_s, exchange_s = parts
    one, is_weak = np.ones_like, line.is_weak

    def fitted(columns: Callable[[Line], Sequence[Array]], values: Array, scale: Array) -> float:
        own, there = (np.stack(columns(each), axis=1) for each in (line, point))
        return float((there @ nnls(own / scale[:, None], values / scale)[0])[0])

    def exchange(of: Line) -> Sequence[Array]:
        if model == TREE:
            return one(of.n), np.log2(of.n)
        return one(of.n), of.n - 1, (of.n - 1) / of.n

    step = compute_s + exchange_s
    steps = float(point.steps[0])
    by_batch = fitted(
        lambda of: [one(of.n)] if is_weak else [one(of.n), of.batch], compute_s, compute_s
    )
    return Split(
        fitted(lambda of: [one(of.n), of.n - 1], startup_s, startup_s),
        steps * by_batch,
        steps * fitted(exchange, np.maximum(exchange_s, 0), step),
    )


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
        fitted, points = line.only(~out), [line.only(places == n) for n in np.flatnonzero(out)]
        return np.array([_log_s(model, fitted, each) - np.log(each.seconds[0]) for each in points])

    alone = np.concatenate([errors(places == place) for place in places[1:]])
    return Errors(alone, errors(line.n > line.n[-1] / 2))


def _log_s(model: str, line: Line, point: Line) -> float:
    return float(np.log(max(predict(model, line, point).whole_s, np.finfo(float).tiny)))


def interval(model: str, line: Line, point: Line, errors: Errors) -> tuple[float, float]:
    """The interval of the seconds of `point`, a line of one, if the line continues as measured.

    By Student's t of two parts: how far the forecast moves if a point is left out of the fit
    (jackknife), and how far the model misses points that it has not seen, `errors`.
    """
    places = np.arange(len(line.n))
    moved = np.array([_log_s(model, line.only(places != place), point) for place in places])
    fit = (len(places) - 1) * float(np.var(moved))
    missed = float(np.mean(np.concatenate(errors) ** 2))
    quantile = float(stdtrit(len(places) - 2, (1 + CONFIDENCE) / 2))
    half, middle = quantile * np.sqrt(fit + missed), _log_s(model, line, point)
    return float(np.exp(middle - half)), float(np.exp(middle + half))


FORECAST, REFUSED = "forecast", "refused"
COLUMNS = (
    *(*LINE_AXES, "nodes", "devices", "batch_scaling", "replicas", "model_of_time"),
    *("status", "reason", "forecast_time_s", "forecast_time_s_low", "forecast_time_s_high"),
    *("startup_s", "computation_s", "communication_s"),
    *("node_hours", "cost_usd", "nodes_measured_max", "times_beyond", "points", "fitted_to"),
    *("left_out_error_max", "beyond_error_max"),
)
_PARTS = ("train_time_s", "compute_time_s")


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
        row["fitted_to"] = "whole time" if line.parts is None else "parts"
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
                point = line.at(replicas)
                found = predict(model, line, point)
                own |= {"forecast_time_s": found.whole_s}
                own["node_hours"] = number * found.whole_s / 3600
                price = prices[point_of(last)]
                own["cost_usd"] = platforms.run_cost_usd(price, number, found.whole_s)
                if model in (RING, TREE):
                    parts = ("startup_s", "computation_s", "communication_s")
                    own |= dict(zip(parts, found, strict=True))
                ends = interval(model, line, point, errors)
                own["forecast_time_s_low"], own["forecast_time_s_high"] = ends
            yield own


def line_of(points: Sequence[Row]) -> Line:
    """The line of these points, with their parts where all of them have some.

    Either all points have a number of trained examples, or none has.
    """
    n, batch, whole, seconds = (
        np.array([row[name] for row in points], float)
        for name in ("replicas", "per_replica_batch_size", "global_batch_size", "execution_time_s")
    )
    # a program that reports no examples trains equally many at each point, by its recipe
    examples = [float(e) if is_known(e := row["examples_trained"]) else 1.0 for row in points]
    steps = np.array(examples) / whole
    parts = None
    if all(is_known(row[name]) for row in points for name in (*_PARTS, "examples_trained")):
        train, compute = (np.array([row[name] for row in points], float) for name in _PARTS)
        parts = np.stack([seconds - train, compute, train / steps - compute])
    return Line(n, batch, steps, seconds, parts)


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
