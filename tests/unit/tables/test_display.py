"""Tables as people read them: which columns, which digits, which notes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import manifest_of, raw_config, write_failure, write_record
from tfscaling.record.metrics import METRICS
from tfscaling.study import config_validation
from tfscaling.tables import comparison, display, runs_table, table_files
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.display import TextTable
from tfscaling.tables.row_types import RunRow, columns

COLUMNS = ["execution_time_s", "speedup", "loss", "accuracy", "cost_usd"]


def table_of(
    runs_dir: Path,
    times: dict[int, float],
    failures: dict[int, str] | None = None,
    baseline: dict[str, Any] | None = None,
    **block: Any,
) -> pd.DataFrame:
    """The comparison with an execution time or the message of a failure for numbers of nodes.

    Each repeat takes a second more than the one before.
    """
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2, 4]}
    raw = raw_config((("grid",), [{**usual, **block}]))
    planned = manifest_of(config_validation.convert_to_types(raw))
    for run in planned.runs:
        nodes, repeat = run.spec.point.nodes, run.spec.repeat
        if nodes in (failures or {}):
            write_failure(runs_dir, run, message=(failures or {})[nodes])
        elif nodes in times:
            write_record(runs_dir, run, times[nodes] + repeat - 1)
    runs, _ = runs_table.run_tables(planned.runs, runs_dir)
    return comparison_table(runs, planned, baseline)


def shown_of(table: pd.DataFrame, columns: Sequence[str] = COLUMNS) -> TextTable:
    return comparison.comparison_text_table(table, "Title", columns)


def rows_of(shown: TextTable) -> list[dict[str, str]]:
    return [
        {str(key): value for key, value in row.items()} for row in shown.cells.to_dict("records")
    ]


def comparison_rows(table: pd.DataFrame) -> list[dict[str, str]]:
    return rows_of(shown_of(table))


ALL = {1: 60.0, 2: 40.0, 4: 20.0}


def test_axes_that_are_the_same_everywhere_stand_above_the_table(tmp_path: Path) -> None:
    shown = comparison.comparison_text_table(table_of(tmp_path, ALL), "My comparison", COLUMNS)
    assert shown.title == "My comparison"
    assert all(text in shown.above for text in ("cluster", "mnist_cnn", "recipe weak", "CPU"))
    assert "platform" not in shown.cells
    assert "devices" not in shown.cells


@pytest.mark.parametrize(
    ("value", "text"),
    [(26.574, "26.6"), (0.97912, "0.979"), (1234.5, "1234"), (0.0000456, "0.0000456"), (0, "0")],
)
def test_a_value_without_an_interval_has_three_digits(value: float, text: str) -> None:
    assert display.format_three_digits(value) == text


@pytest.mark.parametrize("cost_usd", [0.000152, 0.0114, 0.099, 0.1, 3.25])
@pytest.mark.parametrize("is_for_many", [True, False])
def test_costs_that_nobody_can_read_are_for_many_runs(cost_usd: float, is_for_many: bool) -> None:
    row: Any = {"cost_usd": cost_usd, "runs": 1, "runs_timed": 1, "projected_from_steps": None}
    text = display.format_metric("cost_usd", row, is_for_many)
    amount, unit = text.split(" ", 1)
    is_many = is_for_many and cost_usd < 0.1
    assert unit == "US dollars" + " per 1,000 runs" * is_many
    assert float(amount) == pytest.approx(cost_usd * (1000 if is_many else 1), rel=0.01)


def test_a_campaign_that_may_never_end_has_an_unknown_end() -> None:
    row: Any = {
        "finish_time_s": 36000.0,
        "finish_time_s_low": 18000.0,
        "finish_time_s_high": math.nan,
    }
    assert display.format_metric("finish_time_s", row) == "10.0 hours (5.0 hours to unknown)"
    row = {
        "campaign_cost_usd": 0.0123,
        "campaign_cost_usd_low": 0.0111,
        "campaign_cost_usd_high": math.nan,
    }
    text = display.format_metric("campaign_cost_usd", row)
    assert text == "0.0123 (0.0111–unknown) US dollars"
    assert display.format_simulated(math.nan, 1.0, math.nan) == display.MISSING
    assert display.format_simulated(410.2, 385.0, 1440.0) == "410 (385–1440)"


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((0.000152, 0.000149, 0.000164), "0.000152 (0.000149–0.000164)"),
        ((0.0125, 0.0112, 0.0139), "0.0125 (0.0112–0.0139)"),
        ((0.5, 0.5, 0.5), "0.5000 (0.5000–0.5000)"),
        ((1e-7, 1e-7, 1.2e-7), "0.00000010 (0.00000010–0.00000012)"),
    ],
)
def test_digits_tell_the_ends_of_an_interval_apart(
    ends: tuple[float, float, float], text: str
) -> None:
    value, low, high = ends
    row = {"cost_usd": value, "cost_usd_low": low, "cost_usd_high": high, "runs": 6}
    assert display.format_cell("cost_usd", row) == text


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_below_six_runs_a_median_is_shown_with_its_range(tmp_path: Path, repeats: int) -> None:
    row = comparison_rows(table_of(tmp_path, ALL, repeats=repeats))[1]
    low, high = 40.0, 40.0 + repeats - 1
    assert row["execution_time_s"] == f"{(low + high) / 2:.1f} ({low}–{high})"
    assert row["runs"] == f"{repeats} of {repeats}"
    assert row["loss"] == "0.2500 (0.2500–0.2500)"
    assert "(" not in row["speedup"]


def test_from_six_runs_on_a_median_is_shown_with_its_interval(tmp_path: Path) -> None:
    first, second, _ = comparison_rows(table_of(tmp_path, ALL, repeats=10))
    # of 60 … 69 the second and the ninth
    assert first["execution_time_s"] == "64.5 (61.0–68.0)"
    assert second["execution_time_s"] == "44.5 (41.0–48.0)"
    value, _, interval = second["speedup"].partition(" ")
    low, high = map(float, interval.strip("()").split("–"))
    assert low < float(value) == 1.45 < high
    assert first["speedup"] == "1.00"  # compared with itself


@pytest.mark.parametrize("columns", [["loss"], ["test_accuracy", "execution_time_s"], ["speedup"]])
def test_only_columns_that_are_shown_are_defined(columns: list[str], tmp_path: Path) -> None:
    notes = " ".join(shown_of(table_of(tmp_path, ALL), columns).notes)
    known = ("loss", "accuracy", "test_loss", "test_accuracy", "execution_time_s")
    assert {name for name in known if name in re.findall(r"\w+", notes)} == {*columns} & {*known}


def test_failed_missing_and_excluded_points_are_shown_with_their_reasons(tmp_path: Path) -> None:
    table = table_of(tmp_path, {1: 60.0}, {2: "out of memory"}, nodes=[1, 2, 4, 9])
    rows = comparison_rows(table)
    assert [row["status"] for row in rows] == ["ok", "failed", "missing", "excluded"]
    assert rows[1]["reason"].endswith("out of memory")
    assert rows[2]["reason"].startswith("repeat 1 missing")
    assert "nodes_max 8" in rows[3]["reason"]
    assert [row["execution_time_s"] for row in rows[1:]] == ["–", "–", "–"]
    assert [row["runs"] for row in rows[1:]] == ["0 of 1", "0 of 1", "0"]


def test_the_table_is_the_same_after_the_comparison_went_through_a_file(tmp_path: Path) -> None:
    table = table_of(tmp_path, {1: 60.0}, {2: "out of memory"}, nodes=[1, 2, 4, 9], repeats=6)
    table.to_csv(tmp_path / "comparison.csv", index=False)
    back = shown_of(table_files.read_table(tmp_path / "comparison.csv"))
    assert rows_of(back) == comparison_rows(table)
    assert back.notes == shown_of(table).notes


def test_a_single_time_has_no_range_though_more_runs_count() -> None:
    ends = {"execution_time_s_min": 10.0, "execution_time_s_max": 10.0, "loss_min": 0.1}
    row = {"runs": 3, "runs_timed": 1, "execution_time_s": 10.0, "loss": 0.2, "loss_max": 0.3}
    assert display.format_cell("execution_time_s", row | ends) == "10.0"
    assert display.format_cell("loss", row | ends) == "0.2000 (0.1000–0.3000)"
    assert (
        display.format_cell("execution_time_s", row | ends | {"runs_timed": 2})
        == "10.0 (10.0–10.0)"
    )


@pytest.mark.parametrize("values", [1, 2, 3])
@pytest.mark.parametrize("name", ["platform", "model", "strategy", "recipe"])
def test_columns_that_differ_are_shown_and_the_others_are_said_once(name: str, values: int) -> None:
    same = dict.fromkeys(("platform", "model", "strategy", "recipe"), "same")
    rows = [
        {**same, "tasks_per_node": "1", "gpus_per_node": 0, "devices": "cpu", "nodes": n + 1,
         name: f"one{n % values}"}
        for n in range(3)
    ]  # fmt: skip
    shown, text = display.split_naming_columns(pd.DataFrame(rows))
    assert (name in shown) == (values > 1) == ("one0" not in text)
    assert "nodes" in shown and not {*same} - {name} & {*shown}
    assert text.count("same") == len(same) - 1


def test_energies_are_shown_with_five_digits_and_whole_columns_as_integers() -> None:
    assert (METRICS["energy_usd"].digits, METRICS["energy_kg_co2"].digits) == (5, 5)
    whole = {name for name, column in columns(RunRow).items() if column.is_whole}
    assert {"projected_from_steps", "projected_to_steps"} <= whole
    assert columns(RunRow)["nodes"].rules == {"type": "integer", "minimum": 1}
