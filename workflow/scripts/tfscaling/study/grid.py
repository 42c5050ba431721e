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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tfscaling.study import config_validation, platforms, recipes, run_spec, variants
from tfscaling.study.config_types import (
    AXES,
    LIMITED,
    LIMITED_RUNS_MIN,
    LINE_AXES,
    POINT_AXES,
    SEARCH_GOALS,
    SHORT_RUNS_MAX,
    WHOLE_FROM_EPOCHS,
    WORK_AXES,
    Block,
    Config,
    Exclusion,
    Limit,
    Platform,
    Recipe,
    Search,
)
from tfscaling.study.config_validation import SEVERAL, NotAllowed, RawConfig, Sources, naming_files
from tfscaling.study.geometry import batch_sizes
from tfscaling.study.manifest import Excluded, Manifest, PlannedRun, PlannedSearch, SearchedPoint
from tfscaling.study.registries import Registries
from tfscaling.study.run_spec import Point, RunSpec


def wildcards_of(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Return for each axis the value that all runs have, else the axis in braces, a wildcard."""
    values = {axis: {str(run.spec.axes[axis]) for run in runs} for axis in AXES}
    return {
        axis: found.pop() if len(found) == 1 else f"{{{axis}}}" for axis, found in values.items()
    }


def randomised(runs: Sequence[PlannedRun], seed: int) -> list[PlannedRun]:
    """The runs repeat by repeat, each repeat shuffled by `seed`, however `runs` are sorted."""
    ordered: list[PlannedRun] = []
    for repeat in sorted({run.spec.repeat for run in runs}):
        block = [run for run in runs if run.spec.repeat == repeat]
        block.sort(key=lambda run: run.spec.path)
        random.Random(f"{seed} {repeat}").shuffle(block)
        ordered += block
    return ordered


#: Characters of the values of all axes together: with separators and the hash of the parameters
#: they are the name of the folder of a job's Slurm logs, and names have at most 255 bytes.
NAMES_MAX = 238
#: Most runs of a grid: Snakemake plans this many in minutes.
RUNS_MAX = 100_000
#: Why short runs have no quality, and no time to a target.
NOT_PROJECTED = "quality is not projected"
#: The largest seed of NumPy and Keras.
SEED_MAX = 2**32 - 1


class _ImpossibleError(Exception):
    """The point cannot be run, and is excluded with this reason."""


def expand(config: Config, registries: Registries) -> Manifest:
    """All runs that the configuration describes, in its order, and the points without runs.

    Raises NotAllowed for unknown names, impossible geometry, duplicate points and blocks that
    leave nothing to run. Points beyond a platform's limits are excluded with the reason, as are
    points whose global batch is larger than the dataset.
    """
    recipes.check(config)
    runs: list[PlannedRun] = []
    block_of: dict[Point, int] = {}
    excluded: list[Excluded] = []
    searched: list[_Searched] = []
    variants_of = {name: variants.of(name, recipe) for name, recipe in config.recipes.items()}
    for number, block in enumerate(config.grid):
        recipes.check_block(config, number, registries)
        before = len(runs)
        search = config.search_of(block)
        first = 1 if search else block.repeats
        repeats = search.repeats_max if search else block.repeats
        shorter = search.short if search else {}
        if search and shorter:
            _check_short_runs(config, number, search, registries)
        _check_size(number, block, variants_of, before, repeats + SHORT_RUNS_MAX * bool(shorter))
        points = [*_points(block, variants_of)]
        for index, rule in enumerate(block.exclude):
            if not any(_is_excluded(point, rule) for point in points):  # a value is mistyped
                reason = "matches no configuration of the block; allowed: values of its axes"
                raise NotAllowed(["grid", number, "exclude", index], rule.axes, reason)
        for point in points:
            recipe = variants_of[variants.base(point.recipe)][point.recipe]
            recipe = recipes.filled(point.model, recipe)
            try:
                _check_excluded(point, block.exclude)
                _check_devices(number, point, config.platforms[point.platform], recipe)
                spec = _spec(point, recipe, config, registries)
            except _ImpossibleError as error:
                excluded.append(Excluded(point=point, reason=str(error)))
                continue
            _check_lengths(number, point, config.seed, repeats)
            if (other := block_of.setdefault(point, number)) != number:
                raise NotAllowed(
                    ["grid", number], point.axes, f"grid[{other}] has the configuration already"
                )
            if search:
                searched.append(_Searched(number, search, point, recipe))
            if search and shorter:
                short = msgspec.structs.replace(
                    spec,
                    point=_short_point(point, search),
                    recipe=msgspec.structs.replace(recipe, **shorter),
                )
                _check_lengths(number, short.point, config.seed, SHORT_RUNS_MAX)
                whole_epochs = recipe.epochs if search.stop_after_epochs else None
                runs += _repeated(short, config, SHORT_RUNS_MAX, 1, whole_epochs)
            runs += _repeated(spec, config, repeats, 0 if shorter else first)
        if len(runs) == before:
            raise _nothing_left(number, block, config, excluded)
    searches = _searches(config, searched)
    doubled = {name: recipe for name, recipe in config.recipes.items() if recipe.doublings}
    smaller, later = variants.smaller((run.spec for run in runs), doubled), _later(searches)
    runs = [
        msgspec.structs.replace(
            run,
            smaller=smaller.get(run.spec.point),
            extra_repeat=run.extra_repeat or run.spec.point in later,
        )
        for run in runs
    ]
    used = dict.fromkeys(p.platform for p in (*block_of, *(out.point for out in excluded)))
    shown = {name: config.platforms[name] for name in used}
    return Manifest(
        order_seed=config.seed,
        targets=config.question.targets,
        platforms={n: msgspec.structs.replace(p, title=p.title or n) for n, p in shown.items()},
        synchronous_strategies=tuple(n for n, s in registries.strategies.items() if s.synchronous),
        runs=tuple(runs),
        excluded=tuple(excluded),
        searches=searches,
    )


def _repeated(
    spec: RunSpec, config: Config, repeats: int, first: int, whole_epochs: int | None = None
) -> Iterator[PlannedRun]:
    """The runs of a point; those after the `first` ones are made if a search needs them."""
    platform = config.platforms[spec.point.platform]
    for repeat in range(1, repeats + 1):
        yield PlannedRun(
            spec=msgspec.structs.replace(spec, repeat=repeat, seed=spec.seed + repeat - 1),
            extra_repeat=repeat > first,
            whole_epochs=whole_epochs or config.question.whole_epochs(spec.recipe),
            usd_per_node_hour=platform.price_usd(spec.point.gpus_per_node),
            peak_tflops=platform.peak_of(spec.recipe),
            usd_per_kwh=platform.usd_per_kwh,
            kg_co2_per_kwh=platform.kg_co2_per_kwh,
        )


def _short_point(point: Point, search: Search) -> Point:
    return msgspec.structs.replace(point, recipe=variants.named(point.recipe, search.short))


def _check_size(
    number: int,
    block: Block,
    variants_of: Mapping[str, Mapping[str, Recipe]],
    before: int,
    repeats: int,
) -> None:
    """Refuse a grid beyond RUNS_MAX before it takes all memory; `before` are earlier runs."""
    lengths = {axis: len(block.values(axis)) for axis in POINT_AXES}
    lengths["recipe"] = sum(len(variants_of.get(name, (name,))) for name in block.values("recipe"))
    if (count := before + math.prod(lengths.values()) * repeats) > RUNS_MAX:
        rule = f"the grid has {count:,} runs up to this block; allowed: {RUNS_MAX:,}"
        raise NotAllowed(["grid", number], SEVERAL, rule)


def _nothing_left(
    number: int, block: Block, config: Config, excluded: Sequence[Excluded]
) -> NotAllowed:
    """For a block without a point to run: the limit that its nodes exceed, or the last reason."""
    nodes = block.values("nodes")
    limits = {name: config.platforms[name].nodes_max for name in block.values("platform")}
    if nodes and min(nodes) > max(limits.values()):
        have = ", ".join(f"platform {name} has nodes_max {most}" for name, most in limits.items())
        rule = f"{have}; allowed: 1 to {max(limits.values())}"
        return NotAllowed(["grid", number, "nodes"], nodes[0] if len(nodes) == 1 else nodes, rule)
    last = excluded[-1].reason if excluded else "no axis has a value"
    rule = f"the block has no configuration left to run; the last was left out: {last}"
    return NotAllowed(["grid", number], SEVERAL, rule)


def _points(block: Block, variants_of: Mapping[str, Mapping[str, Recipe]]) -> Iterator[Point]:
    """The points of a block; the name of a recipe means all of its variants."""
    chosen = {axis: block.values(axis) for axis in POINT_AXES}
    named = (variants_of.get(name, (name,)) for name in chosen["recipe"])
    chosen["recipe"] = tuple(dict.fromkeys(itertools.chain.from_iterable(named)))
    for values in itertools.product(*chosen.values()):
        yield Point(**dict(zip(POINT_AXES, values, strict=True)))


def _spec(point: Point, recipe: Recipe, config: Config, registries: Registries) -> RunSpec:
    """The first run of a point.

    Raises _ImpossibleError beyond the limits of the platform, and where the strategy or the batch
    size do not fit the geometry.
    """
    geometry, platform = point.geometry, config.platforms[point.platform]
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
        seed=config.seed,
        trainer_version=run_spec.trainer_version(recipe),
        replicas=replicas,
        jobs=strategy.jobs(geometry, servers),
        per_replica_batch_size=per_replica,
        global_batch_size=total,
    )


def _check_examples(global_batch: int, dataset: str, recipe: Recipe, examples: int | None) -> None:
    """Raise _ImpossibleError for a global batch of more than the examples, None if not known."""
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


def check_baseline(config: Config, planned: Manifest) -> None:
    """Raise NotAllowed if no run of the grid is at the baseline that the comparison names.

    The name of a recipe with variants means each point's own variant, so that all points must be
    of that recipe.
    """
    place = ["comparison", "baseline"]
    baseline = config.comparison.baseline.axes
    points = {run.spec.point for run in planned.runs}
    recipe = baseline.pop("recipe", None)
    of_recipe = {p for p in points if recipe in (None, p.recipe, variants.base(p.recipe))}
    if not any(all(getattr(p, axis) == v for axis, v in baseline.items()) for p in of_recipe):
        rule = "no run of the grid has these values, so there would be no speed-up"
        raise NotAllowed(place, config.comparison.baseline.axes, rule)
    names = sorted({point.recipe for point in of_recipe})
    if len(of_recipe) < len(points) and recipe not in (None, *names):
        rule = f"configurations of other recipes need the name of a variant: {', '.join(names)}"
        raise NotAllowed([*place, "recipe"], recipe, rule)


def check_question(config: Config, planned: Manifest) -> None:
    """Raise NotAllowed where the question cannot be answered."""
    found = {run.spec.point.recipe: run for run in planned.runs}
    _check_whole_training(config, planned, found)
    _check_goal(config, planned, found)
    _check_limits_of_question(config, planned, found)
    _check_choice(config, planned, found)


def _check_whole_training(
    config: Config, planned: Manifest, found: Mapping[str, PlannedRun]
) -> None:
    """Raise NotAllowed where the whole training cannot be projected from a recipe's runs."""
    if (whole := config.question.whole_training) is None:
        return
    shorts = {each.short.recipe for s in planned.searches for each in s.points if each.short}
    for name, run in found.items():
        recipe = run.spec.recipe

        def wrong(key: str, rule: str, name: str = name, recipe: Recipe = recipe) -> NotAllowed:
            return NotAllowed(["recipes", variants.base(name), key], getattr(recipe, key), rule)

        asked = f"the whole training has {whole.epochs} (question.whole_training.epochs)"
        if recipe.epochs > whole.epochs:
            raise wrong("epochs", f"{asked}; allowed: 1 to {whole.epochs}")
        if recipe.stop_after_steps is not None and recipe.epochs < whole.epochs:
            raise wrong("epochs", f"{asked}; allowed with stop_after_steps: {whole.epochs}")
        if run.whole_epochs is None or name in shorts:
            continue
        if planned.searches:
            rule = f"{asked}, and a search compares complete runs; allowed: {whole.epochs}, with"
            raise wrong("epochs", f"{rule} search.stop_after_steps for short runs")
        if recipe.epochs < WHOLE_FROM_EPOCHS:
            rule = f"{asked}, and the first epoch has the start-up; allowed: {WHOLE_FROM_EPOCHS} to"
            raise wrong("epochs", f"{rule} {whole.epochs}, or stop_after_steps")
        if recipe.program and recipe.observe in recipes.WITHOUT_TIMES:
            rule = f"{asked}, which needs times of epochs; allowed: fit, events"
            raise wrong("observe", f"{rule}, or {whole.epochs} epochs")
        for key in ("checkpoint_every_epochs", "checkpoint_every_s"):
            if getattr(recipe, key) is not None:
                raise wrong(key, "the time of checkpoints is not projected; allowed: null")


def _check_goal(config: Config, planned: Manifest, found: Mapping[str, PlannedRun]) -> None:
    """Raise NotAllowed where runs cannot have the metric that the question asks for."""
    goal = config.question.goal

    def wrong(rule: str) -> NotAllowed:
        return NotAllowed(["question", "goal"], goal, rule)

    if goal.startswith("cost_"):
        for run in planned.runs:
            if run.usd_per_node_hour is None:
                raise wrong(f"needs usd_per_node_hour of platform {run.spec.point.platform}")
    if planned.searches and goal not in SEARCH_GOALS:
        raise wrong(f"no goal of a search; allowed: {', '.join(SEARCH_GOALS)}, or `search: null`")
    if goal in LIMITED and (why := _unreported(goal, planned)):
        raise wrong(f"{why}; allowed: execution_time_s, cost_usd, node_hours")
    if goal == "quality" and not any(
        recipes.may_report_quality(r.spec.recipe) for r in found.values()
    ):
        raise wrong("no program reports the quality; allowed: `observe: fit`, events, or patterns")
    for name, run in found.items():
        recipe = run.spec.recipe
        if run.is_short and goal == "time_with_queue_s":
            rule = f"recipe {name} makes short runs, and short jobs wait for less time"
            raise wrong(f"{rule}; allowed: execution_time_s")
        if run.is_short and (goal == "quality" or "_to_target" in goal):
            raise wrong(f"recipe {name} makes short runs, and {NOT_PROJECTED}")
        if "_to_target" not in goal:
            continue
        if recipe.program and recipe.observe in recipes.WITHOUT_TIMES:
            rule = f"the program of recipe {name} reports no times of epochs"
            ways = "execution_time_s, cost_usd, or `observe: fit`, events"
            raise wrong(f"{rule} (observe: {recipe.observe}); allowed: {ways}")
        if (metric := recipe.quality.metric) not in config.question.given:
            raise wrong(f"needs a target of recipe {name}, a limit of {metric} in question.limits")


def _unreported(metric: str, planned: Manifest) -> str:
    """Why no run of the grid reports a metric of LIMITED, or ""."""
    runs = planned.runs
    if metric == "time_with_queue_s" and all(r.spec.measured.launcher == "local" for r in runs):
        return "runs on this machine wait in no queue"
    if metric == "gpu_memory_gb" and all(
        not run.spec.point.gpus_per_node or run.spec.measured.devices == "logical" for run in runs
    ):
        return "no configuration has GPUs"
    return ""


def _check_limits_of_question(
    config: Config, planned: Manifest, found: Mapping[str, PlannedRun]
) -> None:
    """Raise NotAllowed for a limit that no run can be held to."""
    qualities = {run.spec.recipe.quality.metric for run in found.values()}
    for name in config.question.equal - qualities:
        rule = "null is for the quality of recipes; allowed: a limit"
        raise NotAllowed(["question", "limits", name], None, rule)
    for name, limit in config.question.given.items():

        def wrong(rule: str, name: str = name, limit: Limit = limit) -> NotAllowed:
            given = {"at_most": limit.at_most, "at_least": limit.at_least}
            shown = {key: value for key, value in given.items() if value is not None}
            return NotAllowed(["question", "limits", name], shown, rule)

        if (limit.at_most is None) == (limit.at_least is None):
            raise wrong("allowed: exactly one of at_most and at_least")
        if isinstance(limit.at_most, str) and not name.endswith("_s"):
            raise wrong(f"{name} is no time; allowed: a number")
        own_runs = [run for run in found.values() if run.spec.recipe.quality.metric == name]
        own = [run.spec.recipe for run in own_runs]
        if not own and name not in LIMITED:
            raise wrong(f"is not measured; allowed: {', '.join([*LIMITED, *sorted(qualities)])}")
        if name in LIMITED and (why := _unreported(name, planned)):
            raise wrong(f"{why}; allowed: leave it out")
        if own and not any(map(recipes.may_report_quality, own)):
            raise wrong("no program reports it; allowed: `observe: fit`, events, or patterns")
        better = own[0].quality.better if own else "lower"
        if (limit.at_most is None) == (better == "lower"):
            side = "at_most" if better == "lower" else "at_least"
            raise wrong(f"{better} values are better; allowed: {side}")
        if name in LIMITED and limit.value <= 0:
            raise wrong("allowed: more than 0")
        if name == "cost_usd" and any(run.usd_per_node_hour is None for run in planned.runs):
            raise wrong("needs usd_per_node_hour of all platforms in the grid")
        if own and all(run.is_short for run in own_runs):
            raise wrong(f"all recipes with it make short runs, and {NOT_PROJECTED}")
        quality, value = (own[0].quality, limit.value) if own else (None, 0.0)
        best = quality.best_value if quality else None
        if quality and quality.is_accuracy and best == 1 and not 0 < value < 1:
            raise wrong("allowed: more than 0 and less than 1, a fraction of the examples")
        if best is not None and (value >= best if better == "higher" else value <= best):
            raise wrong(f"allowed: worse than {best:g}, the best possible")


def _check_choice(config: Config, planned: Manifest, found: Mapping[str, PlannedRun]) -> None:
    """Raise NotAllowed where configurations of several recipes cannot be compared."""
    question = config.question
    shorts = {each.short for search in planned.searches for each in search.points}
    points = {run.spec.point for run in planned.runs} - shorts
    works = {(point.model, point.recipe) for point in points}
    found = {point.recipe: found[point.recipe] for point in points}

    def wrong(rule: str) -> NotAllowed:
        rule = f"{rule}; or choose without model and recipe"
        return NotAllowed(["question", "choose"], [*question.choose], rule)

    if not set(question.choose) & set(WORK_AXES) or len(works) < 2:
        return
    metrics = {run.spec.recipe.quality.metric: name for name, run in found.items()}
    if len(metrics) > 1:
        named = ", ".join(f"{name}: {metric}" for metric, name in metrics.items())
        raise wrong(f"recipes have different qualities ({named}); allowed: the same `quality`")
    (metric,) = metrics
    if metric not in question.limits:
        rule = "recipes train different amounts, so they are compared by what they reach"
        ways = f"a limit of {metric} in question.limits, or null if they are equally good"
        raise wrong(f"{rule}; allowed: {ways}")
    for name, run in found.items():
        if run.is_short and metric in question.given:
            raise wrong(f"recipe {name} makes short runs, and {NOT_PROJECTED}")


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


def _check_devices(number: int, point: Point, platform: Platform, recipe: Recipe) -> None:
    """Geometry that no cluster could give is an error; a limit that could be raised is not."""
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
    """The names of a run become one folder's name, and its seed one of NumPy's and Keras's."""
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


class _Searched(NamedTuple):
    """A point of block `number` that a search may choose."""

    number: int
    search: Search
    point: Point
    recipe: Recipe


def _searches(config: Config, searched: Iterable[_Searched]) -> tuple[PlannedSearch, ...]:
    """One search for each question, among the points of all blocks with a search."""
    question = config.question
    works: dict[str, list[_Searched]] = {}
    for each in searched:
        work = ", ".join(str(getattr(each.point, axis)) for axis in question.separate)
        works.setdefault(work or "all configurations", []).append(each)
    found = []
    for work, members in works.items():
        first = members[0]
        if len(members) < 2:
            rule = "the only configuration of its question; allowed: two or more"
            raise _in_search(config, first.number, "", first.point.axes, rule)
        for number, search, point, recipe in members:
            if search != first.search:
                rule = f"grid[{first.number}] searches among configurations of the same "
                rule += "question: the same `search`, best for the whole grid"
                raise _in_search(config, number, "", point.axes, rule)
            price = config.platforms[point.platform].price_usd(point.gpus_per_node)
            if question.goal.startswith("cost_") and not price:
                rule = f"a search needs a usd_per_node_hour above 0 of platform {point.platform}"
                raise NotAllowed(["question", "goal"], question.goal, rule)
            limits = question.limits_for(question.goal, recipe.quality.metric)
            may_miss = limits or "_to_target" in question.goal
            if may_miss and search.repeats_max < LIMITED_RUNS_MIN:
                rule = "fewer runs do not show whether limits and targets are kept; allowed: "
                rule += f"{LIMITED_RUNS_MIN} to 20"
                raise _in_search(config, number, "repeats_max", search.repeats_max, rule)
        found.append(
            PlannedSearch(
                work=work,
                goal=question.goal,
                limits=question.limits_for(question.goal, first.recipe.quality.metric),
                indifference=question.indifference,
                search=first.search,
                points=tuple(
                    SearchedPoint(
                        point=each.point,
                        repeats=config.grid[each.number].repeats,
                        short=_short_point(each.point, each.search) if each.search.short else None,
                    )
                    for each in members
                ),
            )
        )
    return tuple(found)


def _in_search(config: Config, number: int, key: str, value: object, rule: str) -> NotAllowed:
    """The problem in the search of block `number`, or in the search of the whole grid."""
    has_own = isinstance(config.grid[number].search, Search)
    own: list[str | int] = ["grid", number] if has_own else []
    return NotAllowed([*own, "search", *([key] if key else [])], value, rule)


def _check_short_runs(config: Config, number: int, search: Search, registries: Registries) -> None:
    """Raise NotAllowed where a recipe of block `number` cannot have short runs."""
    key = "stop_after_epochs" if search.stop_after_epochs else "stop_after_steps"
    value = getattr(search, key)
    if len(search.short) > 1:
        raise _in_search(config, number, key, value, "allowed: no stop_after_steps next to it")
    names = dict.fromkeys(map(variants.base, config.grid[number].values("recipe")))
    if has_own := [name for name in names if config.recipes[name].stop_after_steps is not None]:
        rule = f"recipe {has_own[0]} has stop_after_steps already; allowed: null in one of the two"
        raise _in_search(config, number, key, value, rule)
    for name in names:
        if rule := recipes.without_fewer_epochs(config.recipes[name], search.stop_after_epochs):
            raise _in_search(config, number, key, value, f"recipe {name}: {rule}")
    short = {name: msgspec.structs.replace(config.recipes[name], **search.short) for name in names}
    changed = msgspec.structs.replace(config, recipes={**config.recipes, **short})
    try:
        recipes.check(changed)
        recipes.check_block(changed, number, registries)
    except NotAllowed as error:
        where = "" if error.place[-1] == key else f"{error.place[-1]} {error.value}: "
        rule = f"recipe {error.place[1]}: {where}{error.allowed}"
        raise _in_search(config, number, key, value, rule) from None


def _later(searches: Iterable[PlannedSearch]) -> set[Point | None]:
    """The points between the ends of smooth lines: all their runs are extra repeats."""
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


def accept(
    merged: RawConfig, registries: Registries, sources: Sources = ()
) -> tuple[Config, Manifest]:
    """The merged configuration with its types, and the manifest of its grid.

    `sources` are the files that it was merged from. Raises ConfigError for the first thing that is
    not allowed: one line with file, key, value and what is allowed.
    """
    config = config_validation.validate(merged, sources)
    with naming_files(sources):
        config_validation.check_folders(config)
        platforms.check(config.platforms)
        platforms.check_cluster(config)
        registries.check_names(config)
        planned = expand(config, registries)
        check_baseline(config, planned)
        check_question(config, planned)
    return config, planned
