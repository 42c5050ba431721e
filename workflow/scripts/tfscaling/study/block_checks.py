"""Blocks of the grid: names that must exist, and recipes that fit the models beside them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from tfscaling.study import programs, recipe_checks, user_code, variants
from tfscaling.study.config import OF_CLASSIFIERS, POINT_AXES, Block, Config
from tfscaling.study.configuration import ConfigError, Sources, check_function, known, problem
from tfscaling.study.registries import Registries


def check(config: Config, number: int, registries: Registries, sources: Sources = ()) -> None:
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
                recipe_checks.check_required(recipe.dataset, name, recipe, sources)
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
        asked = recipe_checks.filled(model, config.recipes[recipe])
        if asked.optimizer != "model" and asked.learning_rate is None:
            reason = f"optimizer {asked.optimizer} of model {model} of grid[{number}] needs one"
            raise ConfigError(problem(["recipes", recipe, "learning_rate"], None, reason, sources))
        recipe_checks.check_optimizer(recipe, asked, sources)
        dataset = registries.dataset(model, config.recipes[recipe])
        if mismatch := registries.mismatch(model, dataset):
            raise ConfigError(problem(["recipes", recipe, "dataset"], dataset, mismatch, sources))
        recipe_checks.check_parameters(model, dataset, recipe, config.recipes[recipe], sources)
        data = recipe_checks.Data(dataset, registries.train_examples)
        recipe_checks.check_pipeline(recipe, config.recipes[recipe], data, coordinated, sources)
