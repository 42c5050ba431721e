"""What is added to a program's environment so that it can be observed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from tfscaling.jobs import observers

EVENTS = Path("/folder/rank-1.program.jsonl")


def test_events_are_one_file_of_each_rank() -> None:
    assert observers.events_path(Path("/folder"), 1) == EVENTS


@pytest.mark.parametrize("observe", ["events", "fit"])
def test_the_program_is_told_its_file(observe: Literal["events", "fit"]) -> None:
    assert observers.variables(observe, EVENTS, {})["TFSCALING_EVENTS"] == str(EVENTS)


def test_fit_is_observed_by_what_python_loads_first() -> None:
    environ = observers.variables("fit", EVENTS, {"PYTHONPATH": "own:other"})
    first, *rest = environ["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").is_file() and rest == ["own", "other"]


def test_a_program_that_is_not_observed_is_left_alone() -> None:
    assert observers.variables(None, EVENTS, {}) == {}


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("python train.py -E", False),
        ("python -u -m package.train -I", False),
        ("/opt/env/bin/python3.12 -uI train.py", True),
        ("python -E train.py", True),
        ("bash run.sh", False),
        ("python", False),
    ],
)
def test_python_that_takes_nothing_from_its_environment(words: str, refused: bool) -> None:
    assert (observers.refusal("fit", words.split()) is not None) is refused
    assert observers.refusal("events", words.split()) is None
