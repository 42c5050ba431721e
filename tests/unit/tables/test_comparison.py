"""One row per point; nothing is dropped, nothing invalid is compared."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rows
from builders import DIVERGENCE, changed, manifest_of, raw_config, write_failure, write_record
from msgspec.structs import replace
from rows import planned_of, point, rows_of, tables_of, write_all
from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.study import config_validation
from tfscaling.study.manifest import Manifest
from tfscaling.tables import table_files
from tfscaling.tables.comparison import (
    SAME_WORK_TOLERANCE,
    are_equal_work,
    comparison_table,
)
from tfscaling.tables.published_results import PublishedResult
from tfscaling.tables.row_values import axis_columns


def compare(
    planned: Manifest,
    runs_dir: Path,
    baseline: dict[str, Any] | None = None,
    published_results: Sequence[PublishedResult] = (),
) -> pd.DataFrame:
    runs, _ = tables_of(planned, runs_dir)
    return comparison_table(runs, planned, baseline, published_results)


def test_energy_has_its_prices_and_one_kind_of_parts(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2], "repeats": 2}, usd_per_kwh=0.5, kg_co2_per_kwh=0.2)
    write_all(planned, tmp_path, 10.0, 10.0, 10.0, 10.0)
    energies = [(2.0, "GPUs"), (4.0, "GPUs"), (2.0, "GPUs"), (4.0, "GPUs and processors")]
    for run, (kwh, parts) in zip(planned.runs, energies, strict=True):
        with changed(tmp_path / run.spec.path / "run.json") as record:
            record["use"] = {"energy_kwh": kwh, "energy_of": parts}
    table = compare(planned, tmp_path)
    one, two = point(table, nodes=1), point(table, nodes=2)
    assert (one["energy_kwh"], one["energy_usd"], one["energy_of"]) == (3.0, 1.5, "GPUs")
    assert one["energy_kg_co2"] == pytest.approx(0.6)
    assert math.isnan(two["energy_kwh"]) and math.isnan(two["energy_usd"])
    assert not two["energy_of"] and "GPUs and processors" in two["reason"]


def test_the_share_of_peak_is_of_a_replica_at_the_precision(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2, 3]}, peak_tflops={"float32": 0.5, "bfloat16": 9.0})
    write_all(planned, tmp_path, 10.0, 10.0, 10.0)
    for run, flops in zip(planned.runs, (2e6, 2e6, None), strict=True):
        with changed(tmp_path / run.spec.path / "run.json") as record:
            own = {"flops_per_example": flops, "throughput_examples_per_s": 100_000.0}
            record["metrics"] |= own
    table = compare(planned, tmp_path)
    shares = [point(table, nodes=nodes)["share_of_peak"] for nodes in (1, 2, 3)]
    assert shares[:2] == pytest.approx([0.4, 0.2]) and math.isnan(shares[2])
    other = replace(planned, runs=[replace(run, peak_tflops=None) for run in planned.runs])
    assert compare(other, tmp_path)["share_of_peak"].isna().all()


def test_runs_that_went_on_from_a_checkpoint_are_valid_without_times(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2], "repeats": 3})
    write_all(planned, tmp_path, 60.0, 70.0, 80.0, 20.0, 30.0, 40.0)
    resumed = {"epoch": 2, "step": 0, "steps_repeated": 0, "trained_before_s": 9, "attempts": []}
    for run in planned.runs:
        if run.spec.point.nodes == 1 or run.spec.repeat == 2:
            with changed(tmp_path / run.spec.path / "run.json") as record:
                record["resumed"] = resumed
    table = compare(planned, tmp_path)
    none, some = (point(table, nodes=nodes) for nodes in (1, 2))
    assert [(row["runs"], row["runs_timed"], row["status"]) for row in (none, some)] == [
        (3, 0, "ok"), (3, 2, "ok")
    ]  # fmt: skip
    assert math.isnan(none["execution_time_s"]) and none["accuracy"] == 0.9
    assert "0 of 3 runs" in none["reason"]
    assert "2 of 3 runs" in some["reason"]


@pytest.mark.parametrize("nodes", [[1, 2, 4], [4, 2, 1]])
def test_speedup_is_relative_to_the_point_with_the_fewest_replicas(
    tmp_path: Path, nodes: list[int]
) -> None:
    planned = planned_of({"nodes": nodes})
    for run in planned.runs:
        time = {1: 60.0, 2: 40.0, 4: 20.0}[run.spec.point.nodes]
        write_record(tmp_path, run, time)
    table = compare(planned, tmp_path)
    assert [point(table, nodes=n)["speedup"] for n in (1, 2, 4)] == [1.0, 1.5, 3.0]
    assert [point(table, nodes=n)["scaling_efficiency"] for n in (1, 2, 4)] == [1.0, 0.75, 0.75]
    assert set(table["baseline"]) == {"1 node, CPU"}
    assert set(table["baseline_execution_time_s"]) == {60.0}


def test_every_point_of_the_grid_is_a_row_in_the_order_of_the_grid(tmp_path: Path) -> None:
    strong = {"nodes": [1, 2], "recipe": "strong"}
    planned = planned_of({"nodes": 1}, strong, {"nodes": [4, 2]}, {"nodes": [8, 9]})
    table = compare(planned, tmp_path)
    points = [*(run.spec.point for run in planned.runs), *(out.point for out in planned.excluded)]
    expected_rows = [[*axis_columns(point).values()] for point in points]
    assert table[list(points[0].axes)].to_numpy().tolist() == expected_rows
    assert len(table) == 7


def write_and_read(runs: pd.DataFrame, folder: Path) -> pd.DataFrame:
    runs.to_csv(folder / "runs.csv", index=False)
    return table_files.read_table(folder / "runs.csv")


@pytest.mark.parametrize("name", ["NA", "null", "nan", "007", "1e3", "True"])
def test_names_that_look_like_something_else_survive_the_file(tmp_path: Path, name: str) -> None:
    raw = raw_config((("grid", 0, "platform"), name), (("grid", 0, "recipe"), name))
    raw["platforms"][name] = raw["platforms"]["cluster"]
    raw["recipes"][name] = raw["recipes"]["weak"]
    planned = manifest_of(config_validation.convert_to_types(raw))
    write_all(planned, tmp_path, 60.0, 30.0)
    runs = write_and_read(tables_of(planned, tmp_path)[0], tmp_path)
    table = comparison_table(runs, planned)
    assert table["platform"].tolist() == [name, name]
    assert table["recipe"].tolist() == [name, name]
    assert table["speedup"].tolist() == [1.0, 2.0]


TIMES = (61.0, 62.5, 60.0, 66.0, 61.5, 64.0)
FASTER = (31.0, 29.5, 30.0, 33.0, 30.5, 28.0)


def test_speedup_and_efficiency_have_the_interval_of_the_ratio(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2], "repeats": 6})
    write_all(planned, tmp_path, *TIMES, *FASTER)
    table = compare(planned, tmp_path)
    row = point(table, nodes=2)
    low, high = row["speedup_low"], row["speedup_high"]
    assert row["speedup"] == pytest.approx(62.0 / 30.25)
    # from all medians of six values drawn with replacement from both lists
    dice = np.random.default_rng(5)
    slow, fast = (np.median(dice.choice(times, (40_000, 6)), axis=1) for times in (TIMES, FASTER))
    expected = np.quantile(slow / fast, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    assert (low, high) == pytest.approx(expected, rel=0.02)
    assert low < row["speedup"] < high
    assert row["scaling_efficiency_low"] == pytest.approx(low / 2)
    assert row["scaling_efficiency_high"] == pytest.approx(high / 2)
    base = point(table, nodes=1)
    assert base["speedup"] == 1.0
    assert math.isnan(base["speedup_low"])  # a point compared with itself
    # what no run has needs no reason
    assert base["reason"] == row["reason"] == "" and math.isnan(row["share_of_peak"])


def test_the_steady_state_has_a_speedup_of_its_own(tmp_path: Path) -> None:
    """Throughput, 100, 101, ... examples per second on one node and three times that on two."""
    planned = planned_of({"nodes": [1, 2], "repeats": 6})
    for run in planned.runs:
        with changed(write_record(tmp_path, run)) as record:
            rate = (99.0 + run.spec.repeat) * (3 if run.spec.point.nodes == 2 else 1)
            record["metrics"]["throughput_examples_per_s"] = rate
    base, row = (point(compare(planned, tmp_path), nodes=nodes) for nodes in (1, 2))
    # total over median time: not 102.5, the mean of the two rates in the middle
    assert base["throughput_examples_per_s"] == pytest.approx(2 / (1 / 102 + 1 / 103))
    assert (row["speedup"], row["steady_state_speedup"]) == (1.0, pytest.approx(3.0))
    assert 2.8 < row["steady_state_speedup_low"] < 3.0 < row["steady_state_speedup_high"] < 3.2
    assert base["steady_state_speedup"] == 1.0
    assert math.isnan(base["steady_state_speedup_low"])


SINGLE = {"strategy": "single", "nodes": 1}


def test_a_named_baseline_is_that_of_all_series(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2]}, SINGLE)
    write_all(planned, tmp_path, 50.0, 25.0, 40.0)
    table = compare(planned, tmp_path, {"strategy": "single"})
    assert table["speedup"].tolist() == [0.8, 1.6, 1.0]
    assert table["scaling_efficiency"].tolist() == [0.8, 0.8, 1.0]
    named = "single, 1 node, CPU"
    assert set(table["baseline"]) == {named}
    assert set(table["baseline_execution_time_s"]) == {40.0}


def test_each_variant_of_the_named_recipe_has_a_baseline_of_its_own(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2]})
    runs = tuple(
        replace(run, spec=replace(run.spec, point=replace(run.spec.point, recipe=recipe)))
        for recipe in ("weak+depth=18", "weak+depth=50")
        for run in planned.runs
    )
    planned = replace(planned, runs=runs)
    write_all(planned, tmp_path, 50.0, 25.0, 80.0, 20.0)
    table = compare(planned, tmp_path, {"recipe": "weak", "nodes": 1})
    assert table["speedup"].tolist() == [1.0, 2.0, 1.0, 4.0]
    table = compare(planned, tmp_path, {"recipe": "weak+depth=18", "nodes": 1})
    assert table["speedup"].tolist() == [1.0, 2.0, 0.625, 2.5]


def test_a_baseline_on_one_platform_is_that_of_the_others(tmp_path: Path) -> None:
    planned = planned_of({"platform": ["cluster", "laptop"], "nodes": [1, 2, 4]})
    write_all(planned, tmp_path, 60.0, 40.0, 20.0, 240.0, 120.0, 80.0)
    table = compare(planned, tmp_path, {"platform": "laptop", "nodes": 2})
    assert table["speedup"].tolist() == [2.0, 3.0, 6.0, 0.5, 1.0, 1.5]
    assert table["scaling_efficiency"].tolist() == [4.0, 3.0, 3.0, 1.0, 1.0, 0.75]
    assert set(table["baseline"]) == {"laptop, 2 nodes, CPU"}
    assert set(table["baseline_execution_time_s"]) == {120.0}


def test_a_named_baseline_that_failed_gives_no_speedup(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2]}, SINGLE)
    write_all(replace(planned, runs=planned.runs[:2]), tmp_path, 50.0, 25.0)
    write_failure(tmp_path, planned.runs[2])
    table = compare(planned, tmp_path, {"strategy": "single"})
    assert table["speedup"].isna().all()
    assert table["scaling_efficiency"].isna().all()
    assert table["speedup_low"].isna().all()
    assert table["baseline_execution_time_s"].isna().all()
    assert all(text.startswith("single, 1 node") for text in table["baseline"])


def test_a_point_left_out_of_one_block_and_run_in_another_is_one_row(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2], "exclude": [{"nodes": 2}]}, {"nodes": 2})
    assert len(planned.excluded) == 1
    write_all(planned, tmp_path, 60.0, 30.0)
    table = compare(planned, tmp_path)
    assert [(row["nodes"], row["status"]) for row in rows_of(table)] == [(1, "ok"), (2, "ok")]


def published_result(**changes: Any) -> PublishedResult:
    """The same with a loss and an accuracy of which these runs have half and more."""
    return rows.published_result(**{"loss": 0.5, "accuracy": 0.75, "source": "a paper", **changes})


RATIO_COLUMNS = ["execution_time_ratio", "loss_ratio", "accuracy_ratio"]
PUBLISHED_COLUMNS = ["published_execution_time_s", "published_loss", "published_accuracy"]


def test_published_values_and_ratios_stand_beside_the_published_point_only(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2], "gpus_per_node": [0, 1]})
    write_all(planned, tmp_path, 40.0, 40.0, 40.0, 40.0)
    table = compare(planned, tmp_path, published_results=[published_result()])
    row = point(table, nodes=1, gpus_per_node=0)
    assert [row[name] for name in PUBLISHED_COLUMNS] == [80.0, 0.5, 0.75]
    assert [row[name] for name in RATIO_COLUMNS] == [0.5, 0.5, pytest.approx(1.2)]
    others = table[(table["nodes"] > 1) | (table["gpus_per_node"] > 0)]
    assert len(others) == 3
    assert others[[*PUBLISHED_COLUMNS, *RATIO_COLUMNS]].isna().all(axis=None)


def test_a_training_that_only_says_it_otherwise_is_the_same(tmp_path: Path) -> None:
    strong = {"global_batch_size": 64, "learning_rate": 0.1, "epochs": 2, "dataset": "mnist"}
    raw = raw_config((("grid", 0, "nodes"), 1), (("recipes", "weak"), strong))
    raw["recipes"]["weak"].update(test_examples_max=100, steps_per_execution=20)
    planned = manifest_of(config_validation.convert_to_types(raw))
    write_all(planned, tmp_path, 40.0)
    row = point(compare(planned, tmp_path, published_results=[published_result()]), nodes=1)
    assert row["execution_time_ratio"] == 0.5


def test_a_platform_may_have_another_name_where_it_was_published(tmp_path: Path) -> None:
    planned = planned_of({"nodes": 1}, published_as="gcp-n1")
    write_all(planned, tmp_path, 40.0)
    rows = [published_result(platform="gcp-n1"), published_result(execution_time_s=1.0)]
    row = point(compare(planned, tmp_path, published_results=rows), nodes=1)
    assert (row["platform"], row["published_execution_time_s"]) == ("cluster", 80.0)
    assert row["execution_time_ratio"] == 0.5


def test_points_without_a_measurement_have_published_values_but_no_ratio(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2, 4, 9]})
    write_failure(tmp_path, planned.runs[0])
    (tmp_path / planned.runs[1].spec.path / "attempt=1").mkdir(parents=True)
    rows = [published_result(nodes=n, global_batch_size=64 * n) for n in (1, 2, 4, 9)]
    table = compare(planned, tmp_path, published_results=rows)
    assert table["status"].tolist() == ["failed", "unfinished", "missing", "excluded"]
    assert set(table["published_execution_time_s"]) == {80.0}
    assert table[RATIO_COLUMNS].isna().all(axis=None)


def test_a_point_of_which_all_runs_diverged_is_a_row_and_no_baseline(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2], "repeats": 2})
    for run in planned.runs:
        divergence = DIVERGENCE if run.spec.point.nodes == 1 else ""
        write_record(tmp_path, run, 40.0, divergence)
    table = compare(planned, tmp_path)
    row, other = point(table, nodes=1), point(table, nodes=2)
    assert (row["status"], row["runs"], row["runs_diverged"]) == ("diverged", 0, 2)
    assert pd.isna(row["loss"]) and pd.isna(row["speedup"]) and pd.isna(row["examples_trained"])
    assert row["same_work"] is None or pd.isna(row["same_work"])
    assert pd.isna(other["speedup"]) and other["execution_time_s"] == 40.0
    assert other["same_work"] is True


def test_numbers_of_examples_are_equal_up_to_the_tolerance() -> None:
    """The last batch of an epoch may be larger with more replicas."""
    others = 1000 * random.randint(1, 1000)
    edge = round(SAME_WORK_TOLERANCE * others)
    assert all(are_equal_work(others + more, others) for more in (-edge, 0, edge - 1))
    assert not any(are_equal_work(others + more, others) for more in (-edge - 1, edge + 1))
    assert are_equal_work(1002, 1000)


def test_without_a_measured_baseline_the_most_of_the_line_is_the_work(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 4, 6]})
    for run, count in zip(planned.runs[1:], (1024, 576), strict=True):
        write_record(tmp_path, run, examples_trained=count)
    table = compare(planned, tmp_path)
    assert table["same_work"].tolist()[1:] == [True, False]
    assert pd.isna(table["same_work"].tolist()[0])
    reason = point(table, nodes=6)["reason"]
    assert "576" in reason and "1,024" in reason


KINDS = {"nodes": [1, 2], "gpus_per_node": [0, 1, 2]}


def test_the_reason_names_what_trained_other_examples(tmp_path: Path) -> None:
    """The baseline if it was measured, else another configuration."""
    planned, reasons = planned_of({"nodes": [1, 2, 4]}), {}
    for first in (0, 1):
        folder = tmp_path / str(first)
        for run, count in list(zip(planned.runs, (1024, 1024, 576), strict=True))[first:]:
            write_record(folder, run, examples_trained=count)
        reasons[first] = point(compare(planned, folder), nodes=4)["reason"]
    assert "its baseline 1,024" in reasons[0]
    assert "another configuration of its series 1,024" in reasons[1]


def kinds(folder: Path, baseline: dict[str, Any] | None = None, **platform: Any) -> pd.DataFrame:
    """One and two nodes with 0, 1 and 2 GPUs: 1,000 s over the nodes, 20 times as fast on GPUs."""
    planned = planned_of(KINDS, **platform)
    for run in planned.runs:
        nodes, gpus = run.spec.point.nodes, run.spec.point.gpus_per_node
        write_record(folder, run, 1000.0 / nodes / (20.0 * gpus or 1.0))
    return compare(planned, folder, baseline)


def test_the_default_baseline_has_the_same_kind_of_device(tmp_path: Path) -> None:
    table = kinds(tmp_path)
    assert table["speedup"].tolist() == [1.0, 1.0, 2.0, 2.0, 2.0, 4.0]
    assert set(table["scaling_efficiency"]) == {1.0}
    assert dict(zip(table["gpus_per_node"], table["baseline"], strict=True)) == {
        0: "1 node, CPU",
        1: "1 node, 1 GPU per node",
        2: "1 node, 1 GPU per node",
    }


@pytest.mark.parametrize(
    ("baseline", "cpu", "gpu"),
    [
        ({"nodes": 2}, 500.0, 25.0),  # of its own kind
        ({"gpus_per_node": 0}, 1000.0, 1000.0),  # said otherwise
        ({"gpus_per_node": 2}, 25.0, 25.0),
    ],
    ids=str,
)
def test_a_named_baseline_has_the_same_kind_unless_it_says_otherwise(
    tmp_path: Path, baseline: dict[str, Any], cpu: float, gpu: float
) -> None:
    table = kinds(tmp_path, baseline)
    times = dict(zip(table["gpus_per_node"], table["baseline_execution_time_s"], strict=True))
    if baseline == {"nodes": 2}:
        assert times == {0: cpu, 1: gpu, 2: gpu}
    else:
        assert set(times.values()) == {cpu}


def test_a_kind_without_the_named_baseline_uses_its_own_smallest(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2]}, {"nodes": [2, 4], "gpus_per_node": 1})
    write_all(planned, tmp_path, 1000.0, 500.0, 25.0, 12.5)
    table = compare(planned, tmp_path, {"nodes": 1})
    assert table["speedup"].tolist() == [1.0, 2.0, 1.0, 2.0]
    assert table["baseline"].tolist()[-1] == "2 nodes, 1 GPU per node"


def test_a_baseline_of_another_recipe_bars_the_speedup_and_not_the_point(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2]}, {"nodes": 1, "recipe": "strong"})
    for run in planned.runs:
        examples = 2048 if run.spec.point.recipe == "strong" else 1024
        write_record(tmp_path, run, 40.0, examples_trained=examples)
    table = compare(planned, tmp_path, {"recipe": "strong", "nodes": 1})
    assert table["same_work"].tolist() == [True, True, True]
    assert table["speedup"].isna().tolist() == [True, True, False]
    assert "2,048" in point(table, nodes=2)["reason"]
