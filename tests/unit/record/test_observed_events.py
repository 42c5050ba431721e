"""Reader of events: what is right, and what is refused with file, line and reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import REPOSITORY
from tfscaling.record import observed_events
from tfscaling.record.observations import ObservationError, Observed, Totals


def step(time_s: float, steps: int, **more: Any) -> dict[str, Any]:
    return {"event": "steps", "time_s": time_s, "steps": steps, **more}


def read(folder: Path, *lines: Any) -> Observed:
    path = folder / "events.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts))
    return observed_events.read(path)


def test_a_program_of_any_language(tmp_path: Path) -> None:
    seen = read(
        tmp_path,
        {"event": "imported", "time_s": 100},
        step(110, 1, examples=32, input_wait_s=0.5),
        "",
        step(120, 11, examples=352, input_wait_s=1.5),
        {"event": "epoch", "time_s": 121, "epoch": 1, "steps": 11, "metrics": {"loss": 2}},
        {"event": "evaluation", "time_s": 125, "epoch": 1, "metrics": {"bleu": None}},
        {"event": "imported", "time_s": 126},
        step(130, 21, examples=600, input_wait_s=2.5),
    )
    assert (seen.imported_s, seen.first_step_s, seen.last_step_s) == (100, 110, 130)
    assert (seen.steps, seen.examples, seen.input_wait_s) == (21, 600, 2.5)
    assert seen.epochs[0].metrics == {"loss": 2.0} and seen.epochs[0].examples is None
    assert (seen.evaluations[0].begin_s, seen.evaluations[0].time_s) == (121, 125)
    assert seen.windows[1] == Totals(time_s=120, steps=11, examples=352, input_wait_s=1.5)


@pytest.mark.parametrize(("epochs", "last_step_s"), [([], 110), ([115], 115)])
def test_the_last_step_has_ended_when_its_epochs_values_came(
    tmp_path: Path, epochs: list[float], last_step_s: float
) -> None:
    ends = [{**EPOCH, "time_s": time_s} for time_s in epochs]
    seen = read(tmp_path, step(100, 1), step(110, 9), *ends, step(130, 9))
    assert seen.last_step_s == last_step_s


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "observe.md").read_text()
    block = text.split("```json\n")[1].split("```")[0]
    seen = read(tmp_path, *block.splitlines())
    assert (seen.steps, len(seen.epochs), len(seen.evaluations)) == (9, 1, 1)


EPOCH = {"event": "epoch", "time_s": 120, "epoch": 1, "steps": 9, "metrics": {}}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([step(110, 5), step(120, 4)], "line 2: steps goes back from 5 to 4"),
        ([step(110, 5, examples=9), step(120, 6, examples=8)], "line 2: examples goes back"),
        ([step(110, 5, input_wait_s=9), step(120, 6, input_wait_s=8)], "line 2: input_wait_s goes"),
        ([step(110, 5), step(109, 6)], "line 2: time_s goes back from 110"),
        ([step(110, 1), EPOCH, EPOCH], "line 3: epoch 1 after epoch 1"),
        ([step(110, 1), {**EPOCH, "epoch": 2}], "line 2: epoch 2 after epoch 0"),
        ([step(110, 1), {**EPOCH, "metrics": {"loss": "low"}}], "line 2: no event"),
        ([step(110, -1)], "line 1: no event"),
        ([{"event": "step", "time_s": 1, "steps": 1}], "line 1: no event.*'step'"),
        ([step(110, 1, exampels=4)], "line 1: no event.*exampels"),
        (['{"event": "steps", "time_s": 110, "ste', step(120, 2)], "line 1: no event"),
        (['{"event": "steps", "time_s": NaN, "steps": 1}'], "line 1: NaN .* expected null"),
        ([{"event": "imported", "time_s": 100}], "no step has ended"),
        ([step(110, 0)], "no step has ended"),
        ([], "no step has ended"),
    ],
)
def test_what_is_refused(tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(ObservationError, match=message) as error:
        read(tmp_path, *lines)
    assert str(tmp_path / "events.jsonl") in str(error.value)


def test_a_report_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="wrote no events"):
        observed_events.read(tmp_path / "events.jsonl")
