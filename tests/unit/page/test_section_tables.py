"""Tables of the page: what their cells sort by, what rows can be chosen by, what is marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from report_inputs import COLUMNS, study
from tfscaling.page import sections
from tfscaling.page.sections import Link, Table
from tfscaling.tables.display import Number, TextTable


def table_of(**columns: Sequence[str]) -> Table:
    return Table("name", TextTable("Title", pd.DataFrame(columns, dtype=object)))


def orders(table: Table, name: str) -> list[str]:
    (column,) = [column for column in table.columns if column.name == name]
    return [column.order(cell) for cell in table.shown.cells[name]]


def choices(table: Table) -> list[str]:
    return [column.name for column in table.columns if column.is_choice]


def test_a_column_of_numbers_sorts_by_them_and_missing_ones_have_none() -> None:
    numbers = [Number("9.5 (9–10)", 9.51), "–", Number("10.5", 10.5)]
    table = table_of(accuracy=numbers, hosts=["1node", "node2", "–"])
    assert [column.is_number for column in table.columns] == [True, False]
    assert orders(table, "accuracy") == ["9.51", "", "10.5"]


def test_rows_are_chosen_by_axes_and_verdicts_with_few_values() -> None:
    table = table_of(
        nodes=["1", "2", "2"], status=["ok", "ok", "failed"], loss=["1", "1", "2"],
        platform=["a", "a", "a"], repeat=["1", "2", "3"],
    )  # fmt: skip
    assert choices(table) == ["nodes", "status"]  # one value or as many as rows: no choice


def test_words_are_marked_only_where_they_judge() -> None:
    table = table_of(status=["ok", "failed", "incomplete"], platform=["failed", "b", "c"])
    status, platform = table.columns
    assert [status.tone(row[0]) for row in table.rows] == [None, "bad", "doubt"]
    assert platform.tone("failed") is None


def test_runs_have_status_axes_metrics_host_and_record(tmp_path: Path) -> None:
    made = study(tmp_path / "runs")
    table = sections.all_runs(made.runs, COLUMNS, tmp_path)
    names = [column.name for column in table.columns]
    assert names == [
        "platform", "nodes", "devices", "repeat", "execution_time_s", "accuracy", "status",
        "replicas", "global_batch_size", "reason", "attempt", "hosts", "started", "record",
    ]  # fmt: skip
    assert "multi_worker_mirrored" in table.shown.above
    assert table.shown.cells["status"].tolist().count("ok") == 7 and len(table.rows) == 10
    first, failed = table.rows[0][-1], table.rows[-4][-1]
    assert isinstance(first, Link) and first.href == first
    assert first.startswith("runs/platform=cluster/") and failed == "–"
