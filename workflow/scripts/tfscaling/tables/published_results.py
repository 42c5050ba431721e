"""Files of published results: one row with the columns `COLUMNS` for each point."""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from tfscaling.study.config_types import Platform
from tfscaling.study.config_validation import ConfigError, Sources, problem
from tfscaling.study.run_spec import Point, RunSpec

_BATCH = "global_batch_size"
#: Numbers that are neither NaN nor infinite.
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]


class PublishedPoint(msgspec.Struct, frozen=True):
    """What identifies a published point: as `Point`, but with no recipe."""

    platform: str
    model: str
    strategy: str
    nodes: int
    gpus_per_node: int
    tasks_per_node: str

    @classmethod
    def of(cls, point: Point, platforms: Mapping[str, Platform]) -> PublishedPoint:
        """Return a point of the grid, its platform by the name under which it is published."""
        return cls(
            platforms[point.platform].published_as or point.platform,
            point.model,
            point.strategy,
            point.nodes,
            point.gpus_per_node,
            str(point.tasks_per_node),
        )


class Training(NamedTuple):
    """What determines a trained model on any platform; the last fields are seldom published.

    Except for model, dataset and batch size, the fields are keys of the recipe.
    """

    model: str
    dataset: str | None
    optimizer: str
    learning_rate: float | None
    epochs: int
    global_batch_size: int
    parameters: tuple[tuple[str, object], ...] = ()
    train_examples_max: int | None = None
    momentum: float | None = 0.0
    learning_rate_scaling: str = "none"
    precision: str = "float32"
    stop_after_steps: int | str | None = None
    steps_per_epoch: int | None = None
    nesterov: bool | None = None
    weight_decay: float | None = None
    warmup_epochs: float = 0.0
    decay: str = "none"
    label_smoothing: float = 0.0
    validation_examples: int | None = None

    @classmethod
    def of(cls, spec: RunSpec) -> Training:
        keys = {name: getattr(spec.recipe, name) for name in cls._fields[2:] if name != _BATCH}
        keys["parameters"] = tuple(sorted(spec.recipe.constants.items()))
        return cls(spec.point.model, spec.dataset, global_batch_size=spec.global_batch_size, **keys)


class PublishedResult(PublishedPoint, frozen=True):
    """One row of a file of published results: a point, its training, and a single run of it."""

    cloud: str
    dataset: str
    optimizer: str
    learning_rate: Finite
    epochs: int
    global_batch_size: int
    execution_time_s: Positive
    loss: Finite
    accuracy: Finite
    source: str

    @property
    def point(self) -> PublishedPoint:
        return PublishedPoint(**{axis: getattr(self, axis) for axis in POINT_COLUMNS})

    @property
    def training(self) -> Training:
        names = ("model", "dataset", "optimizer", "learning_rate", "epochs", _BATCH)
        return Training(*(getattr(self, name) for name in names))


POINT_COLUMNS = PublishedPoint.__struct_fields__
COLUMNS = PublishedResult.__struct_fields__


def read(path: Path | str | None) -> list[PublishedResult]:
    """Read the published results from a CSV file; [] without a file.

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
    if missing := [name for name in COLUMNS if name not in names]:
        raise ConfigError(f"{path}: columns {', '.join(missing)} are missing")
    results: dict[PublishedPoint, PublishedResult] = {}
    for where, line in lines:
        try:
            values = {column: line[column] or "" for column in COLUMNS}
            result = msgspec.convert(values, PublishedResult, strict=False)
        except msgspec.ValidationError as error:
            column = str(error).rpartition("$.")[2].rstrip("`")
            allowed = f"a number{' above 0' * (column == 'execution_time_s')}"
            said = f"{where}: {column}: {line[column]!r} is not allowed; allowed: {allowed}"
            raise ConfigError(said) from None
        if result.point in results:
            point = ", ".join(f"{axis} {getattr(result, axis)}" for axis in POINT_COLUMNS)
            said = f"{where}: {point}: an earlier line has the configuration already"
            raise ConfigError(said)
        results[result.point] = result
    return list(results.values())


def check(path: str | None, sources: Sources = ()) -> None:
    """Raise ConfigError if the configured file is not there or no file of published results."""
    if path is not None and not Path(path).is_file():
        reason = "it is no file" if Path(path).exists() else f"no such file in {Path.cwd()}"
        raise ConfigError(problem(["published", "path"], path, reason, sources))
    read(path)


def same_training(result: PublishedResult, spec: RunSpec, synchronous: Collection[str]) -> bool:
    """Return whether a run trains like the published result: it gives the same model.

    So do all strategies of `synchronous` with the same global batch.
    """
    strategies = {result.strategy, spec.point.strategy}
    same_updates = len(strategies) == 1 or strategies <= {*synchronous}
    return same_updates and result.training == Training.of(spec)
