"""Hundreds of records through all tables: every point is in every form."""

from __future__ import annotations

import re
from pathlib import Path

import generator
import pandas as pd
import pytest
from builders import manifest_of, raw_config
from tfscaling.spec import configuration
from tfscaling.spec.manifest import Manifest
from tfscaling.tables import display, runs_table
from tfscaling.tables.comparison import as_text, comparison_table, platform_texts
from tfscaling.tables.display import TextTable

REPEATS = 6
COLUMNS = ["execution_time_s", "speedup", "scaling_efficiency", "loss", "accuracy"]
#: The axes that vary over the 100 points, in the order of the tables.
VARYING = ["platform", "recipe", "nodes", "gpus_per_node"]
POINTS = [
    (platform, recipe, str(nodes), str(gpus))
    for platform in ("cluster", "other")
    for recipe in ("weak", "slow")
    for nodes in range(1, 6)
    for gpus in range(5)
]

#: The same as tables show them.
DEVICES = {"0": "CPU", "1": "1 GPU", **{str(gpus): f"{gpus} GPUs" for gpus in (2, 3, 4)}}
SHOWN = [(*point[:3], DEVICES[point[3]]) for point in POINTS]


@pytest.fixture(scope="module")
def planned() -> Manifest:
    block = {
        "platform": ["cluster", "other"], "model": "mnist_cnn", "recipe": ["weak", "slow"],
        "nodes": [1, 2, 3, 4, 5], "gpus_per_node": [0, 1, 2, 3, 4], "repeats": REPEATS,
    }  # fmt: skip
    raw = raw_config((("grid",), [block]))
    raw["platforms"]["other"] = raw["platforms"]["cluster"]
    raw["recipes"]["slow"] = {**raw["recipes"]["weak"], "learning_rate": 0.01}
    return manifest_of(configuration.validate(raw))


@pytest.fixture(scope="module")
def folder(planned: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("runs")
    generator.write_records(planned.runs, folder)
    return folder


@pytest.fixture(scope="module")
def comparison(planned: Manifest, folder: Path) -> pd.DataFrame:
    runs, _ = runs_table.run_tables(planned.runs, folder)
    return comparison_table(runs, planned)


@pytest.fixture(scope="module")
def shown(comparison: pd.DataFrame) -> TextTable:
    return as_text(comparison, "Many", COLUMNS)


def test_every_run_is_a_row_and_every_epoch(planned: Manifest, folder: Path) -> None:
    runs, epochs = runs_table.run_tables(planned.runs, folder)
    assert len(runs) == len(POINTS) * REPEATS == 600
    assert set(runs["status"]) == {"ok"}
    assert runs["parameters_hash"].nunique() == 600
    assert len(epochs) == 1200


def test_every_point_is_a_row_with_all_its_runs_and_an_interval(comparison: pd.DataFrame) -> None:
    found = [tuple(map(str, row)) for row in comparison[VARYING].to_numpy().tolist()]
    assert found == POINTS
    assert set(comparison["runs"]) == {REPEATS}
    times = comparison[[f"execution_time_s{end}" for end in ("_low", "", "_high")]].to_numpy()
    assert (times[:, 0] < times[:, 1]).all() and (times[:, 1] < times[:, 2]).all()
    # the baselines are one node without GPUs, and one node with one
    others = comparison[(comparison["nodes"] > 1) | (comparison["gpus_per_node"] > 1)]
    assert (others["speedup_low"] <= others["speedup"]).all()
    assert (others["speedup"] <= others["speedup_high"]).all()


def test_every_point_is_a_row_of_the_markdown_table(shown: TextTable) -> None:
    lines = [line for line in display.markdown(shown).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    names = ["status", "runs", "replicas", "global_batch_size"]
    assert rows[0] == [*VARYING[:3], "devices", *COLUMNS, *names]
    assert [tuple(row[:4]) for row in rows[2:]] == SHOWN
    assert all(re.fullmatch(r"[\d.]+ \([\d.]+–[\d.]+\)", row[4]) for row in rows[2:])


def test_every_point_is_a_row_of_the_latex_table(shown: TextTable) -> None:
    body = display.latex(shown).split("\\midrule\n")[1].split("\\bottomrule")[0]
    rows = [line.removesuffix(" \\\\").split(" & ") for line in body.splitlines()]
    assert [tuple(row[:4]) for row in rows] == SHOWN


def test_every_point_is_a_row_of_the_html_page(shown: TextTable) -> None:
    rows = re.findall(r"<tr>\s*(<td.*?)</tr>", display.html_page(shown), re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    assert [tuple(row[:4]) for row in cells] == SHOWN


def test_every_point_is_in_the_table_of_its_platform(comparison: pd.DataFrame) -> None:
    for platform in ("cluster", "other"):
        parts = platform_texts(comparison, platform)
        assert len(parts) == 10  # recipes × GPUs
        for part in parts:
            assert part.cells["Number of nodes"].tolist() == ["1", "2", "3", "4", "5"]
            assert display.markdown(part, 2).count(" seconds |") == 5
