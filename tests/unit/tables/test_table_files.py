"""Files of tables have the columns, types and values that the fields of rows describe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import generator
import msgspec
import pandas as pd
import pyarrow.parquet
import pytest
from builders import write_failure
from jsonschema import Draft202012Validator
from rows import planned_of, tables_of
from tfscaling.tables import table_files
from tfscaling.tables.row_types import Column, EpochRow, RunRow, columns
from tfscaling.tables.row_values import is_known


@pytest.fixture
def tables(tmp_path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and epochs: most runs have a record, one failed, one is missing."""
    planned = planned_of({"repeats": 3}, usd_per_node_hour=2.0, price_date="2026", price_source="x")
    generator.write_records(planned.runs, tmp_path / "runs")
    failed, missing = planned.runs[:2]
    for run in (failed, missing):
        (tmp_path / "runs" / run.spec.path / "run.json").unlink()
    write_failure(tmp_path / "runs", failed)
    return tables_of(planned, tmp_path / "runs")


def check(table: pd.DataFrame, expected: Mapping[str, Column]) -> None:
    """Each row as a file has it is one that the dictionary describes."""
    assert list(table.columns) == list(expected)
    validator = Draft202012Validator(
        {"properties": {name: column.schema for name, column in expected.items()}}
    )
    rows = json.loads(table.to_json(orient="records"))
    assert rows
    for row in rows:
        assert list(validator.iter_errors(row)) == []


def test_every_row_is_one_that_the_dictionary_describes(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    runs, epochs = tables
    assert set(runs["status"]) == {"ok", "failed", "missing"}
    check(runs, columns(RunRow))
    check(epochs, columns(EpochRow))


def test_integers_are_written_as_such_although_other_runs_have_none(
    tables: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    """A failed run has no number of its attempt, for example."""
    runs, _ = tables
    table_files.write_csv(runs, tmp_path / "runs.csv")
    written = pd.read_csv(tmp_path / "runs.csv", dtype=str, keep_default_na=False)
    integers = [name for name, column in columns(RunRow).items() if column.kind == "integer"]
    cells = {name: {*written[name]} for name in integers}
    assert not [name for name, own in cells.items() if any("." in cell for cell in own)]
    assert cells["attempt"] == {"", "1"}


def test_types_in_parquet_do_not_depend_on_the_values(
    tables: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    runs, _ = tables
    for name, rows in {"all": runs, "without": runs[runs["status"] == "missing"]}.items():
        table_files.write_parquet(rows, tmp_path / f"{name}.parquet")
    found, without = (
        pyarrow.parquet.read_table(tmp_path / f"{name}.parquet") for name in ("all", "without")
    )
    assert found.schema.equals(without.schema)
    types = {field.name: str(field.type) for field in found.schema}
    assert types["nodes"] == types["shared_with"] == types["examples_trained"] == "int64"
    assert types["queue_time_s"] == types["cost_usd"] == "double"
    assert types["tasks_per_node"] == types["gpu_driver"] == "string"
    assert types["started"] == "timestamp[ms, tz=UTC]"
    read = found.to_pandas()
    assert read["execution_time_s"].tolist() == pytest.approx(
        runs["execution_time_s"].tolist(), nan_ok=True
    )
    assert [is_known(each) for each in read["started"]] == (runs["status"] == "ok").tolist()


class Step(msgspec.Struct):
    name: str
    runs: int
    is_done: bool
    round: int | None = None
    why: str = ""
    share: float = 0.5


def test_rows_of_plain_fields_come_back_from_their_file(tmp_path: Path) -> None:
    steps = [Step("a", 1, True, 5, "b", 0.25), Step("c", 2, False, share=1.0)]
    table_files.write_csv(table_files.to_frame(Step, steps), tmp_path / "steps.csv")
    assert table_files.to_rows(Step, table_files.read_table(tmp_path / "steps.csv")) == steps
