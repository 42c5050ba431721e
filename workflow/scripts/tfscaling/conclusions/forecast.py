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

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.special import stdtrit

from tfscaling.conclusions import scaling_fits
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.scaling_fits import Times
from tfscaling.spec import platforms
from tfscaling.spec.config import LINE_AXES
from tfscaling.spec.run_spec import Point
from tfscaling.tables.display import (
    MISSING,
    NAMING,
    Number,
    TextTable,
    cell,
    naming,
    three_digits,
)
from tfscaling.tables.estimates import CONFIDENCE, Array
from tfscaling.tables.table_rows import Row, is_known, point_of, rows_of

#: A model that misses a point that was left out by more than this fraction forecasts nothing.
LEFT_OUT_ERROR_MAX = 0.20
#: With fewer points, a model has hardly more of them than unknowns.
POINTS_MIN = 5
RING, TREE, AMDAHL, USL = "ring", "tree", "amdahl", "usl"
MODELS = (RING, TREE, AMDAHL, USL)


@dataclass(frozen=True)
class Parts:
    """Measured parts of the points, all of shape (points,); seconds, of a step or of the run.

    `exchange_s` is what a step takes above its computation.
    """

    startup_s: Array
    compute_s: Array
    exchange_s: Array

    def only(self, keep: Array) -> Parts:
        return Parts(self.startup_s[keep], self.compute_s[keep], self.exchange_s[keep])


@dataclass(frozen=True)
class Line:
    """Points that differ in the number of replicas `n`, which rises; arrays of shape (points,).

    `steps` of a run and examples of a replica in a step, its `batch`; `seconds` of the whole run.
    `parts` is None where they were not measured.
    """

    n: Array
    batch: Array
    steps: Array
    seconds: Array
    parts: Parts | None

    def only(self, keep: Array) -> Line:
        """The points that `keep`, an array of truth values, marks."""
        parts = self.parts.only(keep) if self.parts else None
        return Line(self.n[keep], self.batch[keep], self.steps[keep], self.seconds[keep], parts)

    def at(self, n: float) -> Line:
        """The same training on `n` replicas, not measured: a line of one point."""
        is_weak = bool(np.allclose(self.batch, self.batch[0], rtol=0.02))
        share = self.n[-1] / n  # of weak scaling the steps, of strong scaling the batch
        batch = self.batch[-1:] * (1.0 if is_weak else share)
        steps = self.steps[-1:] * (share if is_weak else 1.0)
        return Line(np.array([n]), batch, steps, np.full(1, np.nan), None)


@dataclass(frozen=True)
class Split:
    """Seconds of a run by its parts; for Amdahl's law and the USL there is only the whole."""

    startup_s: float
    compute_s: float
    exchange_s: float

    @property
    def whole_s(self) -> float:
        return self.startup_s + self.compute_s + self.exchange_s


@dataclass(frozen=True)
class Errors:
    """Errors on points left out: logarithms of the expected over the measured time, by point.

    `alone` of one at a time, `beyond` of those beyond half of the largest n together. The largest
    are fractions of the measured time.
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
    if model in (RING, TREE):
        return _by_parts(model, line, point) if line.parts else _by_whole(model, line, point)
    number = 3 if model == USL else 2
    times = Times.of(line.n.tolist(), line.seconds.tolist())
    found = scaling_fits.solve(times, scaling_fits.terms(times.n, number))
    parallel, *others = (scaling_fits.terms(point.n, number) * found.seconds)[0].tolist()
    return Split(others[0], parallel, sum(others[1:]))


def refusal(line: Line) -> str:
    """Why no model is fitted to the line, or an empty text."""
    if len(line.n) < POINTS_MIN:
        return f"{len(line.n)} numbers of replicas measured, {POINTS_MIN} are needed"
    if np.count_nonzero(line.n <= line.n[-1] / 2) < POINTS_MIN - 2:
        return "too few of the measured points are at half of the largest or below"
    return ""


def left_out(model: str, line: Line) -> Errors:
    """How far the model misses measured points that its fit has not seen."""
    places = np.arange(len(line.n))
    alone = [_errors(model, line, places == place) for place in places[1:]]
    return Errors(np.concatenate(alone), _errors(model, line, line.n > line.n[-1] / 2))


def _errors(model: str, line: Line, out: Array) -> Array:
    """Those on the points `out` by the model fitted to the others."""
    fitted = line.only(~out)
    points = [line.only(np.arange(len(line.n)) == place) for place in np.flatnonzero(out)]
    return np.array([_log_s(model, fitted, point) - np.log(point.seconds[0]) for point in points])


def _log_s(model: str, line: Line, point: Line) -> float:
    return float(np.log(max(predict(model, line, point).whole_s, np.finfo(float).tiny)))


def interval(model: str, line: Line, point: Line, errors: Errors) -> tuple[float, float]:
    """Seconds between which `point`, a line of one, is if the line goes on as it is.

    By Student's t of two parts: how far the forecast moves if a point is left out of the fit
    (jackknife), and how far the model misses points that it has not seen, `errors`.
    """
    places = np.arange(len(line.n))
    moved = np.array([_log_s(model, line.only(places != place), point) for place in places])
    fit = (len(places) - 1) * float(np.var(moved))
    missed = float(np.mean(np.concatenate([errors.alone, errors.beyond]) ** 2))
    quantile = float(stdtrit(len(places) - 2, (1 + CONFIDENCE) / 2))
    half, middle = quantile * np.sqrt(fit + missed), _log_s(model, line, point)
    return float(np.exp(middle - half)), float(np.exp(middle + half))


def _by_parts(model: str, line: Line, point: Line) -> Split:
    assert line.parts is not None
    parts = line.parts
    step = parts.compute_s + parts.exchange_s

    def of(columns: Callable[[Line], Array], values: Array, scale: Array) -> float:
        weights = nnls(columns(line) / scale[:, None], values / scale)[0]
        return float((columns(point) @ weights)[0])

    is_weak = bool(np.allclose(line.batch, line.batch[0], rtol=0.02))
    by_batch: Callable[[Line], Array] = _constant if is_weak else _by_batch
    compute_s = of(by_batch, parts.compute_s, parts.compute_s)
    exchange_s = of(_ring if model == RING else _tree, np.maximum(parts.exchange_s, 0), step)
    startup_s = of(_by_ranks, parts.startup_s, parts.startup_s)
    steps = float(point.steps[0])
    return Split(startup_s, steps * compute_s, steps * exchange_s)


def _by_whole(model: str, line: Line, point: Line) -> Split:
    """By the whole time: what start-up, computation and all-reduce make of it."""

    def columns(of: Line) -> Array:
        # of a ring with few messages the bandwidth alone; its latency is like start-up in each step
        exchange = np.log2(of.n) if model == TREE else (of.n - 1) / of.n
        shares = of.steps / line.steps.max()
        return np.stack([np.ones_like(of.n), 1 / of.n, shares * exchange], axis=1)

    times = Times.of(line.n.tolist(), line.seconds.tolist())
    found = scaling_fits.solve(times, columns(line))
    return Split(*(columns(point) * found.seconds)[0].tolist())


def _constant(line: Line) -> Array:
    return np.ones((len(line.n), 1))


def _by_batch(line: Line) -> Array:
    return np.stack([np.ones_like(line.n), line.batch], axis=1)


def _by_ranks(line: Line) -> Array:
    return np.stack([np.ones_like(line.n), line.n - 1], axis=1)


def _ring(line: Line) -> Array:
    return np.stack([np.ones_like(line.n), line.n - 1, (line.n - 1) / line.n], axis=1)


def _tree(line: Line) -> Array:
    return np.stack([np.ones_like(line.n), np.log2(line.n)], axis=1)


TITLE = "Forecast"
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

    A line is what differs in the number of nodes only. `times_beyond` is the number of nodes over
    the largest that was measured, above 1 outside the measured range. The errors are fractions:
    of points left out of the fit one at a time, and of those beyond half of the largest together.
    The interval of the time is for a line that goes on as it is: `interval`.
    """
    prices = {run.spec.point: run.usd_per_node_hour for run in study.manifest.runs}
    rows = [
        row for points in _lines(study) for row in _of_line(points, study.forecast_nodes, prices)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _lines(study: Study) -> Iterator[list[Row]]:
    """The points of each line that have a time and do the same work, fewest nodes first.

    Without those that tell no examples, where others of the line do.
    """
    out = {point_of(row) for row, _ in study.ineligible}
    lines: dict[tuple[str | int, ...], list[Row]] = {}
    for row in study.points:
        if row["runs_timed"] > 0 and point_of(row) not in out:
            lines.setdefault(tuple(row[axis] for axis in LINE_AXES), []).append(row)
    for points in lines.values():
        telling = [row for row in points if is_known(row["examples_trained"])]
        yield sorted(telling or points, key=lambda row: row["nodes"])


def _of_line(
    points: Sequence[Row], nodes: Sequence[int], prices: dict[Point, float | None]
) -> Iterator[Row]:
    line, last = line_of(points), points[-1]
    measured = {row["nodes"] for row in points}
    wanted = [number for number in nodes if number not in measured]
    reason = refusal(line)
    of_line = {name: last[name] for name in (*LINE_AXES, "devices", "batch_scaling")}
    of_line |= {"nodes_measured_max": last["nodes"], "points": len(points)}
    of_line["fitted_to"] = "parts" if line.parts else "whole time"
    for model in MODELS if wanted else ():
        row = of_line | {"model_of_time": model, "status": REFUSED, "reason": reason}
        errors = None if reason else left_out(model, line)
        if errors is not None:
            row |= {"left_out_error_max": errors.alone_max, "beyond_error_max": errors.beyond_max}
            if errors.most <= LEFT_OUT_ERROR_MAX:
                row["status"] = FORECAST
            else:
                row["reason"] = f"misses a point that was left out by {errors.most:.0%}"
        for number in wanted:
            at = number, last["replicas"] * number / last["nodes"]
            own = row | {"nodes": number, "replicas": round(at[1])}
            own["times_beyond"] = number / last["nodes"]
            if errors is not None and row["status"] == FORECAST:
                own |= _forecast(model, line, at, prices[point_of(last)])
                ends = interval(model, line, line.at(at[1]), errors)
                own["forecast_time_s_low"], own["forecast_time_s_high"] = ends
            yield own


def _forecast(model: str, line: Line, at: tuple[int, float], price: float | None) -> Row:
    """The columns of a forecast `at` a number of nodes and of replicas."""
    nodes, replicas = at
    found = predict(model, line, line.at(replicas))
    row: Row = {"forecast_time_s": found.whole_s, "node_hours": nodes * found.whole_s / 3600}
    row["cost_usd"] = platforms.run_cost_usd(price, nodes, found.whole_s)
    if model in (RING, TREE):
        row |= {"startup_s": found.startup_s, "computation_s": found.compute_s}
        row["communication_s"] = found.exchange_s
    return row


def line_of(points: Sequence[Row]) -> Line:
    """The line of these points, with their parts where all of them have some.

    All of them tell how many examples they trained, or none does.
    """
    n, batch, whole, seconds = (
        np.array([row[name] for row in points], float)
        for name in ("replicas", "per_replica_batch_size", "global_batch_size", "execution_time_s")
    )
    examples = [row["examples_trained"] for row in points]
    # a program that tells no examples trains as many at each point, by its recipe
    steps = np.array([float(each) if is_known(each) else 1.0 for each in examples]) / whole
    parts = None
    if all(is_known(row[name]) for row in points for name in (*_PARTS, "examples_trained")):
        train, compute = (np.array([row[name] for row in points], float) for name in _PARTS)
        parts = Parts(seconds - train, compute, train / steps - compute)
    return Line(n, batch, steps, seconds, parts)


NOTES = (
    "A forecast is no measurement, and takes part in no decision. In brackets the "
    f"{CONFIDENCE:.0%} interval if the line goes on as it is, and how many times as many nodes as "
    "the largest measured it is for; where that is above 1 it lies outside the measured range, the "
    "further the less sure.",
    "ring, tree: start-up by ranks, computation by batch, all-reduce by latency and bandwidth. "
    "amdahl, usl: the laws of the table of scaling laws, of the whole time. A model that misses a "
    f"point that was left out of its fit by more than {LEFT_OUT_ERROR_MAX:.0%} is refused.",
    "error left out: the largest of one point at a time, and of all points beyond half of the "
    "largest together. It cannot show what begins further out, such as a network that is full.",
)


def as_text(found: pd.DataFrame) -> TextTable:
    """`table` for people: one row per line and model, one column per number of nodes."""
    if found.empty:
        note = "No forecast: `forecast.nodes` names no number of nodes that was not measured."
        return TextTable(TITLE, pd.DataFrame(), (note,))
    axes, fixed = naming(found, [name for name in NAMING if name != "nodes"])
    axes = [axis for axis in axes if axis != "nodes"]
    numbers = sorted(set(found["nodes"].tolist()))
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows_of(found):
        groups.setdefault(tuple(str(row[n]) for n in (*LINE_AXES, "model_of_time")), []).append(row)
    columns = [*axes, "model", "measured to", "points", "error left out"]
    columns += [f"{n} nodes" for n in numbers]
    columns += ["reason"] if (found["status"] == REFUSED).any() else []
    rows = [_cells(group, axes, numbers, columns[-1] == "reason") for group in groups.values()]
    above = f"All lines: {fixed}." if fixed else ""
    return TextTable.of(TITLE, columns, rows, NOTES, above)


def _cells(
    group: Sequence[Row], axes: Sequence[str], numbers: Sequence[int], has_reasons: bool
) -> list[str]:
    first, by_nodes = group[0], {row["nodes"]: row for row in group}
    error = MISSING
    if is_known(first["left_out_error_max"]):
        alone, beyond = first["left_out_error_max"], first["beyond_error_max"]
        error = Number(f"{alone:.1%}, {beyond:.1%}", max(alone, beyond))
    texts = [*(cell(axis, first) for axis in axes), first["model_of_time"]]
    texts += [f"{first['nodes_measured_max']} nodes", str(first["points"]), error]
    texts += [_time(by_nodes.get(number)) for number in numbers]
    return [*texts, *([str(first["reason"])] if has_reasons else [])]


def _time(row: Row | None) -> str:
    if row is None:
        return MISSING
    if row["status"] == REFUSED:
        return REFUSED
    value, low, high = (row[f"forecast_time_s{end}"] for end in ("", "_low", "_high"))
    ends = f"{three_digits(low)}–{three_digits(high)}"
    return Number(f"{three_digits(value)} s ({ends}; {row['times_beyond']:.3g}×)", value)
