"""Published results, and what was measured at the same points.

A file of published results has one row per point: the columns `COLUMNS`. A measured time is
compared with a published one only if the point is the same *and* the training is the same; loss and
accuracy do not depend on the platform and are compared with all runs of the same training.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tfscaling.records.metrics import METRICS
from tfscaling.records.run_states import FINISHED, RunState
from tfscaling.study.config import POINT_AXES
from tfscaling.study.configuration import ConfigError, Sources, problem
from tfscaling.tables.display import MISSING, TextTable, cell, constant, rounded
from tfscaling.tables.intervals import median_interval
from tfscaling.tables.table_rows import rows_of

POINT = ("platform", "model", "strategy", "nodes", "gpus_per_node", "tasks_per_node")
TRAINING = ("dataset", "optimizer", "learning_rate", "epochs", "global_batch_size")
VALUES = ("execution_time_s", "loss", "accuracy")
#: Value → the column of its ratio, measured over published.
RATIOS = {name: f"{name.removesuffix('_s')}_ratio" for name in VALUES}
NOT_MEASURED, OUTSIDE = "not measured", "outside"
_SPREAD = ("median", "min", "max", "low", "high")
#: The columns of `table`.
TABLE_COLUMNS = (
    *POINT,
    *("cloud", "global_batch_size", "published_execution_time_s", "status", "runs"),
    *("execution_time_s", "execution_time_ratio", "training_runs", "training_runs_diverged"),
    *("published_loss", *(f"loss_{name}" for name in _SPREAD), "loss_verdict"),
    *("published_accuracy", *(f"accuracy_{name}" for name in _SPREAD), "accuracy_verdict"),
    *("remark", "source"),
)
COLUMNS = (*POINT, "cloud", *TRAINING, *VALUES, "source")
#: Training that a published row does not state was done the usual way.
USUAL = {
    "train_examples_max": None,
    "momentum": 0.0,
    "learning_rate_scaling": "none",
    "precision": "float32",
}
_NUMBERS = {"nodes": int, "gpus_per_node": int, "epochs": int, "global_batch_size": int}
_NUMBERS |= dict.fromkeys(("learning_rate", *VALUES), float)  # type: ignore[arg-type]

Row = Mapping[str, Any]


def read(path: Path | str | None) -> list[dict[str, Any]]:
    """The published results of a CSV file, [] without a file.

    Raises ConfigError that names the file, the line, the column and the value.
    """
    if not path:
        return []
    path = Path(path)
    try:
        # spreadsheets put a byte order mark before the first column's name
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            lines = [(f"{path}: line {reader.line_num}", line) for line in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise ConfigError(f"{path}: columns {', '.join(missing)} are missing")
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for where, line in lines:
        row = _typed(line, where)
        if point_of(row) in rows:
            point = ", ".join(f"{axis} {row[axis]}" for axis in POINT)
            raise ConfigError(f"{where}: {point}: the point stands in an earlier line already")
        rows[point_of(row)] = row
    return list(rows.values())


def check(path: str | None, sources: Sources = ()) -> None:
    """Raise ConfigError if the configured file is not there or no file of published results."""
    if path is not None and not Path(path).is_file():
        reason = f"there is no such file in {Path.cwd()}"
        raise ConfigError(problem(["published", "path"], path, reason, sources))
    read(path)


def _typed(line: Row, where: str) -> dict[str, Any]:
    row = dict(line)
    for column, kind in _NUMBERS.items():
        try:
            value = kind(row[column])
            if not math.isfinite(value) or (column == "execution_time_s" and value <= 0):
                raise ValueError(column)
        except (TypeError, ValueError):
            above = " above 0" if column == "execution_time_s" else ""
            raise ConfigError(
                f"{where}: {column}: {row[column]!r} is not allowed; allowed: a number{above}"
            ) from None
        row[column] = value
    return row


def point_of(axes: Row, platform: str | None = None) -> tuple[Any, ...]:
    """What identifies a published point; `platform` stands in for the axis."""
    point = {**{axis: axes[axis] for axis in POINT}, "platform": platform or axes["platform"]}
    return tuple(str(value) for value in point.values())


def same_training(row: Row, training: Row, synchronous: Collection[str]) -> bool:
    """Whether the training of a run is that of the published row: it gives the same model.

    So do all strategies of `synchronous` with the same global batch.
    """
    strategies = {row["strategy"], training["strategy"]}
    same_updates = len(strategies) == 1 or strategies <= {*synchronous}
    return (
        same_updates
        and all(training[key] == row[key] for key in ("model", *TRAINING))
        and all(training[key] == value for key, value in USUAL.items())
    )


def training_of(entry: Row) -> dict[str, Any]:
    """What `same_training` compares, of an entry of manifest.json."""
    axes = {key: entry["axes"][key] for key in ("model", "strategy")}
    return {**entry["parameters"], **axes, "global_batch_size": entry["global_batch_size"]}


def beside(point: Row, row: Row | None, same: bool) -> dict[str, Any]:
    """The columns that put the published `row` beside a measured point.

    Ratios, measured over published, only if both did the same training.
    """
    if row is None:
        return {}
    columns: dict[str, Any] = {f"published_{name}": row[name] for name in VALUES}
    if same:
        for name, ratio in RATIOS.items():
            if point.get(name) is not None and row[name] != 0:
                columns[ratio] = point[name] / row[name]
    return columns


def without_ratio(point: Row) -> list[str]:
    """The ratios to published values that a point cannot have: the published value is 0."""
    return [ratio for name, ratio in RATIOS.items() if point[f"published_{name}"] == 0]


def table(
    rows: Sequence[Row],
    comparison: pd.DataFrame,
    runs: pd.DataFrame,
    expected: Row,
    tolerance: float,
) -> pd.DataFrame:
    """One row per published point, with the measured values beside it.

    Time: of the same point with the same training; `status` says if there is none. Loss and
    accuracy: median, range and interval over all valid runs of the same training, anywhere;
    `training_runs_diverged` counts those that have none because they diverged.
    `loss_verdict` and `accuracy_verdict`: whether the published value lies within the range of the
    runs widened by `tolerance`, a fraction of the loss, or of the error 1 - accuracy. A run that
    diverged is outside any range: where all did, the verdict is "outside".
    """
    done = runs[runs["status"].isin([*FINISHED])]
    learned = rows_of(done[["status", "loss", "accuracy"]])
    synchronous = expected["synchronous_strategies"]
    by_hash = dict(zip(done["parameters_hash"], learned, strict=True))
    trained: dict[str, tuple[Row, list[Row]]] = {}
    training_at: dict[tuple[Any, ...], Row] = {}
    for entry in expected["runs"]:
        training = training_of(entry)
        training_at[_place(entry["axes"])] = training
        if entry["parameters_hash"] in by_hash:
            key = repr([training[name] for name in ("model", "strategy", *TRAINING, *USUAL)])
            trained.setdefault(key, (training, []))[1].append(by_hash[entry["parameters_hash"]])
    names = {
        name: platform["published_as"] or name for name, platform in expected["platforms"].items()
    }
    places: dict[tuple[Any, ...], list[Row]] = {}
    for measured in rows_of(comparison):
        if measured["status"] != "excluded":
            name = names[str(measured["platform"])]
            places.setdefault(point_of(measured, name), []).append(measured)
    results = []
    for row in rows:
        here = [
            place
            for place in places.get(point_of(row), [])
            if same_training(row, training_at[_place(place)], synchronous)
        ]
        point: Row = max(here, key=lambda place: int(place["runs"]), default={})
        same = (
            own for training, own in trained.values() if same_training(row, training, synchronous)
        )
        alike = [run for own in same for run in own]
        valid = [run for run in alike if run["status"] == RunState.OK]
        result = {name: row[name] for name in (*POINT, "cloud", "global_batch_size")}
        result |= {
            "published_execution_time_s": row["execution_time_s"],
            "status": _status(point),
            "runs": int(point.get("runs", 0)),
            "execution_time_s": point.get("execution_time_s"),
            "execution_time_ratio": point.get("execution_time_ratio"),
            "training_runs": len(valid),
            "training_runs_diverged": len(alike) - len(valid),
        }
        for name, widen in (("loss", _widen_loss), ("accuracy", _widen_accuracy)):
            values = [run[name] for run in valid]
            result |= {f"published_{name}": row[name], **_spread(name, values)}
            verdict = OUTSIDE if alike else NOT_MEASURED
            if values:
                low, high = widen(min(values), max(values), tolerance)
                verdict = "within" if low <= row[name] <= high else OUTSIDE
            result[f"{name}_verdict"] = verdict
        result["remark"] = "; ".join(_remarks(row, rows, result))
        results.append({**result, "source": row["source"]})
    return pd.DataFrame(results, columns=list(TABLE_COLUMNS))


def _place(axes: Row) -> tuple[str, ...]:
    return tuple(str(axes[axis]) for axis in POINT_AXES)


def _status(point: Row) -> str:
    """Whether the published point was measured here with the same training, or diverged."""
    if not point or not point["runs"]:
        is_diverged = point.get("status") == RunState.DIVERGED
        return RunState.DIVERGED if is_diverged else NOT_MEASURED
    return "measured"


def as_text(table: pd.DataFrame, tolerance: float) -> TextTable:
    """Published against measured as people read it: one row per published point."""
    columns = [
        *("platform", "nodes", "gpus_per_node", "global_batch_size"),
        *("published_execution_time_s", "execution_time_s", "execution_time_ratio"),
        *("training_runs", "published_loss", "loss", "loss_verdict"),
        *("published_accuracy", "accuracy", "accuracy_verdict"),
    ]
    columns += ["remark"] if (table["remark"].fillna("") != "").any() else []
    rows = [[_cell(name, row) for name in columns] for row in rows_of(table)]
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
    """One row per published point, with what was measured beside it and the verdicts."""
    axes = ["platform", "cloud", "model", "strategy", "nodes", "gpus_per_node", "tasks_per_node"]
    varying, above = constant(table, [*axes, "source"])
    last = ["source"] if "source" in varying else []
    names = [name for name in varying if name not in last]
    names += ["global_batch_size", "status", "runs", "published_execution_time_s"]
    names += ["execution_time_s", "execution_time_ratio", "training_runs"]
    for metric in ("loss", "accuracy"):
        names += [f"published_{metric}", metric, f"{metric}_verdict"]
    rows = []
    for row in rows_of(table):
        beside = {**row, "runs_asked": None}
        # loss and accuracy are over all runs of the same training
        beside |= {metric: row[f"{metric}_median"] for metric in ("loss", "accuracy")}
        spread = {**beside, "runs": row["training_runs"]}
        rows.append(
            [
                cell(name, spread if name in ("loss", "accuracy") else beside)
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
    return TextTable.of(title, [*names, *last], rows, notes, above)


def _cell(name: str, row: Row) -> str:
    if name in ("loss", "accuracy"):
        low, value, high = (row[f"{name}_{end}"] for end in ("min", "median", "max"))
        return rounded(value, 4, low, high)
    if pd.isna(row[name]):
        return "" if name == "remark" else MISSING
    digits = METRICS[name].digits if name in METRICS else 0
    return row[name] if isinstance(row[name], str) else rounded(row[name], digits)


def _remarks(row: Row, rows: Sequence[Row], result: Row) -> Iterator[str]:
    """What is to know of the runs beside a published value, and why it may lie outside."""
    runs, diverged = result["training_runs"], result["training_runs_diverged"]
    if diverged:
        yield f"{diverged} of {runs + diverged} runs of this training diverged"
    if OUTSIDE not in (result["loss_verdict"], result["accuracy_verdict"]) or not runs:
        return
    for other in rows:
        same = all(other[name] == row[name] for name in ("platform", "loss", "accuracy"))
        if same and other is not row:
            yield (
                f"loss and accuracy are published for {other['nodes']} nodes as well, to the last "
                "digit: one of the two is probably a slip"
            )
            return
    nearest = min((result["loss_min"], result["loss_max"]), key=lambda v: abs(v - row["loss"]))
    if nearest:
        times = f"is {row['loss'] / nearest:.2f} times the nearest of our {runs} runs"
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


def by_point(rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """Published rows by what identifies them."""
    return {point_of(row): row for row in rows}
