"""The grid: the product of its blocks' axes as runs, what is excluded, and an order of starts.

A pure function of the configuration, which `acceptance` validates, and of the registries of models,
strategies and datasets.

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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from tfscaling.study import recipes, run_spec, variants
from tfscaling.study.config_types import (
    AXES,
    BATCH_SIZE_KEYS,
    DOUBLED_KEY,
    LINE_AXES,
    PER_GPU,
    POINT_AXES,
    SHORT_RUNS_MAX,
    Block,
    Config,
    Exclusion,
    Platform,
    Recipe,
    Search,
)
from tfscaling.study.geometry import resolve_batch_sizes
from tfscaling.study.manifest import (
    ExcludedConfiguration,
    Manifest,
    PlannedRun,
    PlannedSearch,
    SearchedPoint,
)
from tfscaling.study.registries import Registries
from tfscaling.study.run_spec import Point, RunSpec


def path_wildcards(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Return axis → the value that all runs share, or else a wildcard such as `{nodes}`."""
    values = {axis: {str(run.spec.axes[axis]) for run in runs} for axis in AXES}
    return {
        axis: found.pop() if len(found) == 1 else f"{{{axis}}}" for axis, found in values.items()
    }


def randomise_order(
    runs: Sequence[PlannedRun], seed: int, revisions: Sequence[str] = ()
) -> list[PlannedRun]:
    """Return the runs in the order in which they start.

    All first repeats come first, shuffled; then all second repeats, and so on. The order depends on
    the runs and the seed, not on the order of the argument.

    Args:
        runs: The runs.
        seed: Seed of the shuffles.
        revisions: Recipes that are revisions of one training: runs that differ only in the revision
            start one after the other, in a random order.
    """
    ordered: list[PlannedRun] = []
    for repeat in sorted({run.spec.repeat for run in runs}):
        block = [run for run in runs if run.spec.repeat == repeat]
        block.sort(key=lambda run: run.spec.path)
        together: dict[Point, list[PlannedRun]] = {}
        for run in block:
            point = run.spec.point
            together.setdefault(variants.reference_point(point, revisions) or point, []).append(run)
        groups, dice = [*together.values()], random.Random(f"{seed} {repeat}")
        dice.shuffle(groups)
        for group in groups:
            dice.shuffle(group)
            ordered += group
    return ordered


class Candidate(NamedTuple):
    """A configuration of the grid: the first of its runs, or the reason why it has none.

    Attributes:
        number: Number of its block in the configuration's `grid`, from 0.
        point: The values of its axes.
        recipe: Its recipe, with defaults filled in.
        spec: The specification of its first complete run; None if it is excluded.
        short: The specification of its first short run; None unless a search begins with short
            runs.
        reason: Why it is excluded; "" if it has runs.
    """

    number: int
    point: Point
    recipe: Recipe
    spec: RunSpec | None = None
    short: RunSpec | None = None
    reason: str = ""

    @property
    def short_point(self) -> Point | None:
        """The configuration of its short runs; None without short runs."""
        return self.short.point if self.short else None


class _ImpossibleError(Exception):
    """The configuration cannot be run; the message is the reason for its exclusion."""


def make_candidates(
    config: Config, recipe_variants: variants.RecipeVariants, registries: Registries
) -> tuple[Candidate, ...]:
    """Return all configurations of the grid, block by block, excluded ones included.

    A configuration is excluded, with the reason, if it matches an entry of `exclude`, exceeds a
    limit of its platform, or if tasks, strategy or batch size do not fit.

    Args:
        config: The configuration, whose recipes and blocks are checked already.
        recipe_variants: The variants of all recipes.
        registries: The models, strategies, datasets and other names that exist.
    """
    return tuple(
        _make_candidate(number, point, recipe_variants, config, registries)
        for number, block in enumerate(config.grid)
        for point in expand_block(block, recipe_variants)
    )


def _make_candidate(
    number: int,
    point: Point,
    recipe_variants: variants.RecipeVariants,
    config: Config,
    registries: Registries,
) -> Candidate:
    """Return a configuration of the grid with its first runs, or with the reason to exclude it.

    Args:
        number: Number of its block in the grid, from 0.
        point: The configuration.
        recipe_variants: The variants of all recipes.
        config: The configuration of the study.
        registries: The models, strategies, datasets and other names that exist.
    """
    recipe = recipes.fill_in_defaults(
        point.model, recipe_variants[variants.base_recipe(point.recipe)][point.recipe]
    )
    if reason := exclusion_reason(point, config.grid[number].exclude):
        return Candidate(number, point, recipe, reason=reason)
    try:
        platform = config.platforms[point.platform]
        spec = _make_first_run(point, recipe, platform, config.seed, registries)
    except _ImpossibleError as error:
        return Candidate(number, point, recipe, reason=str(error))
    search = config.search_of(config.grid[number])
    short = _make_first_short_run(spec, search) if search and search.short_run_keys else None
    return Candidate(number, point, recipe, spec, short)


def _make_first_short_run(spec: RunSpec, search: Search) -> RunSpec:
    """Return the first short run of a configuration, made from its first complete run."""
    point = replace(
        spec.point, recipe=variants.variant_name(spec.point.recipe, search.short_run_keys)
    )
    return replace(spec, point=point, recipe=replace(spec.recipe, **search.short_run_keys))


def expand_block(block: Block, recipe_variants: variants.RecipeVariants) -> Iterator[Point]:
    """Yield the configurations of a block: the product of its axes, excluded ones included.

    The name of a recipe means all of its variants; `tasks_per_node: gpus` is one task for each GPU,
    or one task on a node without GPUs.
    """
    chosen = {axis: block.axis_values(axis) for axis in POINT_AXES}
    named = (recipe_variants.get(name, (name,)) for name in chosen["recipe"])
    chosen["recipe"] = tuple(dict.fromkeys(itertools.chain.from_iterable(named)))
    points: dict[Point, None] = {}
    for values in itertools.product(*chosen.values()):
        axes = dict(zip(POINT_AXES, values, strict=True))
        if axes["tasks_per_node"] == PER_GPU:
            axes["tasks_per_node"] = max(1, axes["gpus_per_node"])
        points[Point(**axes)] = None
    yield from points


def matches_exclusion(point: Point, entry: Exclusion) -> bool:
    """Return whether a configuration matches all axes that an entry of `exclude` has."""
    return all(
        getattr(point, axis) in values
        or (axis == "recipe" and variants.base_recipe(point.recipe) in values)
        for axis, values in entry.axes.items()
    )


def exclusion_reason(point: Point, entries: Sequence[Exclusion]) -> str:
    """Return why a configuration is excluded before its run is planned; "" if it is not.

    It matches an entry of `exclude`, or Slurm cannot place its uneven tasks.

    Args:
        point: The configuration.
        entries: The block's list `exclude`.
    """
    if matching := [entry for entry in entries if matches_exclusion(point, entry)]:
        reasons = [entry.reason for entry in matching if isinstance(entry.reason, str)]
        return "; ".join(reasons) or "excluded by the grid"
    return point.geometry.placement_problem() or ""


def _make_first_run(
    point: Point, recipe: Recipe, platform: Platform, seed: int, registries: Registries
) -> RunSpec:
    """Return the specification of the first run of a configuration.

    Args:
        point: The configuration.
        recipe: Its recipe, with defaults filled in.
        platform: Its platform.
        seed: Seed of the first run.
        registries: The models, strategies, datasets and other names that exist.

    Raises:
        _ImpossibleError: The configuration exceeds a limit of the platform, or strategy or batch
            size do not fit the geometry.
    """
    geometry = point.geometry
    if point.nodes > platform.nodes_max:
        raise _ImpossibleError(f"{point.nodes} nodes exceed nodes_max {platform.nodes_max}")
    if platform.gpus_max is not None and geometry.gpus > platform.gpus_max:
        raise _ImpossibleError(
            f"{geometry.gpus} GPUs exceed the quota gpus_max {platform.gpus_max}"
        )
    strategy, servers = registries.strategies[point.strategy], recipe.parameter_servers
    if (refusal := strategy.geometry_problem(geometry, servers)) is not None:
        raise _ImpossibleError(refusal)
    replicas = strategy.count_replicas(geometry, servers)
    try:
        per_replica, total = resolve_batch_sizes(recipe, geometry, replicas)
    except ValueError as error:
        raise _ImpossibleError(str(error)) from None
    dataset = recipe.dataset
    if not recipe.program:  # only a program knows how much it reads of its data
        dataset = registries.dataset_name(point.model, recipe)
        known = registries.datasets.get(dataset)
        _check_examples(total, dataset, recipe, known.train_examples if known else None)
    return RunSpec(
        point=point,
        repeat=1,
        recipe=recipe,
        measured=platform.measured_keys,
        dataset=dataset,
        seed=seed,
        trainer_version=run_spec.trainer_version(recipe),
        replicas=replicas,
        jobs=strategy.tasks_by_job(geometry, servers),
        per_replica_batch_size=per_replica,
        global_batch_size=total,
    )


def _check_examples(global_batch: int, dataset: str, recipe: Recipe, examples: int | None) -> None:
    """Raise _ImpossibleError if a global batch has more examples than the training data.

    Args:
        global_batch: Examples per step of all replicas.
        dataset: Name of the dataset, for the message.
        recipe: The recipe, which may limit the examples.
        examples: Number of training examples in the dataset; None if unknown.
    """
    available: dict[str, int] = {}
    if examples is not None:
        held_out, less = recipe.validation_examples or 0, ""
        if recipe.validation_examples is not None:
            less = " less validation_examples"
        available[f"the training examples of {dataset}{less}"] = max(0, examples - held_out)
    if recipe.train_examples_max is not None:
        available["train_examples_max"] = recipe.train_examples_max
    for source, count in sorted(available.items(), key=lambda each: each[1]):
        if global_batch > count:
            rule = f"the global batch of {global_batch} examples exceeds {source}, {count}"
            raise _ImpossibleError(rule)


def make_manifest(
    config: Config, candidates: Sequence[Candidate], registries: Registries
) -> Manifest:
    """Return the manifest with all runs, exclusions and searches of the grid's configurations.

    Args:
        config: The configuration.
        candidates: The configurations of its grid, from `make_candidates`.
        registries: The models, strategies, datasets and other names that exist.
    """
    searches = _plan_searches(config, candidates)
    runs = [run for each in candidates for run in _runs_of_candidate(config, each)]
    doubled = {name: recipe for name, recipe in config.recipes.items() if recipe.doublings}
    smaller, later = (
        variants.smaller_batch_folders((run.spec for run in runs), doubled),
        _postponed_points(searches),
    )
    excluded = [
        ExcludedConfiguration(point=each.point, reason=each.reason)
        for each in candidates
        if each.reason
    ]
    used = [*(each.point for each in candidates if each.spec), *(each.point for each in excluded)]
    shown = {point.platform: config.platforms[point.platform] for point in used}
    return Manifest(
        order_seed=config.seed,
        targets=config.question.targets,
        platforms={name: replace(p, title=p.title or name) for name, p in shown.items()},
        synchronous_strategies=tuple(n for n, s in registries.strategies.items() if s.synchronous),
        runs=tuple(
            replace(
                run,
                smaller=smaller.get(run.spec.point),
                extra_repeat=run.extra_repeat or run.spec.point in later,
            )
            for run in runs
        ),
        explaining=tuple(_explaining_runs(config, candidates, registries)),
        excluded=tuple(excluded),
        searches=searches,
        revisions=config.compare_revisions or (),
    )


def _runs_of_candidate(config: Config, candidate: Candidate) -> Iterator[PlannedRun]:
    """Yield all runs of a configuration, short ones first; nothing if it is excluded.

    With a search, all runs but the first are extra repeats, which are made only if the search needs
    them.
    """
    spec, short, block = candidate.spec, candidate.short, config.grid[candidate.number]
    search = config.search_of(block)
    if spec is None:
        return
    series = [(spec, block.repeats, block.repeats)]  # the first run, all runs, those made at once
    if search:
        series = [(spec, search.repeats_max, 0 if short else 1)]
    if short:
        series.insert(0, (short, SHORT_RUNS_MAX, 1))
    for first, repeats, at_once in series:
        whole_epochs = config.question.epochs_to_project(first.recipe)
        if first is short and search and search.stop_after_epochs:
            whole_epochs = spec.recipe.epochs
        for repeat in range(1, repeats + 1):
            yield _plan_run(
                config,
                replace(first, repeat=repeat, seed=first.seed + repeat - 1),
                extra_repeat=repeat > at_once,
                whole_epochs=whole_epochs,
            )


def _plan_run(config: Config, spec: RunSpec, **facts: Any) -> PlannedRun:
    """Return a planned run with the prices and peak rates of its platform.

    Args:
        config: The configuration.
        spec: The specification of the run.
        **facts: Further fields of `PlannedRun`.
    """
    platform = config.platforms[spec.point.platform]
    return PlannedRun(
        spec=spec,
        usd_per_node_hour=platform.node_price_usd_per_hour(spec.point.gpus_per_node),
        peak_tflops=platform.peak_tflops_for(spec.recipe),
        usd_per_kwh=platform.usd_per_kwh,
        kg_co2_per_kwh=platform.kg_co2_per_kwh,
        **facts,
    )


class ReplicaWork(NamedTuple):
    """The work of one replica in a step, as a key: equal work has equal keys.

    The key `explain` adds one run on a single replica for all configurations with equal work. Its
    step times show which causes reduce the efficiency of these configurations.

    Attributes:
        point: The configuration with one replica alone: one node and task, on the same kind of
            device.
        batch_size: Number of examples of the replica in a step.
    """

    point: Point
    batch_size: int


def _replica_work(spec: RunSpec) -> ReplicaWork:
    """Return the work that one replica of a run does in a step."""
    gpus = min(1, spec.point.gpus_per_node)
    alone = replace(spec.point, nodes=1, tasks_per_node=1, gpus_per_node=gpus)
    return ReplicaWork(alone, spec.per_replica_batch_size)


def _explaining_runs(
    config: Config, candidates: Sequence[Candidate], registries: Registries
) -> Iterator[PlannedRun]:
    """Yield the runs on one replica that blocks with `explain` add; `ReplicaWork` describes them.

    There is one for each `ReplicaWork`, unless the grid itself has a configuration that does this
    work on a single replica.

    Args:
        config: The configuration.
        candidates: The configurations of its grid.
        registries: The models, strategies, datasets and other names that exist.
    """
    planned = [(each, each.spec) for each in candidates if each.spec]
    alone = {_replica_work(spec) for _, spec in planned if spec.replicas == 1}
    explained: dict[ReplicaWork, list[tuple[Candidate, RunSpec]]] = {}
    for each, spec in planned:
        if config.grid[each.number].explain and _replica_work(spec) not in alone:
            explained.setdefault(_replica_work(spec), []).append((each, spec))
    for work, members in explained.items():
        replicas = max(spec.replicas for _, spec in members)
        keys = _explaining_keys(members[0][1].recipe, work.batch_size, replicas)
        point = replace(work.point, recipe=variants.variant_name(work.point.recipe, keys))
        recipe = replace(members[0][1].recipe, **dict.fromkeys(BATCH_SIZE_KEYS))
        recipe = replace(recipe, **{DOUBLED_KEY: work.batch_size, **keys})
        platform = config.platforms[point.platform]
        spec = _make_first_run(point, recipe, platform, config.seed, registries)
        points = (point for each, _ in members for point in (each.point, each.short_point))
        yield _plan_run(config, spec, explains=tuple(filter(None, points)))


def _explaining_keys(recipe: Recipe, batch_size: int, replicas: int) -> dict[str, int]:
    """Return key → value, for the keys of the recipe that a run for `explain` changes.

    One replica alone needs `replicas` times as many steps for an epoch. So fewer epochs suffice:
    they still have as many steps as the configuration with the most replicas makes, or more.
    `epochs` is changed only if the program gets its value.

    Args:
        recipe: The recipe of the explained configurations.
        batch_size: Number of examples of a replica in a step.
        replicas: Highest number of replicas of an explained configuration.
    """
    keys = {}
    epochs = math.ceil(recipe.epochs / replicas)
    if epochs < recipe.epochs and "epochs" in recipes.placeholders_of(recipe):
        keys["epochs"] = epochs
    if recipe.per_replica_batch_size is None:
        keys[DOUBLED_KEY] = batch_size
    return keys


def candidates_by_search(
    config: Config, candidates: Iterable[Candidate]
) -> dict[str, list[Candidate]]:
    """Return name of a search → its candidates.

    There is one search for each question, with the configurations of all blocks that have a search.
    It is named by the values on the axes that `question.choose` does not list.
    """
    members: dict[str, list[Candidate]] = {}
    for each in candidates:
        if each.spec and config.search_of(config.grid[each.number]):
            task = ", ".join(
                str(getattr(each.point, axis)) for axis in config.question.separating_axes
            )
            members.setdefault(task or "all configurations", []).append(each)
    return members


def _plan_searches(config: Config, candidates: Iterable[Candidate]) -> tuple[PlannedSearch, ...]:
    """Return the searches of a study for its manifest: one for each question that has one."""
    question, planned = config.question, []
    for task, members in candidates_by_search(config, candidates).items():
        search = config.search_of(config.grid[members[0].number])
        if search is None:  # the members of `candidates_by_search` have one
            continue
        points = tuple(
            SearchedPoint(
                point=each.point,
                repeats=config.grid[each.number].repeats,
                short=each.short_point,
            )
            for each in members
        )
        planned.append(
            PlannedSearch(
                question=task,
                goal=question.goal,
                limits=question.limits_for(question.goal, members[0].recipe.quality.metric),
                indifference=question.indifference,
                trainings=question.trainings,
                search=search,
                points=points,
            )
        )
    return tuple(planned)


def _postponed_points(searches: Iterable[PlannedSearch]) -> set[Point]:
    """Return the configurations that searches do not run in their first round.

    If a search assumes that times change smoothly with the number of nodes, its first round runs
    only the fewest and the most nodes. The result has the configurations of short runs, too.
    """
    later: set[Point] = set()
    for planned in searches:
        lines: dict[tuple[object, ...], list[SearchedPoint]] = {}
        for each in sorted(planned.points, key=lambda each: each.point.nodes):
            axes = tuple(getattr(each.point, axis) for axis in LINE_AXES)
            lines.setdefault(axes, []).append(each)
        if planned.search.assumes_smooth_lines:
            between = [each for line in lines.values() for each in line[1:-1]]
            later |= {point for each in between for point in (each.point, each.short) if point}
    return later
