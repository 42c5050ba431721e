"""One row per run and one per point; nothing is dropped, nothing invalid is compared."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import raw_config, record_of, write_failure, write_record
from tfscaling import configuration, expectations, tables
from tfscaling.grid import AXES, POINT_AXES
from tfscaling.metrics import METRICS


def expected_of(*blocks: dict[str, Any], **platform: Any) -> dict[str, Any]:
    """The expected runs of some blocks on the platform `cluster`."""
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2]}
    raw = raw_config((("grid",), [{**usual, **block} for block in blocks or ({},)]))
    raw["recipes"]["strong"] = {"global_batch_size": 64, "learning_rate": 0.1, "epochs": 2}
    raw["platforms"]["cluster"].update(platform)
    return expectations.expected_runs(configuration.validate(raw))


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def point(table: pd.DataFrame, **axes: Any) -> dict[str, Any]:
    """The row with these axes, which must be the only one."""
    (row,) = [row for row in rows_of(table) if all(row[a] == v for a, v in axes.items())]
    return row


def compare(expected: dict[str, Any], runs_dir: Path) -> pd.DataFrame:
    runs = tables.runs_table(expected, runs_dir)
    return tables.comparison_table(runs, expected["excluded"])


def write_all(expected: dict[str, Any], runs_dir: Path, *times: float) -> None:
    for entry, time in zip(expected["runs"], times, strict=True):
        write_record(runs_dir, entry, time)


def test_a_valid_run_has_its_measurements_hosts_and_record(tmp_path: Path) -> None:
    expected = expected_of({}, usd_per_node_hour=3.6)
    write_all(expected, tmp_path, 40.0, 30.0)
    row = point(tables.runs_table(expected, tmp_path), nodes=2)
    assert (row["status"], row["reason"]) == ("ok", "")
    assert (row["execution_time_s"], row["loss"], row["accuracy"]) == (30.0, 0.25, 0.9)
    assert (row["replicas"], row["global_batch_size"], row["batch_scaling"]) == (2, 128, "weak")
    assert row["cost_usd"] == pytest.approx(3.6 * 2 * 30.0 / 3600)
    assert row["hosts"] == "node0 node1"
    assert row["attempt"] == 1
    assert json.loads(Path(row["record"]).read_text())["axes"]["nodes"] == 2


def test_rows_are_in_the_order_of_the_grid_with_axes_first(tmp_path: Path) -> None:
    expected = expected_of({"nodes": [4, 1, 2], "repeats": 2})
    table = tables.runs_table(expected, tmp_path)
    assert [(row["nodes"], row["repeat"]) for row in rows_of(table)] == [
        (nodes, repeat) for nodes in (4, 1, 2) for repeat in (1, 2)
    ]
    assert tuple(table.columns[: len(AXES)]) == AXES


def test_a_run_not_made_yet_is_a_row(tmp_path: Path) -> None:
    row = point(tables.runs_table(expected_of(), tmp_path), nodes=1)
    assert (row["status"], row["reason"]) == ("missing", "not run yet")
    assert math.isnan(row["execution_time_s"])
    assert row["replicas"] == 1


def test_a_failed_run_is_a_row_with_its_cause(tmp_path: Path) -> None:
    expected = expected_of()
    write_failure(tmp_path, expected["runs"][1])
    row = point(tables.runs_table(expected, tmp_path), nodes=2)
    assert (row["status"], row["reason"]) == ("failed", "rank_died: rank 1 on node1: exit code 3")


def test_a_failure_that_is_of_no_rank_is_told_without_one(tmp_path: Path) -> None:
    expected = expected_of()
    write_failure(tmp_path, expected["runs"][1], kind="cancelled", rank=None, message="SIGTERM")
    assert point(tables.runs_table(expected, tmp_path), nodes=2)["reason"] == "cancelled: SIGTERM"


def test_a_run_that_left_nothing_but_its_folder_is_unfinished(tmp_path: Path) -> None:
    expected = expected_of()
    (tmp_path / expected["runs"][0]["path"] / "attempt=1").mkdir(parents=True)
    row = point(tables.runs_table(expected, tmp_path), nodes=1)
    assert row["status"] == "unfinished"
    assert "still running, or killed" in row["reason"]


def test_a_run_made_with_other_parameters_is_stale_and_tells_which(tmp_path: Path) -> None:
    write_all(expected_of(), tmp_path, 40.0, 30.0)
    now = raw_config((("recipes", "weak", "epochs"), 3))
    expected = expectations.expected_runs(configuration.validate(now))
    row = point(tables.runs_table(expected, tmp_path), nodes=2)
    assert row["status"] == "stale"
    assert row["reason"] == "made with other parameters: epochs: 2, now 3"
    assert math.isnan(row["execution_time_s"])


@pytest.mark.parametrize(
    ("text", "reason"), [("{", "not JSON"), ("[]", "not a JSON object"), ("{}", "'schema_version'")]
)
def test_a_broken_record_is_a_failed_row_and_no_crash(
    tmp_path: Path, text: str, reason: str
) -> None:
    expected = expected_of()
    path = write_record(tmp_path, expected["runs"][0])
    path.write_text(text)
    row = point(tables.runs_table(expected, tmp_path), nodes=1)
    assert row["status"] == "failed"
    assert reason in row["reason"]
    assert str(path) in row["reason"]


def test_a_broken_failure_report_is_a_failed_row_and_no_crash(tmp_path: Path) -> None:
    expected = expected_of()
    write_failure(tmp_path, expected["runs"][0])
    (tmp_path / expected["runs"][0]["path"] / "failure.json").write_text("{")
    row = point(tables.runs_table(expected, tmp_path), nodes=1)
    assert row["status"] == "failed"
    assert "not JSON" in row["reason"]


def test_a_record_in_the_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    expected = expected_of()
    path = write_record(tmp_path, expected["runs"][0])
    path.write_text(json.dumps(record_of(expected["runs"][1])))
    row = point(tables.runs_table(expected, tmp_path), nodes=1)
    assert row["status"] == "stale"
    assert "nodes: 2, now 1" in row["reason"]


def test_medians_and_extremes_over_repeats(tmp_path: Path) -> None:
    expected = expected_of({"nodes": 2, "repeats": 4})
    write_all(expected, tmp_path, 10.0, 60.0, 20.0, 30.0)
    row = point(compare(expected, tmp_path), nodes=2)
    assert row["execution_time_s"] == 25.0
    assert (row["execution_time_s_min"], row["execution_time_s_max"]) == (10.0, 60.0)
    assert (row["runs"], row["runs_asked"], row["status"]) == (4, 4, "ok")


def test_invalid_repeats_take_no_part_and_are_told(tmp_path: Path) -> None:
    expected = expected_of({"nodes": 2, "repeats": 4})
    write_record(tmp_path, expected["runs"][0], 10.0)
    write_record(tmp_path, expected["runs"][2], 20.0)
    write_failure(tmp_path, expected["runs"][1])
    row = point(compare(expected, tmp_path), nodes=2)
    assert row["execution_time_s"] == 15.0
    assert (row["runs"], row["runs_asked"], row["status"]) == (2, 4, "incomplete")
    assert row["reason"] == (
        "repeat 2 failed: rank_died: rank 1 on node1: exit code 3; repeat 4 missing: not run yet"
    )


@pytest.mark.parametrize("nodes", [[1, 2, 4], [4, 2, 1]])
def test_speedup_is_relative_to_the_point_with_the_fewest_replicas(
    tmp_path: Path, nodes: list[int]
) -> None:
    expected = expected_of({"nodes": nodes})
    for entry in expected["runs"]:
        time = {1: 60.0, 2: 40.0, 4: 20.0}[entry["axes"]["nodes"]]
        write_record(tmp_path, entry, time)
    table = compare(expected, tmp_path)
    assert [point(table, nodes=n)["speedup"] for n in (1, 2, 4)] == [1.0, 1.5, 3.0]
    assert [point(table, nodes=n)["scaling_efficiency"] for n in (1, 2, 4)] == [1.0, 0.75, 0.75]
    assert set(table["baseline"]) == {"nodes=1 gpus_per_node=0 tasks_per_node=1"}
    assert set(table["baseline_execution_time_s"]) == {60.0}


def test_efficiency_counts_replicas_from_a_baseline_of_several(tmp_path: Path) -> None:
    expected = expected_of({"nodes": [1, 2], "gpus_per_node": 2})
    write_all(expected, tmp_path, 60.0, 40.0)
    row = point(compare(expected, tmp_path), nodes=2)
    assert (row["replicas"], row["speedup"], row["scaling_efficiency"]) == (4, 1.5, 0.75)


@pytest.mark.parametrize("ending", ["failed", "missing", "stale"])
def test_without_a_valid_baseline_there_is_no_speedup(tmp_path: Path, ending: str) -> None:
    expected = expected_of({"nodes": [1, 2, 4]})
    for entry in expected["runs"][1:]:
        write_record(tmp_path, entry, 30.0)
    if ending == "failed":
        write_failure(tmp_path, expected["runs"][0])
    if ending == "stale":
        path = write_record(tmp_path, expected["runs"][0])
        record = json.loads(path.read_text()) | {"parameters_hash": "0" * 16}
        path.write_text(json.dumps(record))
    table = compare(expected, tmp_path)
    assert table["speedup"].isna().all()
    assert table["scaling_efficiency"].isna().all()
    assert set(table["baseline"]) == {"nodes=1 gpus_per_node=0 tasks_per_node=1"}
    row = point(table, nodes=1)
    assert (row["status"], row["runs"]) == (ending, 0)
    assert point(table, nodes=2)["execution_time_s"] == 30.0


def test_a_failed_point_has_no_speedup_of_its_own(tmp_path: Path) -> None:
    expected = expected_of({"nodes": [1, 2]})
    write_record(tmp_path, expected["runs"][0], 60.0)
    row = point(compare(expected, tmp_path), nodes=2)
    assert math.isnan(row["speedup"])
    assert row["status"] == "missing"


def test_each_series_has_its_own_baseline(tmp_path: Path) -> None:
    expected = expected_of({"recipe": ["weak", "strong"]})
    write_all(expected, tmp_path, 60.0, 30.0, 80.0, 20.0)
    table = compare(expected, tmp_path)
    assert point(table, recipe="weak", nodes=2)["speedup"] == 2.0
    assert point(table, recipe="strong", nodes=2)["speedup"] == 4.0


def test_excluded_points_stand_at_the_end_with_their_reasons(tmp_path: Path) -> None:
    expected = expected_of({"nodes": [9, 1, 2]})
    write_all(expected, tmp_path, 60.0, 30.0)
    rows = rows_of(compare(expected, tmp_path))
    assert [(row["nodes"], row["status"]) for row in rows] == [
        (1, "ok"),
        (2, "ok"),
        (9, "excluded"),
    ]
    assert (rows[-1]["runs"], rows[-1]["reason"]) == (0, "9 nodes exceed nodes_max 8")


def test_every_point_of_the_grid_is_a_row_in_the_order_of_the_grid(tmp_path: Path) -> None:
    strong = {"nodes": [1, 2], "recipe": "strong"}
    expected = expected_of({"nodes": 1}, strong, {"nodes": [4, 2]}, {"nodes": [8, 9]})
    table = compare(expected, tmp_path)
    entries = expected["runs"] + expected["excluded"]
    points = [{**entry["axes"], "tasks_per_node": "1"} for entry in entries]
    expected_rows = [[point[axis] for axis in POINT_AXES] for point in points]
    assert table[list(POINT_AXES)].to_numpy().tolist() == expected_rows
    assert len(table) == 7


def test_every_metric_is_a_column_whatever_is_shown_of_it(tmp_path: Path) -> None:
    expected = expected_of({}, usd_per_node_hour=3.6)
    write_all(expected, tmp_path, 60.0, 30.0)
    table = compare(expected, tmp_path)
    assert list(table.columns) == list(tables.COMPARISON_COLUMNS)
    assert set(METRICS) <= set(table.columns)
    unknown = {name for name in METRICS if table[name].isna().any()}
    assert unknown == {"queue_time_s"}  # there was no Slurm


def test_a_grid_of_which_nothing_has_run_is_still_a_table(tmp_path: Path) -> None:
    table = compare(expected_of({"nodes": [1, 2, 9]}), tmp_path)
    assert table["status"].tolist() == ["missing", "missing", "excluded"]
    assert table["execution_time_s"].isna().all()


def write_and_read(runs: pd.DataFrame, folder: Path) -> pd.DataFrame:
    runs.to_csv(folder / "runs.csv", index=False)
    return tables.read_table(folder / "runs.csv")


def test_the_comparison_is_the_same_after_the_runs_went_through_a_file(tmp_path: Path) -> None:
    expected = expected_of({"nodes": [1, 2, 4], "repeats": 2}, usd_per_node_hour=3.6)
    for number, entry in enumerate(expected["runs"][:-1]):
        write_record(tmp_path, entry, 60.0 / (number + 1))
    runs = tables.runs_table(expected, tmp_path)
    pd.testing.assert_frame_equal(
        tables.comparison_table(write_and_read(runs, tmp_path), []),
        tables.comparison_table(runs, []),
        check_dtype=False,
    )


def test_uneven_tasks_beside_even_ones_survive_the_file(tmp_path: Path) -> None:
    expected = expected_of({"nodes": 2, "tasks_per_node": [1, 2, "2+1"]})
    write_all(expected, tmp_path, 60.0, 30.0, 40.0)
    runs = write_and_read(tables.runs_table(expected, tmp_path), tmp_path)
    rows = rows_of(tables.comparison_table(runs, []))
    assert [str(row["tasks_per_node"]) for row in rows] == ["1", "2", "2+1"]
    assert [row["speedup"] for row in rows] == [1.0, 2.0, 1.5]


@pytest.mark.parametrize("name", ["NA", "null", "nan", "007", "1e3", "True"])
def test_names_that_look_like_something_else_survive_the_file(tmp_path: Path, name: str) -> None:
    raw = raw_config((("grid", 0, "platform"), name), (("grid", 0, "recipe"), name))
    raw["platforms"][name] = raw["platforms"]["cluster"]
    raw["recipes"][name] = raw["recipes"]["weak"]
    expected = expectations.expected_runs(configuration.validate(raw))
    write_all(expected, tmp_path, 60.0, 30.0)
    runs = write_and_read(tables.runs_table(expected, tmp_path), tmp_path)
    table = tables.comparison_table(runs, [])
    assert table["platform"].tolist() == [name, name]
    assert table["recipe"].tolist() == [name, name]
    assert table["speedup"].tolist() == [1.0, 2.0]
