"""Recipes and blocks: what their keys can ask for together.

Raises ConfigError with the key and what is allowed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tfscaling.spec import programs, user_code, variants
from tfscaling.spec.config import (
    BATCH_SIZE_KEYS,
    CROSS_ENTROPY,
    MPI_STRATEGY,
    OF_CLASSIFIERS,
    POINT_AXES,
    Block,
    Config,
    Quality,
    Recipe,
)
from tfscaling.spec.configuration import ConfigError, Sources, check_function, known, problem
from tfscaling.spec.registries import Registries

#: Variants that a recipe stands for.
VARIANTS_MAX = 10_000
#: Times of steps that a short run takes, at least.
SHORT_RUN_TIMES_MIN = 20
#: Strategies that train by all-reduce, or need none.
_ALL_REDUCE = f"single, mirrored, multi_worker_mirrored, {MPI_STRATEGY}"


def check_recipes(config: Config, sources: Sources = ()) -> None:
    """Raise ConfigError where a recipe asks for what it cannot, or recipes contradict another."""
    for name, recipe in config.recipes.items():
        sizes = {key: getattr(recipe, key) for key in BATCH_SIZE_KEYS}
        given = {key: size for key, size in sizes.items() if size is not None}
        if len(given) != 1:
            rule = "allowed: exactly one of " + ", ".join(BATCH_SIZE_KEYS)
            raise ConfigError(problem(["recipes", name], given, rule, sources))
        for wrong in programs.problems(recipe):
            at = ["recipes", name, *wrong.path]
            raise ConfigError(problem(at, wrong.value, wrong.allowed, sources))
        if recipe.warmup_epochs >= recipe.epochs:
            rule = f"allowed: less than epochs, {recipe.epochs}"
            where = ["recipes", name, "warmup_epochs"]
            raise ConfigError(problem(where, recipe.warmup_epochs, rule, sources))
        interval = recipe.evaluation_interval_epochs
        if interval is not None and interval > recipe.epochs:
            rule = f"allowed: up to epochs, {recipe.epochs}, or null"
            where = ["recipes", name, "evaluation_interval_epochs"]
            raise ConfigError(problem(where, interval, rule, sources))
        if recipe.gradient_noise_scale and recipe.precision == "mixed_float16":
            where = ["recipes", name, "precision"]
            rule = "gradients are scaled with it; allowed with gradient_noise_scale: others"
            raise ConfigError(problem(where, recipe.precision, rule, sources))
        for key, allowed in _wrong_averaging(recipe):
            where = ["recipes", name, key]
            raise ConfigError(problem(where, getattr(recipe, key), allowed, sources))
        for key, allowed in _wrong_short_run(recipe):
            where = ["recipes", name, key]
            raise ConfigError(problem(where, getattr(recipe, key), allowed, sources))
        lengths = {key: len(values) for key, values in recipe.parameter_axes.items()}
        if (count := math.prod(lengths.values())) > VARIANTS_MAX:
            rule = f"their lists have {count} combinations; allowed: {VARIANTS_MAX}"
            raise ConfigError(problem(["recipes", name, "parameters"], lengths, rule, sources))
        for key, values in recipe.parameter_axes.items():
            path = ["recipes", name, "parameters", key]
            if unnameable := [value for value in values if not variants.is_nameable(value)]:
                rule = f"values of a list are part of names; allowed: {variants.NAMEABLE}"
                raise ConfigError(problem(path, unnameable[0], rule, sources))
            if len({variants.named(name, {key: value}) for value in values}) < len(values):
                rule = "allowed: each value once, as it is written in names"
                raise ConfigError(problem(path, values, rule, sources))
    _check_qualities(config, sources)


def _wrong_averaging(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """(key, what is allowed) of what cannot be where each replica has weights of its own."""
    every, steps = recipe.average_every, recipe.steps_per_execution
    if every is None:
        return
    if every % steps:
        yield "average_every", f"allowed: a multiple of steps_per_execution, {steps}"
    if recipe.gradient_exchange != "float32":
        rule = "no gradients are exchanged with average_every; allowed: float32"
        yield "gradient_exchange", rule
    if recipe.precision == "mixed_float16":
        rule = "replicas would skip different updates with average_every"
        yield "precision", f"{rule}; allowed: float32, mixed_bfloat16"
    if recipe.attribution:
        rule = "most steps have no communication with average_every"
        yield "attribution", f"{rule}; allowed: false"


def _wrong_short_run(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """(key, what is allowed) of what cannot be where the time of the whole is projected."""
    if recipe.stop_after_steps is None:
        return
    least = SHORT_RUN_TIMES_MIN * recipe.steps_timed_together
    if recipe.stop_after_steps < least:
        rule = (
            f"{recipe.steps_timed_together} steps are timed together; allowed: {least} or more, "
            "to tell how their times scatter"
        )
        yield "stop_after_steps", rule
    for key in ("checkpoint_every_epochs", "checkpoint_every_s"):
        if getattr(recipe, key) is not None:
            rule = "a run with stop_after_steps ends before most checkpoints; allowed: null"
            yield key, rule


def _check_qualities(config: Config, sources: Sources) -> None:
    """Each has a direction, and recipes of one metric compare it in the same way."""
    first: dict[str, tuple[str, Quality]] = {}
    # a recipe that no block names may compare a metric in another way
    used = {variants.base(name) for block in config.grid for name in block.values("recipe")}
    for name in sorted(config.recipes, key=lambda name: name not in used):
        quality = config.recipes[name].quality
        place = ["recipes", name, "quality"]
        if quality.better is None:
            rule = f"allowed: higher or lower, which the name {quality.metric} does not tell"
            raise ConfigError(problem([*place, "direction"], quality.direction, rule, sources))
        other_name, other = first.setdefault(quality.metric, (name, quality))
        if name not in used:
            continue
        for key in ("better", "unit", "best_value"):
            if getattr(other, key) != (value := getattr(quality, key)):
                rule = (
                    f"recipe {other_name} has {getattr(other, key)} for the same metric, "
                    f"{quality.metric}"
                )
                key = {"better": "direction", "best_value": "best"}.get(key, key)
                raise ConfigError(problem([*place, key], value, rule, sources))
    for metric, target in config.comparison.targets.items():
        where = ["comparison", "targets", metric]
        if metric not in first:
            rule = f"the quality of no recipe; {known(first, metric)}"
            raise ConfigError(problem(where, target, rule, sources))
        quality = first[metric][1]
        is_fraction = quality.is_accuracy and quality.best_value == 1
        if is_fraction and not 0 < target < 1:
            rule = "allowed: more than 0 and less than 1, a fraction of the examples"
            raise ConfigError(problem(where, target, rule, sources))
        best = quality.best_value
        if best is not None and not (
            target < best if quality.better == "higher" else target > best
        ):
            rule = f"allowed: worse than {best:g}, the best that is possible"
            raise ConfigError(problem(where, target, rule, sources))


def filled(model: str, recipe: Recipe) -> Recipe:
    """The recipe with which a model is trained.

    A user's model may have a loss and an optimizer of its own, which only a rank can know.
    """
    if recipe.program:
        return recipe
    given = recipe.for_classifier()
    if not user_code.is_reference(model):
        return given
    if recipe.loss == CROSS_ENTROPY:
        return msgspec.structs.replace(given, loss=CROSS_ENTROPY)
    return msgspec.structs.replace(recipe if recipe.optimizer == "model" else given, loss="model")


def check_optimizer(name: str, asked: Recipe, sources: Sources) -> None:
    """What the optimizer of a recipe, `filled` for a model, cannot do."""
    path = ["recipes", name, "nesterov"]
    if asked.nesterov and asked.optimizer == "adam":
        rule = "optimizer adam has no such momentum; allowed: false, or sgd"
        raise ConfigError(problem(path, True, rule, sources))
    if asked.nesterov and asked.optimizer == "sgd" and not asked.momentum:
        rule = "allowed: false, or a momentum above 0"
        raise ConfigError(problem(path, True, rule, sources))


class Data(NamedTuple):
    """What a recipe's dataset is for a model, which may have its own."""

    dataset: str
    #: Names of datasets that are arrays.
    arrays: Collection[str]


def check_pipeline(
    name: str, recipe: Recipe, data: Data, coordinated: Sequence[str], sources: Sources
) -> None:
    """What a pipeline's recipe cannot ask for; `coordinated` strategies have parameter servers."""

    def refuse(key: str, reason: str) -> None:
        value = getattr(recipe, key)
        raise ConfigError(problem(["recipes", name, key], value, reason, sources))

    if recipe.attribution and coordinated:
        refuse(
            "attribution",
            f"strategy {coordinated[0]} has parameter servers, without which no step can be made; "
            f"allowed: {_ALL_REDUCE}",
        )
    for key in ("accumulate_steps", "average_every"):
        if getattr(recipe, key) not in (None, 1) and coordinated:
            refuse(
                key,
                f"strategy {coordinated[0]} has parameter servers, with which workers hold no "
                "weights; allowed: leave it out",
            )
    for key in ("checkpoint_every_epochs", "checkpoint_every_s"):
        if getattr(recipe, key) is not None and coordinated:
            refuse(
                key,
                f"strategy {coordinated[0]} has parameter servers, whose state is not written; "
                f"allowed: null, or {_ALL_REDUCE}",
            )
    if recipe.stop_after_steps is not None and coordinated:
        refuse(
            "stop_after_steps",
            f"strategy {coordinated[0]} has parameter servers, whose workers have steps under way "
            f"at the same time: none has a time of its own; allowed: null, or {_ALL_REDUCE}",
        )
    if recipe.gradient_noise_scale and coordinated:
        refuse(
            "gradient_noise_scale",
            f"with strategy {coordinated[0]} no replica has a gradient of its own to compare; "
            "allowed: false",
        )
    if not user_code.is_pipeline(data.dataset):
        if recipe.steps_per_epoch is not None:
            refuse("steps_per_epoch", "only of a dataset whose function has an argument `context`")
        return
    of_arrays = f"a dataset of arrays ({', '.join(data.arrays)}, or a function without `context`)"
    if coordinated:
        refuse(
            "dataset",
            f"strategy {coordinated[0]} deals out examples of arrays by their number, which the "
            f"pipeline {data.dataset} has not; allowed: {_ALL_REDUCE}, or {of_arrays}",
        )
    if recipe.steps_per_epoch is None and recipe.stop_after_steps is not None:
        refuse(
            "stop_after_steps",
            f"the pipeline {data.dataset} does not tell how many steps the whole training has; "
            "give steps_per_epoch, or leave it out",
        )
    if recipe.steps_per_epoch is None and recipe.has_schedule:
        refuse(
            "warmup_epochs" if recipe.warmup_epochs else "decay",
            f"the pipeline {data.dataset} does not tell how many steps an epoch has; give "
            "steps_per_epoch, or leave it out",
        )
    if recipe.gradient_noise_scale:
        refuse("gradient_noise_scale", f"allowed: false, or {of_arrays}")
    if recipe.average_every is not None:
        refuse(
            "average_every",
            f"workers tell each other in every step whether the pipeline {data.dataset} has more; "
            f"allowed: null, or {of_arrays}",
        )
    if recipe.steps_per_execution > 1:
        refuse("steps_per_execution", "allowed: 1, because each step's wait for input is measured")
    arguments = user_code.arguments(data.dataset)
    taken = sorted(set(arguments.names if arguments else ()) - set(user_code.PROVIDED))
    fewer = f"`parameters` ({', '.join(taken)})" if taken else "let its function take fewer"
    for key in ("train_examples_max", "test_examples_max", "validation_examples"):
        if getattr(recipe, key) is not None:
            refuse(
                key,
                f"the pipeline {data.dataset} gives its own examples; allowed: {fewer}, or "
                f"{of_arrays}",
            )


def check_parameters(model: str, dataset: str, name: str, recipe: Recipe, sources: Sources) -> None:
    """Each parameter is taken by a function of the two, and each of these has what it needs."""
    path, given = ["recipes", name, "parameters"], recipe.parameters
    named = (model, dataset)
    functions = {n: user_code.arguments(n) for n in named if user_code.is_reference(n)}
    if given and not functions:
        rule = f"neither model {model} nor dataset {dataset} is a function, which could take it"
        raise ConfigError(problem(path, given, rule, sources))
    told = {name: each for name, each in functions.items() if each is not None}
    takes_all = len(told) < len(functions) or any(each.takes_all for each in told.values())
    names = {each for arguments in told.values() for each in arguments.names}
    names -= set(user_code.PROVIDED)
    for key, value in given.items():
        if key in user_code.PROVIDED or not (takes_all or key in names):
            takers = " and ".join(functions)
            rule = f"no argument of {takers} has this name; {known(names, key)}"
            raise ConfigError(problem([*path, key], value, rule, sources))
    for function in functions:
        check_required(function, name, recipe, sources)


def check_required(function: str, name: str, recipe: Recipe, sources: Sources) -> None:
    """The recipe's parameters give a function all that it has no default for."""
    path, given = ["recipes", name, "parameters"], recipe.parameters
    if (arguments := user_code.arguments(function)) is not None:
        missing = set(arguments.required) - given.keys() - set(user_code.PROVIDED)
        missing |= set(arguments.required) - set(arguments.names)
        for key in (each for each in arguments.required if each in missing):
            by_name = key in arguments.names
            why = "has no default: give it here" if by_name else "can be given by place only"
            rule = f"argument {key} of {function} {why}"
            raise ConfigError(problem(path, given, rule, sources))


def check_block(config: Config, number: int, registries: Registries, sources: Sources = ()) -> None:
    """Raise ConfigError if block `number` names what is not there, or asks for what cannot be."""
    _check_names(config, number, registries, sources)
    block = config.grid[number]
    _check_rules(number, block, sources)
    if block.repeat_until and config.search_of(block):
        allowed = "a search says itself which runs it needs; allowed: null, or `search: null` here"
        where: list[str | int] = ["grid", number, "repeat_until", "relative_interval"]
        value = block.repeat_until.relative_interval
        raise ConfigError(problem(where, value, allowed, sources))


def _check_rules(number: int, block: Block, sources: Sources) -> None:
    for index, rule in enumerate(block.exclude):
        if not rule.axes:
            allowed = f"allowed: also values of at least one axis: {', '.join(POINT_AXES)}"
            raise ConfigError(
                problem(
                    ["grid", number, "exclude", index], {"reason": rule.reason}, allowed, sources
                )
            )
    until = block.repeat_until
    if until is not None and until.repeats_max <= block.repeats:
        allowed = f"allowed: more than repeats, {block.repeats}"
        where: list[str | int] = ["grid", number, "repeat_until", "repeats_max"]
        raise ConfigError(problem(where, until.repeats_max, allowed, sources))


def _check_names(config: Config, number: int, registries: Registries, sources: Sources) -> None:
    block = config.grid[number]
    known_names: dict[str, Mapping[str, object]] = {
        "platform": config.platforms,
        "model": registries.models,
        "strategy": registries.strategies,
        "recipe": {
            key: None
            for name, recipe in config.recipes.items()
            for key in (name, *variants.of(name, recipe))
        },
    }
    names = block.values("recipe")
    recipes = [config.recipes.get(variants.base(name)) for name in names]
    with_program = [
        name
        for name, recipe in zip(names, recipes, strict=True)
        if recipe is not None and recipe.program
    ]
    wrong = programs.block_problem(block, with_program) if None not in recipes else None
    if wrong is not None:
        at = ["grid", number, *wrong.path]
        raise ConfigError(problem(at, wrong.value, wrong.allowed, sources))
    if with_program:  # any name that the block gives
        known_names["model"] = dict.fromkeys(block.values("model"))
    for axis, registry in known_names.items():
        named: list[tuple[list[str | int], str]] = [([axis], name) for name in block.values(axis)]
        for index, rule in enumerate(block.exclude):
            excluded = map(str, rule.axes.get(axis, ()))
            named += [(["exclude", index, axis], name) for name in excluded]
        for path, name in named:
            where = ["grid", number, *path]
            if axis == "model" and not with_program:
                check_function(where, name, registry, sources)
            elif name not in registry:
                raise ConfigError(problem(where, name, known(registry, name), sources))
    if with_program:
        platforms = [config.platforms[name] for name in block.values("platform")]
        for name in dict.fromkeys(map(variants.base, names)):
            recipe = config.recipes[name]
            if missing := programs.missing_file(recipe, platforms):
                where = ["recipes", name, *missing.path]
                raise ConfigError(problem(where, missing.value, missing.allowed, sources))
            if recipe.dataset is not None and user_code.is_reference(recipe.dataset):
                check_required(recipe.dataset, name, recipe, sources)
        return
    asked_for = {name: registries.strategies[name] for name in block.values("strategy")}
    coordinated = [name for name, strategy in asked_for.items() if strategy.coordinated]
    bases = dict.fromkeys(map(variants.base, names))
    for model, recipe in itertools.product(block.values("model"), bases):
        if user_code.is_reference(model) and config.recipes[recipe].dataset is None:
            reason = f"model {model} of grid[{number}] needs the name of a dataset"
            raise ConfigError(problem(["recipes", recipe, "dataset"], None, reason, sources))
        metric = config.recipes[recipe].quality.metric
        if not user_code.is_reference(model) and metric not in OF_CLASSIFIERS:
            reason = f"model {model} of grid[{number}]: {known(OF_CLASSIFIERS, metric)}"
            where = ["recipes", recipe, "quality", "metric"]
            raise ConfigError(problem(where, metric, reason, sources))
        asked = filled(model, config.recipes[recipe])
        if asked.optimizer != "model" and asked.learning_rate is None:
            reason = f"optimizer {asked.optimizer} of model {model} of grid[{number}] needs one"
            raise ConfigError(problem(["recipes", recipe, "learning_rate"], None, reason, sources))
        check_optimizer(recipe, asked, sources)
        dataset = registries.dataset(model, config.recipes[recipe])
        if mismatch := registries.mismatch(model, dataset):
            raise ConfigError(problem(["recipes", recipe, "dataset"], dataset, mismatch, sources))
        check_parameters(model, dataset, recipe, config.recipes[recipe], sources)
        data = Data(dataset, registries.train_examples)
        check_pipeline(recipe, config.recipes[recipe], data, coordinated, sources)
