"""All-reduces on two logical devices."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import numpy as np
import pytest
from ranks import run_tensorflow
from tfscaling.train.all_reduce_timing import contribution, total_of

CODE = """
import json, sys
from tfscaling.train import all_reduce_timing as all_reduce, strategies
names = strategies.configure(2, "logical", 1)
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy(names)
barrier = all_reduce.AllReduce(strategy, [((1,), "float32")]).call
found = {}
for name, shapes in {
    "small": [((5,), "float32")],
    "large": [((1 << 22,), "float32")],
    "list": [((3, 2), "float32"), ((), "float32")],
    "half": [((4,), "float16")],
    "rounded": [((1000,), "bfloat16")],
}.items():
    reduction = all_reduce.AllReduce(strategy, shapes)
    durations = reduction.durations(3, barrier)
    sums = [[v.numpy().tolist() for v in strategy.experimental_local_results(total)]
            for total in reduction.call()] if name not in ("large", "rounded") else None
    found[name] = [reduction.bytes, reduction.per_call, durations, sums]
for name, shape in {"float32": (5,), "bfloat16": (1000,)}.items():
    reduction = all_reduce.AllReduce(strategy, [(shape, name)])
    reduction._sum = lambda values: [tf.identity(value) for value in values]  # sums nothing
    try:
        reduction.durations(1, barrier)
    except all_reduce.WrongSumError as error:
        found["wrong " + name] = str(error)
shapes = all_reduce.gradient_shapes("mnist_cnn")
found["gradient"] = all_reduce.AllReduce(strategy, shapes).bytes, shapes
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done: subprocess.CompletedProcess[str] = run_tensorflow(CODE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "size", "per_call"), [("small", 20, 10), ("large", 1 << 24, 1), ("rounded", 2000, 10)]
)
def test_small_payloads_are_reduced_many_times_in_a_call(
    name: str, size: int, per_call: int, found: dict[str, Any]
) -> None:
    assert found[name][:2] == [size, per_call]


def test_every_repetition_but_the_warm_up_has_a_duration(found: dict[str, Any]) -> None:
    for name in ("small", "large", "list", "half", "rounded"):
        assert len(found[name][2]) == 3
        assert min(found[name][2]) > 0


def test_every_device_has_the_sum_of_both(found: dict[str, Any]) -> None:
    """(1 + j) + (2 + j) for element j, also after many all-reduces one after the other."""
    assert found["small"][3] == [[[3, 5, 7, 9, 11]] * 2]
    assert found["list"][3] == [[[[3, 5], [7, 9], [11, 13]]] * 2, [3, 3]]
    assert found["half"][3] == [[[1, 2, 3, 4]] * 2]  # each of one device alone
    assert (found["list"][0], found["half"][0]) == (6 * 4 + 4, 4 * 2)


def test_a_wrong_sum_is_an_error_that_says_what_is_wrong(found: dict[str, Any]) -> None:
    assert "5 of 5 elements" in found["wrong float32"]
    assert "500 of 1000 elements" in found["wrong bfloat16"]


def test_the_gradient_has_the_shapes_of_the_models_variables(found: dict[str, Any]) -> None:
    size, shapes = found["gradient"]
    assert size == 2_770_634 * 4
    assert [[3, 3, 1, 32], "float32"] in shapes


@pytest.mark.parametrize("replicas", [1, 2, 97, 300])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_right_sums_are_exact_and_one_without_a_replica_is_not(
    dtype: type[np.floating], replicas: int
) -> None:
    shape, size = (31, 10), np.dtype(dtype).itemsize
    parts = [contribution(shape, size, replica, replicas) for replica in range(replicas)]
    total = np.zeros(shape, dtype)
    for part in parts:
        assert (part.astype(dtype) == part).all()
        total += part.astype(dtype)
    expected = total_of(shape, size, replicas)
    assert total.tolist() == expected.tolist()
    for part in parts:
        assert (total - part.astype(dtype) != expected).any()
