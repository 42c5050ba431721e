"""The prepared data that the ranks of a run read, identified by a checksum.

`datasets.catalogue` writes the checksum into the prepared file and into the JSON file next to it.
Every rank reports the checksum of the file that it read. So a run whose ranks read other data than
the launcher does not count, and runs on other data are distinguished wherever results are merged. A
pipeline has a checksum of its code and its files, see `pipeline_sha256`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from tfscaling.record import run_record
from tfscaling.record.rank_report import Positive, Sha256
from tfscaling.record.run_record import PreparedData, UserCode
from tfscaling.study import user_code
from tfscaling.study.config_types import Recipe

#: Name of the array with the checksum in the prepared file.
SHA256 = "sha256"


class Examples(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of examples in the arrays of a prepared file."""

    x_train: Positive
    y_train: Positive
    x_test: Positive
    y_test: Positive


class DatasetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON file next to a prepared file: content and origin of the data."""

    dataset: str
    source: str
    path: str | None = None
    sha256: Sha256
    examples: Examples | None
    #: The function that each rank calls for its part of the data; None for prepared arrays.
    pipeline: str | None = None
    user_code: UserCode = {}


class PreparedDataError(RuntimeError):
    """The prepared file is missing, or its JSON file is missing, broken or incomplete."""


def describe_data(dataset_file: Path, recipe: Recipe) -> PreparedData:
    """Return name, checksum and numbers of examples of the data that a run reads, for its record.

    Args:
        dataset_file: The prepared file.
        recipe: The run's recipe, which may limit the numbers of examples.

    Raises:
        PreparedDataError: If the file or its JSON file is missing or broken.
    """
    found = read_facts(dataset_file)
    if found is None or not dataset_file.exists():
        raise PreparedDataError(
            f"{dataset_file} or {dataset_file.stem}.json is missing or incomplete: delete both, "
            "and rule `prepare_dataset` makes them"
        )
    named: dict[str, Any] = {"name": found.dataset, "source": found.source}
    if found.pipeline is not None:
        checksum = pipeline_sha256(found.pipeline, files_folder(dataset_file))
        return PreparedData(**named, sha256=checksum, train_examples=None, test_examples=None)
    assert found.examples is not None, "prepared arrays have examples"
    validation = recipe.validation_examples
    training = found.examples.y_train - (validation or 0)
    held_out = found.examples.y_test if validation is None else validation
    return PreparedData(
        **named,
        sha256=found.sha256,
        train_examples=min(training, recipe.train_examples_max or training),
        test_examples=min(held_out, recipe.test_examples_max or held_out),
        user_code=found.user_code,
    )


def read_facts(dataset_file: Path) -> DatasetFacts | None:
    """Read the JSON file next to a prepared file; None if it is missing, broken or incomplete."""
    try:
        return run_record.read_as(dataset_file.with_suffix(".json"), DatasetFacts)
    except run_record.RecordError:
        return None


def pipeline_sha256(function: str, folder: Path) -> str:
    """Return the SHA-256 of a pipeline: of its code, and of the names and sizes of its files.

    Contents are not read: files may be large. A missing folder counts as one without files.

    Args:
        function: The function `package.module:function` that returns the pipeline.
        folder: The folder of its files.
    """
    digest = hashlib.sha256()
    for name, checksum in sorted(user_code.code_of_functions(function).checksums().items()):
        digest.update(f"{name} {checksum}\n".encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(folder)} {file.stat().st_size}\n".encode())
    return digest.hexdigest()


def files_folder(dataset_file: Path) -> Path:
    """Return the folder for the files that a pipeline's `prepare` writes.

    It is next to the prepared file.
    """
    return dataset_file.with_suffix(".files")


def current_checksum(dataset_file: Path) -> str | None:
    """Return the checksum of the data that a new run reads, from the JSON file next to the data.

    The checksum of a pipeline is computed from its present code and files. The result is None if
    the JSON file is missing or broken, or if the pipeline's code is not installed here.

    Args:
        dataset_file: The prepared file, which is not read.
    """
    found = read_facts(dataset_file)
    if found is None:
        return None
    if found.pipeline is None:
        return found.sha256
    try:
        user_code.check_function(found.pipeline)
    except user_code.UserCodeError:  # code that is not here cannot be compared
        return None
    return pipeline_sha256(found.pipeline, files_folder(dataset_file))


def datasets_folder(runs_dir: Path) -> Path:
    """Return the folder of the prepared datasets, which is next to the folder of all runs."""
    return runs_dir.with_name("datasets")
