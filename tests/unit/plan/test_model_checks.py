"""The user's models are built before runs start: in one process, and none of others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loaded_python
import pytest
from builders import manifest_of, valid_config
from tfscaling.plan import local_checks
from tfscaling.study import user_code
from tfscaling.study.run_spec import RunSpec

MODELS = """
import json
import os

import keras


def _net(**compiled):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    if compiled:
        model.compile(optimizer="sgd", **compiled)
    return model


def good(width=3):
    assert len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]) == 1
    return _net()


def unbuilt():
    raise ValueError("no such width")


def distance(y, p):
    return missing(y, p)


def untrained():
    return _net(loss=distance)


def summed():
    return _net(loss=keras.losses.SparseCategoricalCrossentropy(True, reduction="sum"))


def _entropy(y, p):
    return keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)


def of_a_fixed_batch():
    class Own(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return keras.ops.sum(_entropy(y, y_pred)) / 32

    given = keras.Input((4,))
    model = Own(given, keras.layers.Dense(3)(given))
    model.compile("sgd")
    return model


def in_numpy():
    import tensorflow as tf

    class Own(keras.layers.Layer):
        def call(self, x):
            return tf.ensure_shape(tf.numpy_function(lambda a: a, [x], x.dtype), x.shape)

    return keras.Sequential([keras.Input((4,)), Own(), keras.layers.Dense(3)])


def weighed():
    class Own(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            weights = keras.ops.abs(x[:, 0]) + 0.01
            return keras.ops.sum(weights * _entropy(y, y_pred)) / keras.ops.sum(weights)

    given = keras.Input((4,))
    model = Own(given, keras.layers.Dense(3)(given))
    model.compile("sgd")
    return model
"""
DATA = """
def data(context):
    import tensorflow as tf

    x, y = tf.random.uniform((8, 4), seed=1), tf.zeros((8,), tf.int32)
    part = tf.data.Dataset.from_tensor_slices((x, y)).batch(context.per_worker_batch_size)
    return part, part
"""
RESULTS = Path("results")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with models and data; the check is a fork of a process with TensorFlow."""
    for name, value in loaded_python.environ(os.environ).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(MODELS)
    Path("parts.py").write_text(DATA)
    user_code._find_definition.cache_clear()
    yield
    user_code._find_definition.cache_clear()


def specs(*models: str, **recipe: Any) -> list[RunSpec]:
    """Runs of these models on one node and two."""
    block = {"platform": "laptop", "recipe": "weak", "nodes": [2, 1], "repeats": 2}
    changes = [(("recipes", "weak", key), value) for key, value in recipe.items()]
    config = valid_config(
        (("grid",), [{**block, "model": model} for model in models]),
        (("recipes", "weak", "dataset"), "parts:data"),
        *changes,
    )
    return [run.spec for run in manifest_of(config).runs]


@pytest.mark.full
def test_an_operation_that_xla_cannot_compile_is_named() -> None:
    planned = specs("nets:in_numpy")  # without XLA it can be trained
    planned += specs("nets:in_numpy", "nets:good", jit_compile=True)
    found = local_checks.model_problem(planned, RESULTS)
    (line,) = [line for line in found.splitlines() if line.startswith("  ")]
    assert "nets:in_numpy with recipe weak" in line
    assert "jit_compile: true is not allowed" in line
    assert "PyFunc" in line


def test_models_that_would_fail_in_every_run_are_named_with_the_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ("good", "unbuilt", "untrained", "summed", "of_a_fixed_batch", "weighed")
    own = specs(*(f"nets:{name}" for name in names))
    planned = [*own, *specs("mnist_cnn")]  # which the data does not fit
    refusal = local_checks.model_problem(planned, RESULTS)
    wrong = [line for line in refusal.splitlines() if line.startswith("  ")]
    line = Path("nets.py").read_text().splitlines().index('    raise ValueError("no such width")')
    causes = {
        "nets:unbuilt": f"nets.py:{line + 1} in unbuilt: ValueError: no such width",
        "nets:untrained": "in distance: NameError: name 'missing' is not defined",
        "nets:summed": "has the reduction sum",
        "nets:of_a_fixed_batch": "twice",
        "mnist_cnn": "",
    }
    for text, (model, cause) in zip(wrong, causes.items(), strict=True):
        assert text.startswith(f"  {model} with recipe weak: ") and cause in text
    assert "Traceback" in (RESULTS / local_checks.MODEL_CHECK_LOG).read_text()
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "halves" in line]
    assert warning.startswith("warning: nets:weighed with recipe weak: ")


def test_models_that_can_be_trained_are_not_named() -> None:
    """The losses that several replicas cannot split are fine on a single one."""
    planned = specs("nets:summed", "nets:of_a_fixed_batch", "nets:weighed")
    alone = [spec for spec in planned if spec.replicas == 1]
    assert alone
    assert local_checks.model_problem([*specs("nets:good"), *alone], RESULTS) == ""


#: Examples of a batch of 64 → why two workers cannot train on them; one worker can.
BATCHES = {
    "context.global_batch_size": "64 examples, more than 32",
    "context.per_worker_batch_size": "",
    "context.per_worker_batch_size // context.workers": "16 examples and not 32",
    "5 if context.workers > 1 else 64": "5 examples and not 32",
}


@pytest.mark.full
def test_batches_that_only_several_workers_cannot_train_on_are_found() -> None:
    text = DATA.replace("(8", "(640")
    for number, size in enumerate(BATCHES):
        own = text.replace("context.per_worker_batch_size", size)
        Path(f"parts{number}.py").write_text(own)
    planned = []
    for number in range(len(BATCHES)):
        batch = {"global_batch_size": 64, "per_replica_batch_size": None}
        planned += specs("nets:good", dataset=f"parts{number}:data", **batch)
    found = local_checks.model_problem(planned, RESULTS).splitlines()
    causes = [*filter(None, BATCHES.values())]
    for line, cause in zip([each for each in found if each.startswith("  ")], causes, strict=True):
        assert cause in line
    alone = [spec for spec in planned if spec.replicas == 1]
    assert local_checks.model_problem(alone, RESULTS) == ""


def test_one_run_of_the_fewest_nodes_is_built_for_those_alike() -> None:
    (model,) = local_checks.select_models_to_check(specs("nets:good"))
    assert (model.spec.point.model, model.spec.geometry.nodes) == ("nets:good", 1)
    assert model.largest.geometry.nodes == 2
    axes = specs("nets:good", parameters={"width": [1, 2]})
    assert len(local_checks.select_models_to_check(axes)) == 2


def test_a_model_of_the_workflow_is_not_built_for_its_own_data() -> None:
    assert local_checks.model_problem(specs("mnist_cnn", dataset="mnist"), RESULTS) == ""
    assert not RESULTS.exists()


def test_a_check_that_takes_too_long_is_said_and_holds_up_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert local_checks.model_problem(specs("nets:good"), RESULTS, limit_s=0.01) == ""
    assert "nets:good: not checked" in capsys.readouterr().err
