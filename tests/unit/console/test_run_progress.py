"""How far a run is, from events as ranks write them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from builders import local_spec
from tfscaling.console.sweep_progress import RunProgress
from tfscaling.study.run_spec import RunSpec
from told_events import START, event, told


def progress(spec: RunSpec, folder: Path) -> RunProgress:
    return RunProgress(spec, folder / "attempt=1")


def test_phase_loss_and_expected_end_follow_the_events(tmp_path: Path) -> None:
    run = progress(local_spec(epochs=4), tmp_path)
    run.update()
    assert (run.started_s, run.loss, run.end_s) == (None, None, None)
    told(tmp_path, *START)
    run.update()
    assert (run.started_s, run.does) == (100.0, "reading the data")
    told(tmp_path, event("built", 107.0), event("first_step", 110.0))
    run.update()
    assert (run.does, run.end_s) == ("training", None)
    told(tmp_path, event("epoch", 118.0, epoch=1, loss=0.25))
    run.update()
    assert (run.does, run.loss, run.end_s) == ("epoch 2/4", 0.25, pytest.approx(142.0))
    told(tmp_path, event("epoch", 140.0, epoch=4, loss=0.125), event("trained", 140.5))
    run.update()
    assert (run.does, run.loss, run.end_s) == ("evaluation", 0.125, 140.0)


def test_half_a_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    run = progress(local_spec(epochs=4), tmp_path)
    told(tmp_path, *START)
    run.update()
    line = json.dumps(event("epoch", 118.0, epoch=1, loss=0.25))
    file = tmp_path / "attempt=1/rank-0.events.jsonl"
    file.write_text(file.read_text() + line[:20])
    run.update()
    assert run.loss is None
    with file.open("a") as end:
        end.write(line[20:] + "\n")
    run.update()
    assert run.loss == 0.25


def test_a_program_is_known_by_what_it_says_of_itself(tmp_path: Path) -> None:
    spec = local_spec(epochs=2)
    recipe = msgspec.structs.replace(spec.recipe, program=["./train"])
    run = progress(msgspec.structs.replace(spec, recipe=recipe), tmp_path)
    told(tmp_path, event("start", 100.0), event("program_start", 100.5))
    told(tmp_path, event("imported", 103.0), name="observed")
    run.update()
    assert run.does == "the program runs"
    told(tmp_path, event("epoch", 110.5, epoch=1, steps=5, metrics={"loss": 0.5}), name="observed")
    run.update()
    assert (run.does, run.loss, run.end_s) == ("epoch 2/2", 0.5, pytest.approx(121.0))
