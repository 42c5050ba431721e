"""The all-reduce benchmark of a point: whether it has one, where it lies, its parameters.

Only what can change the time of an all-reduce is a parameter of it: another
learning rate reruns the training, not the benchmark.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tfscaling.study import schemas
from tfscaling.study.config import AllReduceBenchmark, Platform, Recipe
from tfscaling.study.manifest import BENCHMARK_VERSION as BENCHMARK_VERSION
from tfscaling.study.manifest import NO_ALL_REDUCE as NO_ALL_REDUCE
from tfscaling.study.manifest import SINGLE as SINGLE

#: Of a recipe what can change how gradients are reduced; their shapes are the model's, an axis.
RECIPE_KEYS = ("precision", "communication")


@functools.cache
def definitions() -> dict[str, dict[str, Any]]:
    """Parameter → its schema."""
    recipe, platform = (schemas.of(kind)["properties"] for kind in (Recipe, Platform))
    own = schemas.of(AllReduceBenchmark)["properties"]
    version = {"type": "integer", "description": "Version of the benchmark's meaning."}
    return {
        **{key: recipe[key] for key in RECIPE_KEYS},
        **{key: schema for key, schema in platform.items() if schema.get("measured")},
        "sizes_bytes": own["sizes_bytes"],
        "repetitions": own["repetitions"],
        "benchmark_version": version,
    }


def folder_beside(runs_dir: Path) -> Path:
    """Where the benchmarks lie, given where the runs do."""
    return runs_dir.with_name("all_reduce")
