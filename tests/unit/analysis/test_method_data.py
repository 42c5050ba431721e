"""What the rules look at: cells that are known, runs of a point, shares in words."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from measured import around, measured
from tfscaling.analysis.evidence import Study
from tfscaling.analysis.method_data import Data, is_close, is_known


@pytest.mark.parametrize("value", [None, math.nan, pd.NA, ""])
def test_an_empty_cell_is_not_known(value: object) -> None:
    assert not is_known({"known": 1, "asked": value}, "known", "asked")
    assert is_known({"known": 1, "asked": value}, "known")


@pytest.mark.parametrize("value", [0, 0.0, False, "none", pd.Timestamp("2026-01-01")])
def test_nought_is_known(value: object) -> None:
    assert is_known({"asked": value}, "asked")


def test_close_is_relative_and_nothing_is_close_to_an_empty_cell() -> None:
    assert is_close(1000.0, 1000.0005)
    assert not is_close(1000.0, 1001.0)
    assert is_close(1000.0, 1001.0, tolerance=0.01)
    assert not is_close(math.nan, math.nan)


@pytest.fixture
def data() -> Data:
    comparison, runs, expected = measured(
        {("east", 1): around(100.0), ("east", 2): around(60.0), ("west", 1): around(90.0)}
    )
    return Data(Study(comparison, runs, expected))


def test_values_are_products_of_columns_of_the_points_runs(data: Data) -> None:
    east = next(row for row in data.points if row["platform"] == "east" and row["nodes"] == 2)
    times = data.values(east, "execution_time_s")
    assert sorted(times) == pytest.approx(sorted(around(60.0)))
    assert data.values(east, "execution_time_s", "nodes") == [2 * time for time in times]


def test_the_base_of_a_point_is_that_of_its_platform(data: Data) -> None:
    bases = {(row["platform"], row["nodes"]): data.base(row) for row in data.points}
    assert {key: base and (base["platform"], base["nodes"]) for key, base in bases.items()} == {
        ("east", 1): ("east", 1),
        ("east", 2): ("east", 1),
        ("west", 1): ("west", 1),
    }
    assert [(row["platform"], row["nodes"]) for row in data.compared] == [("east", 2)]


def test_a_share_counts_and_names_those_that_are_not_good(data: Data) -> None:
    holds, said = data.share(data.points, lambda row: row["nodes"] == 1, "are small", "are not")
    assert holds is False
    assert said == "2 of 3 are small; 1 are not: east (1)"
    assert data.share([], lambda row: False, "are small", "are not") == (None, "")
    assert data.share(data.points, lambda row: True, "are", "are not") == (True, "3 of 3 are")
