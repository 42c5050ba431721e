"""Forecasts: the time on numbers of nodes that were not run, or why there is none.

Forecasts are never part of a decision. A run on n replicas is start-up, computation that n share,
and an all-reduce in each step: around a ring each rank sends 2 (n - 1) / n of the gradient, up and
down a tree the complete gradient 2 log2(n) times (Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH", 2005).

All weights are at least 0. A model is judged by the points that its fit has not seen: each but the
smallest left out alone, and those beyond half of the largest left out together. That tests a factor
of two beyond the range; it cannot show a network that saturates further out. The model with the
lowest root mean square of these errors forecasts the line. docs/forecast.md has the rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.spec import platforms
from tfscaling.spec.config import LINE_AXES
from tfscaling.tables.display import MISSING, NAMING, Number, TextTable, three_digits
from tfscaling.tables.estimates import CONFIDENCE, Array
from tfscaling.tables.rows import Cells, PointRow
from tfscaling.tables.table_rows import grouped, is_known, line_of, point_of, rows_of

#: A model forecasts nothing if the root mean square of its errors on points left out is larger.
LEFT_OUT_ERROR_MAX = 0.15
#: With fewer points, a model has hardly more of them than unknowns.
POINTS_MIN = 5
#: By how much the logarithm of a time may leave the trend for each doubling beyond the range: with
#: it the intervals hold the times of other people's sweeps on twice the nodes.
ERROR_PER_DOUBLING = 0.25
RING, TREE = "ring", "tree"
TIME = "execution_time_s"
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

    @classmethod
    def of(cls, points: Sequence[PointRow]) -> Line:
        """The line of these points: all have a number of trained examples, or none has."""
        n, batch, whole, seconds = (
            np.array([row[name] for row in points], float)
            for name in ("replicas", "per_replica_batch_size", "global_batch_size", TIME)
        )
        # a program that reports no examples trains equally many at each point, by its recipe
        examples = [float(e) if is_known(e := row["examples_trained"]) else 1.0 for row in points]
        return cls(n, np.array(examples) / whole, seconds, np.allclose(batch, batch[0], rtol=0.02))

    def only(self, keep: Array) -> Line:
        """The points that `keep`, an array of truth values, marks."""
        return Line(self.n[keep], self.steps[keep], self.seconds[keep], self.is_weak)

    def predict(self, model: str, n: float) -> float:
        """Seconds on `n` replicas by the model fitted to the line, by its relative errors."""
        steps = self.steps[-1] * (self.n[-1] / n if self.is_weak else 1.0)
        design = self._columns(model, self.n, self.steps) / self.seconds[:, None]
        weights = scipy.optimize.nnls(design, np.ones(len(self.n)))[0]
        return float((self._columns(model, np.array([n]), np.array([steps])) @ weights)[0])

    def _columns(self, model: str, n: Array, steps: Array) -> Array:
        """Start-up, computation and communication by their weights: (points, 3)."""
        # of a ring with few messages the bandwidth alone; its latency is like start-up in each step
        exchange = np.log2(n) if model == TREE else (n - 1) / n
        return np.stack([np.ones_like(n), 1 / n, steps / self.steps.max() * exchange], axis=1)

    def log_predict(self, model: str, n: float) -> float:
        """The logarithm of `predict`, also where that is 0."""
        return float(np.log(max(self.predict(model, n), np.finfo(float).tiny)))


def refusal(line: Line) -> str:
    """Why no model is fitted to the line, or an empty text."""
    if len(line.n) < POINTS_MIN:
        return f"{len(line.n)} numbers of replicas measured, {POINTS_MIN} are needed"
    if np.count_nonzero(line.n <= line.n[-1] / 2) < POINTS_MIN - 2:
        return "too few of the measured configurations are at half of the largest or below"
    return ""


def left_out(model: str, line: Line) -> Array:
    """Errors of the model on points that its fit has not seen: log of expected / measured time.

    Each point but the smallest is left out alone, and those beyond half of the largest n together.
    """
    places = np.arange(len(line.n))

    def errors(out: Array) -> Array:
        logs = [line.only(~out).log_predict(model, n) for n in line.n[out]]
        return np.array(logs) - np.log(line.seconds[out])

    alone = [errors(places == place) for place in places[1:]]
    return np.concatenate([*alone, errors(line.n > line.n[-1] / 2)])


def error(errors: Array) -> float:
    """The root mean square of `left_out` errors, as a fraction of the measured time."""
    return float(np.sqrt(np.mean(np.expm1(errors) ** 2)))


def best_model(line: Line) -> tuple[str, Array]:
    """The model with the lowest error on points left out, and its errors; the first of equal ones.

    Without communication, or with a ring and a fixed batch, both models are the same line.
    """
    errors = {model: left_out(model, line) for model in MODELS}
    model = min(MODELS, key=lambda name: round(error(errors[name]), 9))
    return model, errors[model]


def interval(model: str, line: Line, n: float, errors: Array) -> tuple[float, float]:
    """The interval of the seconds on `n` replicas, if the line continues as measured.

    Its half width in logarithms has two parts, added in squares: Student's t times the root mean
    square of `errors`, and ERROR_PER_DOUBLING beyond the measured range.
    """
    quantile = scipy.special.stdtrit(len(line.n) - 2, (1 + CONFIDENCE) / 2)
    missed = quantile * np.sqrt(np.mean(errors**2))
    further = ERROR_PER_DOUBLING * max(0.0, np.log2(n / line.n[-1]))
    half, middle = np.hypot(missed, further), line.log_predict(model, n)
    return float(np.exp(middle - half)), float(np.exp(middle + half))


FORECAST, REFUSED = "forecast", "refused"
COLUMNS = (
    *(*LINE_AXES, "nodes", "devices", "batch_scaling", "replicas", "model_of_time"),
    *("status", "reason", "forecast_time_s", "forecast_time_s_low", "forecast_time_s_high"),
    *("node_hours", "cost_usd", "nodes_measured_max", "times_beyond", "points"),
    "left_out_error",
)


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: a row per line of points and number of nodes to forecast.

    The points of a line differ in the number of nodes only. `times_beyond` is the number of nodes
    over the largest that was measured, above 1 outside the measured range. `left_out_error` is
    `error`, a fraction. The interval holds for a line that continues as measured: `interval`.
    """
    timed = [row for row in study.eligible if row.runs_timed > 0]
    rows: list[dict[str, object]] = []
    for points in grouped(timed, line_of).values() if study.forecast_nodes else ():
        # points without a number of examples are left out where others of the line have one
        telling = [row for row in points if is_known(row["examples_trained"])]
        ordered = sorted(telling or points, key=lambda row: row["nodes"])
        rows += _of_line(ordered, study)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_line(points: Sequence[PointRow], study: Study) -> Iterator[dict[str, object]]:
    line, last = Line.of(points), points[-1]
    measured = {row["nodes"] for row in points}
    row: dict[str, object] = {name: last[name] for name in (*LINE_AXES, "devices", "batch_scaling")}
    row |= {"nodes_measured_max": last["nodes"], "points": len(points)}
    row |= {"status": REFUSED, "reason": refusal(line)}
    best = None if row["reason"] else best_model(line)
    if best is not None:
        row |= {"model_of_time": best[0], "left_out_error": (missed := error(best[1]))}
        if missed > LEFT_OUT_ERROR_MAX:
            row["reason"] = f"misses configurations that were left out by {missed:.0%}"
        else:
            row["status"] = FORECAST
    for number in study.forecast_nodes:
        if number in measured:
            continue
        replicas = (last.replicas or 0) * number / last.nodes
        own = row | {"nodes": number, "replicas": round(replicas)}
        own["times_beyond"] = number / last.nodes
        if best is not None and row["status"] == FORECAST:
            time_s = line.predict(best[0], replicas)
            low_s, high_s = interval(best[0], line, replicas, best[1])
            own |= {"forecast_time_s": time_s, "node_hours": number * time_s / 3600}
            own |= {"forecast_time_s_low": low_s, "forecast_time_s_high": high_s}
            own["cost_usd"] = platforms.run_cost_usd(study.prices[point_of(last)], number, time_s)
        yield own


def as_text(found: pd.DataFrame) -> TextTable:
    """`table` for people: one row per line, one column per number of nodes."""
    lines = grouped(rows_of(found), line_of)
    has_reasons = (found["status"] == REFUSED).any()

    def cells(row: Cells) -> dict[str, str]:
        by_nodes = {each["nodes"]: each for each in lines[line_of(row)]}
        missed = row["left_out_error"]
        return {
            "model": row["model_of_time"] if is_known(row["model_of_time"]) else MISSING,
            "measured to": f"{row['nodes_measured_max']} nodes",
            "points": str(row["points"]),
            "error left out": Number(f"{missed:.1%}", missed) if is_known(missed) else MISSING,
            **{f"{n} nodes": _time(by_nodes.get(n)) for n in sorted(found["nodes"].unique())},
            **({"reason": str(row["reason"])} if has_reasons else {}),
        }

    return shown.text_table(
        "Forecast",
        found.drop_duplicates(list(LINE_AXES)),
        cells,
        shown.notes("forecast", error_max=LEFT_OUT_ERROR_MAX),
        "No forecast: `forecast.nodes` names no number of nodes that was not measured.",
        names=[name for name in NAMING if name != "nodes"],
        each="lines",
    )


def _time(row: Cells | None) -> str:
    if row is None:
        return MISSING
    if row["status"] == REFUSED:
        return REFUSED
    value, low, high = (row[f"forecast_time_s{end}"] for end in ("", "_low", "_high"))
    ends = f"{three_digits(low)}–{three_digits(high)}"
    return Number(f"{three_digits(value)} s ({ends}; {row['times_beyond']:.3g}×)", value)
