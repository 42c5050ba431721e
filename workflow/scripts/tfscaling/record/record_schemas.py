"""JSON Schemas of records, made from their types: what `workflow/schemas` has for other readers.

`make schemas` writes them.
"""

from __future__ import annotations

import json

import msgspec

from tfscaling.record.benchmark_record import BenchmarkRecord
from tfscaling.record.phases import TRAINER_PHASES
from tfscaling.record.run_record import RunRecord
from tfscaling.spec import configuration
from tfscaling.spec.configuration import Schema

_NUMBER = {"type": "number"}
#: A run of a user's program, which tells what it wants to.
_OF_PROGRAM: Schema = {"properties": {"parameters": {"required": ["program"]}}}
#: What the workflow's own trainer always tells.
_OF_TRAINER: Schema = {
    "properties": {
        "phases": {"properties": dict.fromkeys(TRAINER_PHASES, _NUMBER)},
        "derived": {"properties": {"steps_per_epoch": _NUMBER}},
        "metrics": {"properties": {"examples_trained": _NUMBER, "epochs": {"minItems": 1}}},
        "environment": {"properties": {"dataset": {"type": "object"}}},
    }
}
#: Its numbers in a run that counts.
_LEARNED: Schema = {
    "properties": {
        "metrics": {
            "properties": {
                **dict.fromkeys(("loss", "test_loss"), _NUMBER),
                "epochs": {"items": {"properties": {"loss": _NUMBER, "test_loss": _NUMBER}}},
            },
            "if": {"properties": {"accuracy": _NUMBER}},
            "then": {"properties": {"test_accuracy": _NUMBER}},
        }
    }
}
#: What `RunRecord` and `Validity` check of several keys together.
_RULES: Schema = {
    "anyOf": [_OF_PROGRAM, _OF_TRAINER],
    "if": {"properties": {"validity": {"properties": {"valid": {"const": True}}}}},
    "then": {
        "description": "What counts has numbers.",
        "properties": {
            "validity": {"properties": {"status": {"const": "ok"}, "reason": {"const": ""}}}
        },
        "anyOf": [_OF_PROGRAM, _LEARNED],
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
        "run_record": (RunRecord, _RULES),
        "benchmark_record": (BenchmarkRecord, {}),
    }
    return {
        name: json.loads(json.dumps({**configuration.of(kind), **rules}))
        for name, (kind, rules) in kinds.items()
    }
