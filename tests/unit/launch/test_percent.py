"""An accuracy in percent is no fraction: the message has the way out, which works."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from program_runs import record_of
from tfscaling.record import metrics
from tfscaling.study.config_types import Quality

CODE = """
for epoch in range(2):
    print("loss", 0.5)
    print("Accuracy: {value}%")
"""


def recipe(name: str) -> dict[str, object]:
    patterns = {"loss": r"loss ([\d.]+)", name: r"Accuracy: ([\d.]+)%"}
    return {"observe": "output", "patterns": patterns}


@pytest.mark.parametrize("name", ["test_accuracy", "accuracy"])
def test_percent_is_warned_of_with_the_way_out(tmp_path: Path, name: str) -> None:
    percent = random.randint(2, 100)
    record = record_of(tmp_path, CODE.format(value=percent), recipe=recipe(name))
    (warning,) = [text for text in record.warnings if "accuracy" in text]
    assert f"accuracy {percent} is no fraction" in warning and "best: 100" in warning
    found = metrics.quality_of_run(record, Quality(metric=name))
    assert found.value is None and "not finite" not in found.reason
    assert f"{percent} is no fraction" in found.reason


def test_another_name_is_the_way_out(tmp_path: Path) -> None:
    record = record_of(tmp_path, CODE.format(value=86), recipe=recipe("test_acc1"))
    quality = Quality(metric="test_acc1", direction="higher", best=100)
    assert metrics.quality_of_run(record, quality).value == 86
    assert not [text for text in record.warnings if "fraction" in text]


def test_a_value_that_is_not_finite_is_called_so(tmp_path: Path) -> None:
    code = CODE.replace("{value}%", "nan%")
    record = record_of(tmp_path, code, recipe=recipe("test_accuracy"))
    found = metrics.quality_of_run(record, Quality(metric="test_accuracy"))
    assert "not finite" in found.reason
