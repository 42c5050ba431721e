"""How far a run is, from events as ranks write them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from builders import local_spec
from tfscaling.console.run_progress import RunProgress
from told_events import START, event, told


def test_nothing_is_known_before_the_first_event(tmp_path: Path) -> None:
    run = RunProgress(local_spec(epochs=4), tmp_path)
    run.update()
    assert (run.started_s, run.epoch, run.loss, run.end_s()) == (None, 0, None, None)


def test_phase_epoch_loss_and_expected_end_follow_the_events(tmp_path: Path) -> None:
    spec = local_spec(epochs=4)
    run = RunProgress(spec, tmp_path)
    told(tmp_path, *START)
    run.update()
    assert (run.started_s, run.phase, run.epoch) == (100.0, "data_time_s", 0)
    told(tmp_path, event("data", 106.0, train_examples=10 * spec.global_batch_size))
    told(tmp_path, event("built", 107.0), event("first_step", 110.0))
    run.update()
    assert (run.phase, run.epoch, run.end_s()) == ("train_time_s", 1, None)
    told(tmp_path, event("progress", 115.0, epoch=1, step=5))
    run.update()
    assert run.done == pytest.approx(0.125)
    assert run.end_s() == pytest.approx(150.0)  # half an epoch in 5 s
    told(tmp_path, event("epoch", 118.0, epoch=1, loss=0.25))
    run.update()
    assert (run.epoch, run.loss, run.done) == (2, 0.25, 0.25)
    assert run.end_s() == pytest.approx(142.0)
    told(tmp_path, event("epoch", 140.0, epoch=4, loss=0.125), event("trained", 140.5))
    run.update()
    assert (run.epoch, run.loss, run.done, run.phase) == (4, 0.125, 1.0, "evaluation_time_s")


def test_a_short_run_ends_after_its_steps(tmp_path: Path) -> None:
    spec = local_spec(epochs=100, stop_after_steps=20)
    run = RunProgress(spec, tmp_path)
    told(tmp_path, *START)
    told(tmp_path, event("data", 106.0, train_examples=40 * spec.global_batch_size))
    told(tmp_path, event("first_step", 110.0), event("progress", 115.0, epoch=1, step=5))
    run.update()
    assert run.done == pytest.approx(0.25)
    assert run.end_s() == pytest.approx(130.0)


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    run = RunProgress(local_spec(epochs=4), tmp_path)
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


def test_an_earlier_attempt_is_none_of_this_job(tmp_path: Path) -> None:
    told(tmp_path, *START, event("epoch", 118.0, epoch=1, loss=9.0))
    run = RunProgress(local_spec(epochs=4), tmp_path)
    run.update()
    assert run.started_s is None
    told(tmp_path, event("start", 200.0), attempt=2)
    run.update()
    assert (run.started_s, run.loss) == (200.0, None)


def test_a_program_is_known_by_what_it_says_of_itself(tmp_path: Path) -> None:
    spec = local_spec(epochs=2)
    recipe = msgspec.structs.replace(spec.recipe, program=["./train"])
    run = RunProgress(msgspec.structs.replace(spec, recipe=recipe), tmp_path)
    told(tmp_path, event("start", 100.0), event("program_start", 100.5))
    told(tmp_path, event("imported", 103.0), name="observed")
    run.update()
    assert run.phase == "program_time_s"
    told(tmp_path, event("steps", 105.0, steps=3), name="observed")
    run.update()
    assert (run.phase, run.epoch) == ("train_time_s", 0)
    told(tmp_path, event("epoch", 110.0, epoch=1, steps=5, metrics={"loss": 0.5}), name="observed")
    run.update()
    assert (run.epoch, run.loss, run.end_s()) == (2, 0.5, pytest.approx(120.0))
