"""Parameters of a run: what belongs to them, and their way through a command line and back."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from builders import valid_config
from hypothesis import strategies as st
from tfscaling import TRAINER_VERSION
from tfscaling.study import grid, parameters
from tfscaling.training.models import MODELS
from tfscaling.training.strategies import STRATEGIES

Change = tuple[Sequence[str | int], Any]
PLATFORM = ("platforms", "cluster")
RECIPE = ("recipes", "weak")


def run_and_parameters(*changes: Change) -> tuple[grid.Run, dict[str, Any]]:
    """The minimal configuration's run on two nodes."""
    config = valid_config(*changes)
    run = grid.expand(config, MODELS, STRATEGIES).runs[-1]
    return run, parameters.run_parameters(config, run, "mnist")


def parse(words: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Axes and parameters of a command line, which goes through a shell's quoting."""
    parser = argparse.ArgumentParser()
    parameters.add_arguments(parser)
    return parameters.from_namespace(parser.parse_args(shlex.split(shlex.join(words))))


ROUND_TRIPS: dict[str, list[Change]] = {
    "defaults_with_values_left_open": [],
    "whole_numbers_where_floats_are_meant": [
        ((*RECIPE, "learning_rate"), 1),
        ((*RECIPE, "momentum"), 0),
    ],
    "small_float": [((*RECIPE, "learning_rate"), 1e-07)],
    "float_with_all_its_digits": [((*RECIPE, "learning_rate"), 0.1 + 0.2)],
    "numbers_that_may_be_null": [((*RECIPE, "train_examples_max"), 5000)],
    "texts": [((*PLATFORM, "gpu_type"), "Tesla V100-SXM2 16GB")],
    "text_with_quotes": [((*PLATFORM, "instance_type"), """it's "large" $HOME `x` \\""")],
    "text_that_looks_like_a_flag": [((*PLATFORM, "instance_type"), "--large")],
    "text_that_starts_with_a_hyphen": [((*PLATFORM, "instance_type"), "-a100")],
    "uneven_tasks": [(("grid", 0, "tasks_per_node"), "2+1"), (("grid", 0, "nodes"), 2)],
    "several_tasks": [(("grid", 0, "tasks_per_node"), 3)],
    "empty_text": [((*PLATFORM, "env"), {"A": ""})],
    "setup_lines": [
        ((*PLATFORM, "setup"), ["module load cuda/12.1", "export A='b c'; echo \"$A\"", "--odd"])
    ],
    "environment": [
        (
            (*PLATFORM, "env"),
            {"NCCL_DEBUG": "INFO", "FLAGS": "--a=1 --b='2 3'", "EMPTY": "", "EQ": "a=b=c"},
        )
    ],
    "other_choices": [
        ((*RECIPE, "optimizer"), "adam"),
        ((*RECIPE, "communication"), "ring"),
        ((*PLATFORM, "devices"), "logical"),
    ],
}


@pytest.mark.parametrize("changes", ROUND_TRIPS.values(), ids=list(ROUND_TRIPS))
def test_flags_give_back_the_same_axes_parameters_and_hash(changes: list[Change]) -> None:
    run, values = run_and_parameters(*changes)
    axes, found = parse(parameters.to_arguments(run.axes, values))
    assert axes == run.axes
    assert found == values
    assert {key: type(value) for key, value in found.items()} == {
        key: type(value) for key, value in values.items()
    }
    expected = parameters.parameters_hash(run.axes, values)
    assert parameters.parameters_hash(axes, found) == expected


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(
    lines=st.lists(TEXTS, max_size=3),
    environment=st.dictionaries(NAMES, TEXTS, max_size=3),
    rate=st.floats(min_value=1e-300, allow_infinity=False),
)
def test_any_text_and_number_survives_the_flags(
    lines: list[str], environment: dict[str, str], rate: float
) -> None:
    run, values = run_and_parameters(
        ((*PLATFORM, "setup"), lines),
        ((*PLATFORM, "env"), environment),
        ((*RECIPE, "learning_rate"), rate),
    )
    assert parse(parameters.to_arguments(run.axes, values)) == (run.axes, values)


@pytest.mark.parametrize("key", ["launcher", "epochs", "learning_rate", "seed", "cpus_per_node"])
def test_a_parameter_without_default_must_be_given(
    key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, values = run_and_parameters()
    del values[key]
    with pytest.raises(SystemExit):
        parse(parameters.to_arguments(run.axes, values))
    assert "--" + key.replace("_", "-") in capsys.readouterr().err


def test_an_environment_variable_without_value_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, values = run_and_parameters()
    with pytest.raises(SystemExit):
        parse([*parameters.to_arguments(run.axes, values), "--env=NAME"])
    assert "'NAME' is not NAME=VALUE" in capsys.readouterr().err


COSMETIC: list[Change] = [
    ((*PLATFORM, "title"), "My cluster"),
    ((*PLATFORM, "partition"), "other"),
    ((*PLATFORM, "account"), "other"),
    ((*PLATFORM, "cluster"), "gcp"),
    ((*PLATFORM, "usd_per_node_hour"), 2.5),
    ((*PLATFORM, "price_date"), "2024"),
    ((*PLATFORM, "nodes_max"), 7),
    ((*PLATFORM, "runtime_min"), 7),
    ((*PLATFORM, "extra"), "--nice=3"),
    (("comparison",), {"title": "Other", "columns": ["loss"]}),
    (("plots",), {"speedup": {"title": "Other"}}),
    (("platforms", "laptop", "cpus_per_node"), 7),
    (("grid", 0, "repeats"), 1),
]


@pytest.mark.parametrize("change", COSMETIC, ids=lambda change: ".".join(map(str, change[0])))
def test_what_cannot_change_a_measurement_is_no_parameter(change: Change) -> None:
    assert run_and_parameters(change) == run_and_parameters()


MEASURED: list[Change] = [
    ((*RECIPE, "epochs"), 3),
    ((*RECIPE, "per_replica_batch_size"), 32),
    ((*RECIPE, "optimizer"), "adam"),
    ((*RECIPE, "train_examples_max"), 100),
    ((*RECIPE, "steps_per_execution"), 20),
    ((*RECIPE, "precision"), "mixed_bfloat16"),
    ((*RECIPE, "parameter_servers"), 2),
    ((*PLATFORM, "env"), {"TF_NUM_INTEROP_THREADS": "1"}),
    ((*PLATFORM, "setup"), ["module load cuda"]),
    ((*PLATFORM, "cpus_per_node"), 4),
    ((*PLATFORM, "gpu_type"), "v100"),
    ((*PLATFORM, "devices"), "logical"),
    (("seed",), 2),
]


@pytest.mark.parametrize("change", MEASURED, ids=lambda change: ".".join(map(str, change[0])))
def test_what_can_change_a_measurement_is_a_parameter(change: Change) -> None:
    (run, before), (_, after) = run_and_parameters(), run_and_parameters(change)
    key = str(change[0][-1])
    assert {name for name in before if before[name] != after[name]} == {key}
    hashes = {parameters.parameters_hash(run.axes, values) for values in (before, after)}
    assert len(hashes) == 2


def test_each_repeat_has_a_seed_of_its_own() -> None:
    config = valid_config((("grid", 0, "repeats"), 3), (("seed",), 5))
    runs = grid.expand(config, MODELS, STRATEGIES).runs[:3]
    seeds = [parameters.run_parameters(config, run, "mnist")["seed"] for run in runs]
    assert seeds == [5, 6, 7]


def test_dataset_and_trainer_version_are_parameters() -> None:
    _, values = run_and_parameters()
    assert values["dataset"] == "mnist"
    assert values["trainer_version"] == TRAINER_VERSION
    assert list(values) == list(parameters.definitions())


def test_hash_is_of_axes_and_parameters_and_not_of_their_order() -> None:
    run, values = run_and_parameters()
    expected = parameters.parameters_hash(run.axes, values)
    assert len(expected) == 16
    assert int(expected, 16) >= 0
    backwards = dict(reversed(values.items()))
    assert parameters.parameters_hash(run.axes, backwards) == expected
    assert parameters.parameters_hash({**run.axes, "repeat": 2}, values) != expected


def test_differences_name_what_was_and_what_is() -> None:
    text = parameters.differences({"a": 1, "b": 2, "new": 3}, {"a": 1, "b": 5, "old": 4})
    assert text == "b: 5, now 2; new: None, now 3; old: 4, now None"


@pytest.mark.parametrize(
    ("cpus", "tasks", "share"),
    [(8, 1, 8), (8, 2, 4), (8, 3, 2), (1, 1, 1), (8, 8, 1), (8, "2+1", 4)],
)
def test_tasks_share_the_cpus_of_their_node(cpus: int, tasks: int | str, share: int) -> None:
    axes = {"nodes": 2, "gpus_per_node": 0, "tasks_per_node": tasks}
    values = {"cpus_per_node": cpus}
    assert parameters.cpus_per_task(axes, values) == share
