"""Parameters of a run: what belongs to them, and their way through a command line and back."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from builders import REGISTRIES, valid_config
from hypothesis import strategies as st
from tfscaling.study import grid, parameters
from tfscaling.study.run_spec import RunSpec

Change = tuple[Sequence[str | int], Any]
PLATFORM = ("platforms", "cluster")
RECIPE = ("recipes", "weak")


def run_and_parameters(*changes: Change) -> tuple[RunSpec, dict[str, Any]]:
    """The minimal configuration's run on two nodes."""
    spec = grid.expand(valid_config(*changes), REGISTRIES).runs[-1].spec
    return spec, dict(spec.parameters)


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
