"""Published results, and what was measured at the same points. Layer 4 (view).

A file of published results has one row per point: the columns `COLUMNS`. A measured time is
compared with a published one only if the point is the same *and* the training is the same; loss and
accuracy do not depend on the platform and are compared with all runs of the same training.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tfscaling.configuration import ConfigError, Sources, problem
from tfscaling.statistics import median_interval

POINT = ("platform", "model", "strategy", "nodes", "gpus_per_node", "tasks_per_node")
TRAINING = ("dataset", "optimizer", "learning_rate", "epochs", "global_batch_size")
VALUES = ("execution_time_s", "loss", "accuracy")
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
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            lines = list(reader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or [])]
    if missing:
        raise ConfigError(f"{path}: columns {', '.join(missing)} are missing")
    rows = [_typed(line, f"{path}: line {number}") for number, line in enumerate(lines, 2)]
    points = [point_of(row) for row in rows]
    for number, point in enumerate(points, 2):
        if point in points[: number - 2]:
            raise ConfigError(f"{path}: line {number}: the point stands in an earlier line already")
    return rows


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
            row[column] = kind(row[column])
        except (TypeError, ValueError):
            raise ConfigError(
                f"{where}: {column}: {row[column]!r} is not allowed; allowed: a number"
            ) from None
    return row


def point_of(axes: Row, platform: str | None = None) -> tuple[Any, ...]:
    """What identifies a published point; `platform` stands in for the axis."""
    point = {**{axis: axes[axis] for axis in POINT}, "platform": platform or axes["platform"]}
    return tuple(str(value) for value in point.values())


def same_training(row: Row, training: Row) -> bool:
    """Whether parameters and global batch size of a run are those of the published row."""
    return all(training[key] == row[key] for key in TRAINING) and all(
        training[key] == value for key, value in USUAL.items()
    )


def training_of(entry: Row) -> dict[str, Any]:
    """What `same_training` compares, of an entry of grid.json."""
    return {**entry["parameters"], "global_batch_size": entry["global_batch_size"]}


def beside(point: Row, row: Row | None, same: bool) -> dict[str, Any]:
    """The columns that put the published `row` beside a measured point.

    Ratios, measured over published, only if both did the same training.
    """
    if row is None:
        return {}
    columns: dict[str, Any] = {f"published_{name}": row[name] for name in VALUES}
    if same:
        for name in VALUES:
            if point.get(name) is not None:
                columns[f"{name.removesuffix('_s')}_ratio"] = point[name] / row[name]
    return columns


def table(
    rows: Sequence[Row],
    comparison: pd.DataFrame,
    runs: pd.DataFrame,
    expected: Row,
    tolerance: float,
) -> pd.DataFrame:
    """One row per published point, with the measured values beside it.

    Time: of the same point with the same training; `status` says if there is none. Loss and
    accuracy: median, range and interval over all valid runs of the same training, anywhere.
    `loss_verdict` and `accuracy_verdict`: whether the published value lies within the range of the
    runs widened by `tolerance`, a fraction of the loss, or of the error 1 - accuracy.
    """
    valid = runs[runs["status"] == "ok"]
    by_hash = dict(zip(valid["parameters_hash"], _records(valid), strict=True))
    trained = [
        (training_of(entry), by_hash[entry["parameters_hash"]])
        for entry in expected["runs"]
        if entry["parameters_hash"] in by_hash
    ]
    names = {
        name: platform["published_as"] or name for name, platform in expected["platforms"].items()
    }
    measured = {
        point_of(point, names.get(str(point["platform"]))): point
        for point in _records(comparison)
        if pd.notna(point.get("execution_time_ratio"))
    }
    results = []
    for row in rows:
        point: Row = measured.get(point_of(row), {})
        alike = [run for training, run in trained if same_training(row, training)]
        result = {name: row[name] for name in (*POINT, "cloud", "global_batch_size")}
        result |= {
            "published_execution_time_s": row["execution_time_s"],
            "status": "measured" if point else "not measured",
            "runs": int(point.get("runs", 0)),
            "execution_time_s": point.get("execution_time_s"),
            "execution_time_ratio": point.get("execution_time_ratio"),
            "training_runs": len(alike),
        }
        for name, widen in (("loss", _widen_loss), ("accuracy", _widen_accuracy)):
            values = [run[name] for run in alike]
            result |= {f"published_{name}": row[name], **_spread(name, values)}
            verdict = "not measured"
            if values:
                low, high = widen(min(values), max(values), tolerance)
                verdict = "within" if low <= row[name] <= high else "outside"
            result[f"{name}_verdict"] = verdict
        results.append({**result, "source": row["source"]})
    return pd.DataFrame(results)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


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
