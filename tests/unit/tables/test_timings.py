"""Timings from a CSV file: the grid that follows from it, its runs, and what is refused."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import REGISTRIES, raw_config, refused
from tfscaling.study import acceptance
from tfscaling.study.config_types import Config
from tfscaling.study.manifest import Manifest
from tfscaling.tables import table_files, timings
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.row_types import PointRow

PRICE = {"usd_per_node_hour": 7.2, "price_date": "2026-11", "price_source": "made up"}
Row = dict[str, Any]


def write(path: Path, rows: list[Row], columns: list[str] | None = None) -> Path:
    names = columns or list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def row(nodes: int = 1, **changes: Any) -> Row:
    usual = {"nodes": nodes, "global_batch_size": 64 * nodes, "execution_time_s": 60.0 / nodes}
    return {**usual, **changes}


def planned(raw: dict[str, Any]) -> tuple[Config, Manifest]:
    return acceptance.validate_and_plan(timings.add_grid_of_timings(raw), REGISTRIES)


def make_tables(raw: dict[str, Any]) -> None:
    _, manifest = planned(raw)
    timings.run_tables_of_timings(manifest.runs, raw["timings"])


def refusal(path: Path, **keys: Any) -> str:
    return refused(make_tables, {**keys, "timings": str(path)})


def test_the_grid_follows_from_the_file_and_each_row_is_a_run(tmp_path: Path) -> None:
    nodes = sorted(random.sample(range(1, 40), 3))
    runs = {n: random.randint(1, 5) for n in nodes}
    times = {n: [round(random.uniform(10, 99), 2) for _ in range(runs[n])] for n in nodes}
    rows = [
        row(n, execution_time_s=time, platform="mine", gpus_per_node=4, tasks_per_node=4)
        | {"global_batch_size": 128 * n, "accuracy": 0.5, "note": "of their owner"}
        for n in nodes
        for time in times[n]
    ]
    random.shuffle(rows)
    order = {n: [r["execution_time_s"] for r in rows if r["nodes"] == n] for n in nodes}
    path = write(tmp_path / "mine.csv", rows)
    config, manifest = planned({"timings": str(path), "platforms": {"mine": {**PRICE}}})
    table, epochs = timings.run_tables_of_timings(manifest.runs, str(path))
    assert config.recipes["imported"].per_worker_batch_size == 32 and epochs.empty
    found = {n: own["execution_time_s"].tolist() for n, own in table.groupby("nodes")}
    assert found == order
    assert set(table["status"]) == {"ok"} and set(table["global_batch_size"] / table["nodes"]) == {
        128
    }
    costs = table["nodes"] * table["execution_time_s"] * 0.002
    assert table["cost_usd"].tolist() == pytest.approx(costs.tolist())
    lines = [int(record.rpartition(" ")[2]) for record in table["record"]]
    assert sorted(lines) == list(range(2, len(rows) + 2))


@pytest.mark.parametrize(
    ("sizes", "key", "size"),
    [
        ([128, 128, 128], "global_batch_size", 128),
        ([64, 128, 256], "per_worker_batch_size", 32),
    ],
)
def test_the_rule_of_the_batch_is_found(
    tmp_path: Path, sizes: list[int], key: str, size: int
) -> None:
    rows = [
        row(n, global_batch_size=batch, tasks_per_node=2)
        for n, batch in zip((1, 2, 4), sizes, strict=True)
    ]
    config, _ = planned({"timings": str(write(tmp_path / "mine.csv", rows))})
    assert getattr(config.recipes["imported"], key) == size


def test_a_batch_for_each_gpu_of_a_task_is_found(tmp_path: Path) -> None:
    rows = [
        row(n, gpus_per_node=gpus, global_batch_size=8 * n * gpus)
        for n in (1, 2)
        for gpus in (1, 2)
    ]
    config, _ = planned({"timings": str(write(tmp_path / "mine.csv", rows))})
    assert config.recipes["imported"].per_replica_batch_size == 8


def test_a_grid_stays_and_its_runs_without_a_row_are_missing(tmp_path: Path) -> None:
    raw = raw_config()
    (block,) = raw["grid"]
    block.update(nodes=[1, 2, 4], repeats=6)
    path = write(tmp_path / "mine.csv", [row(1), row(1, execution_time_s=61.0), row(4)])
    _, manifest = planned({**raw, "timings": str(path)})
    manifest = timings.drop_runs_without_row(manifest, str(path))
    table, _ = timings.run_tables_of_timings(manifest.runs, str(path))
    statuses = {n: own["status"].tolist() for n, own in table.groupby("nodes")}
    assert statuses == {1: ["ok", "ok"], 2: ["missing"], 4: ["ok"]}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(), row(2, execution_time_s="0")], ["line 3", "execution_time_s", "'0'", "> 0"]),
        ([row(execution_time_s="1:30")], ["line 2", "execution_time_s", "'1:30'", "number"]),
        ([row(execution_time_s="inf")], ["line 2", "execution_time_s", "'inf'", "finite"]),
        ([row(execution_time_s="")], ["line 2", "execution_time_s", "missing", "> 0"]),
        ([row(nodes=1) | {"nodes": "two"}], ["line 2", "nodes", "'two'", "integer"]),
        ([row(nodes=1) | {"nodes": 0}], ["line 2", "nodes", "'0'", "≥ 1"]),
        ([row(accuracy=1.5)], ["line 2", "accuracy", "'1.5'", "0 to 1"]),
        ([row(platform="my cluster/x")], ["line 2", "platform", "'my cluster/x'", "letters"]),
        ([row(gpus_per_node=3, tasks_per_node=2)], ["line 2", "gpus_per_node", "'3'", "2"]),
        ([row(3, global_batch_size=64)], ["line 2", "global_batch_size", "'64'", "3 replicas"]),
        (
            [row(1), row(2, global_batch_size=128), row(4, global_batch_size=128)],
            ["line 4", "global_batch_size", "'128'", "imported"],
        ),
    ],
)
def test_a_cell_that_is_not_allowed_has_file_line_column_value_and_rule(
    tmp_path: Path, rows: list[Row], words: list[str]
) -> None:
    path = write(tmp_path / "mine.csv", rows)
    said = refusal(path)
    assert said.startswith(f"{path}: ") and all(word in said for word in words), said


def test_a_row_outside_of_the_grid_is_refused(tmp_path: Path) -> None:
    raw = raw_config()
    raw["grid"][0].update(nodes=[1, 2])
    path = write(tmp_path / "mine.csv", [row(1), row(3)])
    said = refusal(path, **raw)
    assert said.startswith(f"{path}: line 3: nodes: '3' is not allowed") and "1, 2" in said
    path = write(tmp_path / "mine.csv", [row(1), row(2, global_batch_size=100)])
    said = refusal(path, **raw)
    assert said.startswith(f"{path}: line 3: global_batch_size: '100'") and "128" in said
    name = raw["grid"][0]["platform"]
    path = write(tmp_path / "mine.csv", [row(1, platform=name), row(1, platform="")])
    assert refusal(path, **raw).startswith(f"{path}: line 3: platform: missing")


@pytest.mark.parametrize(
    "text", [b"", b"nodes,execution_time_s,global_batch_size\n", b"nodes\n\xe9\n"]
)
def test_a_file_without_rows_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(text)
    assert refusal(path).startswith(f"{path}: ")
    assert refusal(tmp_path / "absent.csv").endswith("No such file or directory")


def test_a_missing_column_is_named_with_a_similar_one(tmp_path: Path) -> None:
    rows = [{"nodes": 1, "execution_time": 3.0, "global_batch_size": 64}]
    said = refusal(write(tmp_path / "mine.csv", rows))
    assert "column execution_time_s is missing" in said and "rename 'execution_time'" in said


def test_results_reach_the_target_by_themselves_and_gpus_have_hours(tmp_path: Path) -> None:
    target, direction = random.choice([("test_accuracy", "at_least"), ("loss", "at_most")])
    values = [random.uniform(0.2, 0.4), random.uniform(0.6, 0.8)]
    gpus, nodes = random.randint(1, 8), random.randint(1, 8)
    rows = [
        row(nodes, gpus_per_node=gpus, global_batch_size=gpus * nodes, **{target: value})
        for value in values
    ]
    path = str(write(tmp_path / "mine.csv", rows))
    recipes = {"imported": {"quality": {"metric": "loss", "direction": "lower"}}}
    given = {"recipes": recipes} if target == "loss" else {}
    limits = {target: {direction: 0.5}}
    _, manifest = planned({"timings": path, "question": {"limits": limits}, **given})
    table, _ = timings.run_tables_of_timings(manifest.runs, path, manifest.targets)
    reached = [(value < 0.5) is (target == "loss") for value in values]
    assert table["target_reached"].tolist() == reached
    hours = gpus * nodes * table["execution_time_s"] / 3600
    assert table["gpu_hours"].tolist() == pytest.approx(hours.tolist())
    (found,) = table_files.to_rows(PointRow, comparison_table(table, manifest))
    assert found.runs_at_target == 1 and np.isnan(found.core_hours)


def test_a_recipe_that_is_no_mapping_and_a_search_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", [row(1), row(2)])
    assert "recipes.imported: 5 is not allowed" in refusal(path, recipes={"imported": 5})
    said = refusal(path, search={})
    assert said.startswith("configuration: search: ") and "timings" in said
