"""Forecasts of the time on numbers of nodes that were not run, or the reason for none.

Forecasts are never part of a decision. A run on n replicas has start-up, computation that n
replicas share, and an all-reduce in each step: around a ring each rank sends 2 (n - 1) / n of the
gradient, up and down a tree the complete gradient 2 log2(n) times (Thakur, Rabenseifner and Gropp,
"Optimization of Collective Communication Operations in MPICH", 2005).

All weights are at least 0. A model is judged by its errors on configurations that its fit has not
seen (`validation_errors`). That tests a factor of two beyond the range; it cannot show a network
that saturates further out. The model with the lowest root mean square of these errors makes the
forecast. docs/evidence.md has the rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import CONFIDENCE, Array
from tfscaling.record.metrics import NAN
from tfscaling.study import platforms
from tfscaling.study.config_types import LINE_AXES
from tfscaling.tables.display import (
    MISSING,
    NAMING_COLUMNS,
    FormattedNumber,
    TextTable,
    count_text,
    format_three_digits,
)
from tfscaling.tables.row_types import ConfigurationRow, PointRow, Text, columns
from tfscaling.tables.row_values import (
    axes_and_devices,
    axes_without_nodes,
    group_by,
    is_known,
    point_of,
)
from tfscaling.tables.table_files import to_frame, to_rows

#: Largest root mean square of a model's validation errors with which it makes a forecast.
LEFT_OUT_ERROR_MAX = 0.15
#: Minimum number of configurations: fewer hardly exceed the three unknowns of a model.
POINTS_MIN = 5
#: Standard error of the log time for each doubling beyond the measured range. With it the intervals
#: cover the times of other people's sweeps on twice the nodes.
ERROR_PER_DOUBLING = 0.25
RING, TREE = "ring", "tree"
TIME = "execution_time_s"
MODELS = (RING, TREE)


@dataclass(frozen=True)
class ReplicaLine:
    """Measured times of configurations that differ in their number of replicas.

    All arrays have the shape (configurations,).

    Attributes:
        replicas: Number of replicas, rising.
        steps: Training steps of a run, up to a factor common to all configurations: models use only
            the ratios between configurations.
        seconds: Median execution time of the runs, in seconds.
        is_weak: Whether the batch per replica is constant, so that more replicas take fewer steps.
    """

    replicas: Array
    steps: Array
    seconds: Array
    is_weak: bool = True

    @classmethod
    def from_rows(cls, points: Sequence[PointRow]) -> ReplicaLine:
        """Return the line of these rows, which are sorted by their number of replicas.

        Either all rows have `examples_trained`, or none has: then all are assumed to train equally
        many examples.
        """
        n, batch, whole, seconds = (
            np.array([row[name] for row in points], float)
            for name in ("replicas", "per_replica_batch_size", "global_batch_size", TIME)
        )
        # a program that reports no examples trains equally many at each point, by its recipe
        examples = [float(e) if is_known(e := row["examples_trained"]) else 1.0 for row in points]
        return cls(n, np.array(examples) / whole, seconds, np.allclose(batch, batch[0], rtol=0.02))

    def subset(self, keep: Array) -> ReplicaLine:
        """Return the line with the configurations that the boolean array `keep` marks."""
        return ReplicaLine(self.replicas[keep], self.steps[keep], self.seconds[keep], self.is_weak)

    def predict(self, model: str, n: float) -> float:
        """Fit a model to the line; return its predicted time on `n` replicas, in seconds.

        The fit minimizes relative errors.

        Args:
            model: Name of the model, RING or TREE.
            n: Number of replicas.
        """
        steps = self.steps[-1] * (self.replicas[-1] / n if self.is_weak else 1.0)
        design = self._model_terms(model, self.replicas, self.steps) / self.seconds[:, None]
        weights = scipy.optimize.nnls(design, np.ones(len(self.replicas)))[0]
        return float((self._model_terms(model, np.array([n]), np.array([steps])) @ weights)[0])

    def _model_terms(self, model: str, n: Array, steps: Array) -> Array:
        """Return the three terms of a model, (configurations, 3), which its fit weights.

        They are start-up, computation and communication.

        Args:
            model: RING or TREE.
            n: Numbers of replicas, (configurations,).
            steps: Training steps of a run, (configurations,).
        """
        # of a ring with few messages the bandwidth alone; its latency is like start-up in each step
        exchange = np.log2(n) if model == TREE else (n - 1) / n
        return np.stack([np.ones_like(n), 1 / n, steps / self.steps.max() * exchange], axis=1)

    def log_predict(self, model: str, n: float) -> float:
        """Return the logarithm of `predict(model, n)`.

        If the prediction is 0, the result is a large negative number instead of minus infinity.
        """
        return float(np.log(max(self.predict(model, n), np.finfo(float).tiny)))


def refusal_reason(line: ReplicaLine) -> str:
    """Return why no model is fitted to the line; "" if one is."""
    if len(line.replicas) < POINTS_MIN:
        return f"{len(line.replicas)} numbers of replicas measured, {POINTS_MIN} are needed"
    if np.count_nonzero(line.replicas <= line.replicas[-1] / 2) < POINTS_MIN - 2:
        return "too few of the measured configurations are at half of the largest or below"
    return ""


def validation_errors(model: str, line: ReplicaLine) -> Array:
    """Return the errors of a model on configurations that its fit has not seen.

    Each configuration except the one with the fewest replicas is left out of a fit alone. A further
    fit leaves out all that have more than half of the most replicas. An error is log(predicted /
    measured time).
    """
    places = np.arange(len(line.replicas))

    def errors(out: Array) -> Array:
        logs = [line.subset(~out).log_predict(model, n) for n in line.replicas[out]]
        return np.array(logs) - np.log(line.seconds[out])

    alone = [errors(places == place) for place in places[1:]]
    return np.concatenate([*alone, errors(line.replicas > line.replicas[-1] / 2)])


def rms_error(errors: Array) -> float:
    """Return the root mean square of validation errors, as a fraction of the measured time."""
    return float(np.sqrt(np.mean(np.expm1(errors) ** 2)))


def best_model(line: ReplicaLine) -> tuple[str, Array]:
    """Return the name of the model with the lowest validation error, and its validation errors.

    Models may be equal: without communication, or with a ring and a fixed batch. Then the first one
    is returned.
    """
    errors = {model: validation_errors(model, line) for model in MODELS}
    model = min(MODELS, key=lambda name: round(rms_error(errors[name]), 9))
    return model, errors[model]


def forecast_interval(
    model: str, line: ReplicaLine, n: float, errors: Array
) -> tuple[float, float]:
    """Return the interval of the time on `n` replicas in seconds, if the trend continues.

    Its half width in logarithms has two parts, added in squares: Student's t times the root mean
    square of `errors`, and ERROR_PER_DOUBLING beyond the measured range.

    Args:
        model: RING or TREE.
        line: The measured line.
        n: Number of replicas.
        errors: Validation errors of the model.
    """
    quantile = scipy.special.stdtrit(len(line.replicas) - 2, (1 + CONFIDENCE) / 2)
    missed = quantile * np.sqrt(np.mean(errors**2))
    further = ERROR_PER_DOUBLING * max(0.0, np.log2(n / line.replicas[-1]))
    half, middle = np.hypot(missed, further), line.log_predict(model, n)
    return float(np.exp(middle - half)), float(np.exp(middle + half))


FORECAST, REFUSED = "forecast", "refused"


class ForecastRow(ConfigurationRow):
    """Forecast of a configuration's execution time on a number of nodes that was not measured.

    Attributes:
        nodes: Number of nodes that the forecast is for.
        replicas: Number of replicas on these nodes.
        model_of_time: The fitted model, RING or TREE; None without a forecast.
        status: `forecast` or `refused`.
        reason: Why no forecast was made; "" if one was.
        forecast_time_s: The time in seconds, with its interval `_low` to `_high`.
        nodes_measured_max: Largest measured number of nodes.
        times_beyond: `nodes` divided by `nodes_measured_max`.
        points: Number of measured configurations from which the forecast is made.
        left_out_error: Validation error of the model as a fraction, by `rms_error`; NaN without a
            model.
    """

    batch_scaling: str | None
    replicas: int
    model_of_time: str | None
    status: str
    reason: Text
    forecast_time_s: float = NAN
    forecast_time_s_low: float = NAN
    forecast_time_s_high: float = NAN
    node_hours: float = NAN
    cost_usd: float = NAN
    nodes_measured_max: int = 0
    times_beyond: float = NAN
    points: int = 0
    left_out_error: float = NAN


COLUMNS = tuple(columns(ForecastRow))


def table(study: Study) -> pd.DataFrame:
    """Return one `ForecastRow` for each line and each number of nodes to forecast.

    Numbers of nodes that the line has measured are left out.
    """
    timed = [row for row in study.compared_rows if row.runs_timed > 0]
    rows: list[ForecastRow] = []
    for points in group_by(timed, axes_without_nodes).values() if study.forecast_nodes else ():
        # points without a number of examples are left out where others of the line have one
        telling = [row for row in points if is_known(row.examples_trained)]
        rows += _forecast_line(sorted(telling or points, key=lambda row: row.nodes), study)
    return to_frame(ForecastRow, rows)


def _forecast_line(points: Sequence[PointRow], study: Study) -> Iterator[ForecastRow]:
    """Yield a row for each number in `study.forecast_nodes` that was not measured.

    Args:
        points: The measured configurations, which differ only in the number of nodes.
        study: The evidence of the study.
    """
    line, last = ReplicaLine.from_rows(points), points[-1]
    reason, model, missed, errors = refusal_reason(line), None, NAN, np.zeros(0)
    if not reason:
        model, errors = best_model(line)
        missed = rms_error(errors)
        if missed > LEFT_OUT_ERROR_MAX:
            reason = f"misses configurations that were left out by {missed:.0%}"
    measured = {row.nodes for row in points}
    for nodes in study.forecast_nodes:
        if nodes in measured:
            continue
        replicas = (last.replicas or 0) * nodes / last.nodes
        row = ForecastRow(
            **axes_and_devices(last) | {"nodes": nodes},
            batch_scaling=last.batch_scaling,
            replicas=round(replicas),
            model_of_time=model,
            status=REFUSED if reason else FORECAST,
            reason=reason,
            nodes_measured_max=last.nodes,
            times_beyond=nodes / last.nodes,
            points=len(points),
            left_out_error=missed,
        )
        if model and not reason:
            row.forecast_time_s = time_s = line.predict(model, replicas)
            row.forecast_time_s_low, row.forecast_time_s_high = forecast_interval(
                model, line, replicas, errors
            )
            row.node_hours = nodes * time_s / 3600
            usd = platforms.run_cost_usd(study.prices[point_of(last)], nodes, time_s)
            row.cost_usd = NAN if usd is None else usd
        yield row


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table for the page: one row per line, one column per number of nodes."""
    rows = to_rows(ForecastRow, table)
    lines = group_by(rows, axes_without_nodes)
    has_reasons = any(row.status == REFUSED for row in rows)

    def cells(row: ForecastRow) -> dict[str, str]:
        by_nodes = {each.nodes: each for each in lines[axes_without_nodes(row)]}
        missed = row.left_out_error
        return {
            "model": row.model_of_time or MISSING,
            "measured to": count_text(row.nodes_measured_max, "node"),
            "points": str(row.points),
            "error left out": FormattedNumber(f"{missed:.1%}", missed)
            if is_known(missed)
            else MISSING,
            **{
                count_text(n, "node"): _format_time(by_nodes.get(n))
                for n in sorted({row.nodes for row in rows})
            },
            **({"reason": row.reason} if has_reasons else {}),
        }

    return rendering.make_text_table(
        "Forecast",
        table.drop_duplicates(list(LINE_AXES)),
        ForecastRow,
        cells,
        rendering.render_notes("forecast", error_max=LEFT_OUT_ERROR_MAX),
        "No forecast: `forecast.nodes` names no number of nodes that was not measured.",
        names=[name for name in NAMING_COLUMNS if name != "nodes"],
        row_noun="lines",
    )


def _format_time(row: ForecastRow | None) -> str:
    """Return a forecast time with its interval and how far it extrapolates; or why none exists."""
    if row is None:
        return MISSING
    if row.status == REFUSED:
        return REFUSED
    time_s = row.forecast_time_s
    low, high = map(format_three_digits, (row.forecast_time_s_low, row.forecast_time_s_high))
    ends = f"{low}–{high}"
    return FormattedNumber(
        f"{format_three_digits(time_s)} s ({ends}; {row.times_beyond:.3g}×)", time_s
    )
