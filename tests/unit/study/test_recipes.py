"""What the keys of a recipe cannot ask for together: one error with the key and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import REGISTRIES, refused, valid_config
from msgspec.structs import replace
from tfscaling.study import acceptance
from tfscaling.study.config_types import Recipe
from tfscaling.study.run_spec import RunSpec

#: What the recipe has besides, the key that is refused, its value, what is allowed.
CONTRADICTIONS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "warm_up_of_the_whole_training": ({"warmup_epochs": 2.0}, "warmup_epochs", "2.0", "epochs, 2"),
    "nesterov_without_momentum": ({"nesterov": True}, "nesterov", "true", "momentum above 0"),
    "nesterov_of_adam": (
        {"nesterov": True, "optimizer": "adam", "momentum": 0.9}, "nesterov", "true", "sgd"),
    "loss_scale_of_asynchronous_workers": (
        {"precision": "mixed_float16", "strategy": "parameter_server"}, "precision",
        '"mixed_float16"', "float32"),
    "fewer_steps_than_tell_how_they_scatter": (
        {"stop_after_steps": 30, "steps_per_execution": 2}, "stop_after_steps", "30", "40 or more"),
    "auto": ({"stop_after_steps": "auto", "steps_per_execution": 30}, "stop_after_steps", '"auto"',
             "600 or more"),
    "checkpoints_of_a_short_run": (
        {"stop_after_steps": 30, "checkpoint_every_epochs": 1}, "checkpoint_every_epochs", "1",
        "null"),
    "short_run_with_parameter_servers": (
        {"stop_after_steps": 30, "strategy": "parameter_server"}, "stop_after_steps", "30",
        "multi_worker_mirrored"),
    "xla_with_parameter_servers": (
        {"jit_compile": True, "strategy": "synchronous_parameter_server"}, "jit_compile", "true",
        "mpi_all_reduce"),
}  # fmt: skip


def spec_of(strategy: str = "multi_worker_mirrored", **recipe: Any) -> RunSpec:
    """The last run: on two nodes."""
    changes = [(("recipes", "weak", key), value) for key, value in recipe.items()]
    config = valid_config((("grid", 0, "strategy"), strategy), *changes)
    return acceptance.plan_grid(config, REGISTRIES).runs[-1].spec


@pytest.mark.parametrize(
    ("recipe", "key", "shown", "allowed"), CONTRADICTIONS.values(), ids=CONTRADICTIONS
)
def test_keys_that_contradict_each_other_are_refused(
    recipe: dict[str, Any], key: str, shown: str, allowed: str
) -> None:
    message = refused(spec_of, **recipe)
    assert f"recipes.weak.{key}: {shown} is not allowed; " in message
    assert allowed in message.partition("is not allowed; ")[2]


def test_what_changes_nothing_is_no_parameter() -> None:
    nothing: dict[str, Any] = {
        "nesterov": False,
        "weight_decay": 0.0,
        "warmup_epochs": 0,
        "decay": "none",
    }
    assert spec_of(**nothing) == spec_of()
    changed = spec_of(momentum=0.9, nesterov=True, warmup_epochs=1, label_smoothing=0.1)
    assert changed.parameters.keys() - spec_of().parameters == {
        *("nesterov", "warmup_epochs", "label_smoothing")
    }


@pytest.mark.parametrize(
    ("taken", "instead"),
    [("context, size=3, kind=1", "`parameters` (kind, size)"), ("context", "let its function")],
)
@pytest.mark.parametrize("key", ["train_examples_max", "validation_examples"])
def test_a_pipeline_gets_its_number_of_examples_by_its_own_parameters(
    taken: str, instead: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pipes.py").write_text(f"def read({taken}): ...\n")
    message = refused(spec_of, dataset="pipes:read", **{key: 64})
    assert f"recipes.weak.{key}: 64 is not allowed; " in message and instead in message


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, False), ({"warmup_epochs": 0.5}, True), ({"warmup_epochs": 2}, True),
        ({"decay": "cosine"}, True), ({"decay": "none", "warmup_epochs": 0.0}, False),
    ],
)  # fmt: skip
def test_a_recipe_has_a_schedule_if_its_learning_rate_changes(
    keys: dict[str, Any], expected: bool
) -> None:
    recipe = Recipe(per_replica_batch_size=8, learning_rate=0.1, epochs=4, **keys)
    assert recipe.has_schedule is expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, False), ({"checkpoint_every_epochs": 1}, True), ({"checkpoint_every_s": 60}, True),
    ],
)  # fmt: skip
def test_a_recipe_writes_checkpoints_by_epochs_or_seconds(
    keys: dict[str, Any], expected: bool
) -> None:
    recipe = Recipe(per_replica_batch_size=8, learning_rate=0.1, epochs=4, **keys)
    assert recipe.writes_checkpoints is expected
    assert recipe.batch_scaling == "weak"
    other = replace(recipe, per_replica_batch_size=None, global_batch_size=8)
    assert other.batch_scaling == "strong"
