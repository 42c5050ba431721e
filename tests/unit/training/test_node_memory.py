"""Results in the memory of a node, as TensorFlow takes them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfscaling.training import node_memory
from tfscaling.training.node_memory import NodeMemory, Results

COUNT = 100_000
ALONE = SimpleNamespace(rank=0, size=1, bcast=lambda value: value)


@pytest.fixture
def results() -> Results:
    return Results(NodeMemory(ALONE))


def given_by(results: Results) -> Callable[[np.ndarray], np.ndarray]:
    """A function that returns its argument as ranks get a sum."""

    def given(own: np.ndarray) -> np.ndarray:
        results.tell(own.nbytes)
        place = results.place(own.nbytes)
        place.to_write(own)[:] = own
        return place.result(own)

    return given


def address(tensor: Any) -> int:
    return int(np.asarray(memoryview(tensor)).ctypes.data)


def forwarded(total: Any) -> Any:
    """Operations that write to their only input's memory where they may."""
    return tf.nn.relu(tf.negative(tf.reshape(total, [10, -1]) + 1.0))


def updated(total: Any) -> Any:
    """A variable that takes the tensor as its own memory, and then changes."""
    variable.assign(total)
    variable.assign_add(tf.ones(COUNT))
    return variable.read_value()


variable = tf.Variable(tf.zeros(COUNT))


@pytest.mark.parametrize(
    ("use", "expected"), [(tf.identity, 1.0), (forwarded, 0.0), (updated, 2.0)]
)
def test_tensorflow_reads_a_result_where_it_lies_and_writes_elsewhere(
    use: Callable[[Any], Any], expected: float, results: Results
) -> None:
    given, found = given_by(results), []

    def noted(own: np.ndarray) -> np.ndarray:
        found.append(given(own))
        return found[-1]

    @tf.function
    def used(own: Any) -> Any:
        total = tf.numpy_function(noted, [own], tf.float32)
        total.set_shape(own.shape)
        return use(total)

    outcome = used(tf.ones(COUNT))
    assert (outcome.numpy() == expected).all()
    assert (found[0] == 1.0).all()
    is_where_it_was = address(outcome) == found[0].ctypes.data
    assert is_where_it_was == (use is tf.identity)


def test_memory_is_used_again_when_tensorflow_has_used_a_result(results: Results) -> None:
    given, places = given_by(results), set()

    @tf.function
    def used(own: Any) -> Any:
        return tf.numpy_function(given, [own], tf.float32)

    kept = used(tf.ones(COUNT))
    for turn in range(20):
        total = used(tf.fill(COUNT, float(turn)))
        places.add(address(total))
        del total
    assert address(kept) not in places
    assert (kept.numpy() == 1.0).all()
    assert len(places) <= 2  # TensorFlow gives an array back in the next call


def test_results_in_use_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_memory, "RESULTS_MAX", 2)
    given = given_by(Results(NodeMemory(ALONE)))
    kept = [given(np.full(COUNT, number)) for number in range(2)]
    with pytest.raises(MemoryError, match="2 sums of 800000 bytes are in use at once"):
        given(np.ones(COUNT))
    del kept
    assert given(np.ones(COUNT)).sum() == COUNT


def test_there_is_memory_for_results_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_memory, "_MAPPED_BYTES", 1 << 16)
    given = given_by(Results(NodeMemory(ALONE)))
    kept = [given(np.full(10**power, float(power))) for power in range(7)]
    for power, found in enumerate(kept):
        assert len(found) == 10**power
        assert (found == power).all()
