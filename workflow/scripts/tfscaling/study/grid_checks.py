"""Checks of the grid's blocks before they are expanded, and of the resulting configurations.

Functions raise NotAllowed with the key, its value and what is allowed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from msgspec.structs import replace

from tfscaling.study import grid, recipes, variants
from tfscaling.study.config_types import (
    COMPARED_RUNS_MIN,
    DOUBLED_KEY,
    LIMITED_RUNS_MIN,
    POINT_AXES,
    SHORT_RUNS_MAX,
    Block,
    Config,
    Platform,
    Recipe,
    Search,
)
from tfscaling.study.config_validation import SEVERAL, NotAllowed, list_allowed_names
from tfscaling.study.grid import Candidate
from tfscaling.study.registries import Registries
from tfscaling.study.run_spec import Point

#: Most characters of all axes' values together. With separators and the hash of the parameters they
#: name the folder of a job's Slurm logs, and names have at most 255 bytes.
NAMES_MAX = 238
#: Most runs of a grid, and most configurations, excluded ones included: Snakemake plans this many
#: in minutes.
RUNS_MAX = 100_000
#: The largest seed of NumPy and Keras.
SEED_MAX = 2**32 - 1


def check_blocks(
    config: Config, recipe_variants: variants.RecipeVariants, registries: Registries
) -> None:
    """Check the blocks of the grid before they are expanded.

    Args:
        config: The configuration, whose recipes are checked already.
        recipe_variants: The variants of all recipes.
        registries: The models, strategies, datasets and other names that exist.

    Raises:
        NotAllowed: For unknown names, impossible recipes and short runs, too many configurations,
            an entry of `exclude` without a match, and nodes that have too few CPUs or GPUs.
    """
    count = 0
    for number, block in enumerate(config.grid):
        recipes.check_block(config, number, recipe_variants, registries)
        search = config.search_of(block)
        if search and search.short_run_keys:
            _check_short_runs(config, number, search, recipe_variants, registries)
        count += _count_configurations(block, recipe_variants)
        _check_size(number, count, "configurations (with excluded ones)")
        points = [*grid.expand_block(block, recipe_variants)]
        for index, entry in enumerate(block.exclude):
            if not any(
                grid.matches_exclusion(point, entry) for point in points
            ):  # a value is mistyped
                reason = "matches no configuration of the block; allowed: values of its axes"
                raise NotAllowed(["grid", number, "exclude", index], entry.axes, reason)
        left = [point for point in points if not grid.exclusion_reason(point, block.exclude)]
        for point in left:
            recipe = recipe_variants[variants.base_recipe(point.recipe)][point.recipe]
            _check_devices(number, point, config.platforms[point.platform], recipe)
            if block.explain and (rule := _why_not_explained(point, recipe)):
                rule = f"recipe {point.recipe}: {rule}"
                raise NotAllowed(["grid", number, "explain"], block.explain, rule)


def _why_not_explained(point: Point, recipe: Recipe) -> str:
    """Return why `explain` cannot add a run on one replica for a configuration; "" if it can.

    Args:
        point: The configuration.
        recipe: Its recipe.
    """
    if not recipe.program:
        return "the built-in trainer measures the parts of its steps; allowed: false"
    if recipe.observe in recipes.WITHOUT_TIMES:
        return f"observe {recipe.observe} has no times of steps; allowed: fit, events"
    if not point.gpus_per_node and point.geometry.tasks_per_node_max > 1:
        rule = "tasks without GPUs share the CPUs of a node, one alone has them all"
        return f"{rule}; allowed: tasks_per_node 1"
    batch = {"per_replica_batch_size", "global_batch_size"}
    if recipe.per_replica_batch_size is None and not batch & recipes.placeholders_of(recipe):
        rule = "its program does not get the batch, so one replica has other work"
        return f"{rule}; allowed: a word with {{per_replica_batch_size}}"
    return ""


def check_revisions(config: Config) -> None:
    """Check that the revisions of `compare_revisions` can be compared with each other.

    Raises:
        NotAllowed: If a revision is no recipe, no block has the revisions, or a block has only
            some of them; if a block with revisions has a search or too few repeats; if
            `compare_with` is set as well.
    """
    revisions = config.compare_revisions
    if revisions is None:
        return
    for place, name in enumerate(revisions):
        if name not in config.recipes:
            rule = list_allowed_names(config.recipes, name)
            raise NotAllowed(["compare_revisions", place], name, rule)
    if config.compare_with:
        rule = "compare_revisions has a reference already; allowed: one of the two keys"
        raise NotAllowed(["compare_with"], config.compare_with, rule)
    with_revisions = 0
    for number, block in enumerate(config.grid):
        names = {variants.base_recipe(name) for name in block.axis_values("recipe")}
        missing = [name for name in revisions if name not in names]
        if len(missing) == len(revisions):
            continue
        with_revisions += 1
        if missing:
            rule = f"compare_revisions has {', '.join(missing)}, too: a block has all or none"
            raise NotAllowed(["grid", number, "recipe"], block.recipe, rule)
        if config.search_of(block):
            rule = "a search ends runs of one revision alone; allowed with compare_revisions: null"
            raise _search_error(config, number, "", "a search", rule)
        if block.repeats < COMPARED_RUNS_MIN:
            rule = f"compare_revisions needs {COMPARED_RUNS_MIN} or more, and six are better"
            raise NotAllowed(["grid", number, "repeats"], block.repeats, rule)
    if not with_revisions:
        rule = "no block of the grid has these recipes"
        raise NotAllowed(["compare_revisions"], list(revisions), rule)


def check_configurations(config: Config, candidates: Sequence[Candidate]) -> None:
    """Check the configurations of the expanded grid.

    Raises:
        NotAllowed: For too many runs, duplicates, too long names, too large seeds, blocks without
            runs, and impossible searches.
    """
    _check_number_of_runs(config, candidates)
    block_of: dict[Point, int] = {}
    for candidate in candidates:
        number, point, short = candidate.number, candidate.point, candidate.short
        if (spec := candidate.spec) is None:
            continue
        block = config.grid[number]
        search = config.search_of(block)
        _check_lengths(number, point, config.seed, search.repeats_max if search else block.repeats)
        if short:
            _check_lengths(number, short.point, config.seed, SHORT_RUNS_MAX)
        if block.explain:  # the longest name that an explaining run may have
            keys = {"epochs": candidate.recipe.epochs, DOUBLED_KEY: spec.per_replica_batch_size}
            longest = replace(point, recipe=variants.variant_name(point.recipe, keys))
            _check_lengths(number, longest, config.seed, 1)
        if (other := block_of.setdefault(point, number)) != number:
            rule = f"grid[{other}] has the configuration already"
            raise NotAllowed(["grid", number], point.axes, rule)
    with_runs = set(block_of.values())
    for number, block in enumerate(config.grid):
        if number not in with_runs:
            reasons = [each.reason for each in candidates if each.number == number]
            raise _empty_block_error(number, block, config, reasons)
    for members in grid.candidates_by_search(config, candidates).values():
        _check_search(config, members)


def _count_configurations(block: Block, recipe_variants: variants.RecipeVariants) -> int:
    """Return how many configurations a block has, excluded ones included, without making them."""
    lengths = {axis: len(block.axis_values(axis)) for axis in POINT_AXES}
    lengths["recipe"] = sum(
        len(recipe_variants.get(name, (name,))) for name in block.axis_values("recipe")
    )
    return math.prod(lengths.values())


def _check_number_of_runs(config: Config, candidates: Sequence[Candidate]) -> None:
    """Raise NotAllowed if all configurations together have more runs than RUNS_MAX."""
    count = 0
    for number, members in itertools.groupby(candidates, key=lambda each: each.number):
        search = config.search_of(config.grid[number])
        repeats = search.repeats_max if search else config.grid[number].repeats
        count += sum(
            repeats + (SHORT_RUNS_MAX if each.short else 0) for each in members if each.spec
        )
        _check_size(number, count, "runs")


def _check_size(number: int, count: int, counted: str) -> None:
    """Raise NotAllowed if blocks of the grid have more than RUNS_MAX runs or configurations.

    Args:
        number: Number of the last counted block, from 0; the error names it.
        count: Number of runs or configurations in all blocks up to and including this block.
        counted: What is counted, as the error names it, such as "runs".
    """
    if count > RUNS_MAX:
        rule = f"the grid has {count:,} {counted} up to this block; allowed: {RUNS_MAX:,}"
        raise NotAllowed(["grid", number], SEVERAL, rule)


def _empty_block_error(
    number: int, block: Block, config: Config, reasons: Sequence[str]
) -> NotAllowed:
    """Return the error about a block without runs, with the exceeded limit or the last reason.

    Args:
        number: Number of the block, from 0.
        block: The block.
        config: The configuration.
        reasons: Why each of its configurations is excluded.
    """
    nodes = block.axis_values("nodes")
    limits = {name: config.platforms[name].nodes_max for name in block.axis_values("platform")}
    if nodes and min(nodes) > max(limits.values()):
        have = ", ".join(f"platform {name} has nodes_max {most}" for name, most in limits.items())
        rule = f"{have}; allowed: 1 to {max(limits.values())}"
        return NotAllowed(["grid", number, "nodes"], nodes[0] if len(nodes) == 1 else nodes, rule)
    last = reasons[-1] if reasons else "no axis has a value"
    rule = f"the block has no configuration left to run; the last was left out: {last}"
    return NotAllowed(["grid", number], SEVERAL, rule)


def _check_devices(number: int, point: Point, platform: Platform, recipe: Recipe) -> None:
    """Check that a node of the platform has enough CPUs and GPUs for a configuration.

    Args:
        number: Number of the configuration's block, from 0.
        point: The configuration.
        platform: Its platform.
        recipe: Its recipe.

    Raises:
        NotAllowed: If it has too few; the error names the key and its limit.
    """
    geometry, key, rule = point.geometry, "gpus_per_node", ""
    named = f"platform {point.platform} has"
    if geometry.gpus_per_node > platform.gpus_per_node_max:
        limit = f"gpus_per_node_max {platform.gpus_per_node_max}"
        rule = f"{named} {limit}; use another block or `exclude`"
    elif geometry.tasks_per_node_max > platform.cpus_per_node:
        key = "tasks_per_node"
        rule = f"{named} cpus_per_node {platform.cpus_per_node}"
    elif geometry.gpus_per_node % geometry.tasks_per_node_max:
        rule = f"allowed: a multiple of tasks_per_node {geometry.tasks_per_node}"
    elif recipe.program and point.gpus_per_node and platform.devices == "logical":
        # only the workflow's own trainer can split a CPU into devices
        rule = f"{named} logical devices, which no program gets; allowed: 0"
    if rule:
        raise NotAllowed(["grid", number, key], getattr(point, key), rule)


def _check_lengths(number: int, point: Point, seed: int, repeats: int) -> None:
    """Raise NotAllowed for too long folder names, and for seeds that NumPy or Keras reject.

    Args:
        number: Number of the configuration's block, from 0.
        point: The configuration.
        seed: Seed of its first run.
        repeats: Number of its runs.
    """
    joined = "_".join([*map(str, point.axes.values()), str(repeats)])
    if len(joined) > NAMES_MAX:
        reason = (
            f"names and values of this configuration's axes have {len(joined)} characters in all"
        )
        rule = f"{reason}; allowed: {NAMES_MAX}, because a folder is named by them"
        raise NotAllowed(["grid", number], point.axes, rule)
    if seed + repeats - 1 > SEED_MAX:
        rule = f"repeat k trains with seed + k - 1; allowed: {SEED_MAX - repeats + 1} or less"
        raise NotAllowed(["seed"], seed, f"{rule} with {repeats} repeats")


def _check_search(config: Config, members: Sequence[Candidate]) -> None:
    """Raise NotAllowed if the configurations of one question cannot be searched together.

    Args:
        config: The configuration.
        members: The configurations of the question.
    """
    question, first = config.question, members[0]
    if len(members) < 2:
        rule = "the only configuration of its question; allowed: two or more"
        raise _search_error(config, first.number, "", first.point.axes, rule)
    if config.timings:
        rule = "the times of all runs are in the file of `timings`; allowed: null"
        raise _search_error(config, first.number, "", first.point.axes, rule)
    searches = [config.search_of(config.grid[each.number]) for each in members]
    for candidate, search in zip(members, searches, strict=True):
        number, point = candidate.number, candidate.point
        if search != searches[0]:
            rule = f"grid[{first.number}] searches among configurations of the same "
            rule += "question: the same `search`, best for the whole grid"
            raise _search_error(config, number, "", point.axes, rule)
        price = config.platforms[point.platform].node_price_usd_per_hour(point.gpus_per_node)
        if question.goal.startswith("cost_") and not price:
            rule = f"a search needs a usd_per_node_hour above 0 of platform {point.platform}"
            raise NotAllowed(["question", "goal"], question.goal, rule)
        limits = question.limits_for(question.goal, candidate.recipe.quality.metric)
        may_miss = limits or "_to_target" in question.goal
        if search and may_miss and search.repeats_max < LIMITED_RUNS_MIN:
            rule = "fewer runs do not show whether limits and targets are kept; allowed: "
            rule += f"{LIMITED_RUNS_MIN} to 20"
            raise _search_error(config, number, "repeats_max", search.repeats_max, rule)


def _search_error(config: Config, number: int, key: str, value: object, rule: str) -> NotAllowed:
    """Return an error about a key of a search.

    The error is about the `search` of the block if the block has one, else about the `search` of
    the complete configuration.

    Args:
        config: The configuration.
        number: Number of the block, from 0.
        key: The key of the search; "" for the search itself.
        value: The rejected value.
        rule: What is allowed, in words.
    """
    has_own = isinstance(config.grid[number].search, Search)
    own: list[str | int] = ["grid", number] if has_own else []
    return NotAllowed([*own, "search", *([key] if key else [])], value, rule)


def _check_short_runs(
    config: Config,
    number: int,
    search: Search,
    recipe_variants: variants.RecipeVariants,
    registries: Registries,
) -> None:
    """Raise NotAllowed if a block's recipes cannot have the short runs of its search.

    Args:
        config: The configuration.
        number: Number of the block, from 0.
        search: The search of the block.
        recipe_variants: The variants of all recipes.
        registries: The models, strategies, datasets and other names that exist.
    """
    key = "stop_after_epochs" if search.stop_after_epochs else "stop_after_steps"
    value = getattr(search, key)
    if len(search.short_run_keys) > 1:
        raise _search_error(config, number, key, value, "allowed: no stop_after_steps next to it")
    names = dict.fromkeys(map(variants.base_recipe, config.grid[number].axis_values("recipe")))
    if has_own := [name for name in names if config.recipes[name].stop_after_steps is not None]:
        rule = f"recipe {has_own[0]} has stop_after_steps already; allowed: null in one of the two"
        raise _search_error(config, number, key, value, rule)
    for name in names:
        if rule := recipes.why_not_projectable(config.recipes[name], search.stop_after_epochs):
            raise _search_error(config, number, key, value, f"recipe {name}: {rule}")
    short = {name: replace(config.recipes[name], **search.short_run_keys) for name in names}
    changed = replace(config, recipes={**config.recipes, **short})
    try:
        recipes.check_recipes(changed)
        recipes.check_block(changed, number, recipe_variants, registries)
    except NotAllowed as error:
        where = "" if error.place[-1] == key else f"{error.place[-1]} {error.value}: "
        rule = f"recipe {error.place[1]}: {where}{error.allowed}"
        raise _search_error(config, number, key, value, rule) from None
