"""Files of published results: one row with the columns `COLUMNS` for each configuration.

The comparison and the conclusion on published values show them next to the measured results.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from tfscaling.files.outside_text import make_visible
from tfscaling.study.config_types import Platform
from tfscaling.study.config_validation import ConfigError, Sources, format_problem
from tfscaling.study.run_spec import Point, RunSpec

_BATCH = "global_batch_size"
#: Number that is neither NaN nor infinite.
FiniteNumber = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]


class PublishedPoint(msgspec.Struct, frozen=True):
    """The identity of a published configuration: the axes of a `Point` without the recipe."""

    platform: str
    model: str
    strategy: str
    nodes: int
    gpus_per_node: int
    tasks_per_node: str

    @classmethod
    def from_point(cls, point: Point, platforms: Mapping[str, Platform]) -> PublishedPoint:
        """Return the identity that a configuration has in published results.

        Args:
            point: The configuration.
            platforms: Name → platform, whose `published_as` is its name in published results.
        """
        return cls(
            platforms[point.platform].published_as or point.platform,
            point.model,
            point.strategy,
            point.nodes,
            point.gpus_per_node,
            str(point.tasks_per_node),
        )


class Training(NamedTuple):
    """The parameters that determine a trained model; two results are comparable if they are equal.

    Fields with a default are seldom published: published results have the default. Except for
    model, dataset and batch size, the fields are keys of the recipe.
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
    def from_spec(cls, spec: RunSpec) -> Training:
        """Return the training parameters of a run's specification."""
        keys = {name: getattr(spec.recipe, name) for name in cls._fields[2:] if name != _BATCH}
        keys["parameters"] = tuple(sorted(spec.recipe.single_parameters.items()))
        return cls(spec.point.model, spec.dataset, global_batch_size=spec.global_batch_size, **keys)


class PublishedResult(PublishedPoint, frozen=True):
    """One row of a file of published results: configuration, training, and one run's results.

    Attributes:
        cloud: The cloud on which the run was made.
        global_batch_size: Examples per step of all replicas.
        execution_time_s: Time of the run in seconds.
        loss: Loss after the last epoch, on the training data.
        accuracy: Accuracy after the last epoch, as a fraction.
        source: The publication with the result.
    """

    cloud: str
    dataset: str
    optimizer: str
    learning_rate: FiniteNumber
    epochs: int
    global_batch_size: int
    execution_time_s: Positive
    loss: FiniteNumber
    accuracy: FiniteNumber
    source: str

    @property
    def point(self) -> PublishedPoint:
        """The identity of the configuration."""
        return PublishedPoint(**{axis: getattr(self, axis) for axis in POINT_COLUMNS})

    @property
    def training(self) -> Training:
        """The training parameters."""
        names = ("model", "dataset", "optimizer", "learning_rate", "epochs", _BATCH)
        return Training(*(getattr(self, name) for name in names))


POINT_COLUMNS = PublishedPoint.__struct_fields__
COLUMNS = PublishedResult.__struct_fields__


def read_published(path: Path | str | None) -> list[PublishedResult]:
    """Read published results from a CSV file; [] without a file.

    Raises:
        ConfigError: With the file, the line, the column and the value that is wrong.
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
            values = {column: make_visible(line[column] or "") for column in COLUMNS}
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


def check_file(path: str | None, sources: Sources = ()) -> None:
    """Check that the configured file of published results exists and can be read.

    Args:
        path: The file; None if the configuration names none, which is allowed.
        sources: The files of the configuration, for messages.

    Raises:
        ConfigError: The file is missing or wrong.
    """
    if path is not None and not Path(path).is_file():
        reason = "it is no file" if Path(path).exists() else f"no such file in {Path.cwd()}"
        raise ConfigError(format_problem(["published", "path"], path, reason, sources))
    read_published(path)


def trains_same_model(result: PublishedResult, spec: RunSpec, synchronous: Collection[str]) -> bool:
    """Return whether a run is the same training as a published result, so that both are comparable.

    All parameters in `Training` must be equal, and the strategies must be equivalent: equal, or
    both in `synchronous`. Platform, number of nodes and seed may differ.

    Args:
        result: The published result.
        spec: The run's specification.
        synchronous: Strategies that apply the gradients of all workers in one update. With equal
            global batches, all of them train the same model.
    """
    strategies = {result.strategy, spec.point.strategy}
    same_updates = len(strategies) == 1 or strategies <= {*synchronous}
    return same_updates and result.training == Training.from_spec(spec)
