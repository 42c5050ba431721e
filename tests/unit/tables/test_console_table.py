"""The comparison on the console: the result is never cut, whatever varies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, raw_config, write_record
from rows import tables_of
from tfscaling.study import config_validation
from tfscaling.study.config_types import Comparison
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.console_table import WIDTH, console_table, strip_common_parts

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
