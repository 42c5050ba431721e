"""Checks of recipes and of the blocks that use them: keys that contradict each other.

Everything is checked before a job starts. Functions raise or yield NotAllowed, with the key, its
value and what is allowed.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tfscaling.study import user_code, variants
from tfscaling.study.config_types import (
    AUTO,
    AUTO_STEPS,
    BATCH_SIZE_KEYS,
    CLASSIFIER_METRICS,
    CROSS_ENTROPY,
    DOUBLED_KEY,
    HELD_OUT,
    MPI_STRATEGY,
    POINT_AXES,
    PROGRAM_STRATEGY,
    Block,
    Config,
    Doublings,
    Quality,
    Recipe,
)
from tfscaling.study.config_validation import SEVERAL, NotAllowed, list_allowed_names
from tfscaling.study.registries import Registries, check_name, check_name_or_function
from tfscaling.study.run_spec import DATASET_PLACEHOLDER, PLACEHOLDERS, python_path

#: Most variants of a recipe.
VARIANTS_MAX = 10_000
#: Fewest measured times of steps in a short run.
SHORT_RUN_TIMES_MIN = 20
#: Strategies that train by all-reduce or on one device, for messages.
_ALL_REDUCE = f"single, mirrored, multi_worker_mirrored, {MPI_STRATEGY}"
#: Keys that strategies with parameter servers do not allow → why, for messages.
_NO_SERVERS = {
    "checkpoint_every_epochs": "whose state is not written",
    "checkpoint_every_s": "whose state is not written",
    "stop_after_steps": "whose workers make steps at the same time: none has a separate time",
    "jit_compile": "whose workers fetch variables in each step, which XLA cannot compile",
}
#: Keys that only recipes with a program have.
PROGRAM_KEYS = ("observe", "train_examples", "patterns")
#: Keys of recipes with and without a program.
_COMMON_KEYS = {
    *BATCH_SIZE_KEYS,
    *("dataset", "environment", "epochs", "quality", "compare_resumed", "program", "parameters"),
}
#: Keys that only recipes of the built-in trainer have.
TRAINER_KEYS = [k for k in Recipe.__struct_fields__ if k not in _COMMON_KEYS | {*PROGRAM_KEYS}]
#: Values of `observe` with which a program reports no times of epochs.
WITHOUT_TIMES = ("nothing", "output")
_DEFAULTS = Recipe(epochs=1)
#: Form of a word that names a script: a path without placeholders.
_SCRIPT = re.compile(r"[^{}=]+\.(py|sh)")


def check_recipes(config: Config) -> None:
    """Check that neither keys of a recipe nor two recipes contradict each other.

    Raises:
        NotAllowed: For the first contradiction.
    """
    for name, recipe in config.recipes.items():
        of_program = (_program_problems,) if recipe.program else ()
        rules = (_training_problems, _misplaced_keys, *of_program, _parameter_list_problems)
        for wrong in itertools.chain.from_iterable(rule(recipe) for rule in rules):
            raise wrong.with_prefix("recipes", name)
    _check_qualities(config)


def _error_factory(recipe: Recipe) -> Callable[[str, str], NotAllowed]:
    """Return a function (key, rule) → NotAllowed about this key of the recipe and its value."""
    return lambda key, rule: NotAllowed([key], getattr(recipe, key), rule)


def _training_problems(recipe: Recipe) -> Iterator[NotAllowed]:
    """Yield an error for each contradiction between keys of the training."""
    wrong = _error_factory(recipe)
    sizes = {key: getattr(recipe, key) for key in BATCH_SIZE_KEYS}
    given = {key: size for key, size in sizes.items() if size is not None}
    if len(given) != 1:
        found = f"{' and '.join(given)} are set, perhaps in two files" if given else "no batch size"
        rule = f"{found}; allowed: exactly one of {', '.join(BATCH_SIZE_KEYS)}, others null"
        yield NotAllowed([], SEVERAL, rule)
    if isinstance(size := recipe.per_replica_batch_size, Doublings) and not recipe.doublings:
        yield NotAllowed([DOUBLED_KEY, "to"], size.to, f"allowed: {size.from_} or more")
    if recipe.doublings and DOUBLED_KEY in recipe.parameters:
        yield wrong(DOUBLED_KEY, "allowed: a number, because a parameter has the same name")
    if recipe.warmup_epochs >= recipe.epochs:
        yield wrong("warmup_epochs", f"allowed: less than epochs, {recipe.epochs}")
    if (recipe.evaluation_interval_epochs or 0) > recipe.epochs:
        yield wrong("evaluation_interval_epochs", f"allowed: up to epochs, {recipe.epochs}")
    if recipe.stop_after_steps is not None:
        together = recipe.steps_per_execution
        steps = AUTO_STEPS if recipe.stop_after_steps == AUTO else recipe.stop_after_steps
        if int(steps) < (least := SHORT_RUN_TIMES_MIN * together):
            rule = f"{together} steps are timed together; allowed: {least} or more"
            yield wrong("stop_after_steps", rule)
        for key in ("checkpoint_every_epochs", "checkpoint_every_s"):
            if getattr(recipe, key) is not None:
                rule = "a run with stop_after_steps ends before most checkpoints; allowed: null"
                yield wrong(key, rule)


def _parameter_list_problems(recipe: Recipe) -> Iterator[NotAllowed]:
    """Yield an error for lists of values in a recipe's `parameters` that cannot be variants.

    Each combination of the listed values is a variant of the recipe, and the values are in its
    name.
    """
    lengths = {key: len(values) for key, values in recipe.parameter_axes.items()}
    if (count := math.prod(lengths.values())) > VARIANTS_MAX:
        rule = f"their lists have {count} combinations; allowed: {VARIANTS_MAX}"
        yield NotAllowed(["parameters"], lengths, rule)
    for key, values in recipe.parameter_axes.items():
        if unnameable := [value for value in values if not variants.is_nameable(value)]:
            rule = f"values of a list are part of names; allowed: {variants.NAMEABLE}"
            yield NotAllowed(["parameters", key], unnameable[0], rule)
        if len({variants.variant_name("", {key: value}) for value in values}) < len(values):
            rule = "allowed: each value once, as it is written in names"
            yield NotAllowed(["parameters", key], values, rule)


def _check_qualities(config: Config) -> None:
    """Raise NotAllowed for a quality without direction, or different definitions of one metric."""
    first: dict[str, tuple[str, Quality]] = {}
    # a recipe that no block names may compare a metric in another way
    used = {
        variants.base_recipe(name) for block in config.grid for name in block.axis_values("recipe")
    }
    for name in sorted(config.recipes, key=lambda name: name not in used):
        quality = config.recipes[name].quality
        place = ["recipes", name, "quality"]
        if quality.better is None:
            rule = f"set direction: higher or lower, which the name {quality.metric} does not show"
            raise NotAllowed(place, SEVERAL, rule)
        other_name, other = first.setdefault(quality.metric, (name, quality))
        for field, key in (("better", "direction"), ("unit", "unit"), ("best_value", "best")):
            value, first_value = getattr(quality, field), getattr(other, field)
            if name in used and value != first_value:
                rule = f"recipe {other_name} has {first_value} for the same metric, {other.metric}"
                raise NotAllowed([*place, key], value, rule)


def fill_in_defaults(model: str, recipe: Recipe) -> Recipe:
    """Return the recipe with defaults for loss, optimizer and its settings, where it sets none.

    A custom model may set its own loss and optimizer, which only a rank can determine: they are not
    filled in. A recipe with a program is returned unchanged.

    Args:
        model: Name of the model that the recipe trains.
        recipe: The recipe.
    """
    if recipe.program:
        return recipe
    given = msgspec.structs.replace(  # for a model without loss and optimizer: all have values
        recipe,
        loss="auto",
        optimizer="sgd" if recipe.optimizer == "model" else recipe.optimizer,
        momentum=recipe.momentum or 0.0,
        nesterov=recipe.nesterov or None,
        weight_decay=recipe.weight_decay or None,
    )
    if not user_code.is_reference(model):
        return given
    if recipe.loss == CROSS_ENTROPY:
        return msgspec.structs.replace(given, loss=CROSS_ENTROPY)
    return msgspec.structs.replace(recipe if recipe.optimizer == "model" else given, loss="model")


def check_block(
    config: Config,
    number: int,
    recipe_variants: variants.RecipeVariants,
    registries: Registries,
) -> None:
    """Check the names in a block of the grid, and that its recipes fit its models and strategies.

    Args:
        config: The configuration.
        number: Number of the block in the grid, from 0.
        recipe_variants: The variants of all recipes.
        registries: The models, strategies, datasets and other names that exist.

    Raises:
        NotAllowed: For the first unknown name, or key of a recipe that does not fit.
    """
    block = config.grid[number]
    recipes = {
        name: config.recipes.get(variants.base_recipe(name)) for name in block.axis_values("recipe")
    }
    for name, recipe in recipes.items():
        if recipe and (missing := _missing_environment(config, block, recipe)):
            raise missing.with_prefix("recipes", variants.base_recipe(name))
    with_program = [name for name, recipe in recipes.items() if recipe and recipe.program]
    wrong = None if None in recipes.values() else _block_contradiction(block, with_program)
    if wrong is not None:
        raise wrong.with_prefix("grid", number)
    names: dict[str, Mapping[str, object]] = {
        "platform": config.platforms,
        # with a program any name that the block gives
        "model": dict.fromkeys(block.axis_values("model")) if with_program else registries.models,
        "strategy": registries.strategies,
        "recipe": {**recipe_variants, **dict.fromkeys(itertools.chain(*recipe_variants.values()))},
    }
    for axis, registry in names.items():
        check_axis = check_name_or_function if axis == "model" and not with_program else check_name
        for name in block.axis_values(axis):
            check_axis(["grid", number, axis], name, registry)
        for index, rule in enumerate(block.exclude):
            for name in map(str, rule.axes.get(axis, ())):
                check_axis(["grid", number, "exclude", index, axis], name, registry)
    servers = [
        name for name in block.axis_values("strategy") if registries.strategies[name].coordinated
    ]
    for name in dict.fromkeys(map(variants.base_recipe, block.axis_values("recipe"))):
        recipe = config.recipes[name]
        for model in block.axis_values("model"):
            rules = _model_problems(model, number, recipe, servers, registries)
            for found in _missing_inputs(config, block, recipe) if with_program else rules:
                raise found.with_prefix("recipes", name)
    for index, rule in enumerate(block.exclude):
        if not rule.axes:
            allowed = f"allowed: also values of at least one axis: {', '.join(POINT_AXES)}"
            raise NotAllowed(["grid", number, "exclude", index], msgspec.to_builtins(rule), allowed)


def _block_contradiction(block: Block, with_program: Sequence[str]) -> NotAllowed | None:
    """Return an error if the block's strategy or model contradicts its recipes; None if not.

    Args:
        block: The block.
        with_program: Names of the block's recipes that run a program.
    """
    recipes = block.axis_values("recipe")
    if with_program and len(with_program) < len(recipes):
        others = ", ".join(name for name in recipes if name not in with_program)
        rule = f"{others} names no program; allowed: separate blocks for recipes that name one"
        return NotAllowed(["recipe"], recipes, rule)
    if with_program and block.axis_values("strategy") != (PROGRAM_STRATEGY,):
        rule = f"recipe {with_program[0]} names a program: write strategy: {PROGRAM_STRATEGY}"
        return NotAllowed(["strategy"], SEVERAL, rule)
    if not with_program and PROGRAM_STRATEGY in block.axis_values("strategy"):
        rule = f"recipe {recipes[0]} names no program; allowed: other strategies"
        return NotAllowed(["strategy"], block.strategy, rule)
    if not with_program and block.model is None:
        rule = "allowed: a model; only a block whose recipes name a program may leave it out"
        return NotAllowed(["model"], None, rule)
    return None


def _model_problems(
    model: str, number: int, recipe: Recipe, servers: Sequence[str], registries: Registries
) -> Iterator[NotAllowed]:
    """Yield an error for each key of a recipe that does not fit a model of block `number`.

    Args:
        model: Name of the model.
        number: Number of the block, from 0.
        recipe: The recipe.
        servers: The block's strategies that have parameter servers.
        registries: The models, strategies, datasets and other names that exist.
    """
    is_custom, named = user_code.is_reference(model), f"model {model} of grid[{number}]"
    wrong = _error_factory(recipe)
    if is_custom and recipe.dataset is None:
        yield wrong("dataset", f"{named} needs the name of a dataset")
    metric = recipe.quality.metric
    if not is_custom and metric not in CLASSIFIER_METRICS:
        yield NotAllowed(
            ["quality", "metric"],
            metric,
            f"{named}: {list_allowed_names(CLASSIFIER_METRICS, metric)}",
        )
    asked = fill_in_defaults(model, recipe)
    if asked.optimizer != "model" and asked.learning_rate is None:
        yield wrong("learning_rate", f"optimizer {asked.optimizer} of {named} needs one")
    if asked.nesterov and asked.optimizer == "adam":
        yield wrong("nesterov", "optimizer adam has no such momentum; allowed: false, or sgd")
    if asked.nesterov and asked.optimizer == "sgd" and not asked.momentum:
        yield wrong("nesterov", "allowed: false, or a momentum above 0")
    dataset = registries.dataset_name(model, recipe)
    if mismatch := registries.image_shape_problem(model, dataset):
        yield NotAllowed(["dataset"], dataset, mismatch)
    yield from _argument_problems(recipe, [model, dataset])
    apart = [name for name in servers if not registries.strategies[name].synchronous]
    if apart and recipe.precision == "mixed_float16":
        rule = f"the workers of strategy {apart[0]} would change one loss scale at the same time"
        yield wrong("precision", f"{rule}; allowed: float32, mixed_bfloat16")
    for key, why in _NO_SERVERS.items() if servers else ():
        if getattr(recipe, key) != (default := getattr(_DEFAULTS, key)):
            rule = f"strategy {servers[0]} has parameter servers, {why}"
            yield wrong(key, f"{rule}; allowed: {json.dumps(default)}, or {_ALL_REDUCE}")
    if user_code.is_pipeline(dataset):
        yield from _pipeline_problems(dataset, recipe, servers, registries)
    elif recipe.steps_per_epoch is not None:
        rule = "only of a dataset whose function has an argument `context`; allowed: null"
        yield wrong("steps_per_epoch", rule)


def _pipeline_problems(
    dataset: str, recipe: Recipe, servers: Sequence[str], registries: Registries
) -> Iterator[NotAllowed]:
    """Yield an error for each key of a recipe that a custom input pipeline does not allow.

    Args:
        dataset: Name of the pipeline's function.
        recipe: The recipe.
        servers: The block's strategies that have parameter servers.
        registries: The models, strategies, datasets and other names that exist.
    """
    wrong = _error_factory(recipe)
    names = ", ".join(registries.datasets)
    of_arrays = f"a dataset of arrays ({names}, or a function without `context`)"
    if servers:
        rule = f"strategy {servers[0]} deals out examples by number, which {dataset} lacks"
        yield wrong("dataset", f"{rule}; allowed: {_ALL_REDUCE}, or {of_arrays}")
    if recipe.steps_per_epoch is None:
        unknown = f"the pipeline {dataset} does not report its number of steps"
        what = "give steps_per_epoch, or leave it out"
        if recipe.stop_after_steps is not None:
            yield wrong("stop_after_steps", f"{unknown} per epoch; {what}")
        if recipe.has_schedule:
            key = "warmup_epochs" if recipe.warmup_epochs else "decay"
            yield wrong(key, f"{unknown} per epoch; {what}")
    if recipe.steps_per_execution > 1:
        rule = "allowed: 1, because each step's wait for input is measured"
        yield wrong("steps_per_execution", rule)
    arguments = user_code.declared_arguments(dataset)
    taken = sorted(set(arguments.names if arguments else ()) - set(user_code.PROVIDED))
    fewer = f"`parameters` ({', '.join(taken)})" if taken else "let its function take fewer"
    for key in ("train_examples_max", "test_examples_max", "validation_examples"):
        if getattr(recipe, key) is not None:
            rule = f"the pipeline {dataset} gives its own examples"
            yield wrong(key, f"{rule}; allowed: {fewer}, or {of_arrays}")


def _argument_problems(recipe: Recipe, named: Sequence[str]) -> Iterator[NotAllowed]:
    """Yield an error for each unknown parameter, and for each required argument that is missing.

    Args:
        recipe: The recipe with the parameters.
        named: Names of its model and its dataset, which may be custom functions.
    """
    functions = {
        name: user_code.declared_arguments(name) for name in named if user_code.is_reference(name)
    }
    if recipe.parameters and not functions:
        rule = f"neither model {named[0]} nor dataset {named[-1]} is a function"
        yield NotAllowed(["parameters"], recipe.parameters, rule)
    found = [each for each in functions.values() if each is not None]
    takes_all = len(found) < len(functions) or any(each.takes_all for each in found)
    names = {name for each in found for name in each.names} - set(user_code.PROVIDED)
    for key, value in recipe.parameters.items():
        if key in user_code.PROVIDED or not (takes_all or key in names):
            rule = f"no argument of {' and '.join(functions)} has this name"
            allowed = list_allowed_names(names, key)
            yield NotAllowed(["parameters", key], value, f"{rule}; {allowed}")
    for function in functions:
        yield from _missing_arguments(function, recipe)


def _missing_arguments(function: str, recipe: Recipe) -> Iterator[NotAllowed]:
    """Yield an error for each required argument of a custom function that the recipe lacks."""
    if (arguments := user_code.declared_arguments(function)) is None:
        return
    for key in arguments.required:
        by_name = key in arguments.names
        if not by_name or key not in {*recipe.parameters, *user_code.PROVIDED}:
            why = "has no default: give it here" if by_name else "can be given by place only"
            rule = f"argument {key} of {function} {why}"
            yield NotAllowed(["parameters"], recipe.parameters, rule)


def _misplaced_keys(recipe: Recipe) -> Iterator[NotAllowed]:
    """Yield an error for each key that only recipes with a program may have, or only others."""
    rule = "only a recipe with `program` has this key; allowed: leave it out"
    if recipe.program:
        rule = "the program does not get it; allowed: leave it out, and give it in `program`"
    of_steps = "a program cannot be stopped; allowed: fewer epochs, search.stop_after_epochs"
    for key in TRAINER_KEYS if recipe.program else PROGRAM_KEYS:
        if getattr(recipe, key) != getattr(_DEFAULTS, key):
            yield _error_factory(recipe)(key, of_steps if key == "stop_after_steps" else rule)


def _program_problems(recipe: Recipe) -> Iterator[NotAllowed]:
    """Yield an error for each wrong key of a recipe that runs a program."""
    wrong = _error_factory(recipe)
    words, of_data = recipe.program, [DATASET_PLACEHOLDER] if recipe.dataset else []
    names = [*PLACEHOLDERS, *of_data, *(f"parameters.{key}" for key in recipe.parameters)]
    for number, word in enumerate(words):
        if rule := placeholder_problem(word, names):
            yield NotAllowed(["program", number], word, rule)
    if len(words) == 1 and len(words[0].split()) > 1:
        rule = "no shell reads it; allowed: a list of words, each an item"
        yield NotAllowed(["program", 0], words[0], rule)
    text, dataset = " ".join(words), recipe.dataset
    is_custom = dataset is not None and user_code.is_reference(dataset)
    taken = user_code.select_arguments(dataset, recipe.parameters) if dataset and is_custom else {}
    for key, value in recipe.parameters.items():
        if (named := f"{{parameters.{key}}}") not in text and key not in taken:
            yield NotAllowed(["parameters", key], value, f"no word of `program` names {named}")
    if dataset and (named := f"{{{DATASET_PLACEHOLDER}}}") not in text:
        yield wrong("dataset", f"no word of `program` names {named}, its path")
    if (
        dataset
        and user_code.is_pipeline(dataset)
        and user_code.find_prepare_function(dataset) is None
    ):
        rule = f"a pipeline without `{user_code.PREPARE}({user_code.FOLDER})` has no files"
        yield wrong("dataset", f"{rule}; allowed: leave it out")
    if recipe.patterns and recipe.observe != "output":
        yield wrong("patterns", "allowed: leave it out, or `observe: output`")
    if recipe.observe == "output" and not recipe.patterns:
        yield wrong("patterns", "`observe: output` needs patterns, as {loss: 'loss: (.+)'}")
    for name, pattern in recipe.patterns.items():
        rule = ""
        try:
            if re.compile(pattern).groups != 1:
                rule = "allowed: one group (…), around the number"
        except re.error as error:
            rule = f"no regular expression: {error}"
        if rule:
            yield NotAllowed(["patterns", name], pattern, rule)


def may_report_quality(recipe: Recipe) -> bool:
    """Return whether a run can report the metric by which the recipe is compared."""
    if recipe.observe == "output":
        name = recipe.quality.metric.removeprefix(HELD_OUT)
        return any(pattern.endswith(name) for pattern in recipe.patterns)  # also val_accuracy
    return not recipe.program or recipe.observe != "nothing"


def _may_run_in_images(config: Config, block: Block) -> bool:
    """Return whether ranks of a block may run in a container, whose files are unknown here."""
    platforms = map(config.platforms.get, block.axis_values("platform"))
    return any(platform is not None and platform.container for platform in platforms)


def _missing_environment(config: Config, block: Block, recipe: Recipe) -> NotAllowed | None:
    """Return an error if a recipe's environment has no Python; None otherwise.

    None is also returned if the environment may be in a container's image.

    Args:
        config: The configuration.
        block: A block that uses the recipe.
        recipe: The recipe.
    """
    folder = recipe.environment
    if folder is None or has_executable_python(folder) or _may_run_in_images(config, block):
        return None
    rule = f"there is no program {python_path(folder)}"
    allowed = "a virtual or conda environment, a folder with bin/python"
    return NotAllowed(["environment"], folder, f"{rule}; allowed: {allowed}")


def _missing_inputs(config: Config, block: Block, recipe: Recipe) -> Iterator[NotAllowed]:
    """Yield an error if a program, its script or an argument of its dataset's function is missing.

    A command without a slash is not checked if the platform's `setup` or PATH may provide it.
    Program and script are not checked if they may be in an image.

    Args:
        config: The configuration.
        block: A block that uses the recipe.
        recipe: The recipe with the program.
    """
    command, *words = recipe.program
    in_image = _may_run_in_images(config, block)
    if "{" not in command and not in_image and shutil.which(command) is None:
        platforms = [config.platforms[name] for name in block.axis_values("platform")]
        is_set_up = any(each.setup or "PATH" in each.env for each in platforms)
        if "/" in command or not (is_set_up or recipe.environment):
            rule = f"there is no such program, seen from {Path.cwd()}"
            yield NotAllowed(["program", 0], command, rule)
    script = next((word for word in words if not word.startswith("-")), "")
    is_file = not in_image and _SCRIPT.fullmatch(script) and not {"-m", "-c"} & set(words)
    if is_file and not Path(script).exists():
        rule = f"there is no such file, seen from {Path.cwd()}"
        yield NotAllowed(["program", words.index(script) + 1], script, rule)
    if recipe.dataset is not None and user_code.is_reference(recipe.dataset):
        yield from _missing_arguments(recipe.dataset, recipe)


def why_not_projectable(recipe: Recipe, short_epochs: int | None) -> str:
    """Return why the complete training of a recipe cannot be projected from short runs.

    Args:
        recipe: The recipe, whose `epochs` are the complete training.
        short_epochs: Epochs of the short runs; None for short runs that end after steps.

    Returns:
        The reason; "" if it can be projected, or if `short_epochs` is None.
    """
    if short_epochs is None:
        return ""
    if short_epochs >= recipe.epochs:
        return f"all {recipe.epochs} epochs; allowed: fewer"
    if recipe.program and "epochs" not in placeholders_of(recipe):
        return "its program does not get {epochs}; allowed: a word with it"
    if recipe.program and recipe.observe in WITHOUT_TIMES:
        return f"observe {recipe.observe} has no times of epochs; allowed: fit, events"
    if recipe.writes_checkpoints:
        return "the time of checkpoints is not projected; allowed: none"
    return ""


def placeholders_of(recipe: Recipe) -> set[str]:
    """Return the names of the placeholders in the words of a recipe's `program`."""
    parsed = (string.Formatter().parse(word) for word in recipe.program)
    return {name for parts in parsed for _, name, *_ in parts if name is not None}


def placeholder_problem(word: str, names: Sequence[str]) -> str:
    """Return what is wrong with the placeholders in a word of a command; "" if nothing is.

    Args:
        word: The word, with placeholders in braces.
        names: The placeholders that exist.
    """
    try:
        parts = list(string.Formatter().parse(word))
    except ValueError:
        return "a brace has no partner; allowed: {NAME}, and {{ or }} for a brace itself"
    for _, name, form, conversion in parts:
        if name is not None and (form or conversion):
            return f"allowed: {{{name}}} alone, without a format"
        if name is not None and name not in names:
            unknown = f"unknown placeholder {{{name}}}"
            return f"{unknown}; {list_allowed_names(names, name)}; {{{{ and }}}} are braces"
    return ""


def has_executable_python(environment: str) -> bool:
    """Return whether a folder is an environment with a Python that can be executed."""
    return os.access(python_path(environment), os.X_OK)
