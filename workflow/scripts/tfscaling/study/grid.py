"""The grid: the product of its blocks' axes as runs, what is excluded, and an order of starts.

A pure function of the configuration, which `acceptance.accept` has validated, and of the registries
of models, strategies and datasets.

Runs start in randomised complete blocks. Each repeat is one block: it runs every configuration once
in a random order before the next repeat begins. Drift (temperature, other users, the hour) then
affects all configurations alike, and a sweep that is cut short has about the same number of runs of
each. Source: G. E. P. Box, J. S. Hunter, W. G. Hunter, "Statistics for Experimenters", Wiley 2005,
chapter 4; T. Hoefler and R. Belli, SC15.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tfscaling.study import recipes, run_spec, variants
from tfscaling.study.config_types import (
    AXES,
    LINE_AXES,
    POINT_AXES,
    SHORT_RUNS_MAX,
    Block,
    Config,
    Exclusion,
    Platform,
    Recipe,
    Search,
)
from tfscaling.study.geometry import batch_sizes
from tfscaling.study.manifest import Excluded, Manifest, PlannedRun, PlannedSearch, SearchedPoint
from tfscaling.study.registries import Registries
from tfscaling.study.run_spec import Point, RunSpec


def wildcards_of(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Return axis → the value that all runs share, or the axis in braces as a wildcard."""
    values = {axis: {str(run.spec.axes[axis]) for run in runs} for axis in AXES}
    return {
        axis: found.pop() if len(found) == 1 else f"{{{axis}}}" for axis, found in values.items()
    }


def randomised(
    runs: Sequence[PlannedRun], seed: int, revisions: Sequence[str] = ()
) -> list[PlannedRun]:
    """Return the runs in their order of starts: repeat by repeat, each repeat shuffled by `seed`.

    Args:
        runs: The runs; their order does not matter.
        seed: Seed of the order.
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
        number: The number of its block.
        point: The values of its axes.
        recipe: Its recipe, with the values that the model leaves open.
        spec: The specification of its first complete run; None if it is excluded.
        short: The specification of its first short run, if a search begins with short runs.
        reason: Why it is excluded; "" if it has runs.
    """

    number: int
    point: Point
    recipe: Recipe
    spec: RunSpec | None = None
    short: RunSpec | None = None
    reason: str = ""


class _ImpossibleError(Exception):
    """The configuration cannot be run, and is excluded with this reason."""


def candidates(
    config: Config, recipe_variants: Mapping[str, Mapping[str, Recipe]], registries: Registries
) -> tuple[Candidate, ...]:
    """Return all configurations of the grid, block by block, excluded ones included.

    A configuration is excluded, with the reason, beyond a platform's limits or if its global batch
    is larger than the dataset.
    """
    return tuple(
        _make_candidate(number, point, recipe_variants, config, registries)
        for number, block in enumerate(config.grid)
        for point in points(block, recipe_variants)
    )


def _make_candidate(
    number: int,
    point: Point,
    recipe_variants: Mapping[str, Mapping[str, Recipe]],
    config: Config,
    registries: Registries,
) -> Candidate:
    """Return one configuration of the grid with its first run, or the reason for its exclusion."""
    recipe = recipes.filled(point.model, recipe_variants[variants.base(point.recipe)][point.recipe])
    if reason := exclusion(point, config.grid[number].exclude):
        return Candidate(number, point, recipe, reason=reason)
    try:
        platform = config.platforms[point.platform]
        spec = _first_run(point, recipe, platform, config.seed, registries)
    except _ImpossibleError as error:
        return Candidate(number, point, recipe, reason=str(error))
    search = config.search_of(config.grid[number])
    short = _first_short_run(spec, search) if search and search.short else None
    return Candidate(number, point, recipe, spec, short)


def _first_short_run(spec: RunSpec, search: Search) -> RunSpec:
    """Return the first short run of a configuration, for a search that begins with short runs."""
    point = replace(spec.point, recipe=variants.named(spec.point.recipe, search.short))
    return replace(spec, point=point, recipe=replace(spec.recipe, **search.short))


def points(block: Block, recipe_variants: Mapping[str, Mapping[str, Recipe]]) -> Iterator[Point]:
    """Yield the product of a block's axes; a recipe's name means all of its variants."""
    chosen = {axis: block.values(axis) for axis in POINT_AXES}
    named = (recipe_variants.get(name, (name,)) for name in chosen["recipe"])
    chosen["recipe"] = tuple(dict.fromkeys(itertools.chain.from_iterable(named)))
    for values in itertools.product(*chosen.values()):
        yield Point(**dict(zip(POINT_AXES, values, strict=True)))


def matches(point: Point, entry: Exclusion) -> bool:
    """Return whether an entry of `exclude` matches a configuration."""
    return all(
        getattr(point, axis) in values
        or (axis == "recipe" and variants.base(point.recipe) in values)
        for axis, values in entry.axes.items()
    )


def exclusion(point: Point, entries: Sequence[Exclusion]) -> str:
    """Return why the grid excludes a configuration; "" if it does not."""
    if matching := [entry for entry in entries if matches(point, entry)]:
        reasons = [entry.reason for entry in matching if isinstance(entry.reason, str)]
        return "; ".join(reasons) or "excluded by the grid"
    return point.geometry.uneven_problem() or ""


def _first_run(
    point: Point, recipe: Recipe, platform: Platform, seed: int, registries: Registries
) -> RunSpec:
    """Return the first run of a configuration.

    Raises:
        _ImpossibleError: Beyond the limits of the platform, or if strategy or batch size do not fit
            the geometry.
    """
    geometry = point.geometry
    if point.nodes > platform.nodes_max:
        raise _ImpossibleError(f"{point.nodes} nodes exceed nodes_max {platform.nodes_max}")
    if platform.gpus_max is not None and geometry.gpus > platform.gpus_max:
        raise _ImpossibleError(
            f"{geometry.gpus} GPUs exceed the quota gpus_max {platform.gpus_max}"
        )
    strategy, servers = registries.strategies[point.strategy], recipe.parameter_servers
    if (refusal := strategy.refusal(geometry, servers)) is not None:
        raise _ImpossibleError(refusal)
    replicas = strategy.replicas(geometry, servers)
    try:
        per_replica, total = batch_sizes(recipe, geometry, replicas)
    except ValueError as error:
        raise _ImpossibleError(str(error)) from None
    dataset = recipe.dataset
    if not recipe.program:  # only a program knows how much it reads of its data
        dataset = registries.dataset(point.model, recipe)
        known = registries.datasets.get(dataset)
        _check_examples(total, dataset, recipe, known.train_examples if known else None)
    return RunSpec(
        point=point,
        repeat=1,
        recipe=recipe,
        measured=platform.measured,
        dataset=dataset,
        seed=seed,
        trainer_version=run_spec.trainer_version(recipe),
        replicas=replicas,
        jobs=strategy.jobs(geometry, servers),
        per_replica_batch_size=per_replica,
        global_batch_size=total,
    )


def _check_examples(global_batch: int, dataset: str, recipe: Recipe, examples: int | None) -> None:
    """Raise _ImpossibleError if a global batch has more examples than the dataset."""
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


def manifest_of(config: Config, found: Sequence[Candidate], registries: Registries) -> Manifest:
    """Return the manifest with the runs of these candidates."""
    searches = _searches(config, found)
    runs = [run for each in found for run in _runs_of_candidate(config, each)]
    doubled = {name: recipe for name, recipe in config.recipes.items() if recipe.doublings}
    smaller, later = (
        variants.smaller((run.spec for run in runs), doubled),
        _postponed_points(searches),
    )
    excluded = [Excluded(point=each.point, reason=each.reason) for each in found if each.reason]
    used = [*(each.point for each in found if each.spec), *(each.point for each in excluded)]
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
        excluded=tuple(excluded),
        searches=searches,
        revisions=config.compare_revisions or (),
    )


def _runs_of_candidate(config: Config, candidate: Candidate) -> Iterator[PlannedRun]:
    """Yield the runs of a candidate, short ones first.

    In a search, runs after the first ones are made only if they are needed.
    """
    spec, short, block = candidate.spec, candidate.short, config.grid[candidate.number]
    platform, search = config.platforms[candidate.point.platform], config.search_of(block)
    if spec is None:
        return
    series = [(spec, block.repeats, block.repeats)]  # the first run, all runs, those made at once
    if search:
        series = [(spec, search.repeats_max, 0 if short else 1)]
    if short:
        series.insert(0, (short, SHORT_RUNS_MAX, 1))
    for first, repeats, at_once in series:
        whole_epochs = config.question.whole_epochs(first.recipe)
        if first is short and search and search.stop_after_epochs:
            whole_epochs = spec.recipe.epochs
        for repeat in range(1, repeats + 1):
            yield PlannedRun(
                spec=replace(first, repeat=repeat, seed=first.seed + repeat - 1),
                extra_repeat=repeat > at_once,
                whole_epochs=whole_epochs,
                usd_per_node_hour=platform.price_usd(first.point.gpus_per_node),
                peak_tflops=platform.peak_of(first.recipe),
                usd_per_kwh=platform.usd_per_kwh,
                kg_co2_per_kwh=platform.kg_co2_per_kwh,
            )


def searched(config: Config, found: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """Return name of a search → its candidates.

    There is one search for each question, with the configurations of all blocks that have a search.
    """
    members: dict[str, list[Candidate]] = {}
    for each in found:
        if each.spec and config.search_of(config.grid[each.number]):
            task = ", ".join(str(getattr(each.point, axis)) for axis in config.question.separate)
            members.setdefault(task or "all configurations", []).append(each)
    return members


def _searches(config: Config, found: Iterable[Candidate]) -> tuple[PlannedSearch, ...]:
    question, planned = config.question, []
    for task, members in searched(config, found).items():
        search = config.search_of(config.grid[members[0].number])
        if search is None:  # the members of `searched` have one
            continue
        points = tuple(
            SearchedPoint(
                point=each.point,
                repeats=config.grid[each.number].repeats,
                short=each.short.point if each.short else None,
            )
            for each in members
        )
        planned.append(
            PlannedSearch(
                work=task,
                goal=question.goal,
                limits=question.limits_for(question.goal, members[0].recipe.quality.metric),
                indifference=question.indifference,
                search=search,
                points=points,
            )
        )
    return tuple(planned)


def _postponed_points(searches: Iterable[PlannedSearch]) -> set[Point | None]:
    """Return the configurations of smooth lines that are not run in a search's first round."""
    later: set[Point | None] = set()
    for planned in searches:
        lines: dict[tuple[object, ...], list[SearchedPoint]] = {}
        for each in sorted(planned.points, key=lambda each: each.point.nodes):
            axes = tuple(getattr(each.point, axis) for axis in LINE_AXES)
            lines.setdefault(axes, []).append(each)
        if planned.search.is_smooth:
            between = [each for line in lines.values() for each in line[1:-1]]
            later |= {point for each in between for point in (each.point, each.short)}
    return later
