"""The schemas of records for other readers: made from the types, and true of records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from builders import a_record
from tfscaling.records import record_schemas
from tfscaling.study.configuration import SCHEMA_DIR


@pytest.mark.parametrize("name", record_schemas.of_records())
def test_the_files_are_those_of_the_types(name: str, tmp_path: Path) -> None:
    record_schemas.write(tmp_path)
    file = f"{name}.schema.yaml"
    text = (SCHEMA_DIR / file).read_text()
    assert text == (tmp_path / file).read_text(), "python3 -m tfscaling.records.record_schemas"


def is_valid(record: dict[str, Any]) -> bool:
    schema = yaml.safe_load((SCHEMA_DIR / "run_record.schema.yaml").read_text())
    return bool(jsonschema.Draft202012Validator(schema).is_valid(record))


def test_a_record_follows_its_schema_and_a_broken_one_does_not() -> None:
    record = a_record()
    assert is_valid(record)
    for part, key in (("metrics", "loss"), ("phases", "train_time_s")):
        broken = json.loads(json.dumps(record))
        broken[part][key] = None
        assert not is_valid(broken)
    assert not is_valid({**record, "surprise": 1})
