"""The schemas of records for other readers: made from the types, and true of records."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from builders import a_record
from tfscaling.records import record_schemas


def is_valid(record: dict[str, Any]) -> bool:
    schema = record_schemas.of_records()["run_record"]
    return bool(jsonschema.Draft202012Validator(schema).is_valid(record))


def test_a_record_follows_its_schema_and_a_broken_one_does_not() -> None:
    record = a_record()
    assert is_valid(record)
    for part, key in (("metrics", "loss"), ("phases", "train_time_s")):
        broken = json.loads(json.dumps(record))
        broken[part][key] = None
        assert not is_valid(broken)
    assert not is_valid({**record, "surprise": 1})
