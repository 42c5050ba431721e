"""Values of a training."""

from __future__ import annotations

import pytest
from tfscaling.train.measured import measured_by_itself


@pytest.mark.parametrize(
    ("metrics", "accuracy"),
    [
        ({"accuracy": 0.5, "top_accuracy": 0.9}, 0.5),
        ({"sparse_categorical_accuracy": 0.25, "mae": 3.0}, 0.25),
        ({"left_accuracy": 0.5, "right_accuracy": 0.9}, None),
        ({"mae": 0.5}, None),
        ({"accuracy": 3.0}, None),
        ({}, None),
    ],
)
def test_accuracy_of_a_model_that_trains_itself_is_its_metric(
    metrics: dict[str, float], accuracy: float | None
) -> None:
    found = measured_by_itself(8.0, {"loss": 2.0, **metrics})
    assert (found.loss, found.accuracy, found.examples) == (2.0, accuracy, 8.0)
    assert found.metrics == metrics
