"""tf.data.Datasets of a function that is called once: their examples are arrays."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tfscaling.datasets import pipelines


def test_the_examples_of_a_dataset_are_arrays_structured_as_its_elements() -> None:
    inputs = {"a": np.arange(5.0), "b": np.arange(10).reshape(5, 2)}
    dataset = tf.data.Dataset.from_tensor_slices((inputs, np.arange(5))).batch(2)
    x, y = pipelines.arrays_of(dataset)
    assert {name: array.tolist() for name, array in x.items()} == {
        name: array.tolist() for name, array in inputs.items()
    }
    assert y.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (tf.data.Dataset.range(2).batch(2).repeat(), "never ends"),
        (tf.data.Dataset.range(0).batch(2), "no examples"),
    ],
)
def test_a_dataset_without_an_end_or_a_beginning_is_refused(
    dataset: tf.data.Dataset, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        pipelines.arrays_of(dataset)
