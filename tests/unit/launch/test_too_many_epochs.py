"""A program that trains more epochs than requested is ended as soon as that is known."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from program_runs import cause_of, record_of

EVENTS = """
import sys, time
import observe
for _ in range({epochs}):
    for _ in observe.steps(range(2), examples=8):
        pass
    observe.epoch(loss=0.5)
time.sleep({then_s})
"""
LINES = """
import time
for epoch in range({epochs}):
    print("Epoch", epoch, "loss:", 1 / (epoch + 1))
time.sleep({then_s})
"""
FIT = """
import keras, numpy, time
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for _ in range(2):
    model.fit(numpy.zeros((8, 2)), numpy.zeros(8), epochs=({epochs} + 1) // 2, verbose=0)
time.sleep({then_s})
"""
FULL = pytest.mark.full
OUTPUT = {"observe": "output", "patterns": {"loss": r"loss: ([\d.]+)"}}


@pytest.mark.parametrize(
    ("code", "recipe", "words"),
    [
        (EVENTS, {"observe": "events"}, "total of all calls of observe.epoch"),
        (LINES, OUTPUT, "each match is an epoch"),
        pytest.param(FIT, {"observe": "fit"}, "total of all calls of `fit`", marks=FULL),
    ],
)
def test_a_program_with_more_epochs_is_ended(
    tmp_path: Path, code: str, recipe: dict[str, Any], words: str
) -> None:
    """It would never end by itself."""
    epochs = random.randint(3, 9)  # two were requested
    cause = cause_of(tmp_path, code.format(epochs=epochs, then_s=100_000), recipe=recipe)
    assert cause["kind"] == "program_failed" and words in cause["message"]
    assert "requested 2 epochs, reported" in cause["message"]


def test_the_command_in_a_shell_ends_as_well(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("python3 user.py\necho over\n")
    code, program = LINES.format(epochs=3, then_s=100_000), ["bash", "train.sh"]
    cause = cause_of(tmp_path, code, recipe=OUTPUT, program=program)
    assert "pattern of `loss`" in cause["message"]


@pytest.mark.parametrize(("epochs", "is_valid"), [(1, True), (2, True), (3, False)])
def test_programs_that_have_ended_are_checked_alike(
    tmp_path: Path, epochs: int, is_valid: bool
) -> None:
    code = LINES.format(epochs=epochs, then_s=0)
    if is_valid:
        assert record_of(tmp_path, code, recipe=OUTPUT).is_valid
    else:
        assert "each match is an epoch" in cause_of(tmp_path, code, recipe=OUTPUT)["message"]
