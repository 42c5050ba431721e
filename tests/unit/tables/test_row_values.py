"""Values of rows: what is known, the number of runs behind a metric, groups."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
from tfscaling.record.metrics import METRICS
from tfscaling.tables import row_values
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (None, False), (math.nan, False), (pd.NA, False), (0, True), (0.0, True), ("", True),
        (False, True), (math.inf, True), ("x", True),
    ],
)  # fmt: skip
def test_a_cell_is_known_unless_it_is_empty(cell: object, expected: bool) -> None:
    assert is_known(cell) is expected


def test_times_are_over_the_runs_with_times_and_results_over_all() -> None:
    counted = {name: row_values.run_count_column(name) for name in [*METRICS, "quality"]}
    results = ("loss", "accuracy", "test_loss", "test_accuracy", "quality")
    assert {name for name, column in counted.items() if column == "runs"} >= {*results}
    timed = ("execution_time_s", "cost_usd", "speedup", "throughput_examples_per_s", "node_hours")
    assert {counted[name] for name in timed} == {"runs_timed"}
    assert {*counted.values()} == {"runs", "runs_timed"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, False), ({"projected_from_steps": None}, False),
        ({"projected_from_steps": math.nan}, False), ({"projected_from_steps": 20}, True),
    ],
)  # fmt: skip
def test_a_row_is_projected_if_it_has_the_steps(row: dict[str, Any], expected: bool) -> None:
    assert row_values.is_projected(row) is expected
    typed = PointRow(projected_from_steps=20 if expected else None)
    assert row_values.is_projected(typed) is expected


@pytest.mark.parametrize(
    ("own", "others", "missing"),
    [
        ("GPUs", ["GPUs"], ""), ("GPUs", ["GPUs and processors"], "processors"),
        (None, ["GPUs", None, "processors"], "GPUs and processors"),
        ("processors", ["GPUs", "processors"], "GPUs"), ("GPUs and processors", ["GPUs"], ""),
    ],
)  # fmt: skip
def test_parts_whose_energy_is_missing(
    own: str | None, others: list[str | None], missing: str
) -> None:
    rows = [{"energy_of": each} for each in [own, *others]]
    assert row_values.missing_energy_parts(rows[0], rows) == missing


@pytest.mark.parametrize(("tasks", "expected"), [("1", 1), (2, 2), ("2+1", "2+1")])
def test_a_point_has_numbers_as_numbers(tasks: object, expected: object) -> None:
    axes = {"platform": "p", "model": "m", "strategy": "s", "recipe": "r"}
    row = {**axes, "nodes": 2.0, "gpus_per_node": 0.0, "tasks_per_node": tasks}
    point = row_values.point_of(row)
    assert (point.nodes, point.gpus_per_node, point.tasks_per_node) == (2, 0, expected)
    assert row_values.axis_columns(point) == {**row, "tasks_per_node": str(tasks)}
    assert row_values.points_of(pd.DataFrame([row])) == [point]
    other = {**row, "nodes": 4}
    assert row_values.axes_without_nodes(row) == row_values.axes_without_nodes(other)
    groups = row_values.group_by_point([row, other, row])
    assert [len(own) for own in groups.values()] == [2, 1] and next(iter(groups)) == point
