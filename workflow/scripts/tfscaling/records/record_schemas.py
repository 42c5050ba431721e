"""JSON Schemas of records, made from their types: what `workflow/schemas` has for other readers.

`python3 -m tfscaling.records.record_schemas` in workflow/scripts writes them.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import msgspec
import yaml

from tfscaling.records.benchmark_record import BenchmarkRecord
from tfscaling.records.run_record import RunRecord
from tfscaling.study import schemas
from tfscaling.study.configuration import SCHEMA_DIR

_DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
_NUMBER = {"type": "number"}
#: What `RunRecord` and `Validity` check of several keys together.
_IF_VALID: dict[str, Any] = {
    "if": {"properties": {"validity": {"properties": {"valid": {"const": True}}}}},
    "then": {
        "description": "What counts has numbers.",
        "properties": {
            "validity": {"properties": {"status": {"const": "ok"}, "reason": {"const": ""}}},
            "metrics": {
                "properties": {
                    **dict.fromkeys(("loss", "test_loss", "test_accuracy"), _NUMBER),
                    "epochs": {"items": {"properties": {"loss": _NUMBER, "test_loss": _NUMBER}}},
                }
            },
        },
    },
    "else": {
        "properties": {
            "validity": {
                "properties": {
                    "status": {"const": "diverged"},
                    "reason": {"pattern": "^diverged: "},
                }
            }
        }
    },
}


def of_records() -> dict[str, dict[str, Any]]:
    """Name of the file in `workflow/schemas` → schema."""
    kinds: dict[str, tuple[type[msgspec.Struct], dict[str, Any]]] = {
        "run_record": (RunRecord, _IF_VALID),
        "benchmark_record": (BenchmarkRecord, {}),
    }
    return {
        name: json.loads(json.dumps({**_DIALECT, **schemas.of(kind), **rules}))
        for name, (kind, rules) in kinds.items()
    }


def write(folder: pathlib.Path = SCHEMA_DIR) -> None:
    """Write the schemas of all records."""
    for name, schema in of_records().items():
        text = yaml.safe_dump(schema, sort_keys=False, allow_unicode=True, width=100)
        (folder / f"{name}.schema.yaml").write_text(text)


if __name__ == "__main__":
    write()
