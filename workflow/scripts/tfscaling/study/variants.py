"""Variants of recipes, one for each combination of listed parameters, and their names.

The grid expands each recipe to its variants; names of prepared data and pairs of short and complete
runs follow from them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tfscaling.study import user_code
from tfscaling.study.config_types import DOUBLED_KEY, ParameterValue, Quality, Recipe
from tfscaling.study.manifest import PlannedRun
from tfscaling.study.run_spec import Point, RunSpec, value_as_text

#: Name of a recipe → name of a variant → the variant.
RecipeVariants = Mapping[str, Mapping[str, Recipe]]
#: Characters that a text must consist of to be part of a name, in words.
NAMEABLE = "letters, digits and . _ + -"
_NAMEABLE = re.compile(r"[A-Za-z0-9._+-]+")
#: Most characters in the name of prepared data: with `.json` it is the name of a file.
_NAME_MAX = 200


def expand_recipe(name: str, recipe: Recipe) -> dict[str, Recipe]:
    """Return name → recipe for all variants: one for each combination of values on its axes.

    Axes are parameters with a list of values, and a batch size with doublings. A recipe without
    axes is its only variant. A name has the keys in alphabetical order: another order in the file
    gives the same variant.
    """
    given = {
        **recipe.parameter_axes,
        **({DOUBLED_KEY: recipe.doublings} if recipe.doublings else {}),
    }
    axes = {key: given[key] for key in sorted(given)}
    variants = {}
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        own = variant_name(name, chosen)
        size = chosen.pop(DOUBLED_KEY) if recipe.doublings else recipe.per_replica_batch_size
        parameters = {**recipe.parameters, **chosen}
        variants[own] = msgspec.structs.replace(
            recipe, parameters=parameters, per_replica_batch_size=size
        )
    return variants


def variants_by_recipe(recipes: Mapping[str, Recipe]) -> RecipeVariants:
    """Return name of a recipe → name of a variant → the variant, as a recipe."""
    return {name: expand_recipe(name, recipe) for name, recipe in recipes.items()}


def smaller_batch_folders(
    runs: Iterable[RunSpec], doubled: Mapping[str, Recipe]
) -> dict[Point, str]:
    """Return configuration → folder of the same configuration with the next smaller batch size.

    Args:
        runs: The specifications of all runs.
        doubled: Name → recipe, for the recipes whose batch size is an axis of doublings.
    """
    alike: dict[Point, dict[int, Point]] = {}
    for spec in runs:
        point, size = spec.point, spec.per_replica_batch_size
        if base_recipe(point.recipe) in doubled:
            of_all_sizes = point.recipe.replace(f"+{DOUBLED_KEY}={size}", "")
            place = msgspec.structs.replace(point, recipe=of_all_sizes)
            alike.setdefault(place, {})[size] = point
    return {
        larger: point.path
        for sizes in alike.values()
        for point, larger in itertools.pairwise(sizes[size] for size in sorted(sizes))
    }


def base_recipe(name: str) -> str:
    """Return the name of the recipe to which a variant's name belongs."""
    return name.partition("+")[0]


def reference_point(point: Point, revisions: Sequence[str]) -> Point | None:
    """Return the configuration with which the configuration of a revision is compared.

    It has the first revision as its recipe, and is otherwise equal.

    Args:
        point: A configuration.
        revisions: Recipes that are revisions of one training; the first is the reference.

    Returns:
        The configuration of the reference, also for the reference itself; None if the recipe of
        `point` is no revision.
    """
    name = base_recipe(point.recipe)
    if name not in revisions:
        return None
    return msgspec.structs.replace(point, recipe=revisions[0] + point.recipe.removeprefix(name))


def variant_name(name: str, parameters: Mapping[str, ParameterValue]) -> str:
    """Return the name of a variant, `name+key=value+key=value`; values as in JSON."""
    return "+".join([name, *(f"{key}={value_as_text(value)}" for key, value in parameters.items())])


def is_nameable(value: ParameterValue) -> bool:
    """Return whether a value may be part of the name of a variant or a file."""
    return _NAMEABLE.fullmatch(value_as_text(value)) is not None


def data_name_of_run(spec: RunSpec) -> str | None:
    """Return the name of a run's prepared data; None for a program without `dataset`."""
    return spec.dataset and data_name(spec.dataset, spec.recipe)


def data_name(dataset: str, recipe: Recipe) -> str:
    """Return the name of the data that is prepared from a dataset for a variant of a recipe.

    For a custom function, the name includes the parameters that it takes. If the name would be too
    long or have characters that are not allowed, it has a checksum of all parameters instead.

    Raises:
        user_code.UserCodeError: The function does not exist.
    """
    given = data_parameters(dataset, recipe)
    name = variant_name(dataset, given)
    if len(name) <= _NAME_MAX and all(map(is_nameable, given.values())):
        return name
    checksum = hashlib.sha256(json.dumps(given, separators=(",", ":")).encode()).hexdigest()
    return f"{dataset}+{checksum[:16]}"


def data_parameters(dataset: str, recipe: Recipe) -> dict[str, ParameterValue]:
    """Return the parameters that a dataset's function takes; empty for a built-in dataset."""
    if not user_code.is_reference(dataset):
        return {}
    given = user_code.select_arguments(dataset, recipe.single_parameters)
    return {key: given[key] for key in sorted(given)}


def complete_runs_by_point(runs: Iterable[PlannedRun]) -> dict[Point, RunSpec]:
    """Return configuration of short runs → a complete run of the same training.

    Both have the same training and the same configuration except for the recipe's name.
    Configurations without a complete run are omitted.
    """
    first = {run.spec.point: run for run in runs}.values()
    short = [(run.spec.point, _training_key(run)) for run in first if run.is_short]
    complete: dict[bytes, RunSpec] = {}
    for run in first if short else ():
        if not run.is_short:
            complete.setdefault(_training_key(run), run.spec)
    return {point: complete[training] for point, training in short if training in complete}


def _training_key(run: PlannedRun) -> bytes:
    """Return a key that is equal for runs of the same training on the same configuration.

    The key ignores the recipe's name, repeat and seed, keys without an effect on the run, and
    whether the run is short.
    """
    recipe = msgspec.structs.replace(
        run.spec.recipe,
        epochs=run.whole_epochs or run.spec.recipe.epochs,
        stop_after_steps=None,
        quality=Quality(),
        compare_resumed=False,
    )
    point = msgspec.structs.replace(run.spec.point, recipe="")
    trained = msgspec.structs.replace(run.spec, point=point, recipe=recipe, repeat=1, seed=0)
    return msgspec.json.encode(trained, order="deterministic")
