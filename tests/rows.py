"""Planned runs, rows of tables and a published point, for the tests of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from builders import manifest_of, raw_config, write_record
from tfscaling.study import config_validation
from tfscaling.study.config_types import Config
from tfscaling.study.manifest import Manifest
from tfscaling.tables import runs_table
from tfscaling.tables.published_results import PublishedResult


def config_of(*blocks: dict[str, Any], **platform: Any) -> Config:
    """Some blocks on the platform `cluster`."""
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2]}
    raw = raw_config((("grid",), [{**usual, **block} for block in blocks or ({},)]))
    raw["recipes"]["strong"] = {"global_batch_size": 64, "learning_rate": 0.1, "epochs": 2}
    raw["platforms"]["cluster"].update(platform)
    return config_validation.convert_to_types(raw)


def planned_of(*blocks: dict[str, Any], **platform: Any) -> Manifest:
    """The planned runs of some blocks on the platform `cluster`."""
    return manifest_of(config_of(*blocks, **platform))


def tables_of(planned: Manifest, runs_dir: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of runs and epochs."""
    return runs_table.run_tables(planned.runs, runs_dir, planned.targets)


def write_all(planned: Manifest, runs_dir: Path, *times: float) -> None:
    """Records of all runs, with these execution times."""
    for run, time in zip(planned.runs, times, strict=True):
        write_record(runs_dir, run, time)


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def point(table: pd.DataFrame, **axes: Any) -> dict[str, Any]:
    """The row with these axes, which must be the only one."""
    (row,) = [row for row in rows_of(table) if all(row[a] == v for a, v in axes.items())]
    return row


def published_row(**changes: Any) -> dict[str, Any]:
    """What somebody published of the minimal configuration's point of one node, as in a file."""
    usual = {
        "platform": "cluster", "model": "mnist_cnn", "strategy": "multi_worker_mirrored",
        "nodes": 1, "gpus_per_node": 0, "tasks_per_node": "1", "cloud": "gcp",
        "dataset": "mnist", "optimizer": "sgd", "learning_rate": 0.1, "epochs": 2,
        "global_batch_size": 64,
        "execution_time_s": 80.0, "loss": 0.25, "accuracy": 0.9, "source": "a paper, p. 3",
    }  # fmt: skip
    return {**usual, **changes}


def published_result(**changes: Any) -> PublishedResult:
    """The same as a result."""
    return PublishedResult(**published_row(**changes))
