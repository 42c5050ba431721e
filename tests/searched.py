"""Studies with a search whose runs are made up: of one question, on two platforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from builders import manifest_of, raw_config, write_record
from measured import PRICE
from tfscaling.conclusions.evidence import Study
from tfscaling.study import config_validation
from tfscaling.study.config_types import Config
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import comparison_table

#: Platform and nodes → the median time in seconds; two are near each other.
TIMES_S = {("near", 1): 90.0, ("near", 2): 50.0, ("near", 4): 59.0,
           ("far", 1): 190.0, ("far", 2): 130.0, ("far", 4): 120.0}  # fmt: skip
SCATTER = (0.96, 1.04, 1.01, 0.99, 1.02, 0.98)
SHAPE = {"launcher": "srun", "nodes_max": 4, "cpus_per_node": 2, "usd_per_node_hour": 1.0, **PRICE}


def config_of(search: Mapping[str, Any], **changes: Any) -> Config:
    """The points of TIMES_S in one block with six repeats, and a search for the whole grid."""
    block = {"platform": ["near", "far"], "model": "mnist_cnn", "recipe": "weak",
             "nodes": [1, 2, 4], "repeats": 6}  # fmt: skip
    raw = raw_config((("grid",), [block]), (("search",), dict(search)))
    raw["platforms"] = {name: {**SHAPE, "title": f"The {name} one"} for name in ("near", "far")}
    return config_validation.convert_to_types({**raw, **changes})


def time_s(run: PlannedRun) -> float:
    point = run.spec.point
    usual = TIMES_S[point.platform, point.nodes]
    return usual * SCATTER[(3 * run.spec.repeat + point.nodes) % len(SCATTER)]


def is_made(run: PlannedRun, repeats: int = 10) -> bool:
    """What a search makes, with so many runs of the two best points."""
    point = run.spec.point
    return run.spec.repeat <= (repeats if TIMES_S[point.platform, point.nodes] < 70 else 3)


def runs_of(
    planned: Manifest, runs_dir: Path, which: Callable[[PlannedRun], bool] = is_made
) -> pd.DataFrame:
    """The table of runs, after those that are not there yet have been made."""
    for run in filter(which, planned.runs):
        if not (runs_dir / run.spec.path).exists():
            write_record(runs_dir, run, time_s(run))
    return runs_table.run_tables(planned.runs, runs_dir, planned.targets)[0]


def study_of(planned: Manifest, runs: pd.DataFrame) -> Study:
    return Study(comparison_table(runs, planned), runs, planned)


def planned_of(search: Mapping[str, Any] | None = None, **question: Any) -> Manifest:
    return manifest_of(config_of(search or {}, question=question))
