"""A run's specification: its path, its flat parameters and their hash, as records of before."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import REGISTRIES, valid_config
from msgspec.structs import asdict, replace
from tfscaling import TRAINER_VERSION
from tfscaling.files import atomic
from tfscaling.study import acceptance, run_spec
from tfscaling.study.config_types import AXES, Quality, Recipe
from tfscaling.study.run_spec import RunSpec, SpecError, Value, parameters_hash, run_path

Change = tuple[Sequence[str | int], Any]
PLATFORM = ("platforms", "cluster")
RECIPE = ("recipes", "weak")


def spec_of(*changes: Change) -> RunSpec:
    """The last run of the minimal configuration: on two nodes."""
    return acceptance.plan_grid(valid_config(*changes), REGISTRIES).runs[-1].spec


def test_records_of_before_keep_their_parameters_and_hash() -> None:
    def of_before(*changes: Change) -> RunSpec:
        return replace(spec_of(*changes), trainer_version=3)

    spec = of_before()
    assert spec.parameters == {
        "per_replica_batch_size": 64,
        "per_worker_batch_size": None,
        "global_batch_size": None,
        "dataset": "mnist",
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "learning_rate_scaling": "none",
        "momentum": 0.0,
        "epochs": 2,
        "train_examples_max": None,
        "test_examples_max": None,
        "evaluation_interval_epochs": None,
        "steps_per_execution": 1,
        "precision": "float32",
        "communication": "auto",
        "parameter_servers": 1,
        "launcher": "srun",
        "devices": "physical",
        "gpu_type": None,
        "instance_type": None,
        "cpus_per_node": 8,
        "setup": [],
        "env": {},
        "seed": 1,
        "trainer_version": 3,
    }
    # computed before the parameters had a type: another value would make all records stale
    assert spec.parameters_hash == "2d1b4df90d30056d"
    numbers = [((*RECIPE, "learning_rate"), 1), ((*RECIPE, "momentum"), 0)]
    texts = [((*PLATFORM, "setup"), ["a", "b"]), ((*PLATFORM, "env"), {"B": "1", "A": ""})]
    assert of_before(*numbers, *texts).parameters_hash == "6b683987f225d9d3"
    small = ((*RECIPE, "learning_rate"), 1e-07)
    assert of_before(small).parameters_hash == "48c901a51e60cbfd"


class LaterRecipe(Recipe, frozen=True, kw_only=True):
    """With keys that records of before do not have."""

    later: int = 3
    mapping: dict[str, int] = {}


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, {}),
        ({"later": 3, "mapping": {}}, {}),
        ({"later": 4}, {"later": 4}),
        ({"mapping": {"a": 1}}, {"mapping": {"a": 1}}),
        ({"quality": Quality(metric="test_loss")}, {}),
    ],
)
def test_a_later_key_is_a_parameter_where_it_has_another_value_than_its_default(
    given: dict[str, Any], added: dict[str, Any]
) -> None:
    spec = spec_of()
    later = replace(spec, recipe=LaterRecipe(**{**asdict(spec.recipe), **given}))
    assert later.parameters == {**spec.parameters, **added}
    assert (run_spec.encode_spec(later) == run_spec.encode_spec(spec)) == (not added)


def test_whole_numbers_where_fractions_are_meant_are_the_same_run() -> None:
    whole = spec_of(((*RECIPE, "learning_rate"), 1))
    assert whole == spec_of(((*RECIPE, "learning_rate"), 1.0))
    assert type(whole.parameters["learning_rate"]) is float


def test_a_specification_survives_a_file_that_no_other_user_reads(tmp_path: Path) -> None:
    lines = ["module load cuda/12.1", "export A='b c'; echo \"$A\" `x` \\\\ {braces}", "ä\t\n"]
    changes = [((*PLATFORM, "setup"), lines), ((*PLATFORM, "env"), {"B": "--a='1'", "A": ""})]
    numbers = [((*RECIPE, "learning_rate"), 0.1 + 0.2), ((*RECIPE, "momentum"), 1e-07)]
    uneven = [(("grid", 0, "tasks_per_node"), "2+1"), (("grid", 0, "nodes"), 2)]
    spec = spec_of(*changes, *numbers, *uneven)
    path = tmp_path / "spec.json"
    before = os.umask(0)
    atomic.write_private_text(path, run_spec.encode_spec(spec))
    os.umask(before)
    assert run_spec.read_spec(path) == spec
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_text_of_a_specification_does_not_depend_on_the_order_of_keys() -> None:
    one = spec_of(((*PLATFORM, "env"), {"A": "1", "B": "2"}))
    assert run_spec.encode_spec(one) == run_spec.encode_spec(
        spec_of(((*PLATFORM, "env"), {"B": "2", "A": "1"}))
    )


def test_the_text_of_a_specification_has_the_parameters_that_the_record_has() -> None:
    spec = spec_of()
    text = json.loads(run_spec.encode_spec(spec))
    assert {**text["recipe"], **text["measured"]}.keys() | {"seed", "trainer_version"} == (
        spec.parameters.keys()
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"trainer_version": TRAINER_VERSION - 1}, f"trainer_version {TRAINER_VERSION - 1}, this"),
        ({"replicas": 0}, "`int` >= 1"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_a_file_that_is_no_specification_is_named(
    change: dict[str, Any], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({**json.loads(run_spec.encode_spec(spec_of())), **change}))
    with pytest.raises(SpecError, match=f"spec.json: .*{problem}"):
        run_spec.read_spec(path)
    parser = argparse.ArgumentParser()
    run_spec.add_spec_option(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--spec", str(path)])
    assert problem in capsys.readouterr().err


def test_the_folder_of_a_run_has_all_axes_with_the_platform_first() -> None:
    spec = spec_of((("grid", 0, "gpus_per_node"), 4), (("grid", 0, "tasks_per_node"), 2))
    assert spec.path == (
        "platform=cluster/model=mnist_cnn/strategy=multi_worker_mirrored/recipe=weak/"
        f"nodes=2/gpus_per_node=4/tasks_per_node=2/repeat=1/parameters={spec.parameters_hash}"
    )
    assert tuple(spec.axes) == AXES
    assert run_path(spec.axes, spec.parameters_hash) == spec.path


COSMETIC: list[Change] = [
    ((*PLATFORM, "title"), "My cluster"), ((*PLATFORM, "partition"), "other"),
    ((*PLATFORM, "usd_per_node_hour"), 2.5), ((*PLATFORM, "nodes_max"), 7),
    ((*PLATFORM, "runtime_min"), 7), ((*PLATFORM, "extra"), "--nice=3"),
    ((*PLATFORM, "account"), "mine"), (("budget",), {"node_hours": 1000}),
    (("plots",), {"speedup": {"title": "Other"}}), (("published",), {"path": "a.csv"}),
    (("comparison",), {"title": "Other", "columns": ["loss"]}),
    (("platforms", "laptop", "cpus_per_node"), 7), (("grid", 0, "repeats"), 1),
]  # fmt: skip


@pytest.mark.parametrize("change", COSMETIC, ids=lambda change: ".".join(map(str, change[0])))
def test_what_cannot_change_a_measurement_is_no_parameter(change: Change) -> None:
    assert spec_of(change) == spec_of()


MEASURED: list[Change] = [
    ((*RECIPE, "epochs"), 3), ((*RECIPE, "per_replica_batch_size"), 32),
    ((*RECIPE, "optimizer"), "adam"), ((*RECIPE, "precision"), "mixed_bfloat16"),
    ((*PLATFORM, "env"), {"TF_NUM_INTEROP_THREADS": "1"}),
    ((*PLATFORM, "setup"), ["module load cuda"]), ((*PLATFORM, "gpu_type"), "v100"),
    ((*PLATFORM, "devices"), "logical"), (("seed",), 2),
]  # fmt: skip


@pytest.mark.parametrize("change", MEASURED, ids=lambda change: ".".join(map(str, change[0])))
def test_what_can_change_a_measurement_is_a_parameter(change: Change) -> None:
    before, after = spec_of(), spec_of(change)
    changed = {k for k in before.parameters if before.parameters[k] != after.parameters[k]}
    assert changed == {change[0][-1]}
    assert before.parameters_hash != after.parameters_hash


def test_hash_is_of_axes_and_parameters_and_not_of_their_order() -> None:
    spec = spec_of()
    backwards = dict(reversed(spec.parameters.items()))
    assert parameters_hash(spec.axes, backwards) == spec.parameters_hash
    assert parameters_hash({**spec.axes, "repeat": 2}, backwards) != spec.parameters_hash


@pytest.mark.parametrize(
    ("cpus", "tasks", "share"), [(8, 1, 8), (8, 2, 4), (8, 3, 2), (8, 8, 1), (8, "2+1", 4)]
)
def test_tasks_share_the_cpus_of_their_node(cpus: int, tasks: int | str, share: int) -> None:
    spec = spec_of(
        ((*PLATFORM, "cpus_per_node"), cpus),
        (("grid", 0, "tasks_per_node"), tasks),
        (("grid", 0, "nodes"), 2),
    )
    assert spec.cpus_per_task == share


@pytest.mark.parametrize(
    ("launcher", "cpus", "threads"),
    # of two nodes with a task of four CPUs each
    [("local", 2, 1), ("local", 1, 1), ("local", 6, 3), ("local", 64, 4), ("srun", 2, 4)],
)
def test_ranks_on_one_machine_share_its_cpus(launcher: str, cpus: int, threads: int) -> None:
    spec = spec_of(((*PLATFORM, "cpus_per_node"), 4), (("grid", 0, "nodes"), 2))
    spec = replace(spec, measured=replace(spec.measured, launcher=launcher))
    assert spec.threads_per_operation(cpus) == threads


def test_a_request_is_read_in_the_folder_of_its_run_alone(tmp_path: Path) -> None:
    spec, other = spec_of(), spec_of(((*RECIPE, "epochs"), 77))
    request = run_spec.RunRequest(spec=spec, replaces=3)
    before = os.umask(0)
    run_spec.write_request(tmp_path / spec.path, request)
    os.umask(before)
    file = tmp_path / spec.path / run_spec.REQUEST_FILE
    assert run_spec.read_request(tmp_path / spec.path) == request
    assert file.stat().st_mode & 0o777 == 0o600
    written = file.stat()
    run_spec.write_request(tmp_path / spec.path, request)
    assert file.stat().st_ino == written.st_ino
    run_spec.write_request(tmp_path / other.path, request)
    for folder in (other.path, "missing"):
        with pytest.raises(run_spec.SpecError):
            run_spec.read_request(tmp_path / folder)
    file.write_text("{")
    run_spec.write_request(tmp_path / spec.path, request)  # a broken one is written again
    assert run_spec.read_request(tmp_path / spec.path) == request


def test_changes_name_what_was_and_what_is() -> None:
    changes = run_spec.describe_changes({"a": 1, "b": 2, "new": 3}, {"a": 1, "b": 5, "old": 4})
    assert changes == ["b: 5, now 2", "new: None, now 3", "old: 4, now None"]


def test_changes_name_no_value_that_may_be_a_secret() -> None:
    expected: dict[str, Value] = {
        "env": {"TOKEN": "new-secret", "SAME": "a"},
        "setup": ["login new-secret"],
        "program": ["p.py", "--password=new-secret"],
        "epochs": 2,
    }
    found: dict[str, Value] = {
        "env": {"OTHER": "old-secret", "SAME": "a"},
        "setup": ["login old-secret"],
        "program": ["p.py", "--password=old-secret"],
        "epochs": 3,
    }
    changes = run_spec.describe_changes(expected, found)
    assert "secret" not in "".join(changes)
    assert sorted(changes) == [
        "env.OTHER: changed",
        "env.TOKEN: changed",
        "epochs: 3, now 2",
        "program: changed",
        "setup: changed",
    ]
