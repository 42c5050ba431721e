"""From grid blocks to runs: products, exclusions with reasons, cross-checks.

Pure: the registries of models, strategies and datasets are an argument.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tfscaling.study import programs, run_spec, user_code, variants
from tfscaling.study.config import (
    BATCH_SIZE_KEYS,
    CROSS_ENTROPY,
    OF_CLASSIFIERS,
    POINT_AXES,
    Block,
    Config,
    Exclusion,
    Platform,
    Quality,
    Recipe,
)
from tfscaling.study.configuration import ConfigError, Sources, check_function, known, problem
from tfscaling.study.geometry import Geometry, batch_sizes
from tfscaling.study.manifest import Excluded, Grid, PlannedRun
from tfscaling.study.registries import Registries
from tfscaling.study.run_spec import Point, RunSpec

#: Characters of the values of all axes together: with separators they are the name of the folder of
#: a job's Slurm logs, and names have at most 255 bytes.
NAMES_MAX = 240
#: The largest seed of NumPy and Keras.
SEED_MAX = 2**32 - 1


class _Sizes(NamedTuple):
    """What follows from a point and its recipe."""

    dataset: str | None
    replicas: int
    per_replica_batch_size: int
    global_batch_size: int
    jobs: dict[str, int]


class _ImpossibleError(Exception):
    """The point cannot be run, and is excluded with this reason."""


def expand(config: Config, registries: Registries, sources: Sources = ()) -> Grid:
    """All runs that the configuration describes.

    Raises ConfigError for unknown names, impossible geometry, duplicate points and blocks that
    leave nothing to run. Points beyond a platform's limits are excluded with the reason, as are
    those whose global batch is larger than the dataset.
    """
    _check_recipes(config, sources)
    runs: list[PlannedRun] = []
    block_of: dict[Point, int] = {}
    excluded: list[Excluded] = []
    measured = {name: platform.measured for name, platform in config.platforms.items()}
    recipes = {n: variants.of(n, recipe) for n, recipe in config.recipes.items()}
    for number, block in enumerate(config.grid):
        _check_names(config, number, registries, sources)
        _check_block(number, block, sources)
        before = len(runs)
        until = block.repeat_until
        repeats = until.repeats_max if until else block.repeats
        for point in _points(block, recipes):
            platform = config.platforms[point.platform]
            recipe = recipes[variants.base(point.recipe)][point.recipe]
            recipe = _recipe_for(point.model, recipe)
            try:
                _check_excluded(point, block.exclude)
                _check_geometry(number, point, platform, sources)
                _check_devices(number, point, platform, recipe, sources)
                _check_limits(point.geometry, platform)
                sizes = _sizes(point, recipe, registries)
            except _ImpossibleError as error:
                excluded.append(Excluded(point=point, reason=str(error)))
                continue
            _check_lengths(number, point, config.seed, repeats, sources)
            if (first := block_of.setdefault(point, number)) != number:
                rule = f"grid[{first}] has the point already"
                raise ConfigError(problem(["grid", number], point.axes, rule, sources))
            price = platform.price_usd(point.gpus_per_node)
            for repeat in range(1, repeats + 1):
                spec = RunSpec(
                    point=point,
                    repeat=repeat,
                    recipe=recipe,
                    measured=measured[point.platform],
                    seed=config.seed + repeat - 1,
                    trainer_version=run_spec.trainer_version(recipe),
                    **sizes._asdict(),
                )
                run = PlannedRun(
                    spec=spec,
                    relative_interval=until.relative_interval if until else None,
                    extra_repeat=repeat > block.repeats,
                    usd_per_node_hour=price,
                )
                runs.append(run)
        if len(runs) == before:
            last = excluded[-1].reason if excluded else "no axis has a value"
            rule = f"the block has no point left to run (last reason: {last})"
            raise ConfigError(problem(["grid", number], block.platform, rule, sources))
    return Grid(tuple(runs), tuple(excluded))


def _recipe_for(model: str, recipe: Recipe) -> Recipe:
    """A user's model may have a loss and an optimizer of its own, which only a rank can know."""
    if recipe.program:
        return recipe
    given = recipe.for_classifier()
    if not user_code.is_reference(model):
        return given
    if recipe.loss == CROSS_ENTROPY:
        return msgspec.structs.replace(given, loss=CROSS_ENTROPY)
    return msgspec.structs.replace(recipe if recipe.optimizer == "model" else given, loss="model")


def _points(block: Block, recipes: Mapping[str, Mapping[str, Recipe]]) -> Iterator[Point]:
    """The name of a recipe stands for all of its variants."""
    chosen = {axis: block.values(axis) for axis in POINT_AXES}
    variants_of = (recipes.get(name, (name,)) for name in chosen["recipe"])
    chosen["recipe"] = tuple(dict.fromkeys(itertools.chain.from_iterable(variants_of)))
    for values in itertools.product(*chosen.values()):
        yield Point(**dict(zip(POINT_AXES, values, strict=True)))


def _sizes(point: Point, recipe: Recipe, registries: Registries) -> _Sizes:
    """Raises _ImpossibleError where the strategy or the batch size do not fit the geometry."""
    geometry, strategy = point.geometry, registries.strategies[point.strategy]
    servers = recipe.parameter_servers
    if (refusal := strategy.refusal(geometry, servers)) is not None:
        raise _ImpossibleError(refusal)
    replicas = strategy.replicas(geometry, servers)
    try:
        per_replica, total = batch_sizes(recipe, geometry, replicas)
    except ValueError as error:
        raise _ImpossibleError(str(error)) from None
    jobs = strategy.jobs(geometry, servers)
    if recipe.program:  # it has its data itself
        return _Sizes(None, replicas, per_replica, total, jobs)
    dataset = recipe.dataset or registries.models[point.model].dataset
    assert dataset is not None, "_check_names refuses a model without a dataset"
    examples = registries.train_examples.get(dataset)
    if (beyond := beyond_dataset(total, dataset, recipe, examples)) is not None:
        raise _ImpossibleError(beyond)
    return _Sizes(dataset, replicas, per_replica, total, jobs)


def beyond_dataset(
    global_batch: int, dataset: str, recipe: Recipe, examples: int | None
) -> str | None:
    """Why a global batch is larger than the examples that it is trained on, or None.

    `examples` is the number of the dataset's training examples, None if it is not known.
    """
    limit = recipe.train_examples_max
    if limit is not None and (examples is None or limit < examples):
        available, source = limit, "train_examples_max"
    elif examples is not None:
        available, source = examples, f"the training examples of {dataset}"
    else:
        return None
    if global_batch <= available:
        return None
    return f"the global batch of {global_batch} examples exceeds {source}, {available}"


def check_baseline(config: Config, grid: Grid, sources: Sources = ()) -> None:
    """Raise ConfigError if no run of the grid is at the baseline that the comparison names.

    The name of a recipe with variants stands for each point's own variant, so that all points must
    be of that recipe.
    """
    path = ["comparison", "baseline"]
    baseline = config.comparison.baseline.axes
    points = {run.spec.point for run in grid.runs}
    recipe = baseline.pop("recipe", None)
    of_recipe = {p for p in points if recipe in (None, p.recipe, variants.base(p.recipe))}
    if not any(all(getattr(p, axis) == v for axis, v in baseline.items()) for p in of_recipe):
        rule = "no run of the grid has these values, so there would be no speed-up"
        raise ConfigError(problem(path, config.comparison.baseline.axes, rule, sources))
    names = sorted({point.recipe for point in of_recipe})
    if len(of_recipe) < len(points) and recipe not in (None, *names):
        rule = f"points of other recipes need the name of a variant: {', '.join(names)}"
        raise ConfigError(problem([*path, "recipe"], recipe, rule, sources))


def _check_excluded(point: Point, exclusions: tuple[Exclusion, ...]) -> None:
    """Raises _ImpossibleError where the grid leaves the point out, or cannot have it."""
    rules = [
        rule
        for rule in exclusions
        if all(
            getattr(point, axis) in values
            or (axis == "recipe" and variants.base(point.recipe) in values)
            for axis, values in rule.axes.items()
        )
    ]
    if rules:
        reasons = [rule.reason for rule in rules if isinstance(rule.reason, str)]
        raise _ImpossibleError("; ".join(reasons) or "excluded by the grid")
    if (uneven := point.geometry.uneven_problem()) is not None:
        raise _ImpossibleError(uneven)


def _check_recipes(config: Config, sources: Sources) -> None:
    for name, recipe in config.recipes.items():
        sizes = {key: getattr(recipe, key) for key in BATCH_SIZE_KEYS}
        given = {key: size for key, size in sizes.items() if size is not None}
        if len(given) != 1:
            rule = "allowed: exactly one of " + ", ".join(BATCH_SIZE_KEYS)
            raise ConfigError(problem(["recipes", name], given, rule, sources))
        for wrong in programs.problems(recipe):
            at = ["recipes", name, *wrong.path]
            raise ConfigError(problem(at, wrong.value, wrong.allowed, sources))
        for key, values in recipe.parameter_axes.items():
            path = ["recipes", name, "parameters", key]
            if unnameable := [value for value in values if not variants.is_nameable(value)]:
                rule = f"values of a list are part of names; allowed: {variants.NAMEABLE}"
                raise ConfigError(problem(path, unnameable[0], rule, sources))
            if len({variants.named(name, {key: value}) for value in values}) < len(values):
                rule = "allowed: each value once, as it is written in names"
                raise ConfigError(problem(path, values, rule, sources))
    _check_qualities(config, sources)


def _check_qualities(config: Config, sources: Sources) -> None:
    """Each has a direction, and recipes of one metric compare it in the same way."""
    first: dict[str, tuple[str, Quality]] = {}
    for name, recipe in config.recipes.items():
        quality = recipe.quality
        place = ["recipes", name, "quality"]
        if quality.better is None:
            rule = f"allowed: higher or lower, which the name {quality.metric} does not tell"
            raise ConfigError(problem([*place, "direction"], quality.direction, rule, sources))
        other_name, other = first.setdefault(quality.metric, (name, quality))
        for key in ("better", "unit"):
            if getattr(other, key) != (value := getattr(quality, key)):
                rule = (
                    f"recipe {other_name} has {getattr(other, key)} for the same metric, "
                    f"{quality.metric}"
                )
                key = {"better": "direction"}.get(key, key)
                raise ConfigError(problem([*place, key], value, rule, sources))
    for metric, target in config.comparison.targets.items():
        where = ["comparison", "targets", metric]
        if metric not in first:
            rule = f"the quality of no recipe; {known(first, metric)}"
            raise ConfigError(problem(where, target, rule, sources))
        if first[metric][1].is_accuracy and not 0 < target < 1:
            rule = "allowed: more than 0 and less than 1, a fraction of the examples"
            raise ConfigError(problem(where, target, rule, sources))


def _check_block(number: int, block: Block, sources: Sources) -> None:
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
        return
    for model, recipe in itertools.product(block.values("model"), map(variants.base, names)):
        if user_code.is_reference(model) and config.recipes[recipe].dataset is None:
            reason = f"model {model} of grid[{number}] needs the name of a dataset"
            raise ConfigError(problem(["recipes", recipe, "dataset"], None, reason, sources))
        metric = config.recipes[recipe].quality.metric
        if not user_code.is_reference(model) and metric not in OF_CLASSIFIERS:
            reason = f"model {model} of grid[{number}]: {known(OF_CLASSIFIERS, metric)}"
            where = ["recipes", recipe, "quality", "metric"]
            raise ConfigError(problem(where, metric, reason, sources))
        asked = _recipe_for(model, config.recipes[recipe])
        if asked.optimizer != "model" and asked.learning_rate is None:
            reason = f"optimizer {asked.optimizer} of model {model} of grid[{number}] needs one"
            raise ConfigError(problem(["recipes", recipe, "learning_rate"], None, reason, sources))
        _check_parameters(model, recipe, config.recipes[recipe], sources)
    coordinated = [n for n in block.values("strategy") if registries.strategies[n].coordinated]
    for name in dict.fromkeys(map(variants.base, names)):
        _check_pipeline(name, config.recipes[name], coordinated, sources)


def _check_pipeline(
    name: str, recipe: Recipe, coordinated: Sequence[str], sources: Sources
) -> None:
    """What a pipeline's recipe cannot ask for; `coordinated` strategies have parameter servers."""

    def refuse(key: str, reason: str) -> None:
        value = getattr(recipe, key)
        raise ConfigError(problem(["recipes", name, key], value, reason, sources))

    if recipe.attribution and coordinated:
        refuse(
            "attribution",
            f"strategy {coordinated[0]} has parameter servers, without which no step can be made; "
            "allowed: single, mirrored, multi_worker_mirrored",
        )
    if recipe.dataset is None or not user_code.is_pipeline(recipe.dataset):
        if recipe.steps_per_epoch is not None:
            refuse("steps_per_epoch", "only of a dataset whose function has an argument `context`")
        return
    if coordinated:
        refuse(
            "dataset",
            f"strategy {coordinated[0]} deals out examples of arrays by their number, which a "
            "pipeline has not; allowed: single, mirrored, multi_worker_mirrored, or a function "
            "without the argument `context`",
        )
    if recipe.steps_per_execution > 1:
        refuse("steps_per_execution", "allowed: 1, because each step's wait for input is measured")
    for key in ("train_examples_max", "test_examples_max"):
        if getattr(recipe, key) is not None:
            refuse(key, "a pipeline gives its own examples; let its function take fewer")


def _check_parameters(model: str, name: str, recipe: Recipe, sources: Sources) -> None:
    """Each parameter is taken by a function of the user's, and each of these has what it needs."""
    path, given = ["recipes", name, "parameters"], recipe.parameters
    named = (each for each in (model, recipe.dataset) if each is not None)
    functions = {n: user_code.arguments(n) for n in named if user_code.is_reference(n)}
    if given and not functions:
        rule = f"neither model {model} nor its dataset is a function of yours, which could take it"
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
    for function, arguments in told.items():
        missing = set(arguments.required) - given.keys() - set(user_code.PROVIDED)
        missing |= set(arguments.required) - set(arguments.names)
        for key in (each for each in arguments.required if each in missing):
            by_name = key in arguments.names
            why = "has no default: give it here" if by_name else "can be given by place only"
            rule = f"argument {key} of {function} {why}"
            raise ConfigError(problem(path, given, rule, sources))


def _check_geometry(number: int, point: Point, platform: Platform, sources: Sources) -> None:
    """Geometry that no cluster could give is an error; a limit that could be raised is not."""
    geometry, name = point.geometry, point.platform
    if geometry.gpus_per_node > platform.gpus_per_node_max:
        key = "gpus_per_node"
        limit = f"gpus_per_node_max {platform.gpus_per_node_max}"
        rule = f"platform {name} has {limit}; use another block or `exclude`"
    elif geometry.tasks_per_node_max > platform.cpus_per_node:
        key = "tasks_per_node"
        rule = f"platform {name} has cpus_per_node {platform.cpus_per_node}"
    elif geometry.gpus_per_node % geometry.tasks_per_node_max:
        key = "gpus_per_node"
        rule = f"allowed: a multiple of tasks_per_node {geometry.tasks_per_node}"
    else:
        return
    raise ConfigError(problem(["grid", number, key], getattr(point, key), rule, sources))


def _check_devices(
    number: int, point: Point, platform: Platform, recipe: Recipe, sources: Sources
) -> None:
    """Only the workflow's own trainer can split a CPU into devices."""
    if recipe.program and point.gpus_per_node and platform.devices == "logical":
        rule = f"platform {point.platform} has logical devices, which no program gets; allowed: 0"
        where: list[str | int] = ["grid", number, "gpus_per_node"]
        raise ConfigError(problem(where, point.gpus_per_node, rule, sources))


def _check_limits(geometry: Geometry, platform: Platform) -> None:
    """Raises _ImpossibleError beyond the limits of the platform."""
    if geometry.nodes > platform.nodes_max:
        raise _ImpossibleError(f"{geometry.nodes} nodes exceed nodes_max {platform.nodes_max}")
    if platform.gpus_max is not None and geometry.gpus > platform.gpus_max:
        reason = f"{geometry.gpus} GPUs exceed the quota gpus_max {platform.gpus_max}"
        raise _ImpossibleError(reason)


def _check_lengths(number: int, point: Point, seed: int, repeats: int, sources: Sources) -> None:
    """The names of a run become one folder's name, and its seed one of NumPy's and Keras's."""
    joined = "_".join([*map(str, point.axes.values()), str(repeats)])
    if len(joined) > NAMES_MAX:
        reason = f"names and values of this point's axes have {len(joined)} characters in all"
        allowed = f"{reason}; allowed: {NAMES_MAX}, because a folder is named by them"
        raise ConfigError(problem(["grid", number], point.axes, allowed, sources))
    if seed + repeats - 1 > SEED_MAX:
        allowed = f"repeat k trains with seed + k - 1; allowed: {SEED_MAX - repeats + 1} or less"
        raise ConfigError(problem(["seed"], seed, f"{allowed} with {repeats} repeats", sources))
