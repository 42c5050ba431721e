"""Recipes whose parameters have lists of values: one recipe for each combination, a variant.

The variant of `wide` with `depth: [18, 50]` and 18 is called `wide+depth=18`: a name of a folder,
as names of recipes are. A comma would not do, by which Snakemake separates the wildcards of a job.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping

import msgspec

from tfscaling.study import user_code
from tfscaling.study.config import ParameterValue, Recipe
from tfscaling.study.run_spec import RunSpec

#: What a text must be to be part of a name.
NAMEABLE = "letters, digits and . _ + -"
_NAMEABLE = re.compile(r"[A-Za-z0-9._+-]+")
#: Characters of a name of prepared data: with `.json` it is the name of a file.
_NAME_MAX = 200


def of(name: str, recipe: Recipe) -> dict[str, Recipe]:
    """The variants by name; without lists the recipe itself.

    Keys are in alphabetical order in the name: another order in the file is the same variant.
    """
    axes = {key: recipe.parameter_axes[key] for key in sorted(recipe.parameter_axes)}
    variants = {}
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        parameters = {**recipe.parameters, **chosen}
        variants[named(name, chosen)] = msgspec.structs.replace(recipe, parameters=parameters)
    return variants


def base(name: str) -> str:
    """The recipe of which a name is a variant: without lists the name itself."""
    return name.partition("+")[0]


def named(name: str, parameters: Mapping[str, ParameterValue]) -> str:
    """`name+key=value+key=value`; numbers, true, false and null as JSON has them."""
    return "+".join([name, *(f"{key}={_text(value)}" for key, value in parameters.items())])


def is_nameable(value: ParameterValue) -> bool:
    """Whether the value can be part of a name."""
    return _NAMEABLE.fullmatch(_text(value)) is not None


def data_of(spec: RunSpec) -> str | None:
    """The name of the prepared data that a run reads; None of a program that has its own."""
    return spec.dataset and data_name(spec.dataset, spec.recipe)


def data_name(dataset: str, recipe: Recipe) -> str:
    """The name of what is prepared of a dataset for a variant.

    Of a function of the user's the parameters that it takes are in the name; values that no file
    can be named by by their checksum. Raises user_code.UserCodeError if there is no such function.
    """
    given = data_parameters(dataset, recipe)
    name = named(dataset, given)
    if len(name) <= _NAME_MAX and all(map(is_nameable, given.values())):
        return name
    checksum = hashlib.sha256(json.dumps(given, separators=(",", ":")).encode()).hexdigest()
    return f"{dataset}+{checksum[:16]}"


def data_parameters(dataset: str, recipe: Recipe) -> dict[str, ParameterValue]:
    """The parameters that the function of a dataset takes, in alphabetical order; else none."""
    if not user_code.is_reference(dataset):
        return {}
    given = user_code.taken(dataset, recipe.constants)
    return {key: given[key] for key in sorted(given)}


def _text(value: ParameterValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
