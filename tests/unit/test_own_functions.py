"""`package.module:function` as a model and as a dataset, from the grid to the prepared file."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import REGISTRIES, raw_config, refused
from tfscaling.datasets import catalogue
from tfscaling.record import prepared_data, run_states
from tfscaling.record.run_record import PreparedData
from tfscaling.study import acceptance, config_validation, user_code
from tfscaling.study.config_types import CROSS_ENTROPY, Recipe
from tfscaling.study.config_validation import ConfigError
from tfscaling.study.manifest import Manifest

MODULE = """
import numpy as np

images = np.arange(5 * 2 * 2, dtype=np.uint8).reshape(5, 2, 2)
labels = np.array([[0], [1], [0], [1], [1]])


def model():
    return "a model"


def data():
    return (images[:3], labels[:3]), (images[3:], labels[3:])


def floats():
    return (images[:3] * 0.5, labels[:3, 0]), (images[3:] * 0.5, labels[3:, 0])


def small_labels():
    return (images[:3] * 0.5, labels[:3, 0].astype("u1")), (images[3:] * 0.5, labels[3:, 0])


def large_labels():
    return (images[:3] * 0.5, labels[:3, 0] + 2**32), (images[3:] * 0.5, labels[3:, 0])


def uneven():
    return (images[:3], labels[:2]), (images[3:], labels[3:])


def without_test():
    return (images, labels), (images[:0], labels[:0])


def texts():
    return (["a", "b"], [0, 1]), (["a", "b"], [0, 1])


def weighted():
    return (images[:3], labels[:3], [1, 2, 3]), (images[3:], labels[3:])


def nested():
    inputs = {"images": images, "x_test": images[:, 0] / 2}
    answers = (labels, np.arange(10.0).reshape(5, 2))
    weights = {"first": np.ones(5), "second": np.zeros(5)}

    def part(which):
        def taken(arrays):
            return {name: array[which] for name, array in arrays.items()}

        return taken(inputs), tuple(array[which] for array in answers), taken(weights)

    return part(slice(0, 3)), part(slice(3, 5))


def lists():
    def part(which):
        x = [images[which], images[which, 0] / 2]
        return x, [labels[which], np.zeros((len(x[0]), 1))], [1.0] * len(x[0])

    return part(slice(0, 3)), part(slice(2, 5))


def other_inputs():
    return ({"a": images[:3]}, labels[:3]), ({"b": images[3:]}, labels[3:])


def not_a_number():
    return (images[:3] * np.nan, labels[:3]), (images[3:], labels[3:])


def broken():
    raise OSError("disk is away")
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with the module `mine`, in which we are."""
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def expand(model: Any, dataset: str | None) -> Manifest:
    raw = raw_config((("grid", 0, "model"), model), (("recipes", "weak", "dataset"), dataset))
    sources = [("config.yaml", raw)]
    return acceptance.validate_and_plan(raw, REGISTRIES, sources)[1]


def test_parameters_tell_a_users_model_and_its_loss_apart() -> None:
    def parameters(model: str, **recipe: Any) -> dict[str, Any]:
        changes = [(("recipes", "weak", key), value) for key, value in recipe.items()]
        raw = raw_config(
            (("grid", 0, "model"), model), (("recipes", "weak", "dataset"), "mnist"), *changes
        )
        planned = acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES)
        return dict(planned.runs[0].spec.parameters)

    built_in = parameters("mnist_cnn")
    assert "loss" not in built_in
    assert (built_in["optimizer"], built_in["momentum"]) == ("sgd", 0.0)
    assert parameters("mnist_cnn", loss=CROSS_ENTROPY) == built_in
    own = parameters("mine:model", learning_rate=None)
    keys = ("loss", "optimizer", "learning_rate", "momentum")
    assert [own[key] for key in keys] == ["model", "model", None, None]
    classifier = parameters("mine:model", loss=CROSS_ENTROPY)
    assert classifier == {**built_in, "loss": CROSS_ENTROPY}
    given = parameters("mine:model", optimizer="adam")
    assert given == {**built_in, "loss": "model", "optimizer": "adam"}


@pytest.mark.parametrize("model", ["mnist_cnn", "mine:model"])
def test_an_optimizer_needs_a_learning_rate(model: str) -> None:
    changes = {"learning_rate": None, "optimizer": "sgd", "dataset": "mnist"}
    raw = raw_config(
        (("grid", 0, "model"), model), *((("recipes", "weak", k), v) for k, v in changes.items())
    )
    with pytest.raises(ConfigError, match="recipes.weak.learning_rate: null"):
        acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES)


def fetch(name: str) -> tuple[catalogue.Arrays, dict[str, Any]]:
    output, provenance = Path(f"{name}.npz"), Path(f"{name}.json")
    assert catalogue.fetch(name, None, output, provenance) == "function"
    arrays = catalogue.load(output, test_examples_max=1)
    return arrays, json.loads(provenance.read_text())


def test_a_functions_arrays_are_prepared_as_any_dataset() -> None:
    arrays, facts = fetch("mine:data")
    np.testing.assert_array_equal(arrays.x_train.ravel(), np.arange(12))
    assert arrays.y_train.tolist() == [[0], [1], [0]]
    assert arrays.y_train.dtype == np.int64
    assert arrays.y_test.tolist() == [[1]]
    assert arrays.weights_train is arrays.weights_test is None
    assert facts["source"] == "function"
    assert len(facts["sha256"]) == 64


def test_labels_in_a_row_are_the_same_data_in_each_type_that_holds_them() -> None:
    names = ("mine:floats", "mine:small_labels", "mine:large_labels")
    (arrays, usual), (small, same), (_, other) = map(fetch, names)
    assert (arrays.y_train.dtype, small.y_train.dtype) == (np.int64, np.uint8)
    assert usual["sha256"] == same["sha256"] != other["sha256"]


def test_several_inputs_answers_and_weights_are_prepared_as_they_are_given() -> None:
    arrays, facts = fetch("mine:nested")
    inputs, answers, weights = arrays.train
    assert isinstance(inputs, dict)
    assert isinstance(weights, dict)
    np.testing.assert_array_equal(inputs["images"].ravel(), np.arange(12))
    assert inputs["x_test"].tolist() == [[0, 0.5], [2, 2.5], [4, 4.5]]
    assert isinstance(answers, tuple)
    np.testing.assert_array_equal(answers[1], np.arange(6.0).reshape(3, 2))
    assert {name: array.tolist() for name, array in weights.items()} == {
        "first": [1, 1, 1],
        "second": [0, 0, 0],
    }
    assert (arrays.train_examples, arrays.test_examples) == (3, 1)
    assert facts["examples"] == {"x_train": 3, "y_train": 3, "x_test": 2, "y_test": 2}


def test_several_inputs_and_answers_may_be_lists_as_in_fit() -> None:
    arrays, _ = fetch("mine:lists")
    inputs, answers, weights = arrays.train
    assert isinstance(inputs, tuple) and isinstance(answers, tuple)
    assert [array.shape for array in inputs] == [(3, 2, 2), (3, 2)]
    assert [array.shape for array in answers] == [(3, 1), (3, 1)]
    assert isinstance(weights, np.ndarray) and weights.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("uneven", "ValueError: y_train has the shape (2, 1)"),
        ("without_test", "ValueError: x_test"),
        ("texts", "ValueError: x_train has the type <U1, not of numbers. For texts give"),
        ("weighted", "ValueError: "),
        ("other_inputs", "ValueError: "),
        ("not_a_number", "ValueError: x_train"),
        ("broken", "OSError: disk is away"),
        ("model", "ValueError: "),
    ],
)
def test_what_is_no_dataset_is_refused(
    function: str, message: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(catalogue.DatasetError) as caught:
        fetch(f"mine:{function}")
    place, found, _ = str(caught.value).partition(message)
    assert found
    assert re.fullmatch(r"mine\.py:\d+ in broken: " if function == "broken" else "", place)
    assert not list(project.glob("*.npz"))
    if function == "broken":
        assert 'mine.py", line' in capsys.readouterr().err


RECIPE = Recipe(epochs=1)
PIPELINES = """
import pathlib

def data(context, size=3):
    return context.folder, size


def prepare(folder, size=3):
    (folder / "part").mkdir()
    (folder / "part" / "numbers").write_bytes(bytes(size))
"""


def prepared_pipeline(text: str = PIPELINES, **parameters: Any) -> PreparedData:
    """What a run reads of the pipeline of this source."""
    Path("piped.py").write_text(text)
    sys.modules.pop("piped", None)
    user_code._find_definition.cache_clear()
    output = Path("piped:data.npz")
    source = catalogue.fetch("piped:data", None, output, output.with_suffix(".json"), parameters)
    assert source.startswith("pipeline piped:data")
    return prepared_data.describe_data(output, RECIPE)


def test_the_files_of_a_pipeline_are_made_once_and_its_function_is_not_called() -> None:
    data = prepared_pipeline(size=5)
    assert data.source.startswith("pipeline piped:data, ") and "piped:prepare" in data.source
    assert (data.train_examples, data.test_examples) == (None, None)
    assert Path("piped:data.files/part/numbers").stat().st_size == 5


def test_the_files_of_a_pipeline_are_there_whenever_old_ones_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So an interrupted removal leaves no half of the files."""
    sizes: list[int] = []
    remove = shutil.rmtree

    def record_and_remove(*args: Any, **keys: Any) -> None:
        sizes.append(Path("piped:data.files/part/numbers").stat().st_size)
        remove(*args, **keys)

    prepared_pipeline(size=5)
    monkeypatch.setattr(shutil, "rmtree", record_and_remove)
    prepared_pipeline(size=7)
    assert sizes[0] == 5 and sizes[-1] == 7
    assert sorted(path.name for path in Path().glob("piped:data*")) == [
        "piped:data.files", "piped:data.json", "piped:data.npz",
    ]  # fmt: skip


def test_the_checksum_of_a_pipeline_is_of_its_code_and_of_names_and_sizes_of_files() -> None:
    usual = prepared_pipeline()
    assert prepared_pipeline(f"# a remark\n{PIPELINES}").sha256 == usual.sha256
    assert prepared_pipeline(PIPELINES.replace("part", "other")).sha256 != usual.sha256
    Path("near.py").write_text("SIZE = 1")
    imports = prepared_pipeline(f"import near\n{PIPELINES}").sha256
    Path("near.py").write_text("SIZE = 2")
    assert prepared_pipeline(f"import near\n{PIPELINES}").sha256 != imports
    file = Path("piped:data.files/part/numbers")
    usual = prepared_pipeline()
    file.write_bytes(b"abc")
    assert prepared_data.describe_data(Path("piped:data.npz"), RECIPE).sha256 == usual.sha256
    file.write_bytes(b"abcd")
    other = prepared_data.describe_data(Path("piped:data.npz"), RECIPE)
    assert other.sha256 != usual.sha256
    assert [bool(r) for r in run_states.describe_data_changes([usual, other], Path())] == [
        True,
        False,
    ]


def test_a_pipeline_without_files_needs_no_prepare() -> None:
    data = prepared_pipeline("def data(context): ...\n")
    assert data.source == "pipeline piped:data"
    assert not Path("piped:data.files").exists()


def test_files_that_could_not_be_made_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    broken = PIPELINES + "    raise OSError('disk is full')\n"
    with pytest.raises(catalogue.DatasetError, match=r"piped\.py:\d+ in .*: OSError: "):
        prepared_pipeline(broken)
    assert not list(Path().glob("piped:data.np*"))
    assert not Path("piped:data.files").exists()


FILES = "tfscaling.datasets.image_files:data"


def resnet50(strategy: str, **recipe: Any) -> str | None:
    """The dataset of a run with this recipe."""
    raw = raw_config(
        (("grid", 0, "model"), "resnet50"),
        (("grid", 0, "strategy"), strategy),
        (("grid", 0, "nodes"), 4),
        *((("recipes", "weak", key), value) for key, value in recipe.items()),
    )
    return (
        acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES)
        .runs[0]
        .spec.dataset
    )


def test_resnet50_trains_on_files() -> None:
    usual = {"steps_per_execution": 1, "dataset": None}
    few = {"train_examples": 64}
    assert resnet50("multi_worker_mirrored", **usual, parameters=few) == FILES


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"train_examples_max": 64}, "train_examples_max: 64"),
        ({"strategy": "parameter_server"}, "dataset: null"),
        ({"parameters": {"depth": 2}}, "parameters.depth: 2"),
    ],
)
def test_what_the_files_of_resnet50_cannot_do_names_them(changes: dict[str, Any], key: str) -> None:
    asked = {"strategy": "multi_worker_mirrored", "steps_per_execution": 1, "dataset": None}
    message = refused(resnet50, **{**asked, **changes})
    assert f"recipes.weak.{key}" in message
    assert FILES in message
    assert ("mnist" in message) is ("depth" not in key)


@pytest.mark.parametrize(
    ("changes", "key", "reason"),
    [
        ({"steps_per_execution": 2}, "steps_per_execution: 2", "input"),
        ({"train_examples_max": 5}, "train_examples_max: 5", "examples"),
        ({"dataset": "mine:data", "steps_per_epoch": 3}, "steps_per_epoch: 3", "`context`"),
        ({"strategy": "parameter_server"}, 'dataset: "piped:data"', "multi_worker_mirrored"),
        ({"test_examples_max": 5}, "test_examples_max: 5", "`parameters`"),
        ({"decay": "linear"}, 'decay: "linear"', "steps_per_epoch"),
        ({"steps_per_epoch": 3, "decay": "linear"}, None, None),
    ],
)
def test_what_a_pipeline_cannot_do_is_refused(
    changes: dict[str, Any], key: str | None, reason: str | None
) -> None:
    Path("piped.py").write_text(PIPELINES)
    recipe = {"dataset": "piped:data", "steps_per_execution": 1, **changes}
    strategy = recipe.pop("strategy", "multi_worker_mirrored")
    raw = raw_config(
        (("grid", 0, "strategy"), strategy),
        *((("recipes", "weak", name), value) for name, value in recipe.items()),
    )
    if key is None:
        runs = acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES).runs
        assert runs[0].spec.parameters["steps_per_epoch"] == 3
        return
    message = refused(
        lambda: acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES)
    )
    assert f"recipes.weak.{key}" in message
    assert str(reason) in message
