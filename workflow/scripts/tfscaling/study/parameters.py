"""A run's parameters: from the configuration to command-line flags and back.

One dictionary says how a run was made. The same dictionary is the rule's params (so a change reruns
exactly its runs), the flags of train.py and train_rank.py, and the `parameters` of the run record,
whose hash lets `collect` refuse records that were made with other parameters.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from tfscaling.study import schemas as json_schemas
from tfscaling.study.config import AXES, Platform, Recipe
from tfscaling.study.geometry import Geometry
from tfscaling.study.run_spec import parameters_hash as parameters_hash

#: Parameter → its schema.
Schemas = Mapping[str, Mapping[str, Any]]
_INTEGER_AXES = {"nodes", "gpus_per_node", "repeat"}


@functools.cache
def definitions() -> dict[str, dict[str, Any]]:
    """Parameter → its schema: all of a recipe, and what of a platform can change a measurement."""
    recipe, platform = (json_schemas.of(kind)["properties"] for kind in (Recipe, Platform))
    measured = {key: sub for key, sub in platform.items() if sub.get("measured")}
    general = {
        "seed": {"type": "integer", "description": "Seed of weights and of the order of examples."},
        "trainer_version": {"type": "integer", "description": "Version of the trainer's meaning."},
    }
    return {**recipe, **measured, **general}


def recipe_of(parameters: Mapping[str, Any]) -> Recipe:
    """The recipe in flat parameters."""
    return msgspec.convert({key: parameters[key] for key in Recipe.__struct_fields__}, Recipe)


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """`key: found, now expected` for every parameter that differs."""
    keys = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
    return "; ".join(f"{key}: {found.get(key)}, now {expected.get(key)}" for key in keys)


def cpus_per_task(axes: Mapping[str, Any], parameters: Mapping[str, Any]) -> int:
    """CPUs of one rank: the node's, shared evenly by its tasks."""
    cpus: int = parameters["cpus_per_node"] // Geometry.of(axes).tasks_per_node_max
    return cpus


def to_arguments(axes: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[str]:
    """The flags of train.py and train_rank.py for this run; None is left out."""
    words = []
    for key, value in {**axes, **parameters}.items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, Mapping):
            words += [f"{flag}={name}={text}" for name, text in value.items()]
        elif isinstance(value, list):
            words += [f"{flag}={text}" for text in value]
        elif value is not None:
            words.append(f"{flag}={value}")
    return words


def add_arguments(
    parser: argparse.ArgumentParser, axes: Iterable[str] = AXES, schemas: Schemas | None = None
) -> None:
    """Add one flag for each axis and each parameter; a run's unless others are given."""
    group = parser.add_argument_group("axes", "the point of the grid")
    for axis in axes:
        kind: Callable[[str], Any] = int if axis in _INTEGER_AXES else str
        kind = _tasks_per_node if axis == "tasks_per_node" else kind
        group.add_argument("--" + axis.replace("_", "-"), type=kind, required=True, metavar=axis)
    group = parser.add_argument_group("parameters", "how the run is made (config/README.md)")
    for name, schema in (schemas or definitions()).items():
        group.add_argument("--" + name.replace("_", "-"), **_argument(name, schema))


def from_namespace(
    args: argparse.Namespace, axes: Iterable[str] = AXES, schemas: Schemas | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(axes, parameters) from the flags of `add_arguments`, as they were made."""
    values, schemas = vars(args), schemas or definitions()
    parameters = {key: values[key] for key in schemas}
    for key, schema in schemas.items():
        if schema.get("type") == "object":
            parameters[key] = dict(parameters[key] or [])
        elif schema.get("type") == "array":
            parameters[key] = parameters[key] or []
    return {axis: values[axis] for axis in axes}, parameters


def _argument(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    types = schema.get("type", "string")
    types = [types] if isinstance(types, str) else [t for t in types if t != "null"]
    options: dict[str, Any] = {
        "help": schema["description"].replace("%", "%%"),
        "default": schema.get("default"),
        "required": "default" not in schema,
        "metavar": name,
    }
    if types == ["object"]:
        return {**options, "type": _pair, "action": "append", "default": None}
    if types == ["array"]:
        item = int if schema.get("items", {}).get("type") == "integer" else str
        return {**options, "type": item, "action": "append", "default": None}
    if "enum" in schema:
        return {**options, "choices": schema["enum"]}
    return {**options, "type": {"integer": int, "number": float, "string": str}[types[0]]}


def _tasks_per_node(text: str) -> int | str:
    """A number, or uneven numbers such as "2+1"."""
    return int(text) if text.isdecimal() else text


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
