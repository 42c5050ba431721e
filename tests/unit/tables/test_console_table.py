"""The comparison on the console: the result is never cut, whatever varies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, raw_config, write_record
from measured import around, measured, resumed_from
from rows import tables_of
from tfscaling.conclusions import projection
from tfscaling.conclusions.evidence import Study
from tfscaling.study import config_validation
from tfscaling.study.config_types import Comparison
from tfscaling.tables.comparison import TIME, comparison_table, comparison_text_table
from tfscaling.tables.console_table import WIDTH, console_table, strip_common_parts
from tfscaling.tables.display import BracketKind, bracket_kind
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.table_files import to_rows

NAMES = ("university-cluster-accelerated-a100", "university-cluster-accelerated-h100-nvl")
RECIPES = ("large-batch-with-warmup-and-decay", "small-batch-with-warmup-and-decay")


def lines_of(
    folder: Path, repeats: int, asked: str = "execution_time_s", **block: Any
) -> list[str]:
    """Return the lines for a grid, whose configurations of one node have half of their runs."""
    raw = raw_config()
    platform, recipe = raw["platforms"]["cluster"], raw["recipes"]["weak"]
    raw["platforms"] |= {name: dict(platform) for name in NAMES}
    raw["recipes"] |= {name: dict(recipe) for name in RECIPES}
    usual = {"platform": NAMES[0], "model": "mnist_cnn", "recipe": RECIPES[0], "nodes": [1, 2]}
    raw["grid"] = [{**usual, "repeats": repeats, **block}]
    planned = manifest_of(config_validation.convert_to_types(raw))
    for number, run in enumerate(planned.runs):
        if run.spec.point.nodes > 1 or run.spec.repeat > repeats // 2:
            write_record(folder, run, 1000.0 + 7 * number)
    table = comparison_table(tables_of(planned, folder)[0], planned)
    return console_table(table, Comparison().columns, asked)


VARYING: dict[str, dict[str, Any]] = {
    "nodes": {},
    "platforms": {"platform": [*NAMES]},
    "five": {
        "platform": [*NAMES],
        "recipe": [*RECIPES],
        "model": ["mnist_cnn", "cifar10_cnn"],
        "gpus_per_node": [0, 2],
    },
}


@pytest.mark.parametrize("varying", VARYING)
@pytest.mark.parametrize("asked", ["execution_time_s", "loss"])
def test_status_runs_and_the_asked_value_come_first_and_the_axes_fit(
    varying: str, asked: str, tmp_path: Path
) -> None:
    *rows, brackets = lines_of(tmp_path, 2, asked, **VARYING[varying])
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    is_merged = varying == "five"
    axes = 1 if is_merged else 2 if varying == "platforms" else 1
    assert cells[0][:4] == ["status", "runs", asked, "configuration" if is_merged else "nodes"]
    for row in rows:  # up to the last axis
        assert len("|".join(row.split("|")[: 4 + axes])) + 1 <= WIDTH
    of_one = [row for row in cells[2:] if row[3].removeprefix("nodes=").startswith("1")]
    assert {(row[0], row[1]) for row in of_one} == {("incomplete", "1 of 2")}
    names = [tuple(row[3 : 3 + axes]) for row in cells[2:]]
    assert len(set(names)) == len(names)
    assert "range" in brackets and "interval of" not in brackets


def test_brackets_are_named_interval_range_or_both(tmp_path: Path) -> None:
    assert "interval of the median" in lines_of(tmp_path / "a", 12)[-1]
    both = lines_of(tmp_path / "b", 6)[-1]
    assert "interval of the median" in both and "range" in both
    assert lines_of(tmp_path / "c", 1)[-1].startswith("|")


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["batch-64", "batch-128"], ["64", "128"]),
        (["gcp-n1-v100", "gcp-n1-k80", "gcp-n1-v100"], ["v100", "k80", "v100"]),
        (["small-model_x", "large-model_x"], ["small", "large"]),
        (["abc", "abd"], ["abc", "abd"]),
        (["a", "a-b"], ["a", "a-b"]),
        (["same", "same"], ["same", "same"]),
    ],
)
def test_parts_that_all_names_share_are_left_out(names: list[str], short: list[str]) -> None:
    assert strip_common_parts(names) == short


def test_brackets_are_explained_by_the_runs_with_times() -> None:
    """Six valid runs, two of them resumed, have a range of times and no interval."""
    made = measured({("east", 1): around(70.0, 0.05), ("east", 2): around(40.0, 0.05)})
    table, *_ = resumed_from(made, 1, 2, runs=2)
    (legend,) = (line for line in console_table(table, [TIME], TIME) if "brackets" in line)
    assert "interval of" not in legend and "range" in legend
    notes = " ".join(comparison_text_table(table, "T", [TIME]).notes)
    assert "interval of the median" not in notes and "minimum" in notes


@pytest.mark.parametrize("runs", [2, 3, 6])
def test_brackets_of_projected_times_are_of_one_complete_run(runs: int) -> None:
    times = {("east", 1): around(70.0, 0.05, runs), ("east", 2): around(40.0, 0.05, runs)}
    _, table, planned = measured(times)
    table["projected_from_steps"], table["projected_to_steps"] = 100, 1000
    table["projection_error_s"], table["evaluation_time_s"] = 2.0, 1.0
    table["train_time_s"] = table["execution_time_s"] - 2
    found = comparison_table(table, planned)
    found = projection.add_intervals(found, projection.table(Study(found, table, planned)))
    (row, _) = to_rows(PointRow, found)
    is_known = runs >= projection.RUNS_MIN
    kinds = BracketKind
    assert bracket_kind(TIME, row) is (kinds.COMPLETE_RUN_INTERVAL if is_known else kinds.RANGE)
    (legend,) = (line for line in console_table(found, [TIME], TIME) if "brackets" in line)
    notes = " ".join(comparison_text_table(found, "T", [TIME]).notes)
    for text in (legend, notes):
        assert ("one complete run" in text) == is_known
        assert "interval of the median" not in text


@pytest.mark.parametrize(
    ("strategy", "imported_from", "words"),
    [
        ("multi_worker_mirrored", "", "trainer's first line"), ("own", "", "program's start"),
        ("own", "times.csv", "times.csv"),
    ],
)  # fmt: skip
def test_notes_name_what_the_execution_time_is(
    strategy: str, imported_from: str, words: str
) -> None:
    table, *_ = measured({("east", 1): around(70.0), ("east", 2): around(40.0)})
    table["strategy"] = strategy
    (note,) = (
        note
        for note in comparison_text_table(table, "T", [TIME], imported_from).notes
        if "execution_time_s is" in note
    )
    every = ("trainer's first line", "program's start", "times.csv")
    assert [each for each in every if each in note] == [words]
