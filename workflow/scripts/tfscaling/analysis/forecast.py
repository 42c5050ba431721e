"""The table of forecasts: the time on numbers of nodes that were not run, or why there is none.

Never part of a decision. The models and how they are judged: `forecast_models`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from tfscaling.analysis import forecast_models
from tfscaling.analysis.evidence import Study
from tfscaling.analysis.forecast_models import LEFT_OUT_ERROR_MAX, MODELS, Line, Parts
from tfscaling.study import platforms
from tfscaling.study.config import LINE_AXES
from tfscaling.study.run_spec import Point
from tfscaling.tables.display import (
    MISSING,
    NAMING,
    Number,
    TextTable,
    cell,
    naming,
    three_digits,
)
from tfscaling.tables.intervals import CONFIDENCE
from tfscaling.tables.table_rows import Row, is_known, point_of, rows_of

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
    The interval of the time is for a line that goes on as it is: `forecast_models.interval`.
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
    reason = forecast_models.refusal(line)
    of_line = {name: last[name] for name in (*LINE_AXES, "devices", "batch_scaling")}
    of_line |= {"nodes_measured_max": last["nodes"], "points": len(points)}
    of_line["fitted_to"] = "parts" if line.parts else "whole time"
    for model in MODELS if wanted else ():
        row = of_line | {"model_of_time": model, "status": REFUSED, "reason": reason}
        errors = None if reason else forecast_models.left_out(model, line)
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
                ends = forecast_models.interval(model, line, line.at(at[1]), errors)
                own["forecast_time_s_low"], own["forecast_time_s_high"] = ends
            yield own


def _forecast(model: str, line: Line, at: tuple[int, float], price: float | None) -> Row:
    """The columns of a forecast `at` a number of nodes and of replicas."""
    nodes, replicas = at
    found = forecast_models.predict(model, line, line.at(replicas))
    row: Row = {"forecast_time_s": found.whole_s, "node_hours": nodes * found.whole_s / 3600}
    row["cost_usd"] = platforms.run_cost_usd(price, nodes, found.whole_s)
    if model in (forecast_models.RING, forecast_models.TREE):
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
