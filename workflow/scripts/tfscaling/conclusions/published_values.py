"""Published results, and what was measured at the same points.

A measured time is compared with a published one only if the point is the same *and* the training
is the same; loss and accuracy do not depend on the platform and are compared with all runs of the
same training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.study.platforms import GPU
from tfscaling.study.run_spec import RunSpec
from tfscaling.tables.display import TextTable, cell
from tfscaling.tables.estimates import median_interval
from tfscaling.tables.published_results import (
    POINT_COLUMNS,
    PublishedPoint,
    Training,
    same_training,
)
from tfscaling.tables.row_types import Cells, PointRow, RunRow
from tfscaling.tables.row_values import NOT_MEASURED, point_of

OUTSIDE = "outside"
_SPREAD = ("median", "min", "max", "low", "high")
_TIMES = ("execution_time_s", "execution_time_ratio")
#: Columns besides the point that are facts of the published result.
_OF_RESULT = ("cloud", "global_batch_size", "source")

#: The columns of `table`.
COLUMNS = (
    *POINT_COLUMNS,
    *("cloud", "global_batch_size", "published_execution_time_s", "status", "runs"),
    *(*_TIMES, "training_runs", "training_runs_diverged"),
    *("published_loss", *(f"loss_{name}" for name in _SPREAD), "loss_verdict"),
    *("published_accuracy", *(f"accuracy_{name}" for name in _SPREAD), "accuracy_verdict"),
    *("remark", "source"),
)


def table(study: Study) -> pd.DataFrame:
    """One row per published point, with the measured values in the same row.

    Time: of the same point with the same training; `status` says if there is none. Loss and
    accuracy: median, range and interval over all valid runs of the same training, anywhere;
    `training_runs_diverged` counts runs without values because they diverged.
    `loss_verdict` and `accuracy_verdict`: whether the published value lies within the range of the
    runs widened by the tolerance, a fraction of the loss, or of the error 1 - accuracy. A run that
    diverged is outside any range: where all did, the verdict is "outside".
    """
    manifest = study.manifest
    synchronous = manifest.synchronous_strategies
    row_of = {(point_of(row), row.repeat): row for row in study.run_rows if row.status in FINISHED}
    #: Strategy and training → the specification of one run, and all finished runs of it.
    trained: dict[tuple[str, Training], tuple[RunSpec, list[RunRow]]] = {}
    for spec in (run.spec for run in manifest.runs):
        if (done := row_of.get((spec.point, spec.repeat))) is not None:
            key = (spec.point.strategy, Training.of(spec))
            trained.setdefault(key, (spec, []))[1].append(done)
    spec_at = {run.spec.point: run.spec for run in manifest.runs}
    measured_at: dict[PublishedPoint, list[tuple[RunSpec, PointRow]]] = {}
    for row in study.points:
        if row.status != "excluded":
            spec = spec_at[point_of(row)]
            point = PublishedPoint.of(spec.point, manifest.platforms)
            measured_at.setdefault(point, []).append((spec, row))
    rows = []
    for result in study.published_results:
        at_point = measured_at.get(result.point, [])
        here = [row for spec, row in at_point if same_training(result, spec, synchronous)]
        measured = max(here, key=lambda row: row.runs, default=PointRow())
        alike = [own for spec, own in trained.values() if same_training(result, spec, synchronous)]
        same = [run for own in alike for run in own]
        valid = [run for run in same if run.status == RunState.OK]
        diverged = len(same) - len(valid)
        without = "diverged" if measured.status == "diverged" else NOT_MEASURED
        found: dict[str, Any] = {
            **{name: getattr(result, name) for name in (*POINT_COLUMNS, *_OF_RESULT)},
            **{name: measured[name] for name in ("runs", *_TIMES)},
            "published_execution_time_s": result.execution_time_s,
            "status": "measured" if measured.runs else without,
            "training_runs": len(valid),
            "training_runs_diverged": diverged,
        }
        for name in ("loss", "accuracy"):
            values, published = [run[name] for run in valid], getattr(result, name)
            found |= {f"published_{name}": published, **_spread(name, values)}
            verdict = OUTSIDE if same else NOT_MEASURED
            if values:
                is_within = _is_within(name, published, values, study.published_tolerance)
                verdict = "within" if is_within else OUTSIDE
            found[f"{name}_verdict"] = verdict
        if diverged:
            found["remark"] = f"{diverged} of {len(same)} runs of this training diverged"
        rows.append(found)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def as_text(table: pd.DataFrame) -> TextTable:
    """One row per published point, with what was measured and the verdicts."""
    # nothing published is of logical devices
    table = table.assign(
        devices=GPU, runs_asked=None, remark=table["remark"].astype(object).fillna("")
    )
    names = ["global_batch_size", "status", "runs", "published_execution_time_s", *_TIMES]
    names += ["training_runs"]
    for metric in ("loss", "accuracy"):
        names += [f"published_{metric}", metric, f"{metric}_verdict"]
    names += ["remark"] * bool((table["remark"] != "").any())

    def cells(row: Cells) -> dict[str, str]:
        # loss and accuracy are over all runs of the same training
        of_training: dict[str, object] = {"runs": row["training_runs"]}
        for metric in ("loss", "accuracy"):
            of_training[metric] = row[f"{metric}_median"]
            of_training |= {
                name: row[name]
                for end in ("min", "max", "low", "high")
                if (name := f"{metric}_{end}") in row
            }
        return {
            name: cell(name, of_training if name in ("loss", "accuracy") else row) for name in names
        }

    verdicts = table[["loss_verdict", "accuracy_verdict"]]
    notes = shown.notes(
        "published",
        number=len(table),
        measured=int((table["status"] == "measured").sum()),
        compared=int((verdicts["loss_verdict"] != NOT_MEASURED).sum()),
        outside=int((verdicts == OUTSIDE).any(axis=1).sum()),
    )
    axes = ["platform", "cloud", "model", "strategy", "nodes", "devices", "tasks_per_node"]
    none = "No published results: `published.path` names no file."
    title = "Published against measured"
    return shown.text_table(title, table, cells, notes, none, names=[*axes, "source"])


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    low, high = median_interval(values) or (None, None)
    middle = pd.Series(values, dtype=float).median()
    found = middle, min(values, default=None), max(values, default=None), low, high
    return {f"{name}_{end}": value for end, value in zip(_SPREAD, found, strict=True)}


def _is_within(name: str, value: float, measured: Sequence[float], tolerance: float) -> bool:
    """Whether a loss or an accuracy is in the range widened by a fraction of the loss or error."""
    low, high = min(measured), max(measured)
    if name == "loss":
        return low * (1 - tolerance) <= value <= high * (1 + tolerance)
    return 1 - (1 - low) * (1 + tolerance) <= value <= 1 - (1 - high) * (1 - tolerance)
