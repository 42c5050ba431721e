"""The schemas of records for other readers: made from the types, and true of records."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest
from builders import a_record
from tfscaling.record import run_record
from tfscaling.record.run_record import RULES, RunRecord
from tfscaling.spec import configuration


def is_valid(record: dict[str, Any]) -> bool:
    schema = json.loads(json.dumps({**configuration.of(RunRecord), **RULES}))
    return bool(jsonschema.Draft202012Validator(schema).is_valid(record))


def test_a_record_follows_its_schema_and_a_broken_one_does_not() -> None:
    record = a_record()
    assert is_valid(record)
    for part, key in (("metrics", "loss"), ("phases", "train_time_s")):
        broken = json.loads(json.dumps(record))
        broken[part][key] = None
        assert not is_valid(broken)
    assert not is_valid({**record, "surprise": 1})


def test_a_record_of_a_program_need_not_know_what_nobody_observed() -> None:
    record = a_record()
    record["phases"]["train_time_s"] = record["metrics"]["loss"] = None
    record["metrics"] |= {"epochs": [], "examples_trained": None}
    record["environment"]["dataset"] = record["derived"]["steps_per_epoch"] = None
    assert not is_valid(record)
    with pytest.raises(run_record.RecordError, match="phases.train_time_s: null"):
        read(record)
    record["parameters"]["program"] = ["python3", "train.py"]
    assert is_valid(record)
    assert read(record).metrics.epochs == ()


def read(record: dict[str, Any]) -> RunRecord:
    return run_record.parse(
        json.dumps(record).encode(), "run.json", msgspec.json.Decoder(RunRecord)
    )
