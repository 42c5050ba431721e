"""The grid: blocks become runs, exclusions with reasons, and an order of starts.

Pure: the registries of models, strategies and datasets are an argument.

Runs start in randomised complete blocks. Each repeat is one block: it runs every configuration once
in a random order before the next repeat begins. Drift (temperature, other users, the hour) then
affects all configurations alike, and a sweep that is cut short has about the same number of runs of
each. Source: G. E. P. Box, J. S. Hunter, W. G. Hunter, "Statistics for Experimenters", Wiley 2005,
chapter 4; T. Hoefler and R. Belli, SC15.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tfscaling.spec import configuration, platforms, recipe_checks, run_spec, variants
from tfscaling.spec.config import (
    MPI_STRATEGY,
    POINT_AXES,
    Block,
    Config,
    Exclusion,
    Platform,
    Recipe,
)
from tfscaling.spec.configuration import ConfigError, RawConfig, Sources, problem
from tfscaling.spec.geometry import Geometry, batch_sizes
from tfscaling.spec.manifest import Excluded, Grid, PlannedRun
from tfscaling.spec.registries import Registries
from tfscaling.spec.run_spec import Point, RunSpec
from tfscaling.spec.searches import Searches


def randomised(runs: Sequence[PlannedRun], seed: int) -> list[PlannedRun]:
    """The runs repeat by repeat, each repeat shuffled; the same `seed` gives the same order.

    The order depends on the runs and the seed only, not on how `runs` are sorted.
    """
    ordered: list[PlannedRun] = []
    for repeat in sorted({run.spec.repeat for run in runs}):
        block = [run for run in runs if run.spec.repeat == repeat]
        block.sort(key=lambda run: run.spec.path)
        random.Random(f"{seed} {repeat}").shuffle(block)
        ordered += block
    return ordered


#: Characters of the values of all axes together: with separators they are the name of the folder of
#: a job's Slurm logs, and names have at most 255 bytes.
NAMES_MAX = 240
#: Runs of a grid: Snakemake plans so many in minutes.
RUNS_MAX = 100_000
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
    recipe_checks.check_recipes(config, sources)
    runs: list[PlannedRun] = []
    block_of: dict[Point, int] = {}
    excluded: list[Excluded] = []
    measured = {name: platform.measured for name, platform in config.platforms.items()}
    recipes = {n: variants.of(n, recipe) for n, recipe in config.recipes.items()}
    searches = Searches(config, sources)
    for number, block in enumerate(config.grid):
        recipe_checks.check_block(config, number, registries, sources)
        _check_exclusions(number, block, [*_points(block, recipes)], sources)
        before = len(runs)
        until, search = block.repeat_until, config.search_of(block)
        first = search.first_runs if search else block.repeats
        repeats = until.repeats_max if until else search.looks[-1] if search else block.repeats
        _check_size(number, block, recipes, (before, repeats), sources)
        for point in _points(block, recipes):
            platform = config.platforms[point.platform]
            recipe = recipes[variants.base(point.recipe)][point.recipe]
            recipe = recipe_checks.filled(point.model, recipe)
            try:
                _check_excluded(point, block.exclude)
                _check_geometry(number, point, platform, sources)
                _check_devices(number, point, platform, recipe, sources)
                _check_exchange(number, point, recipe, registries, sources)
                _check_limits(point.geometry, platform)
                sizes = _sizes(point, recipe, registries)
            except _ImpossibleError as error:
                excluded.append(Excluded(point=point, reason=str(error)))
                continue
            _check_lengths(number, point, config.seed, repeats, sources)
            if (other := block_of.setdefault(point, number)) != number:
                rule = f"grid[{other}] has the point already"
                raise ConfigError(problem(["grid", number], point.axes, rule, sources))
            price = platform.price_usd(point.gpus_per_node)
            if search:
                searches.add(number, search, point, recipe)
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
                    extra_repeat=repeat > first,
                    usd_per_node_hour=price,
                )
                runs.append(run)
        if len(runs) == before:
            raise ConfigError(_nothing_left(number, block, config, excluded, sources))
    searches.check()
    return Grid(tuple(searches.first_runs(runs)), tuple(excluded), searches.planned)


def _check_size(
    number: int,
    block: Block,
    recipes: Mapping[str, Mapping[str, Recipe]],
    runs: tuple[int, int],
    sources: Sources,
) -> None:
    """Refuse a grid beyond RUNS_MAX before it takes all memory.

    `runs` are those of earlier blocks, and of each point of this one.
    """
    before, repeats = runs
    lengths = {axis: len(block.values(axis)) for axis in POINT_AXES}
    lengths["recipe"] = sum(len(recipes.get(name, (name,))) for name in block.values("recipe"))
    if (count := before + math.prod(lengths.values()) * repeats) > RUNS_MAX:
        rule = f"the grid has {count} runs up to this block; allowed: {RUNS_MAX}"
        raise ConfigError(problem(["grid", number], {**lengths, "repeats": repeats}, rule, sources))


def _nothing_left(
    number: int, block: Block, config: Config, excluded: Sequence[Excluded], sources: Sources
) -> str:
    """Of a block without a point to run: which limit its nodes exceed, or else the last reason."""
    nodes = block.values("nodes")
    limits = {name: config.platforms[name].nodes_max for name in block.values("platform")}
    if nodes and min(nodes) > max(limits.values()):
        have = ", ".join(f"platform {name} has nodes_max {most}" for name, most in limits.items())
        rule = f"{have}; allowed: 1 to {max(limits.values())}"
        value = nodes[0] if len(nodes) == 1 else nodes
        return problem(["grid", number, "nodes"], value, rule, sources)
    last = excluded[-1].reason if excluded else "no axis has a value"
    rule = f"the block has no point left to run (last reason: {last})"
    return problem(["grid", number], block.platform, rule, sources)


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
    if recipe.program:  # how much it reads of its data is known to it alone
        return _Sizes(recipe.dataset, replicas, per_replica, total, jobs)
    dataset = registries.dataset(point.model, recipe)
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
    limit, source_of_all = recipe.train_examples_max, f"the training examples of {dataset}"
    if recipe.validation_examples is not None and examples is not None:
        examples = max(0, examples - recipe.validation_examples)
        source_of_all += " less validation_examples"
    if limit is not None and (examples is None or limit < examples):
        available, source = limit, "train_examples_max"
    elif examples is not None:
        available, source = examples, source_of_all
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


def check_times(config: Config, grid: Grid, sources: Sources = ()) -> None:
    """Raise ConfigError where short runs cannot have what the comparison asks for."""
    recipes = {run.spec.point.recipe: run.spec.recipe for run in grid.runs}
    short = [name for name, each in recipes.items() if each.stop_after_steps is not None]
    if config.comparison.time == "time_with_queue_s" and short:
        rule = (
            f"recipe {short[0]} has stop_after_steps, and short jobs wait for less time than whole "
            "ones; allowed: execution_time_s"
        )
        raise ConfigError(problem(["comparison", "time"], config.comparison.time, rule, sources))
    for metric, target in config.comparison.targets.items():
        of_metric = [name for name, each in recipes.items() if each.quality.metric == metric]
        if of_metric and set(of_metric) <= set(short):
            rule = (
                f"all recipes with this quality have stop_after_steps ({', '.join(of_metric)}), "
                "and short runs do not tell when the whole reaches it; allowed: leave it out"
            )
            raise ConfigError(problem(["comparison", "targets", metric], target, rule, sources))


def _check_exclusions(number: int, block: Block, points: Sequence[Point], sources: Sources) -> None:
    """Each exclusion leaves at least one point out; else a value of it is mistyped."""
    for place, rule in enumerate(block.exclude):
        if not any(_is_excluded(point, rule) for point in points):
            reason = "matches no point of the block; allowed: values of its axes"
            path: list[str | int] = ["grid", number, "exclude", place]
            raise ConfigError(problem(path, rule.axes, reason, sources))


def _is_excluded(point: Point, rule: Exclusion) -> bool:
    return all(
        getattr(point, axis) in values
        or (axis == "recipe" and variants.base(point.recipe) in values)
        for axis, values in rule.axes.items()
    )


def _check_excluded(point: Point, exclusions: tuple[Exclusion, ...]) -> None:
    """Raises _ImpossibleError where the grid leaves the point out, or cannot have it."""
    rules = [rule for rule in exclusions if _is_excluded(point, rule)]
    if rules:
        reasons = [rule.reason for rule in rules if isinstance(rule.reason, str)]
        raise _ImpossibleError("; ".join(reasons) or "excluded by the grid")
    if (uneven := point.geometry.uneven_problem()) is not None:
        raise _ImpossibleError(uneven)


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


def _check_exchange(
    number: int, point: Point, recipe: Recipe, registries: Registries, sources: Sources
) -> None:
    """Other strategies would also sum what they exchange in 16 bits."""
    if recipe.gradient_exchange == "float32":
        return
    if not registries.strategies[point.strategy].sums_in_32_bits:
        rule = (
            f"strategy {point.strategy} of grid[{number}] exchanges no gradients in 16 bits that "
            f"it sums in 32; allowed: float32, or strategy {MPI_STRATEGY} or single"
        )
        path: list[str | int] = ["recipes", variants.base(point.recipe), "gradient_exchange"]
        raise ConfigError(problem(path, recipe.gradient_exchange, rule, sources))


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


class Accepted(NamedTuple):
    """What a configuration asks for."""

    config: Config
    grid: Grid


def accept(merged: RawConfig, registries: Registries, sources: Sources = ()) -> Accepted:
    """The merged configuration with its types, and the grid that it expands to.

    `sources` are the files that it was merged from. Raises ConfigError for the first thing that is
    not allowed: one line with file, key, value and what is allowed.
    """
    config = configuration.validate(merged, sources)
    configuration.check_study(config, sources)
    configuration.check_reference(config, sources)
    platforms.check(config.platforms, sources)
    platforms.check_cluster(config, sources)
    configuration.check_names(config, registries, sources)
    expanded = expand(config, registries, sources)
    check_baseline(config, expanded, sources)
    check_times(config, expanded, sources)
    return Accepted(config, expanded)
