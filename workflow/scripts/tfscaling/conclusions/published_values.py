"""Published results compared with measured ones.

A measured time is compared with a published one only if configuration and training are the same.
Loss and accuracy do not depend on the platform: they are compared with all runs of the same
training.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import pandas as pd

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import median_interval
from tfscaling.estimation.samples import NOT_MEASURED
from tfscaling.record.metrics import NAN
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.study.platforms import GPU
from tfscaling.study.run_spec import RunSpec
from tfscaling.tables.display import TextTable, format_cell
from tfscaling.tables.published_results import (
    POINT_COLUMNS,
    PublishedPoint,
    PublishedResult,
    Training,
    trains_same_model,
)
from tfscaling.tables.row_types import PointRow, RunRow, TableRow, columns
from tfscaling.tables.row_values import is_known, point_of
from tfscaling.tables.table_files import to_frame, to_rows

OUTSIDE = "outside"
_SPREAD = ("median", "min", "max", "low", "high")
#: Columns of a published result, besides its axes, that are copied to its row.
_RESULT_COLUMNS = ("cloud", "global_batch_size", "source")


class PublishedRow(TableRow):
    """A published result with the measured values of the same configuration and training.

    The measured time is the time of the same configuration; without one, `status` is `diverged` or
    `not measured`. Loss and accuracy are from all valid runs of the same training on any
    configuration. Both verdicts are "outside" if all these runs diverged.

    Columns with `_min` and `_max` are the range of these runs, with `_low` and `_high` the interval
    of their median.

    Attributes:
        execution_time_ratio: The measured time divided by the published one.
        training_runs: Number of valid runs of the same training.
        training_runs_diverged: Number of runs of the same training that diverged.
        loss_verdict: Whether the published loss is in the measured range, widened by the tolerance.
        accuracy_verdict: Whether the published error, 1 - accuracy, is in the measured range,
            widened by the tolerance.
    """

    platform: str
    model: str
    strategy: str
    nodes: int
    gpus_per_node: int
    tasks_per_node: str
    cloud: str
    global_batch_size: int
    published_execution_time_s: float
    status: str
    runs: int
    execution_time_s: float
    execution_time_ratio: float
    training_runs: int
    training_runs_diverged: int
    published_loss: float
    loss_median: float
    loss_min: float
    loss_max: float
    loss_low: float
    loss_high: float
    loss_verdict: str
    published_accuracy: float
    accuracy_median: float
    accuracy_min: float
    accuracy_max: float
    accuracy_low: float
    accuracy_high: float
    accuracy_verdict: str
    remark: str | None
    source: str

    @property
    def devices(self) -> str:
        """Kind of device of its nodes; published results never use logical devices."""
        return GPU

    @property
    def runs_planned(self) -> None:
        """None: unlike a measured configuration, a published training has no planned runs."""

    def comparison_columns(self, metric: str) -> dict[str, float]:
        """Return the measured values of `loss` or `accuracy` as columns of the comparison table.

        Example: {"runs": 6, "loss": 0.12, "loss_min": 0.11, …, "loss_high": 0.13}.
        """
        ends = {f"{metric}_{end}": self[f"{metric}_{end}"] for end in _SPREAD[1:]}
        return {"runs": self.training_runs, metric: self[f"{metric}_median"], **ends}


COLUMNS = tuple(columns(PublishedRow))


def table(study: Study) -> pd.DataFrame:
    """Return the table of published results next to measured ones, a `PublishedRow` for each."""
    manifest = study.manifest
    synchronous = manifest.synchronous_strategies
    row_of = {(point_of(row), row.repeat): row for row in study.run_rows if row.status in FINISHED}
    #: Strategy and training → the specification of one run, and all finished runs of it.
    trained: dict[tuple[str, Training], tuple[RunSpec, list[RunRow]]] = {}
    for spec in (run.spec for run in manifest.runs):
        if (done := row_of.get((spec.point, spec.repeat))) is not None:
            key = (spec.point.strategy, Training.from_spec(spec))
            trained.setdefault(key, (spec, []))[1].append(done)
    spec_at = {run.spec.point: run.spec for run in manifest.runs}
    measured_at: dict[PublishedPoint, list[tuple[RunSpec, PointRow]]] = {}
    for row in study.points:
        if row.status != "excluded":
            spec = spec_at[point_of(row)]
            point = PublishedPoint.from_point(spec.point, manifest.platforms)
            measured_at.setdefault(point, []).append((spec, row))
    rows = []
    for result in study.published_results:
        at_point = measured_at.get(result.point, [])
        here = [row for spec, row in at_point if trains_same_model(result, spec, synchronous)]
        measured = max(here, key=lambda row: row.runs, default=PointRow())
        alike = [
            own for spec, own in trained.values() if trains_same_model(result, spec, synchronous)
        ]
        same = [run for own in alike for run in own]
        rows.append(_published_row(result, measured, same, study.published_tolerance))
    return to_frame(PublishedRow, rows)


def _published_row(
    result: PublishedResult, measured: PointRow, runs: Sequence[RunRow], tolerance: float
) -> PublishedRow:
    """Return a published result with the measured values, and whether it is in their range.

    Args:
        result: The published result.
        measured: The row of the same configuration with the same training; an empty row without
            one.
        runs: The finished runs of the same training, on any configuration.
        tolerance: Fraction by which the published values may be outside the measured range.
    """
    valid = [run for run in runs if run.status == RunState.OK]
    diverged = len(runs) - len(valid)
    without = "diverged" if measured.status == "diverged" else NOT_MEASURED
    losses = [run.loss for run in valid if is_known(run.loss)]
    accuracies = [run.accuracy for run in valid if is_known(run.accuracy)]

    def verdict(is_within: bool) -> str:
        if not runs:
            return NOT_MEASURED
        return "within" if valid and is_within else OUTSIDE

    return PublishedRow(
        **{name: getattr(result, name) for name in (*POINT_COLUMNS, *_RESULT_COLUMNS)},
        published_execution_time_s=result.execution_time_s,
        status="measured" if measured.runs else without,
        runs=measured.runs,
        execution_time_s=measured.execution_time_s,
        execution_time_ratio=measured.execution_time_ratio,
        training_runs=len(valid),
        training_runs_diverged=diverged,
        published_loss=result.loss,
        **_spread_columns("loss", losses),
        loss_verdict=verdict(_is_loss_in_range(result.loss, losses, tolerance)),
        published_accuracy=result.accuracy,
        **_spread_columns("accuracy", accuracies),
        accuracy_verdict=verdict(_is_accuracy_in_range(result.accuracy, accuracies, tolerance)),
        remark=f"{diverged} of {len(runs)} runs of this training diverged" if diverged else None,
    )


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table for the page: one row per published configuration."""
    rows = to_rows(PublishedRow, table)
    names = ["global_batch_size", "status", "runs", "published_execution_time_s"]
    names += ["execution_time_s", "execution_time_ratio", "training_runs"]
    for metric in ("loss", "accuracy"):
        names += [f"published_{metric}", metric, f"{metric}_verdict"]
    names += ["remark"] * any(row.remark for row in rows)

    def cells(row: PublishedRow) -> dict[str, str]:
        # loss and accuracy are over all runs of the same training
        return {
            name: format_cell(
                name, row.comparison_columns(name) if name in ("loss", "accuracy") else row
            )
            for name in names
        }

    notes = rendering.render_notes(
        "published",
        number=len(rows),
        measured=sum(row.status == "measured" for row in rows),
        compared=sum(row.loss_verdict != NOT_MEASURED for row in rows),
        outside=sum(OUTSIDE in (row.loss_verdict, row.accuracy_verdict) for row in rows),
    )
    axes = ["platform", "cloud", "model", "strategy", "nodes", "devices", "tasks_per_node"]
    none = "No published results: `published.path` names no file."
    title = "Published against measured"
    table = table.assign(devices=GPU)
    return rendering.make_text_table(
        title, table, PublishedRow, cells, notes, none, names=[*axes, "source"]
    )


def _spread_columns(metric: str, values: Sequence[float]) -> dict[str, Any]:
    """Return the columns of a metric over runs: its median, range and interval.

    Args:
        metric: Name of the metric, the first part of the columns' names.
        values: Its value in each run.
    """
    low, high = median_interval(values) or (NAN, NAN)
    middle = median(values) if values else NAN
    found = middle, min(values, default=NAN), max(values, default=NAN), low, high
    return {f"{metric}_{end}": value for end, value in zip(_SPREAD, found, strict=True)}


def _is_loss_in_range(value: float, measured: Sequence[float], tolerance: float) -> bool:
    """Return whether a published loss is in the measured range, widened by a tolerance.

    Args:
        value: The published loss.
        measured: The measured losses.
        tolerance: Fraction of the range's ends by which it is widened.
    """
    low, high = min(measured, default=NAN), max(measured, default=NAN)
    return low * (1 - tolerance) <= value <= high * (1 + tolerance)


def _is_accuracy_in_range(value: float, measured: Sequence[float], tolerance: float) -> bool:
    """Return whether a published accuracy is in the measured range, widened by a tolerance.

    Args:
        value: The published accuracy.
        measured: The measured accuracies.
        tolerance: Fraction of the errors 1 - accuracy by which the range is widened.
    """
    return _is_loss_in_range(1 - value, [1 - each for each in measured], tolerance)
