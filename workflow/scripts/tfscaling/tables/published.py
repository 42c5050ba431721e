"""Published results, and what was measured at the same points.

A measured time is compared with a published one only if the point is the same *and* the training
is the same; loss and accuracy do not depend on the platform and are compared with all runs of the
same training.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pandas as pd

from tfscaling.record.metrics import METRICS
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.spec.manifest import Manifest
from tfscaling.spec.platforms import GPU
from tfscaling.spec.run_spec import RunSpec
from tfscaling.tables.display import MISSING, TextTable, cell, devices, naming, rounded
from tfscaling.tables.estimates import median_interval
from tfscaling.tables.published_results import (
    POINT_COLUMNS,
    VALUES,
    PublishedPoint,
    PublishedResult,
    Training,
)
from tfscaling.tables.rows import PointRow
from tfscaling.tables.table_rows import NOT_MEASURED, Row, is_known, point_of, points_of, rows_of

#: Value → the column of its ratio, measured over published.
RATIOS = {name: f"{name.removesuffix('_s')}_ratio" for name in VALUES}
OUTSIDE = "outside"
_SPREAD = ("median", "min", "max", "low", "high")


#: The columns of `table`.
TABLE_COLUMNS = (
    *POINT_COLUMNS,
    *("cloud", "global_batch_size", "published_execution_time_s", "status", "runs"),
    *("execution_time_s", "execution_time_ratio", "training_runs", "training_runs_diverged"),
    *("published_loss", *(f"loss_{name}" for name in _SPREAD), "loss_verdict"),
    *("published_accuracy", *(f"accuracy_{name}" for name in _SPREAD), "accuracy_verdict"),
    *("remark", "source"),
)


def same_training(result: PublishedResult, spec: RunSpec, synchronous: Collection[str]) -> bool:
    """Whether the training of a run is that of the published result: it gives the same model.

    So do all strategies of `synchronous` with the same global batch.
    """
    strategies = {result.strategy, spec.point.strategy}
    same_updates = len(strategies) == 1 or strategies <= {*synchronous}
    return same_updates and result.training == Training.of(spec)


def add(point: PointRow, result: PublishedResult, same: bool) -> None:
    """Set the published values of a point.

    Ratios, measured over published, only if both did the same training.
    """
    for name, ratio in RATIOS.items():
        value = getattr(result, name)
        setattr(point, f"published_{name}", value)
        if same and value != 0:
            setattr(point, ratio, getattr(point, name) / value)


def without_ratio(result: PublishedResult) -> list[str]:
    """The ratios that no measured value can have: the published value is 0."""
    return [ratio for name, ratio in RATIOS.items() if getattr(result, name) == 0]


def table(
    results: Sequence[PublishedResult],
    comparison: pd.DataFrame,
    runs: pd.DataFrame,
    manifest: Manifest,
    tolerance: float,
) -> pd.DataFrame:
    """One row per published point, with the measured values in the same row.

    Time: of the same point with the same training; `status` says if there is none. Loss and
    accuracy: median, range and interval over all valid runs of the same training, anywhere;
    `training_runs_diverged` counts those that have none because they diverged.
    `loss_verdict` and `accuracy_verdict`: whether the published value lies within the range of the
    runs widened by `tolerance`, a fraction of the loss, or of the error 1 - accuracy. A run that
    diverged is outside any range: where all did, the verdict is "outside".
    """
    synchronous = manifest.synchronous_strategies
    trained = _finished_runs(runs, manifest)
    spec_at = {run.spec.point: run.spec for run in manifest.runs}
    measured_at: dict[PublishedPoint, list[tuple[RunSpec, Row]]] = {}
    for row in rows_of(comparison):
        if row["status"] != "excluded":
            spec = spec_at[point_of(row)]
            point = PublishedPoint.of(spec.point, manifest.platforms)
            measured_at.setdefault(point, []).append((spec, row))
    rows = []
    for result in results:
        here = [
            row
            for spec, row in measured_at.get(result.point, [])
            if same_training(result, spec, synchronous)
        ]
        same_point: Row = max(here, key=lambda row: int(row["runs"]), default={})
        same = [
            run
            for spec, group in trained.values()
            if same_training(result, spec, synchronous)
            for run in group
        ]
        valid = [run for run in same if run["status"] == RunState.OK]
        names = (*POINT_COLUMNS, "cloud", "global_batch_size")
        row = {name: getattr(result, name) for name in names}
        row |= {
            "published_execution_time_s": result.execution_time_s,
            "status": _status(same_point),
            "runs": int(same_point.get("runs", 0)),
            "execution_time_s": same_point.get("execution_time_s"),
            "execution_time_ratio": same_point.get("execution_time_ratio"),
            "training_runs": len(valid),
            "training_runs_diverged": len(same) - len(valid),
        }
        for name, widen in (("loss", _widen_loss), ("accuracy", _widen_accuracy)):
            values, published = [run[name] for run in valid], getattr(result, name)
            row |= {f"published_{name}": published, **_spread(name, values)}
            verdict = OUTSIDE if same else NOT_MEASURED
            if values:
                low, high = widen(min(values), max(values), tolerance)
                verdict = "within" if low <= published <= high else OUTSIDE
            row[f"{name}_verdict"] = verdict
        row["remark"] = "; ".join(_remarks(result, results, row))
        rows.append({**row, "source": result.source})
    return pd.DataFrame(rows, columns=list(TABLE_COLUMNS))


def _finished_runs(
    runs: pd.DataFrame, manifest: Manifest
) -> dict[tuple[str, Training], tuple[RunSpec, list[Row]]]:
    """Strategy and training → the specification of one run, and all finished runs of it."""
    done = runs[runs["status"].isin([*FINISHED])]
    keys = zip(points_of(done), done["repeat"].tolist(), strict=True)
    row_of = dict(zip(keys, rows_of(done, ("status", "loss", "accuracy")), strict=True))
    trained: dict[tuple[str, Training], tuple[RunSpec, list[Row]]] = {}
    for run in manifest.runs:
        spec = run.spec
        if (row := row_of.get((spec.point, spec.repeat))) is not None:
            key = (spec.point.strategy, Training.of(spec))
            trained.setdefault(key, (spec, []))[1].append(row)
    return trained


def _status(point: Row) -> str:
    """Whether the published point was measured here with the same training, or diverged."""
    if not point or not point["runs"]:
        is_diverged = point.get("status") == RunState.DIVERGED
        return RunState.DIVERGED if is_diverged else NOT_MEASURED
    return "measured"


def as_text(table: pd.DataFrame, tolerance: float) -> TextTable:
    """Published against measured as people read it: one row per published point."""
    columns = [
        *("platform", "nodes", "devices", "global_batch_size"),
        *("published_execution_time_s", "execution_time_s", "execution_time_ratio"),
        *("training_runs", "published_loss", "loss", "loss_verdict"),
        *("published_accuracy", "accuracy", "accuracy_verdict"),
    ]
    columns += ["remark"] if (table["remark"].fillna("") != "").any() else []
    rows = [[_cell(name, row) for name in columns] for row in rows_of(_with_devices(table))]
    outside = (table[["loss_verdict", "accuracy_verdict"]] == OUTSIDE).any(axis=1).sum()
    compared = (table["loss_verdict"] != NOT_MEASURED).sum()
    notes = (
        f"Of {len(table)} published points, {(table['status'] == 'measured').sum()} are measured "
        f"here as well; loss and accuracy of {compared} can be compared, {outside} lie outside.",
        "execution_time_s: of the same point with the same training. loss and accuracy: median "
        "and range of all valid runs of the same training (training_runs), on any platform; a run "
        "that diverged has none.",
        f"within: in the range of these runs widened by {tolerance:.0%} of the loss, or of the "
        "error 1 - accuracy. Every published value is a single run.",
    )
    return TextTable.of("Published against measured", columns, rows, notes)


def page_table(table: pd.DataFrame) -> TextTable:
    """One row per published point, with what was measured and the verdicts."""
    axes = ["platform", "cloud", "model", "strategy", "nodes", "devices", "tasks_per_node"]
    table = _with_devices(table)
    varying, fixed = naming(table, [*axes, "source"])
    last = ["source"] if "source" in varying else []
    names = [name for name in varying if name not in last]
    names += ["global_batch_size", "status", "runs", "published_execution_time_s"]
    names += ["execution_time_s", "execution_time_ratio", "training_runs"]
    for metric in ("loss", "accuracy"):
        names += [f"published_{metric}", metric, f"{metric}_verdict"]
    rows = []
    for row in rows_of(table):
        of_point = {**row, "runs_asked": None}
        # loss and accuracy are over all runs of the same training
        of_point |= {metric: row[f"{metric}_median"] for metric in ("loss", "accuracy")}
        of_training = {**of_point, "runs": row["training_runs"]}
        rows.append(
            [
                cell(name, of_training if name in ("loss", "accuracy") else of_point)
                for name in [*names, *last]
            ]
        )
    notes = (
        "Time is compared at the same point with the same training; status says where there is "
        "no such point. execution_time_ratio is measured over published.",
        "Loss and accuracy are over all valid runs of the same training, wherever they ran "
        "(training_runs): the median, in brackets its interval, or the range of too few runs.",
        "A verdict is “within” if the published value lies within the range of the runs, widened "
        "by the configured tolerance; “outside” if not.",
    )
    title = "Published against measured"
    above = f"All points: {fixed}." if fixed else ""
    return TextTable.of(title, [*names, *last], rows, notes, above)


def _with_devices(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column `devices`: nothing published is of logical devices."""
    return table.assign(devices=GPU)


def _cell(name: str, row: Row) -> str:
    if name == "devices":
        return devices(row)
    if name in ("loss", "accuracy"):
        low, value, high = (row[f"{name}_{end}"] for end in ("min", "median", "max"))
        return rounded(value, 4, low, high)
    if not is_known(row[name]):
        return "" if name == "remark" else MISSING
    digits = METRICS[name].digits if name in METRICS else 0
    return row[name] if isinstance(row[name], str) else rounded(row[name], digits)


def _remarks(
    result: PublishedResult, results: Sequence[PublishedResult], row: Row
) -> Iterator[str]:
    """What to know of the runs compared with a published value, and why it may lie outside."""
    runs, diverged = row["training_runs"], row["training_runs_diverged"]
    if diverged:
        yield f"{diverged} of {runs + diverged} runs of this training diverged"
    if OUTSIDE not in (row["loss_verdict"], row["accuracy_verdict"]) or not runs:
        return
    for other in results:
        same = (other.platform, other.loss, other.accuracy) == (
            result.platform,
            result.loss,
            result.accuracy,
        )
        if same and other is not result:
            yield (
                f"loss and accuracy are published for {other.nodes} nodes as well, to the last "
                "digit: one of the two is probably a slip"
            )
            return
    nearest = min((row["loss_min"], row["loss_max"]), key=lambda v: abs(v - result.loss))
    if nearest:
        times = f"is {result.loss / nearest:.2f} times the nearest of our {runs} runs"
    else:
        times = f"has no ratio to the nearest of our {runs} runs, which is 0"
    yield f"a single published run: its loss {times}"


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    low, high = median_interval(values) or (None, None)
    return {
        f"{name}_median": float(pd.Series(values).median()) if values else None,
        f"{name}_min": min(values, default=None),
        f"{name}_max": max(values, default=None),
        f"{name}_low": low,
        f"{name}_high": high,
    }


def _widen_loss(low: float, high: float, tolerance: float) -> tuple[float, float]:
    return low * (1 - tolerance), high * (1 + tolerance)


def _widen_accuracy(low: float, high: float, tolerance: float) -> tuple[float, float]:
    return 1 - (1 - low) * (1 + tolerance), 1 - (1 - high) * (1 - tolerance)
