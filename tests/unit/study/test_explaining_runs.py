"""Runs on one replica that `explain` adds: which ones, with which parameters, and refusals."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from builders import REGISTRIES, raw_config, refused
from tfscaling.study import acceptance
from tfscaling.study.manifest import Manifest, PlannedRun

RECIPE = {
    "epochs": 12,
    "program": ["python3", "-m", "x", "{epochs}", "{per_replica_batch_size}"],
    "observe": "events",
}
BLOCK = {"platform": "cluster", "recipe": "script", "strategy": "own", "explain": True}


def expand(keys: dict[str, Any], *blocks: dict[str, Any], **top: Any) -> Manifest:
    given = [BLOCK | block for block in blocks]
    raw = raw_config((("recipes", "script"), {**RECIPE, **keys}), (("grid",), given)) | top
    return acceptance.validate_and_plan(raw, REGISTRIES, [("config.yaml", raw)])[1]


def only(planned: Manifest) -> PlannedRun:
    (run,) = planned.explaining
    point = run.spec.point
    assert (point.nodes, point.tasks_per_node, run.spec.replicas, run.spec.repeat) == (1, 1, 1, 1)
    return run


def test_configurations_with_the_same_work_of_a_replica_share_one_run(dice: random.Random) -> None:
    nodes = dice.sample(range(2, 9), 3)
    batch, epochs = dice.randint(1, 99), dice.randint(9, 99)
    planned = expand({"per_replica_batch_size": batch, "epochs": epochs}, {"nodes": nodes})
    run = only(planned)
    assert {point.nodes for point in run.explains} == {*nodes}
    assert run.spec.per_replica_batch_size == run.spec.global_batch_size == batch
    assert run.spec.recipe.epochs == math.ceil(epochs / max(nodes))
    assert run.spec.point.recipe == f"script+epochs={run.spec.recipe.epochs}"
    assert run not in planned.runs and planned.all_runs == (*planned.runs, run)
    assert {run.spec.point} == planned.explaining_points


def test_a_configuration_on_one_replica_makes_a_further_run_needless() -> None:
    batch = {"per_replica_batch_size": 8}
    assert not expand(batch, {"nodes": [1, 2, 4]}).explaining
    others = {"nodes": 1, "explain": False}
    assert not expand(batch, {"nodes": [2, 4]}, others).explaining
    assert not expand(batch, {"nodes": [2, 4], "explain": False}).explaining
    # another device does other work
    (run,) = expand(batch, {"nodes": 2, "gpus_per_node": [0, 4]}, {**others, "gpus_per_node": 0}
                    ).explaining  # fmt: skip
    assert (run.spec.point.gpus_per_node, run.spec.recipe.epochs) == (1, 2)


def test_a_divided_batch_is_kept_per_replica() -> None:
    planned = expand({"global_batch_size": 32}, {"nodes": [1, 2, 4]})
    # on 1 node, one replica has the whole batch
    assert [(run.spec.per_replica_batch_size, [p.nodes for p in run.explains],
             run.spec.point.recipe)
            for run in planned.explaining] == [
        (16, [2], "script+epochs=6+per_replica_batch_size=16"),
        (8, [4], "script+epochs=3+per_replica_batch_size=8"),
    ]  # fmt: skip
    assert {run.spec.global_batch_size for run in planned.explaining} == {16, 8}
    assert all(run.spec.recipe.global_batch_size is None for run in planned.explaining)
    per_worker = expand({"per_worker_batch_size": 32}, {"nodes": 2, "gpus_per_node": 4})
    assert only(per_worker).spec.per_replica_batch_size == 8


def test_a_program_that_does_not_get_its_epochs_trains_them_all() -> None:
    planned = expand({"per_replica_batch_size": 8, "program": ["python3"]}, {"nodes": 2})
    assert only(planned).spec.recipe.epochs == 12
    assert only(planned).spec.point.recipe == "script"


def test_short_runs_of_a_search_are_explained_too() -> None:
    search = {"stop_after_epochs": 3}
    planned = expand({"per_replica_batch_size": 8}, {"nodes": [2, 4]}, search=search)
    recipes = {(point.recipe, point.nodes) for point in only(planned).explains}
    assert recipes == {(name, n) for name in ("script", "script+epochs=3") for n in (2, 4)}


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no_times": ({"observe": "nothing"}, {"nodes": 2}, "observe nothing has no times of steps"),
    "shared_cpus": ({}, {"nodes": 2, "tasks_per_node": 2}, "allowed: tasks_per_node 1"),
    "no_batch": (
        {"global_batch_size": 8, "per_replica_batch_size": None, "program": ["python3"]},
        {"nodes": 2}, "allowed: a word with {per_replica_batch_size}"),
    "built_in": ({}, {"nodes": 2, "recipe": "weak", "strategy": "multi_worker_mirrored",
                      "model": "mnist_cnn"}, "the built-in trainer measures"),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "block", "words"), REFUSED.values(), ids=REFUSED)
def test_what_no_run_on_one_replica_can_explain_is_refused(
    keys: dict[str, Any], block: dict[str, Any], words: str
) -> None:
    message = refused(expand, {"per_replica_batch_size": 8, **keys}, block)
    assert message.startswith("config.yaml: grid[0].explain: true is not allowed; recipe ")
    assert words in message
