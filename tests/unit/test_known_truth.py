"""Five hundred sets of records with known truth through all tables and conclusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import known_truth
import pandas as pd
import pytest
from known_truth import DIVERGED, NODES, OK, PLATFORMS, REPEATS, STEPPED, TrueSet, Writer
from tfscaling import clouds, tables
from tfscaling.comparison import comparison_table

SETS = 500
#: A run that was asked for has this status in the table of runs.
STATUS = {OK: "ok", DIVERGED: "diverged", STEPPED: "failed", "failed": "failed", "missing": "missing"}


@dataclass(frozen=True)
class Made:
    """The tables of one set beside its truth."""

    truth: TrueSet
    runs: pd.DataFrame
    comparison: pd.DataFrame
    clouds: pd.DataFrame


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    writer, folder = Writer(), tmp_path_factory.mktemp("sets")
    return list(_made(writer, folder))


def _made(writer: Writer, folder: Path) -> Iterator[Made]:
    expected = writer.expected
    for number in range(SETS):
        truth = known_truth.draw(number)
        writer.write(truth, folder / str(number))
        runs = _as_read(tables.run_tables(expected, folder / str(number))[0], folder)
        comparison = _as_read(comparison_table(runs, expected), folder)
        yield Made(truth, runs, comparison, clouds.table(comparison, runs, expected))


def _as_read(table: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """The table as the next program reads it."""
    path = folder / "table.csv"
    table.to_csv(path, index=False)
    return tables.read_table(path)


def points(one: Made) -> Iterator[tuple[known_truth.TruePoint, dict[str, Any]]]:
    """Every point of the set with its row of the comparison."""
    rows = {(row["platform"], row["nodes"]): row for row in one.comparison.to_dict("records")}
    assert rows.keys() == one.truth.points.keys()
    for key, point in one.truth.points.items():
        yield point, {str(name): value for name, value in rows[key].items()}


def test_every_kind_of_set_is_there(made: list[Made]) -> None:
    assert len(made) == SETS
    assert Counter(one.truth.kind for one in made).keys() == set(known_truth.KINDS)


def test_every_run_is_a_row_with_its_true_status_and_a_reason(made: list[Made]) -> None:
    for one in made:
        assert len(one.runs) == len(PLATFORMS) * len(NODES) * REPEATS
        for row in one.runs.to_dict("records"):
            run = one.truth.points[row["platform"], row["nodes"]].runs[row["repeat"] - 1]
            assert row["status"] == STATUS[run.outcome], (one.truth.number, row["reason"])
            assert bool(row["reason"]) == (run.outcome != OK)


def test_medians_and_counts_are_those_of_the_runs_that_count(made: list[Made]) -> None:
    for one in made:
        for point, row in points(one):
            outcomes = Counter(run.outcome for run in point.runs)
            assert row["runs"] == outcomes[OK] and row["runs_asked"] == REPEATS
            assert row["runs_diverged"] == outcomes[DIVERGED]
            assert (row["status"] == "ok") == (outcomes[OK] == REPEATS)
            assert (row["reason"] == "") == (row["status"] == "ok" and row["same_work"] is True)
            if not point.counted:
                assert pd.isna(row["execution_time_s"]) and pd.isna(row["loss"])
                continue
            assert row["execution_time_s"] == pytest.approx(point.median_time_s)
            errors = [run.error for run in point.counted]
            assert row["loss"] == pytest.approx(median(errors))
            assert row["accuracy"] == pytest.approx(1 - median(errors))
            usd = PLATFORMS[row["platform"]][1]
            cost = row["nodes"] * usd * point.median_time_s / 3600
            assert row["cost_usd"] == pytest.approx(cost)


def test_speedups_are_those_of_the_medians_and_of_the_same_work_only(made: list[Made]) -> None:
    barred = 0
    for one in made:
        for point, row in points(one):
            base = one.truth.points[row["platform"], 1]
            if not (point.counted and base.counted):
                assert pd.isna(row["speedup"])
                continue
            same = point.runs[0].share == base.runs[0].share
            assert row["same_work"] is same, one.truth
            if same:
                ratio = base.median_time_s / point.median_time_s
                assert row["speedup"] == pytest.approx(ratio)
                assert row["scaling_efficiency"] == pytest.approx(ratio / row["nodes"])
            else:
                barred += 1
                assert pd.isna(row["speedup"]) and pd.isna(row["scaling_efficiency"])
                assert pd.isna(row["steady_state_speedup"])
    assert barred > 50


def test_an_interval_is_of_six_runs_at_least(made: list[Made]) -> None:
    for one in made:
        for point, row in points(one):
            assert pd.notna(row["execution_time_s_low"]) == (len(point.counted) >= 6)
