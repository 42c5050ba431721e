"""Private attributes of Keras and TensorFlow: which ones, and with which versions."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from builders import SCRIPTS
from tfscaling.train import keras_internals

TRAIN = SCRIPTS / "tfscaling/train"
#: A strategy of TensorFlow's kind is a subclass with private methods.
SUBCLASS = TRAIN / "mpi/strategy.py"
VERSIONS = {"keras": keras.__version__, "tensorflow": tf.__version__}


def model() -> Any:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("adam", "mse")
    made.optimizer.build(made.trainable_variables)
    return made


def functional() -> Any:
    given = keras.Input((2,))
    made = keras.Model(given, keras.layers.Dense(1)(given))
    made.compile("sgd", "mse")
    return made


MADE = {
    "keras.Model": functional,
    "keras.Sequential": model,
    "keras.optimizers.Optimizer": lambda: model().optimizer,
    "keras.optimizers.Adam": lambda: model().optimizer,
}


def owner_of(name: str) -> Any:
    """The object, class or module that a private attribute belongs to."""
    if name in MADE:
        return MADE[name]()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, cls = name.rpartition(".")
        return getattr(importlib.import_module(module), cls)


@pytest.mark.parametrize("name", keras_internals.PRIVATE)
def test_the_attribute_exists(name: str) -> None:
    owner, _, attribute = name.rpartition(".")
    wrong = f"{name} is gone in {VERSIONS}; checked with {keras_internals.CHECKED}"
    assert hasattr(owner_of(owner), attribute), wrong


def test_at_most_twelve_are_used() -> None:
    assert len(keras_internals.PRIVATE) <= 12


def nodes_of(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text()))]


#: Private names that the package defines itself, and documented ones of named tuples.
OWN = {"_fields", "_asdict", "_replace"} | {
    getattr(node, "attr", None) or getattr(node, "name", None) or getattr(node, "id", None)
    for path in TRAIN.rglob("*.py")
    if path != SUBCLASS
    for node in nodes_of(path)
    if isinstance(node, ast.FunctionDef) or isinstance(getattr(node, "ctx", None), ast.Store)
}


def private(path: Path) -> Iterator[str]:
    """Private attributes of other packages, and private modules, that a file uses."""
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute):
            if node.attr.startswith("_") and not node.attr.startswith("__"):
                yield from {node.attr} - OWN
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [getattr(node, "module", None) or "", *(each.name for each in node.names)]
            yield from (n for n in names if n.startswith(("keras.src", "tensorflow.python")))


@pytest.mark.parametrize(
    "path", sorted({*TRAIN.rglob("*.py")} - {SUBCLASS, TRAIN / "keras_internals.py"})
)
def test_no_other_module_uses_any(path: Path) -> None:
    assert [*private(path)] == []


def test_the_list_has_what_the_module_uses() -> None:
    used = {name for name in private(TRAIN / "keras_internals.py") if "." not in name}
    assert used <= {name.rpartition(".")[2] for name in keras_internals.PRIVATE}
