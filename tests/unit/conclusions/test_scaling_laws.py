"""The table of scaling laws: a row for each line and law, and for a fit from more replicas on."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from measured import NOTHING_PLANNED, around, measured, runs_of
from tfscaling.conclusions import scaling_laws
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.scaling_laws import MODELS
from tfscaling.tables import runs_table, table_rows


def swept(kappa: float = 0.02, **west: float) -> pd.DataFrame:
    """Runs of two platforms: `east` with a knee at 7, `west` where one node is quick."""
    n, times = runs_of(0.1, kappa, runs=1)
    curve = dict(zip(map(int, n), times, strict=True))
    points = {("east", number): around(time) for number, time in curve.items()}
    points |= {("west", number): around(time) for number, time in curve.items() if number > 1}
    return measured({**points, ("west", 1): around(20.0)})[1]


def laws(runs: pd.DataFrame) -> pd.DataFrame:
    """The laws of runs all of whose points take part."""
    return scaling_laws.table(Study(pd.DataFrame(), runs, NOTHING_PLANNED))


def rows_by_line(table: pd.DataFrame) -> dict[tuple[str, str], dict[str, object]]:
    """The first row of each; a refused line can have a later one, from more replicas on."""
    rows = reversed(table.to_dict("records"))
    return {(row["platform"], row["law"]): row for row in rows}  # type: ignore[misc]


def test_the_table_has_a_row_for_each_line_and_law(tmp_path: Path) -> None:
    runs = swept()
    runs.to_csv(tmp_path / "runs.csv", index=False)
    table = laws(table_rows.read_table(tmp_path / "runs.csv"))
    assert list(table.columns) == list(scaling_laws.COLUMNS)
    assert set(scaling_laws.LAW_AXES) == {
        *("platform", "model", "strategy", "recipe", "gpus_per_node", "tasks_per_node"),
        "batch_scaling",
    }
    rows = rows_by_line(table)
    assert set(rows) == {(p, law) for p in ("east", "west") for law in MODELS}
    east = rows["east", "usl"]
    assert (east["status"], east["reason"], east["batch_scaling"]) == ("fitted", "", "weak")
    assert (east["n_min"], east["n_max"], east["points"], east["runs"]) == (1, 10, 7, 42)
    assert east["sigma"] == pytest.approx(0.1, abs=1e-3)
    assert east["kappa"] == pytest.approx(0.02, abs=1e-3)
    assert east["knee_low"] < math.sqrt(45) < east["knee_high"]  # type: ignore[operator]
    assert (east["best_n"], east["best"], east["knee_place"]) == (7, "7", "inside")
    assert east["t1_s"] == pytest.approx(100, rel=1e-2)
    west = rows["west", "usl"]
    assert west["status"] == "refused" and "From n = 2 on" in str(west["reason"])
    assert pd.isna(west["sigma"]) and west["runs"] == 42  # type: ignore[call-overload]
    later = table.iloc[-1]
    assert (later["platform"], later["law"], later["status"]) == ("west", "usl", "fitted")
    assert (later["n_min"], later["n_max"], later["runs"]) == (2, 10, 36)
    amdahl = rows["east", "amdahl"]
    assert (amdahl["model"], amdahl["status"]) == ("mnist_cnn", "fitted")
    assert pd.isna(amdahl["kappa"]) and pd.isna(amdahl["knee"])  # type: ignore[call-overload]


def test_only_valid_runs_take_part() -> None:
    runs = swept()
    failed = runs.copy()
    failed.loc[failed["nodes"] == 10, "status"] = "failed"
    failed.loc[failed["platform"] == "west", "status"] = "stale"
    rows = rows_by_line(laws(failed))
    assert (rows["east", "usl"]["n_max"], rows["east", "usl"]["runs"]) == (8, 36)
    assert str(rows["west", "usl"]["reason"]).endswith("measured: none.")


def test_laws_that_contradict_each_other_say_so() -> None:
    """Amdahl's least time is at the most replicas, that of the other law before."""
    times = {("east", n): around(100 / n + 8 * math.log2(n), 0.002) for n in (1, 2, 4, 8, 12, 16)}
    rows = rows_by_line(laws(measured(times)[1]))
    amdahl, usl = rows["east", "amdahl"], rows["east", "usl"]
    assert (amdahl["status"], usl["status"]) == ("fitted", "fitted")
    assert int(str(usl["best_high"])) < int(str(amdahl["best_low"]))
    assert "contradicts The Universal Scalability Law" in str(amdahl["statement"])
    assert "contradicts Amdahl's law" in str(usl["statement"])
    alike = rows_by_line(laws(swept(kappa=0.0)))["east", "amdahl"]
    assert alike["status"] == "fitted" and "contradicts" not in str(alike["statement"])


def test_points_that_do_other_work_or_diverge_are_left_out_and_named() -> None:
    comparison, runs, _ = measured({("east", n): around(100 / n + 2) for n in (1, 2, 4, 6, 8, 10)})
    comparison["same_work"] = comparison["nodes"] != 10
    comparison.loc[~comparison["same_work"], "examples_trained"] = 576
    runs.loc[(runs["nodes"] == 8) & (runs["repeat"] > 3), "status"] = "diverged"
    table = scaling_laws.table(Study(comparison, runs, NOTHING_PLANNED))
    row = rows_by_line(table)["east", "amdahl"]
    assert (row["n_max"], row["runs"]) == (6, 24)
    reason = "n = 8: 3 of 6 runs diverged; n = 10: does not do the same work: trained 576"
    assert row["left_out"].startswith(reason)
    assert all(reason in text for text in scaling_laws.as_text(table).cells["what it says"])


def test_n_is_the_number_of_replicas_and_batch_scaling_tells_lines_apart() -> None:
    runs = swept()
    east = runs[runs["platform"] == "east"]
    double = east.assign(replicas=2 * east["replicas"], batch_scaling="strong")
    table = laws(pd.concat([east, double], ignore_index=True))
    usl = table[table["law"] == "usl"].set_index("batch_scaling")
    assert usl.loc["weak", "n_max"] == 10 and usl.loc["strong", "n_max"] == 20
    assert usl.loc["strong", "knee"] == pytest.approx(2 * usl.loc["weak", "knee"], rel=1e-3)


def test_people_see_laws_intervals_reasons_and_notes() -> None:
    found = scaling_laws.as_text(laws(swept()))
    assert found.title == "Scaling laws"
    assert found.above.endswith("recipe weak, CPU, 1 task per node, weak scaling.")
    cells = rows_by_line(found.cells)
    east, west = cells["east", "usl"], cells["west", "usl"]
    assert east["sigma"].startswith("0.1") and "–" in east["sigma"]
    assert east["n"] == "1–10" and east["least time at n"] == "7"
    assert "lies inside the measured range" in east["what it says"]
    assert west["what it says"].startswith("Refused. ") and west["sigma"] == "–"
    notes = " ".join(found.notes)
    for law in MODELS.values():
        assert law.formula in notes
    assert "nothing here is a statement outside it" in notes and "95%" in notes
    assert all(isinstance(cell, str) for cell in found.cells.to_numpy().ravel())


def test_a_table_of_no_runs_is_shown_too() -> None:
    nothing = pd.DataFrame(columns=list(runs_table.RUN_COLUMNS))
    table = laws(nothing)
    assert table.empty and list(table.columns) == list(scaling_laws.COLUMNS)
    assert scaling_laws.as_text(table).cells.empty
