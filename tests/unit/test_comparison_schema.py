"""The schema of comparison.csv is true of every row that the workflow can write."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import generator
import pandas as pd
import pytest
import yaml
from builders import changed, manifest_of, raw_config, write_failure
from jsonschema import Draft202012Validator
from project import REPOSITORY
from rows import published_result, tables_of
from tfscaling.record.metrics import METRICS
from tfscaling.study import config_validation
from tfscaling.study.config_types import CAMPAIGN_METRICS
from tfscaling.study.manifest import Manifest
from tfscaling.tables import table_files
from tfscaling.tables.comparison import COLUMNS, comparison_table
from tfscaling.tables.runs_table import PROJECTION_STEPS

PRICE = {"usd_per_node_hour": 3.6, "price_date": "2026", "price_source": "list"}
PUBLISHED = published_result(platform="gcp")


OF_PLATFORM = {"usd_per_kwh": 0.3, "kg_co2_per_kwh": 0.4, "peak_tflops": {"float32": 1.0}}


@functools.cache
def schema() -> dict[str, Any]:
    """Return the schema of a row."""
    text = (REPOSITORY / "workflow/schemas/comparison.schema.yaml").read_text()
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def planned_runs(repeats: int) -> Manifest:
    """Nine nodes are too many; one block has tasks per node, one another recipe and platform."""
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "repeats": repeats}
    blocks = [
        {**usual, "nodes": [1, 2, 3, 4, 5, 6, 9]},
        {**usual, "nodes": 2, "gpus_per_node": 2, "tasks_per_node": [2, "2+1"],
         "exclude": [{"tasks_per_node": "2+1"}]},
        {**usual, "nodes": 2, "tasks_per_node": "2+1"},
        {**usual, "platform": "laptop", "recipe": "strong", "nodes": [1, 2]},
    ]  # fmt: skip
    raw = raw_config((("grid",), blocks))
    raw["platforms"]["cluster"].update(
        PRICE, **OF_PLATFORM, cloud="gcp", published_as="gcp", title="A cluster"
    )
    # the larger the batch, the less accurate: not every point reaches this
    raw["question"] = {"limits": {"test_accuracy": {"at_least": 0.98}}}
    raw["recipes"]["strong"] = {"global_batch_size": 64, "learning_rate": 0.1, "epochs": 2}
    raw["recipes"]["strong"]["quality"] = {"metric": "test_loss", "unit": "nats"}
    return manifest_of(config_validation.convert_to_types(raw))


def spoil(planned: Manifest, runs_dir: Path) -> None:
    """On 2 nodes one run failed, on 3 all; on 4 all are missing, on 5 stale, on 6 unfinished."""
    for run in planned.runs:
        point, folder = run.spec.point, runs_dir / run.spec.path
        if point.platform != "cluster" or point.gpus_per_node or point.tasks_per_node != 1:
            continue
        if point.nodes in (3, 4, 6) or (point.nodes == 2 and run.spec.repeat == 2):
            (folder / "run.json").unlink()
        if point.nodes in (2, 3):
            write_failure(runs_dir, run)
        if point.nodes == 5:
            with changed(folder / "run.json") as record:
                record["environment"]["dataset"]["sha256"] = "0" * 64
        if point.nodes == 6:
            (folder / "attempt=1").mkdir()


@pytest.fixture(params=[1, 7])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> list[dict[str, Any]]:
    """Rows of a comparison.csv, read back; empty cells are None."""
    planned = planned_runs(request.param)
    generator.write_records(planned.runs, tmp_path)
    spoil(planned, tmp_path)
    runs, _ = tables_of(planned, tmp_path)
    comparison_table(runs, planned, {"nodes": 1}, [PUBLISHED]).to_csv(
        tmp_path / "comparison.csv", index=False
    )
    table = table_files.read_table(tmp_path / "comparison.csv")
    return [
        {str(key): None if pd.isna(value) else value for key, value in row.items()}
        for row in table.to_dict("records")
    ]


def problems(row: dict[str, Any]) -> list[str]:
    # JSON Schema's own types: in a column with an empty cell, pandas writes 2 as 2.0
    validator = Draft202012Validator(schema())
    return [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(row)]


def test_every_row_follows_the_schema(rows: list[dict[str, Any]]) -> None:
    assert [problems(row) for row in rows] == [[]] * len(rows)
    several = rows[0]["runs_planned"] > 1
    assert [row["status"] for row in rows] == [
        "ok", "incomplete" if several else "ok", "failed", "missing", "stale", "unfinished",
        "ok", "ok", "ok", "ok", "excluded", "excluded",
    ]  # fmt: skip


def test_every_column_has_a_value_somewhere(tmp_path: Path) -> None:
    """Else the test above would see no wrong rule of the column."""
    planned = planned_runs(7)
    generator.write_records(planned.runs, tmp_path)
    runs, _ = tables_of(planned, tmp_path)
    table = comparison_table(runs, planned, {"nodes": 1}, [PUBLISHED])
    # no run is short, no program ran, arrays are in memory, no recipe asks for checkpoints
    # time and cost of a campaign are no metrics of runs
    assert list(table) == list(COLUMNS) and set(METRICS) - {*CAMPAIGN_METRICS} <= set(COLUMNS)
    empty = [name for name in table if table[name].isna().all()]
    never = [*PROJECTION_STEPS, "preparation_time_s", "program_time_s", "checkpoint_time_s"]
    never += ["input_wait_s"]
    assert empty == never


def test_every_column_has_a_description_and_a_unit() -> None:
    for name, rule in schema()["properties"].items():
        assert rule["description"].strip(), name
        times = ("time_s", "time_to_target_s", "time_with_queue_s", "wait_s")
        is_time = any(part in name for part in times)
        assert (rule["unit"] == "s") == is_time, name
