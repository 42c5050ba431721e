"""Datasets: what they are, where they come from, how they are checked.

Fetching happens once, on the machine of the workflow; ranks only read the prepared file.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfscaling.datasets import cifar10, fashion_mnist, idx, mnist, synthetic
from tfscaling.files import atomic, strict_json
from tfscaling.records.prepared_data import SHA256
from tfscaling.study import user_code


class DatasetError(RuntimeError):
    """No source gave the genuine data; the message lists each source and what was wrong."""


@dataclass(frozen=True)
class Arrays:
    """Images (examples, height, width[, channels]), integer labels (examples,).

    `scale` brings a pixel of uint8 images to [0, 1]; other images are taken as they are. `sha256`
    is the checksum of the whole prepared arrays, None if the file does not tell.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    scale: float = 1.0 / 255.0
    sha256: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A dataset: `parts` maps each part to the MD5 sum of its published form.

    `sources` are tried in order; each gets the local path of the configuration or None and returns
    part → published form (bytes or a contiguous array), or raises. `decode` turns the parts into
    arrays. `train_examples` is None where it is known only once the data is there.
    """

    description: str
    parts: Mapping[str, str]
    sources: Mapping[str, Callable[[Path | None], Mapping[str, Any]]]
    decode: Callable[[Mapping[str, Any]], dict[str, np.ndarray]]
    train_examples: int | None = None


#: Every dataset, by name.
DATASETS: dict[str, Dataset] = {
    "mnist": Dataset(
        "60,000 + 10,000 grey images of handwritten digits, 28 x 28.",
        mnist.MD5,
        mnist.SOURCES,
        mnist.decode,
        60_000,
    ),
    "fashion_mnist": Dataset(
        "60,000 + 10,000 grey images of clothes, 28 x 28.",
        fashion_mnist.MD5,
        fashion_mnist.SOURCES,
        idx.decode,
        60_000,
    ),
    "cifar10": Dataset(
        "50,000 + 10,000 colour images of ten kinds of things, 32 x 32.",
        cifar10.MD5,
        cifar10.SOURCES,
        cifar10.decode,
        50_000,
    ),
    "synthetic_imagenet": Dataset(
        "1,536 + 128 images of noise in ImageNet's shape, 224 x 224 x 3, with labels of 1,000"
        " classes: for speed, not for accuracy.",
        synthetic.IMAGENET_MD5,
        synthetic.IMAGENET_SOURCES,
        dict,
        synthetic.IMAGENET_EXAMPLES["train"],
    ),
}

#: Training examples of each dataset that has a name: what planning knows of them.
TRAIN_EXAMPLES = {
    name: dataset.train_examples for name, dataset in DATASETS.items() if dataset.train_examples
}


def get(name: str) -> Dataset:
    """The dataset of this name, or of the user's function `package.module:function`."""
    if not user_code.is_reference(name):
        return DATASETS[name]
    source = {"function": lambda _: _own_arrays(name)}
    return Dataset("From a function of the user's.", {}, source, dict)


def _own_arrays(name: str) -> dict[str, np.ndarray]:
    """What the user's function returns, checked; labels become int32."""
    try:
        train, test = user_code.load(name)()
    except Exception:
        traceback.print_exc()  # the way through the user's code is for the log
        raise
    for part, given in (("training", train), ("test", test)):
        if len(given) != 2:
            raise ValueError(
                f"the {part} data has {len(given)} parts; allowed: images and labels, for weights "
                "of examples would not be used"
            )
    (x_train, y_train), (x_test, y_test) = train, test
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    arrays = {part: np.ascontiguousarray(array) for part, array in arrays.items()}
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if images.dtype.kind not in "uif":
            raise ValueError(f"x_{part} has the type {images.dtype}, not of numbers")
        if labels.dtype.kind not in "ui" or labels.size != len(labels):
            raise ValueError(
                f"y_{part} has the type {labels.dtype} and the shape {labels.shape}; it must have "
                f"one whole number for each example"
            )
        if len(images) != len(labels) or not len(labels):
            raise ValueError(f"x_{part} has {len(images)} examples, y_{part} has {len(labels)}")
        if labels.min() < 0:
            raise ValueError(f"y_{part} has the label {labels.min()}; allowed: from 0 on")
        if not np.isfinite(images).all():
            raise ValueError(f"x_{part} has values that are NaN or infinite")
        arrays[f"y_{part}"] = labels.ravel().astype(np.int32)
    return arrays


def fetch(name: str, path: Path | None, output: Path, provenance: Path) -> str:
    """Write the dataset to `output` (.npz) and where it came from to `provenance` (.json).

    The first source whose every part has the published checksum wins. Returns its name; raises
    DatasetError if none does. With a configured `path` only that is used: data that the user chose
    must not be replaced in silence.
    """
    dataset, failures = get(name), []
    sources = dict(dataset.sources)
    sources = (
        {"path": sources["path"]} if path else {k: v for k, v in sources.items() if k != "path"}
    )
    for source, read in sources.items():
        try:
            parts = read(path)
            sums = {part: md5(content) for part, content in parts.items()}
            if wrong := [part for part, sum_ in dataset.parts.items() if sums.get(part) != sum_]:
                raise ValueError(f"MD5 of {', '.join(wrong)} is not that of the published files")
        except Exception as error:
            failures.append(f"{source}: {type(error).__name__}: {error}")
            continue
        arrays = dataset.decode(parts)
        checksum = fingerprint(arrays)
        facts = {
            "dataset": name,
            "source": source,
            "path": str(path) if path else None,
            "md5": sums,
            SHA256: checksum,
            "examples": {part: len(array) for part, array in arrays.items()},
        }
        atomic.write_text(provenance, strict_json.dumps(facts, indent=2) + "\n")
        with atomic.whole(output) as temporary, temporary.open("wb") as opened:
            np.savez(opened, **arrays, **{SHA256: np.array(checksum)})  # type: ignore[arg-type]
        return source
    raise DatasetError(
        f"dataset {name} could not be had from any source:\n  " + "\n  ".join(failures)
    )


def load(path: Path, parameters: Mapping[str, Any]) -> Arrays:
    """The prepared file, cut to the numbers of examples that the recipe asks for."""
    with np.load(path) as stored:
        train, test = parameters["train_examples_max"], parameters["test_examples_max"]
        images = [stored["x_train"][:train], stored["x_test"][:test]]
        is_bytes = [part.dtype == np.uint8 for part in images]
        if any(is_bytes) and not all(is_bytes):
            # one scale is for both parts: the bytes of one are brought to the other's range here
            images = [part / np.float32(255) if part.dtype == np.uint8 else part for part in images]
        return Arrays(
            images[0],
            stored["y_train"][:train],
            images[1],
            stored["y_test"][:test],
            1.0 / 255.0 if all(is_bytes) else 1.0,
            str(stored[SHA256]) if SHA256 in stored.files else None,
        )


def fingerprint(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of arrays with their names, types and shapes: the same wherever they came from."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def md5(content: Any) -> str:
    """The sum by which published files are known; hosts that forbid MD5 for secrets allow it."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
