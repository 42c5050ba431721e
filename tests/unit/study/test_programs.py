"""A user's program in a recipe: what is refused before a job starts, and how it is told values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import REGISTRIES, raw_config, refused
from tfscaling.study import acceptance, config_validation, run_spec, variants
from tfscaling.study.config_types import PROGRAM, PROGRAM_STRATEGY
from tfscaling.study.manifest import Manifest
from tfscaling.study.run_spec import PLACEHOLDERS

RECIPE = {"per_replica_batch_size": 8, "epochs": 2, "program": ["python3", "-m", "x"]}
BLOCK = {"platform": "cluster", "recipe": "script", "strategy": "own", "nodes": [1, 2]}


def expand(keys: dict[str, Any], **block: Any) -> Manifest:
    return expand_on((), keys, **block)


def expand_on(changes: Sequence[Any], keys: dict[str, Any], **block: Any) -> Manifest:
    """The manifest with a recipe of these keys, after changes of other keys."""
    given = (("recipes", "script"), {**RECIPE, **keys}), (("grid",), [BLOCK | block])
    raw = raw_config(*given, *changes)
    sources = [("config.yaml", raw)]
    return acceptance.validate_and_plan(raw, REGISTRIES, sources)[1]


def test_a_program_has_a_point_without_model_and_dataset() -> None:
    runs = expand({}, nodes=2, tasks_per_node=2).runs
    spec = runs[0].spec
    assert (spec.point.model, spec.point.strategy) == (PROGRAM, PROGRAM_STRATEGY)
    assert (spec.jobs, spec.replicas, spec.global_batch_size) == ({"worker": 4}, 4, 32)
    assert spec.dataset is None
    assert spec.parameters["program"] == ["python3", "-m", "x"]
    assert {"observe", "patterns"}.isdisjoint(spec.parameters)


def test_its_model_may_be_any_name() -> None:
    exclude = [{"model": "mnist_cnn", "nodes": 2}]
    (run,) = expand({}, model="mnist_cnn", exclude=exclude).runs
    assert run.spec.point.model == "mnist_cnn"


def test_placeholders_are_filled_in() -> None:
    words = [*(f"--{name}={{{name}}}" for name in PLACEHOLDERS), "{{x}}", "{parameters.depth}"]
    run = expand({"program": words, "parameters": {"depth": [18, True]}}, nodes=2).runs[1]
    filled = [run.spec.fill_placeholders(word, Path("/own")) for word in run.spec.recipe.program]
    assert filled == [
        "--epochs=2", "--per_replica_batch_size=8", "--global_batch_size=16", "--seed=1",
        "--replicas=2", "--folder=/own", "{x}", "true",
    ]  # fmt: skip
    assert run.spec.point.recipe == "script+depth=true"


DATASETS = """
def arrays(size, kind="x"): ...
def read(context): ...
"""


@pytest.mark.parametrize(
    ("dataset", "parameters", "key", "words"),
    [
        ("sets:arrays", {"size": 3}, None, ""),
        ("sets:arrays", {}, "parameters: {}", "argument size of sets:arrays has no default"),
        ("sets:read", {}, 'dataset: "sets:read"', "a pipeline without `prepare(folder)` has no"),
    ],
)
def test_a_dataset_is_prepared_for_a_program(
    dataset: str,
    parameters: dict[str, Any],
    key: str | None,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sets.py").write_text(DATASETS)
    recipe = {"program": ["{dataset}"], "dataset": dataset, "parameters": parameters}
    if key is None:
        spec = expand(recipe).runs[0].spec
        assert (spec.dataset, variants.data_name_of_run(spec)) == (dataset, f"{dataset}+size=3")
        assert (
            spec.fill_placeholders("in={dataset}", Path("/own"), Path("/data.npz"))
            == "in=/data.npz"
        )
        return
    message = refused(expand, recipe)
    assert message.startswith(f"config.yaml: recipes.script.{key}")
    assert words in message


def test_an_environment_is_a_parameter_only_where_it_is_given() -> None:
    (run, _), (own, _) = expand({}).runs, expand({"environment": sys.prefix}).runs
    assert "environment" not in run_spec.encode_spec(run.spec)
    assert own.spec.parameters == {**run.spec.parameters, "environment": sys.prefix}
    assert own.spec.parameters_hash != run.spec.parameters_hash


#: What is wrong with a recipe: its keys → the key that the message names, and its words.
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "placeholder": (
        {"program": ["x", "--epochs={epoch}"]}, "program[1]: \"--epochs=***\"",
        "unknown placeholder {epoch}; did you mean 'epochs'? allowed: epochs, folder"),
    "parameter": (
        {"program": ["{parameters.x}"], "parameters": {"xs": 1}}, "program[0]",
        "unknown placeholder {parameters.x}; did you mean 'parameters.xs'?"),
    "unused_parameter": (
        {"parameters": {"depth": 3}}, "parameters.depth",
        "no word of `program` names {parameters.depth}"),
    "format": ({"program": ["{epochs:3}"]}, "program[0]", "{epochs} alone"),
    "brace": ({"program": ["}"]}, "program[0]", "{{ or }} for a brace itself"),
    "a_text": ({"program": "a b"}, "program", 'write it as a list'),
    "a_line": ({"program": ["a 'b c'"]}, "program[0]", "a list of words"),
    "a_number": ({"program": ["a", 8]}, "program[1]", "write a text in quotes"),
    "key_of_the_trainer": ({"learning_rate": 0.1}, "learning_rate", "leave it out"),
    "dataset": ({"dataset": "mnist"}, "dataset", "no word of `program` names {dataset}"),
    "no_dataset": ({"program": ["x", "{dataset}"]}, "program[1]", "unknown placeholder {dataset}"),
    "parameter_of_no_dataset": (
        {"program": ["{dataset}"], "dataset": "mnist", "parameters": {"size": 3}},
        "parameters.size", "no word of `program` names {parameters.size}"),
    "observe": ({"observe": "fits"}, "observe", "`events`"),
    "no_patterns": ({"observe": "output"}, "patterns", "`observe: output` needs patterns"),
    "patterns": ({"patterns": {"loss": "(a)"}}, "patterns", "`observe: output`"),
    "broken_pattern": (
        {"observe": "output", "patterns": {"loss": "a(b"}}, "patterns.loss",
        "no regular expression: missing )"),
    "no_group": (
        {"observe": "output", "patterns": {"loss": "ab"}}, "patterns.loss", "one group"),
    "no_program": ({"program": ["./x", "{seed}"]}, "program[0]: \"./x\"", "no such program"),
    "no_command": ({"program": ["no-such-x"]}, "program[0]: \"no-such-x\"", "no such program"),
    "no_script": (
        {"program": ["bash", "-e", "no-such/x.sh"]}, "program[2]: \"no-such/x.sh\"",
        "no such file"),
    "without_program": ({"program": [], "observe": "fit"}, "observe", "only a recipe with"),
    "environment": (
        {"environment": "no-such"}, "environment: \"no-such\"",
        f"{Path.cwd() / 'no-such/bin/python'}; allowed: a virtual or conda environment"),
    "environment_without_program": (
        {"program": [], "environment": "no-such"}, "environment", "there is no program"),
}  # fmt: skip


@pytest.mark.parametrize("case", ["no_program", "no_command", "no_script", "environment"])
def test_what_is_in_the_image_of_a_container_is_not_looked_for(case: str) -> None:
    keys = WRONG[case][0]
    changes = ((("platforms", "cluster", "container"), {"image": "tf.sif"}),)
    (run,) = expand_on(changes, keys, nodes=1).runs
    assert run.spec.recipe.program == tuple(keys.get("program", RECIPE["program"]))


@pytest.mark.parametrize(("recipe", "key", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_recipe_is_named_with_key_value_and_what_is_allowed(
    recipe: dict[str, Any], key: str, words: str
) -> None:
    message = refused(expand, recipe)
    assert message.startswith(f"config.yaml: recipes.script.{key}")
    assert words in message


WRONG_BLOCKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "strategy": ({"strategy": "mirrored"}, "strategy", "strategy: own"),
    "mixed": ({"recipe": ["script", "weak"]}, "recipe", "weak names no program"),
    "no_program": ({"recipe": "weak", "model": "mnist_cnn"}, "strategy", "names no program"),
    "no_model": ({"recipe": "weak", "strategy": "single"}, "model", "allowed: a model"),
    "logical": ({"platform": "laptop", "gpus_per_node": 1}, "gpus_per_node", "logical devices"),
}


@pytest.mark.parametrize(("axes", "key", "words"), WRONG_BLOCKS.values(), ids=WRONG_BLOCKS)
def test_a_wrong_block_is_named(axes: dict[str, Any], key: str, words: str) -> None:
    message = refused(expand, {}, **axes)
    assert message.startswith(f"config.yaml: grid[0].{key}: ")
    assert words in message


def test_another_trainer_leaves_programs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    before = expand({}).runs[0].spec
    of_trainer = (
        acceptance.plan_grid(config_validation.convert_to_types(raw_config()), REGISTRIES)
        .runs[0]
        .spec
    )
    monkeypatch.setattr(run_spec, "TRAINER_VERSION", of_trainer.trainer_version + 1)
    assert expand({}).runs[0].spec.parameters_hash == before.parameters_hash
    (now, _) = acceptance.plan_grid(
        config_validation.convert_to_types(raw_config()), REGISTRIES
    ).runs
    assert now.spec.parameters_hash != of_trainer.parameters_hash
