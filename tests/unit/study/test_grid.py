"""Products, exclusions with their reasons, names that must exist, duplicates."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import raw_config, refused
from tfscaling.datasets.catalogue import DATASETS
from tfscaling.study import acceptance, config_validation, grid_checks, question_checks
from tfscaling.study.config_types import Config
from tfscaling.study.config_validation import ConfigError
from tfscaling.study.geometry import Geometry
from tfscaling.study.manifest import Manifest
from tfscaling.study.registries import Registries
from tfscaling.train.models import MODELS
from tfscaling.train.strategies import STRATEGIES

Change = tuple[Sequence[str | int], Any]


def expand(*changes: Change) -> Manifest:
    raw = raw_config(*changes)
    with config_validation.add_file_to_errors([("config.yaml", raw)]):
        return acceptance.plan_grid(
            config_validation.convert_to_types(raw), Registries(MODELS, STRATEGIES)
        )


def block(**axes: Any) -> dict[str, Any]:
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": 1}
    return {**usual, **axes}


def blocks(*given: dict[str, Any]) -> Change:
    return (("grid",), list(given))


NAMES = [
    ("platform", "clustr", "did you mean 'cluster'? allowed: cluster, laptop"),
    ("model", "mnist_cn", "did you mean 'mnist_cnn'? allowed: cifar10_cnn, "),
    ("strategy", "miror", "did you mean 'mirrored'? allowed: "),
    ("recipe", "strong", "allowed: weak"),
]


@pytest.mark.parametrize(("axis", "name", "allowed"), NAMES)
def test_unknown_names_are_refused_with_those_that_exist(
    axis: str, name: str, allowed: str
) -> None:
    refusal = f'{axis}: "{name}" is not allowed; {allowed}'
    for wrong in (name, [name]):
        message = refused(expand, blocks(block(), block(nodes=2, **{axis: wrong})))
        assert message.startswith(f"config.yaml: grid[1].{refusal}")
    message = refused(expand, blocks(block(nodes=[1, 2], exclude=[{axis: name}])))
    assert message.startswith(f"config.yaml: grid[0].exclude[0].{refusal}")


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "gpus_beyond_the_platform": (
        {"gpus_per_node": 5}, "grid[0].gpus_per_node", "5", "cluster has gpus_per_node_max 4"),
    "gpus_beyond_the_platform_in_a_list": (
        {"gpus_per_node": [1, 8]}, "grid[0].gpus_per_node", "8", "cluster has gpus_per_node_max 4"),
    "more_tasks_than_cpus": (
        {"tasks_per_node": 9}, "grid[0].tasks_per_node", "9", "cluster has cpus_per_node 8"),
    "gpus_that_tasks_cannot_share": (
        {"gpus_per_node": 4, "tasks_per_node": 3}, "grid[0].gpus_per_node", "4",
        "allowed: a multiple of tasks_per_node 3"),
    "no_number_of_nodes_within_the_limit": (
        {"nodes": 9}, "grid[0].nodes", "9", "cluster has nodes_max 8; allowed: 1 to 8"),
    "nothing_left": (
        {"nodes": 8, "exclude": [{"nodes": 8}]}, "grid[0]", "", "excluded by the grid"),
}  # fmt: skip


@pytest.mark.parametrize(("axes", "key", "shown", "allowed"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_geometry_that_no_cluster_could_give_is_an_error(
    axes: dict[str, Any], key: str, shown: str, allowed: str
) -> None:
    message = refused(expand, blocks(block(**axes)))
    value = f"{shown} is " * bool(shown)
    assert message.startswith(f"config.yaml: {key}: {value}not allowed; ")
    assert allowed in message


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"per_replica_batch_size": 64, "global_batch_size": 128},
        {"per_replica_batch_size": 64, "per_worker_batch_size": 64, "global_batch_size": 64},
    ],
)
def test_exactly_one_batch_size_is_given(sizes: dict[str, int]) -> None:
    recipe = {"learning_rate": 0.1, "epochs": 1, **sizes}
    where, reason, allowed = refused(expand, (("recipes", "weak"), recipe)).split("; ")
    assert where == "config.yaml: recipes.weak: not allowed"
    assert all(key in reason for key in sizes) and "per_worker_batch_size" in allowed


def test_a_point_in_two_blocks_is_an_error_that_shows_the_point_and_both_blocks() -> None:
    message = refused(expand, blocks(block(nodes=[1, 2]), block(nodes=4), block(nodes=[3, 2])))
    assert message.startswith("config.yaml: grid[2]: {")
    assert '"nodes": 2' in message and "grid[0]" in message


def test_a_block_is_the_product_of_its_axes_with_repeats_innermost() -> None:
    runs = expand(blocks(block(nodes=[2, 1], gpus_per_node=[0, 4], repeats=2))).runs
    assert [
        (run.spec.point.nodes, run.spec.point.gpus_per_node, run.spec.repeat) for run in runs
    ] == [(nodes, gpus, repeat) for nodes in (2, 1) for gpus in (0, 4) for repeat in (1, 2)]


@pytest.mark.parametrize(
    ("axes", "sizes"),
    [
        ({"nodes": 2}, (2, 64, 128)),
        ({"nodes": 2, "gpus_per_node": 4}, (8, 64, 512)),
        ({"nodes": 2, "gpus_per_node": 4, "tasks_per_node": 2}, (8, 64, 512)),
        ({"nodes": 2, "tasks_per_node": 3}, (6, 64, 384)),
        ({"nodes": 2, "tasks_per_node": "3+1"}, (4, 64, 256)),
        ({"nodes": 5, "strategy": "parameter_server"}, (3, 64, 192)),
    ],
)
def test_replicas_and_batch_sizes_of_a_run(
    axes: dict[str, Any], sizes: tuple[int, int, int]
) -> None:
    (run,) = expand(blocks(block(**axes))).runs
    spec = run.spec
    assert (spec.replicas, spec.per_replica_batch_size, spec.global_batch_size) == sizes
    assert spec.geometry == Geometry(
        axes["nodes"], spec.point.tasks_per_node, spec.point.gpus_per_node
    )


@pytest.mark.parametrize(
    ("gpus", "tasks", "expected"),
    [
        ([1, 2, 4], "gpus", [(1, 1), (2, 2), (4, 4)]),
        (4, ["gpus", 1], [(4, 4), (4, 1)]),
        ([0, 4], ["gpus", 2], [(0, 1), (0, 2), (4, 4), (4, 2)]),
        ([0, 1], [1, "gpus"], [(0, 1), (1, 1)]),
    ],
)
def test_a_block_may_have_a_task_for_each_gpu(
    gpus: Any, tasks: Any, expected: list[tuple[int, int]]
) -> None:
    made = blocks(block(nodes=[1, 2], gpus_per_node=gpus, tasks_per_node=tasks, repeats=1))
    points = [run.spec.point for run in expand(made).runs]
    assert [(each.nodes, each.gpus_per_node, each.tasks_per_node) for each in points] == [
        (nodes, *both) for nodes in (1, 2) for both in expected
    ]


STRONG = {"global_batch_size": 64, "learning_rate": 0.1, "epochs": 1}
EXCLUDED: dict[str, tuple[list[Change], dict[str, Any], str]] = {
    "nodes_max": ([blocks(block(nodes=[8, 9]))], {"nodes": 9}, "9 nodes exceed nodes_max 8"),
    "quota": (
        [(("platforms", "cluster", "gpus_max"), 8), blocks(block(nodes=[2, 3], gpus_per_node=4))],
        {"nodes": 3, "gpus_per_node": 4}, "12 GPUs exceed the quota gpus_max 8",
    ),
    "rule_with_a_value": (
        [blocks(block(nodes=[1, 2], exclude=[{"nodes": 2}]))],
        {"nodes": 2}, "excluded by the grid",
    ),
    "rule_with_two_axes": (
        [blocks(block(nodes=[1, 2], gpus_per_node=[0, 1],
                      exclude=[{"nodes": [2, 3], "gpus_per_node": 1}]))],
        {"nodes": 2, "gpus_per_node": 1}, "excluded by the grid",
    ),
    "batch_that_cannot_be_split": (
        [(("recipes", "strong"), STRONG), blocks(block(recipe="strong", nodes=[2, 3]))],
        {"nodes": 3, "recipe": "strong"}, "global_batch_size 64 is not divisible by 3 replicas",
    ),
    "uneven_tasks_for_other_nodes": (
        [blocks(block(nodes=[2, 3], tasks_per_node="2+1"))],
        {"nodes": 3, "tasks_per_node": "2+1"}, "tasks_per_node 2+1 is for 2 nodes",
    ),
    "no_task_left_for_a_worker": (
        [blocks(block(strategy="parameter_server", nodes=[2, 3]))],
        {"nodes": 2, "strategy": "parameter_server"},
        "the strategy needs tasks for a coordinator, 1 parameter servers and a worker, not 2",
    ),
    "strategy_of_one_task": (
        [blocks(block(strategy="mirrored", nodes=[1, 2]))],
        {"nodes": 2, "strategy": "mirrored"}, "the strategy runs one task, not 2",
    ),
    "strategy_of_one_device": (
        [blocks(block(strategy="single", gpus_per_node=[1, 2]))],
        {"gpus_per_node": 2, "strategy": "single"}, "the strategy uses one device, not 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "axes", "reason"), EXCLUDED.values(), ids=EXCLUDED)
def test_a_point_beyond_a_limit_is_left_out_with_its_reason(
    changes: list[Change], axes: dict[str, Any], reason: str
) -> None:
    expanded = expand(*changes)
    (left_out,) = expanded.excluded
    assert left_out.reason == reason
    assert {axis: left_out.point.axes[axis] for axis in axes} == axes
    assert len(expanded.runs) > 0
    assert all(axes.items() - run.spec.axes.items() for run in expanded.runs)


def test_an_exclude_rule_may_say_why() -> None:
    rules = [{"nodes": 2, "reason": "no licence"}, {"nodes": [2, 3]}]
    expanded = expand(blocks(block(nodes=[1, 2, 3], exclude=rules)))
    reasons = {left_out.point.nodes: left_out.reason for left_out in expanded.excluded}
    assert reasons == {2: "no licence", 3: "excluded by the grid"}


def test_an_excluded_geometry_may_be_one_that_no_cluster_could_give() -> None:
    rule = {"gpus_per_node": 2, "tasks_per_node": 4}
    expanded = expand(blocks(block(gpus_per_node=[2, 4], tasks_per_node=[2, 4], exclude=[rule])))
    assert len(expanded.runs) == 3
    assert len(expanded.excluded) == 1


def check_baseline(baseline: dict[str, Any], *changes: Change) -> Config:
    """Return the configuration with this baseline. Raises NotAllowed."""
    raw = raw_config(*changes)
    overlay = {"comparison": {"baseline": baseline}}
    config = config_validation.convert_to_types({**raw, **overlay})
    sources = [("config.yaml", raw), ("over.yaml", overlay)]
    with config_validation.add_file_to_errors(sources):
        question_checks.check_baseline(config, expand(*changes))
    return config


GRID = blocks(block(nodes=[2, 4, 9]), block(platform="laptop", strategy="single"))


ALL_AXES = {"platform": "cluster", "model": "mnist_cnn", "strategy": "multi_worker_mirrored",
            "recipe": "weak", "nodes": 4, "gpus_per_node": 0, "tasks_per_node": 1}  # fmt: skip
#: Whether the grid runs it → baselines.
BASELINES: dict[bool, list[dict[str, Any]]] = {
    True: [{}, {"nodes": 2}, {"strategy": "single"}, {"platform": "laptop", "nodes": 1}, ALL_AXES],
    # not in the grid, excluded, values that are in no block together
    False: [{"nodes": 3}, {"strategy": "mirrored"}, {"gpus_per_node": 1}, {"nodes": 9},
            {"platform": "laptop", "nodes": 2}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("baseline", "runs"), [(each, runs) for runs, found in BASELINES.items() for each in found]
)
def test_a_baseline_is_one_that_the_grid_runs(baseline: dict[str, Any], runs: bool) -> None:
    if runs:
        check_baseline(baseline, GRID)
    else:
        start = f"over.yaml: comparison.baseline: {json.dumps(baseline)} is not allowed; "
        assert refused(check_baseline, baseline, GRID).startswith(start)


def with_examples(examples: dict[str, int], *changes: Change) -> Manifest:
    raw = raw_config(*changes)
    datasets = {
        n: replace(DATASETS[n], train_examples=own, image_shape=None) for n, own in examples.items()
    }
    registries = Registries(MODELS, STRATEGIES, datasets)
    return acceptance.plan_grid(config_validation.convert_to_types(raw), registries)


BATCHES = {
    "dataset": ({"mnist": 128}, {}, [1, 2], ["the training examples of mnist, 128"] * 2),
    "recipe": (
        {"mnist": 60000}, {"train_examples_max": 65}, [1], ["train_examples_max, 65"] * 3),
    "dataset_is_smaller_than_what_the_recipe_asks": (
        {"mnist": 200}, {"train_examples_max": 300}, [1, 2, 3],
        ["the training examples of mnist, 200"]),
    "unknown_dataset_with_a_limit_of_the_recipe": (
        {}, {"train_examples_max": 128}, [1, 2], ["train_examples_max, 128"] * 2),
    "recipes_own_dataset": (
        {"mnist": 1, "cifar10": 64}, {"dataset": "cifar10"}, [1],
        ["the training examples of cifar10, 64"] * 3),
    "validation_examples_are_not_trained": (
        {"mnist": 150}, {"validation_examples": 30}, [1],
        ["the training examples of mnist less validation_examples, 120"] * 3),
    "nothing_known": ({}, {}, [1, 2, 3, 4], []),
}  # fmt: skip


@pytest.mark.parametrize(("examples", "recipe", "nodes", "reasons"), BATCHES.values(), ids=BATCHES)
def test_a_global_batch_beyond_the_examples_is_excluded_with_the_reason(
    examples: dict[str, int], recipe: dict[str, Any], nodes: list[int], reasons: list[str]
) -> None:
    changes = [(("recipes", "weak", key), value) for key, value in recipe.items()]
    expanded = with_examples(examples, *changes, blocks(block(nodes=[1, 2, 3, 4], repeats=1)))
    assert [run.spec.point.nodes for run in expanded.runs] == nodes
    assert len(expanded.excluded) == len(reasons)
    for left_out, whose in zip(expanded.excluded, reasons, strict=True):
        total = 64 * left_out.point.nodes
        assert f" {total} examples " in left_out.reason and left_out.reason.endswith(whose)


@pytest.mark.parametrize("more", [0, 1, 40])
def test_validation_examples_leave_none_of_a_small_dataset(more: int) -> None:
    held_out = (("recipes", "weak", "validation_examples"), 150 + more)
    message = refused(with_examples, {"mnist": 150}, held_out, blocks(block(nodes=[1], repeats=1)))
    assert message.endswith("exceeds the training examples of mnist less validation_examples, 0")


def test_names_that_are_too_long_together_for_a_folder_are_refused() -> None:
    minimal = raw_config()
    platform, recipe = minimal["platforms"]["cluster"], minimal["recipes"]["weak"]

    def named(length: int) -> tuple[Change, ...]:
        names = {"platform": "p" * 100, "recipe": "r" * length}
        return (
            (("platforms",), {names["platform"]: platform}),
            (("recipes",), {names["recipe"]: recipe}),
            blocks(block(**names, repeats=1)),
        )

    (run,) = expand(*named(1)).runs
    spare = 238 - len("_".join([*map(str, run.spec.point.axes.values()), "1"]))
    (run,) = expand(*named(1 + spare)).runs
    assert max(map(len, run.spec.path.split("/"))) <= 255
    message = refused(expand, *named(2 + spare))
    assert "grid[0]: " in message and "; allowed: 238" in message


@pytest.mark.parametrize(("seed", "repeats", "fits"), [(2**32 - 6, 6, True), (2**32 - 5, 6, False)])
def test_the_seed_of_the_last_repeat_is_one_that_keras_takes(
    seed: int, repeats: int, fits: bool
) -> None:
    changes = ((("seed",), seed), blocks(block(repeats=repeats)))
    if fits:
        assert len(expand(*changes).runs) == 6
    else:
        with pytest.raises(ConfigError, match=rf"seed: {seed} .* {2**32 - 6} or"):
            expand(*changes)


LEFT_OUT: dict[str, dict[str, Any]] = {
    "excluded": {"nodes": [1, 2, 4], "exclude": [{"nodes": 4}]},
    "too_many_nodes": {"nodes": [1, 2, 9]},
    "refused_by_the_strategy": {
        "strategy": "mirrored", "nodes": [1, 2], "gpus_per_node": [1, 2, 4],
        "exclude": [{"gpus_per_node": 4}],
    },
}  # fmt: skip


@pytest.mark.parametrize("axes", LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_is_left_out_counts_for_no_run(
    axes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    most = random.randint(10, 30)
    print(f"repeats: {most}")
    monkeypatch.setattr(grid_checks, "RUNS_MAX", 2 * most)
    planned = expand(blocks(block(**axes, repeats=most)))
    assert len(planned.runs) == 2 * most and planned.excluded
    refusal = refused(expand, blocks(block(**axes, repeats=most + 1)))
    assert f"grid[0]: not allowed; the grid has {2 * most + 2} runs " in refusal
    # earlier blocks count, too
    earlier = block(nodes=[5, 6], exclude=[{"nodes": 6}])
    assert len(expand(blocks(earlier, block(**axes, repeats=most - 1))).runs) == 2 * most - 1
    refusal = refused(expand, blocks(earlier, block(**axes, repeats=most)))
    assert f"grid[1]: not allowed; the grid has {2 * most + 1} runs " in refusal


def test_a_grid_that_memory_does_not_hold_is_refused_before_it_is_made() -> None:
    axes = {"nodes": [*range(1, 9)], "gpus_per_node": [*range(5)], "repeats": 10_000}
    with pytest.raises(ConfigError, match=r"grid\[0\]: .* 400,000 runs .*100,000"):
        expand(blocks(block(**axes)))
    axes = {"nodes": [*range(1, 10_001)], "tasks_per_node": [*range(1, 51)]}
    with pytest.raises(ConfigError, match=r"grid\[0\]: .* 500,000 configurations .*100,000"):
        expand(blocks(block(**axes)))
    parameters = {f"p{n}": [*range(100)] for n in range(8)}
    with pytest.raises(ConfigError, match=r"weak\.parameters: .* have 10{16} combinations"):
        expand((("recipes", "weak", "parameters"), parameters))
