"""NaN and infinity are neither written nor read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import local_spec, manifest_of, valid_config
from msgspec.structs import replace
from tfscaling.files import strict_json
from tfscaling.record import events, run_record
from tfscaling.record.events import Event, EventLog, EventName
from tfscaling.study import run_spec


def write_manifest(path: Path, value: float) -> None:
    replace(manifest_of(valid_config()), targets={"test_accuracy": value}).write(path)


def write_specification(path: Path, value: float) -> None:
    spec = local_spec()
    path.write_text(
        run_spec.encode_spec(replace(spec, recipe=replace(spec.recipe, momentum=value)))
    )


WRITERS: dict[str, Callable[[Path, float], object]] = {
    "text": lambda path, value: path.write_text(strict_json.dumps({"epochs": [{"loss": value}]})),
    "record": lambda path, value: run_record.write_json(path, {"metrics": {"loss": value}}),
    "manifest": write_manifest,
    "specification": write_specification,
    "event": lambda path, value: EventLog(path, 0).add(EventName.EPOCH, loss=value),
    "events": lambda path, value: events.write_events(
        path, [Event(name=EventName.EPOCH, time_s=1.0, details={"loss": value})]
    ),
}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_no_number_is_not_written_and_leaves_the_file(
    writer: str, value: float, tmp_path: Path
) -> None:
    (path := tmp_path / "file").write_text("as before")
    with pytest.raises(ValueError, match="JSON"):
        WRITERS[writer](path, value)
    assert path.read_text() == "as before"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_what_is_no_number_is_not_read(text: str) -> None:
    with pytest.raises(strict_json.NotFiniteError, match=f"^{text} is no number"):
        strict_json.loads(f'{{"epochs": [{{"loss": {text}}}]}}')


def test_an_event_that_is_no_number_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "events").write_text('{"event": "epoch", "loss": NaN}\n')
    with pytest.raises(strict_json.NotFiniteError):
        events.read_events(tmp_path / "events")


def test_everything_else_is_as_python_has_it() -> None:
    content = {"a": [1, 2.5, None, True, "NaN"], "b": {}}
    assert strict_json.dumps(content, indent=1) == json.dumps(content, indent=1)
    assert strict_json.loads(json.dumps(content)) == content


def test_broken_json_is_told_as_python_tells_it() -> None:
    with pytest.raises(json.JSONDecodeError):
        strict_json.loads('{"a": ')
