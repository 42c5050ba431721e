"""JSON Schemas of records, made from their types: what `workflow/schemas` has for other readers.

`make schemas` writes them.
"""

from __future__ import annotations

import json

import msgspec

from tfscaling.records.benchmark_record import BenchmarkRecord
from tfscaling.records.run_record import RunRecord
from tfscaling.study import schemas
from tfscaling.study.schemas import Schema

_NUMBER = {"type": "number"}
#: What `RunRecord` and `Validity` check of several keys together.
_IF_VALID: Schema = {
    "if": {"properties": {"validity": {"properties": {"valid": {"const": True}}}}},
    "then": {
        "description": "What counts has numbers.",
        "properties": {
            "validity": {"properties": {"status": {"const": "ok"}, "reason": {"const": ""}}},
            "metrics": {
                "properties": {
                    **dict.fromkeys(("loss", "test_loss"), _NUMBER),
                    "epochs": {"items": {"properties": {"loss": _NUMBER, "test_loss": _NUMBER}}},
                },
                "if": {"properties": {"accuracy": _NUMBER}},
                "then": {"properties": {"test_accuracy": _NUMBER}},
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


def of_records() -> dict[str, Schema]:
    """Name of the file in `workflow/schemas` → schema."""
    kinds: dict[str, tuple[type[msgspec.Struct], Schema]] = {
        "run_record": (RunRecord, _IF_VALID),
        "benchmark_record": (BenchmarkRecord, {}),
    }
    return {
        name: json.loads(json.dumps({**schemas.of(kind), **rules}))
        for name, (kind, rules) in kinds.items()
    }
