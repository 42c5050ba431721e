"""Datasets: what they are, where they come from, how they are checked. Layer 3 (training).

Fetching happens once, on the machine of the workflow; ranks only read the prepared file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfscaling import mnist


class DatasetError(RuntimeError):
    """No source gave the genuine data; the message lists each source and what was wrong."""


@dataclass(frozen=True)
class Arrays:
    """Images uint8 (examples, height, width[, channels]), labels uint8 (examples,).

    `scale` brings a pixel to [0, 1].
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    scale: float = 1.0 / 255.0


@dataclass(frozen=True)
class Dataset:
    """A dataset: `parts` maps each part to the MD5 sum of its published form.

    `sources` are tried in order; each gets the local path of the configuration or None and returns
    part → bytes of the published form, or raises. `decode` turns the parts into arrays.
    """

    description: str
    parts: Mapping[str, str]
    sources: Mapping[str, Callable[[Path | None], dict[str, bytes]]]
    decode: Callable[[Mapping[str, bytes]], dict[str, np.ndarray]]


#: Every dataset, by name.
DATASETS: dict[str, Dataset] = {
    "mnist": Dataset(
        "60,000 + 10,000 grey images of handwritten digits, 28 x 28.",
        mnist.MD5,
        mnist.SOURCES,
        mnist.decode,
    ),
}


def fetch(name: str, path: Path | None, output: Path, provenance: Path) -> str:
    """Write the dataset to `output` (.npz) and where it came from to `provenance` (.json).

    The first source whose every part has the published checksum wins. Returns its name; raises
    DatasetError if none does. With a configured `path` only that is used: data that the user chose
    must not be replaced in silence.
    """
    dataset, failures = DATASETS[name], []
    sources = dict(dataset.sources)
    sources = (
        {"path": sources["path"]} if path else {k: v for k, v in sources.items() if k != "path"}
    )
    for source, read in sources.items():
        try:
            parts = read(path)
            sums = {part: hashlib.md5(content).hexdigest() for part, content in parts.items()}
            if wrong := [part for part, md5 in dataset.parts.items() if sums.get(part) != md5]:
                raise ValueError(f"MD5 of {', '.join(wrong)} is not that of the published files")
        except Exception as error:
            failures.append(f"{source}: {type(error).__name__}: {error}")
            continue
        arrays = dataset.decode(parts)
        temporary = output.with_suffix(".tmp.npz")
        np.savez(temporary, **arrays)  # type: ignore[arg-type]
        facts = {
            "dataset": name,
            "source": source,
            "path": str(path) if path else None,
            "md5": sums,
            "examples": {part: len(array) for part, array in arrays.items()},
        }
        provenance.write_text(json.dumps(facts, indent=2) + "\n")
        os.replace(temporary, output)
        return source
    raise DatasetError(
        f"dataset {name} could not be had from any source:\n  " + "\n  ".join(failures)
    )


def load(path: Path, parameters: Mapping[str, Any]) -> Arrays:
    """The prepared file, cut to the numbers of examples that the recipe asks for."""
    with np.load(path) as stored:
        train, test = parameters["train_examples_max"], parameters["test_examples_max"]
        return Arrays(
            stored["x_train"][:train],
            stored["y_train"][:train],
            stored["x_test"][:test],
            stored["y_test"][:test],
        )
