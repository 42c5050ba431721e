"""Prepared arrays in one .npz file, as every dataset is kept here and as some are published.

A part of a dataset (`x_train`) is an array, or a dictionary or tuple of arrays: several inputs or
outputs. The file has one array of each: `x_train`, `x_train.left` or `x_train[0]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: The arrays of every dataset: images and labels, for training and for the test.
NAMES = ("x_train", "y_train", "x_test", "y_test")
#: An array, or several of them by name or in order.
Nest = np.ndarray | dict[str, np.ndarray] | tuple[np.ndarray, ...]


def read(path: Path) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test and y_test; KeyError if one is missing."""
    with np.load(path) as stored:
        return {name: stored[name] for name in NAMES}


def named(part: str, given: Any) -> dict[str, np.ndarray]:
    """Name in the file → array, for what a user gives as this part."""
    if isinstance(given, Mapping):
        arrays = {f"{part}.{key}": array for key, array in given.items()}
    elif isinstance(given, tuple):
        arrays = {f"{part}[{index}]": array for index, array in enumerate(given)}
    else:
        arrays = {part: given}
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def with_tuples(given: Sequence[Any]) -> list[Any]:
    """Inputs, answers and weights, with a tuple for each list of several arrays, as in `fit`.

    Such a list has fewer arrays than examples, and each array as many examples as the other parts;
    any other list is one array, an item for each example.
    """
    if not any(map(_has_arrays, given)):
        return list(given)
    examples = {len(array) for part in given for array in _arrays(part)}

    def is_several(part: Any) -> bool:
        return _has_arrays(part) and len(examples) == 1 and len(part) < max(examples)

    return [tuple(part) if is_several(part) else part for part in given]


def _has_arrays(part: Any) -> bool:
    is_list = isinstance(part, list) and bool(part)
    return is_list and all(getattr(item, "ndim", 0) for item in part)


def _arrays(part: Any) -> list[Any]:
    if isinstance(part, Mapping):
        return list(part.values())
    return list(part) if isinstance(part, tuple) or _has_arrays(part) else [part]


def nested(part: str, arrays: Mapping[str, np.ndarray]) -> Nest:
    """The part as the user gave it, of a file's arrays. Raises KeyError if there is none."""
    if part in arrays:
        return arrays[part]
    by_name = {
        name.removeprefix(f"{part}."): array
        for name, array in arrays.items()
        if name.startswith(f"{part}.")
    }
    if by_name:
        return by_name
    in_order = [name for name in arrays if name.startswith(f"{part}[")]
    return tuple(arrays[f"{part}[{index}]"] for index in range(max(1, len(in_order))))


def first(nest: Nest) -> np.ndarray:
    """The first array of a part."""
    if isinstance(nest, dict):
        return next(iter(nest.values()))
    return nest[0] if isinstance(nest, tuple) else nest


def examples(part: str, arrays: Mapping[str, np.ndarray]) -> int:
    """How many examples the part has."""
    return len(first(nested(part, arrays)))
