"""From grid blocks to runs: products, exclusions with reasons, cross-checks.

Pure: the registries of models and strategies are arguments, so that this layer
knows no layer above it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tfscaling import TRAINER_VERSION
from tfscaling.study import user_code
from tfscaling.study.config import AXES as AXES
from tfscaling.study.config import LINE_AXES as LINE_AXES
from tfscaling.study.config import POINT_AXES as POINT_AXES
from tfscaling.study.config import Config
from tfscaling.study.configuration import ConfigError, Sources, check_function, known, problem
from tfscaling.study.geometry import BATCH_SIZE_KEYS, Geometry, StrategyGeometry, batch_sizes
from tfscaling.study.run_spec import Point, RunSpec
from tfscaling.study.run_spec import run_path as run_path

#: Characters of the values of all axes together: with separators they are the name of the folder of
#: a job's Slurm logs, and names have at most 255 bytes.
NAMES_MAX = 240
#: The largest seed of NumPy and Keras.
SEED_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Run:
    """One training run: its axes and what follows from them."""

    platform: str
    model: str
    strategy: str
    recipe: str
    nodes: int
    gpus_per_node: int
    tasks_per_node: int | str
    repeat: int
    replicas: int
    per_replica_batch_size: int
    global_batch_size: int
    spec: RunSpec
    #: Width that the interval of the time may have, over the median; None asks for none.
    relative_interval: float | None = None
    #: Made only where the runs before it leave the interval too wide.
    further: bool = False

    @property
    def axes(self) -> dict[str, Any]:
        return {axis: getattr(self, axis) for axis in AXES}

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.nodes, self.tasks_per_node, self.gpus_per_node)

    @property
    def path(self) -> str:
        """The run's folder below results/runs; platform first, so clusters merge by copying."""
        return run_path(self.axes)


@dataclass(frozen=True, slots=True)
class Excluded:
    """A point of the product that is not run, and why; shown in every table."""

    axes: dict[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class Grid:
    """All runs in configuration order, and the points left out."""

    runs: tuple[Run, ...]
    excluded: tuple[Excluded, ...]


def expand(
    config: Mapping[str, Any],
    models: Mapping[str, Any],
    strategies: Mapping[str, StrategyGeometry],
    sources: Sources = (),
    examples: Mapping[str, int] | None = None,
) -> Grid:
    """All runs that the validated `config` describes.

    `examples` are the numbers of training examples of datasets, of those where it is known.
    Raises ConfigError for unknown names, impossible geometry, duplicate points and blocks that
    leave nothing to run. Points beyond a platform's limits are excluded with the reason, as are
    those whose global batch is larger than the dataset.
    """
    _check_recipes(config, sources)
    typed = msgspec.convert(config, Config)
    runs: dict[tuple[Any, ...], Run] = {}
    block_of: dict[tuple[Any, ...], int] = {}
    excluded: list[Excluded] = []
    for number, block in enumerate(config["grid"]):
        _check_names(config, number, block, models, strategies, sources)
        _check_block(number, block, sources)
        before = len(runs)
        for point in _points(block):
            geometry = Geometry.of(point)
            platform = config["platforms"][point["platform"]]
            if rules := [rule for rule in block["exclude"] if _matches(point, rule)]:
                reasons = [rule["reason"] for rule in rules if "reason" in rule]
                excluded.append(Excluded(point, "; ".join(reasons) or "excluded by the grid"))
                continue
            if (uneven := geometry.uneven_problem()) is not None:
                excluded.append(Excluded(point, uneven))
                continue
            _check_geometry(number, point, geometry, platform, sources)
            recipe, strategy = config["recipes"][point["recipe"]], strategies[point["strategy"]]
            reason = _beyond_limits(geometry, platform) or strategy.refusal(geometry, recipe)
            if reason is None:
                replicas = strategy.replicas(geometry, recipe)
                try:
                    per_replica, total = batch_sizes(recipe, geometry, replicas)
                except ValueError as error:
                    reason = str(error)
                else:
                    dataset = recipe["dataset"] or models[point["model"]].dataset
                    reason = beyond_dataset(total, dataset, recipe, (examples or {}).get(dataset))
            if reason is not None:
                excluded.append(Excluded(point, reason))
                continue
            until = block["repeat_until"]
            repeats = until["repeats_max"] if until else block["repeats"]
            _check_lengths(number, point, config["seed"], repeats, sources)
            for repeat in range(1, repeats + 1):
                spec = RunSpec(
                    point=Point(**point),
                    repeat=repeat,
                    recipe=typed.recipes[point["recipe"]],
                    measured=typed.platforms[point["platform"]].measured,
                    dataset=dataset,
                    seed=typed.seed + repeat - 1,
                    trainer_version=TRAINER_VERSION,
                    replicas=replicas,
                    per_replica_batch_size=per_replica,
                    global_batch_size=total,
                    jobs=strategy.jobs(geometry, recipe),
                )
                run = Run(
                    spec=spec,
                    **point,
                    repeat=repeat,
                    replicas=replicas,
                    per_replica_batch_size=per_replica,
                    global_batch_size=total,
                    relative_interval=until["relative_interval"] if until else None,
                    further=repeat > block["repeats"],
                )
                key = (*point.values(), repeat)
                if key in runs:
                    raise ConfigError(_duplicate(point, block_of[key], number, sources))
                runs[key], block_of[key] = run, number
        if len(runs) == before:
            last = excluded[-1].reason if excluded else "no axis has a value"
            raise ConfigError(
                problem(
                    ["grid", number],
                    block["platform"],
                    f"the block has no point left to run (last reason: {last})",
                    sources,
                )
            )
    return Grid(tuple(runs.values()), tuple(excluded))


def beyond_dataset(
    global_batch: int, dataset: str, recipe: Mapping[str, Any], examples: int | None
) -> str | None:
    """Why a global batch is larger than the examples that it is trained on, or None.

    `examples` is the number of the dataset's training examples, None if it is not known.
    """
    asked = recipe["train_examples_max"]
    if asked is not None and (examples is None or asked < examples):
        known_examples, whose = asked, "train_examples_max"
    elif examples is not None:
        known_examples, whose = examples, f"the training examples of {dataset}"
    else:
        return None
    if global_batch <= known_examples:
        return None
    return f"the global batch of {global_batch} examples exceeds {whose}, {known_examples}"


def check_baseline(grid: Grid, baseline: Mapping[str, Any], sources: Sources = ()) -> None:
    """Raise ConfigError if no run of the grid is at the baseline that the comparison names."""
    points = [{axis: getattr(run, axis) for axis in baseline} for run in grid.runs]
    if baseline not in points:
        path = ["comparison", "baseline"]
        reason = "no run of the grid has these values: no speed-up could be computed"
        raise ConfigError(problem(path, dict(baseline), reason, sources))


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _points(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for combination in itertools.product(*(_values(block[axis]) for axis in POINT_AXES)):
        yield dict(zip(POINT_AXES, combination, strict=True))


def _matches(point: Mapping[str, Any], rule: Mapping[str, Any]) -> bool:
    return all(point[axis] in _values(rule[axis]) for axis in POINT_AXES if axis in rule)


def _check_recipes(config: Mapping[str, Any], sources: Sources) -> None:
    for name, recipe in config["recipes"].items():
        given = {key: recipe[key] for key in BATCH_SIZE_KEYS if recipe[key] is not None}
        if len(given) != 1:
            raise ConfigError(
                problem(
                    ["recipes", name],
                    given,
                    "allowed: exactly one of " + ", ".join(BATCH_SIZE_KEYS),
                    sources,
                )
            )


def _check_block(number: int, block: Mapping[str, Any], sources: Sources) -> None:
    for index, rule in enumerate(block["exclude"]):
        if set(rule) == {"reason"}:
            reason = f"allowed: values of at least one axis beside it: {', '.join(POINT_AXES)}"
            raise ConfigError(problem(["grid", number, "exclude", index], rule, reason, sources))
    until = block["repeat_until"]
    if until is not None and until["repeats_max"] <= block["repeats"]:
        path: list[str | int] = ["grid", number, "repeat_until", "repeats_max"]
        reason = f"allowed: more than repeats, {block['repeats']}"
        raise ConfigError(problem(path, until["repeats_max"], reason, sources))


def _check_names(
    config: Mapping[str, Any],
    number: int,
    block: Mapping[str, Any],
    models: Mapping[str, Any],
    strategies: Mapping[str, StrategyGeometry],
    sources: Sources,
) -> None:
    registries: dict[str, Mapping[str, Any]] = {
        "platform": config["platforms"],
        "model": models,
        "strategy": strategies,
        "recipe": config["recipes"],
    }
    for axis, registry in registries.items():
        named: list[tuple[list[str | int], str]] = [([axis], n) for n in _values(block[axis])]
        for index, rule in enumerate(block["exclude"]):
            named += [(["exclude", index, axis], name) for name in _values(rule.get(axis, []))]
        for path, name in named:
            where = ["grid", number, *path]
            if axis == "model":
                check_function(where, name, registry, sources)
            elif name not in registry:
                raise ConfigError(problem(where, name, known(registry, name), sources))
    for model, recipe in itertools.product(_values(block["model"]), _values(block["recipe"])):
        if user_code.is_reference(model) and config["recipes"][recipe]["dataset"] is None:
            reason = f"model {model} of grid[{number}] needs the name of a dataset"
            raise ConfigError(problem(["recipes", recipe, "dataset"], None, reason, sources))


def _check_geometry(
    number: int,
    point: Mapping[str, Any],
    geometry: Geometry,
    platform: Mapping[str, Any],
    sources: Sources,
) -> None:
    """Geometry that no cluster could give is an error; a limit that could be raised is not."""
    name, gpus_max = point["platform"], platform["gpus_per_node_max"]
    if geometry.gpus_per_node > gpus_max:
        raise ConfigError(
            problem(
                ["grid", number, "gpus_per_node"],
                geometry.gpus_per_node,
                f"platform {name} has gpus_per_node_max {gpus_max}; use another block or `exclude`",
                sources,
            )
        )
    if geometry.tasks_per_node_max > platform["cpus_per_node"]:
        raise ConfigError(
            problem(
                ["grid", number, "tasks_per_node"],
                geometry.tasks_per_node,
                f"platform {name} has cpus_per_node {platform['cpus_per_node']}",
                sources,
            )
        )
    if geometry.gpus_per_node % geometry.tasks_per_node_max:
        raise ConfigError(
            problem(
                ["grid", number, "gpus_per_node"],
                geometry.gpus_per_node,
                f"allowed: a multiple of tasks_per_node {geometry.tasks_per_node}",
                sources,
            )
        )


def _beyond_limits(geometry: Geometry, platform: Mapping[str, Any]) -> str | None:
    if geometry.nodes > platform["nodes_max"]:
        return f"{geometry.nodes} nodes exceed nodes_max {platform['nodes_max']}"
    if platform["gpus_max"] is not None and geometry.gpus > platform["gpus_max"]:
        return f"{geometry.gpus} GPUs exceed the quota gpus_max {platform['gpus_max']}"
    return None


def _check_lengths(
    number: int, point: Mapping[str, Any], seed: int, repeats: int, sources: Sources
) -> None:
    """The names of a run become one folder's name, and its seed one of NumPy's and Keras's."""
    joined = "_".join([*map(str, point.values()), str(repeats)])
    if len(joined) > NAMES_MAX:
        reason = f"names and values of this point's axes have {len(joined)} characters together"
        allowed = f"{reason}; allowed: {NAMES_MAX}, for they are the name of a folder"
        raise ConfigError(problem(["grid", number], dict(point), allowed, sources))
    if seed + repeats - 1 > SEED_MAX:
        allowed = f"repeat k trains with seed + k - 1; allowed: {SEED_MAX - repeats + 1} or less"
        raise ConfigError(problem(["seed"], seed, f"{allowed} with {repeats} repeats", sources))


def _duplicate(point: Mapping[str, Any], first: int, second: int, sources: Sources) -> str:
    return problem(
        ["grid", second], dict(point), f"the point stands in grid[{first}] already", sources
    )
