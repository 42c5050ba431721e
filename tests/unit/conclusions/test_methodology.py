"""Every rule passes on data made for it and fails on data that break it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import generator
import pandas as pd
import pytest
from builders import manifest_of, raw_config
from measured import around, measured
from msgspec.structs import replace
from tfscaling.conclusions import methodology
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.methodology import FAIL, NOT_APPLICABLE, NOT_YET, PASS, RULES
from tfscaling.spec import configuration
from tfscaling.spec.manifest import Excluded, Manifest
from tfscaling.spec.run_spec import Point, RunSpec
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import comparison_table

Tables = tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]
GPUS = {"gpus": '["A GPU", "A GPU"]', "gpu_driver": "550.1"}


def judged(made: Tables, name: str) -> tuple[str, str]:
    """(verdict, evidence) of one rule."""
    runs, comparison, planned = made
    row = methodology.table(Study(comparison, runs, planned)).iloc[[*RULES].index(name)]
    return row["verdict"], row["evidence"]


def made_of(runs: pd.DataFrame, planned: Manifest) -> Tables:
    return runs, comparison_table(runs, planned), planned


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Six runs on each of 1, 2 and 4 nodes and one point with GPUs, which follow every rule."""
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "repeats": 6}
    blocks = [{**usual, "nodes": [1, 2, 4]}, {**usual, "nodes": [2], "gpus_per_node": 2}]
    planned = manifest_of(configuration.validate(raw_config((("grid",), blocks))))
    folder = tmp_path_factory.mktemp("runs")
    generator.write_records(planned.runs, folder)
    runs, _ = runs_table.run_tables(planned.runs, folder)
    day = pd.Timestamp("2026-01-01", tz="UTC")
    # repeat by repeat, so that no number of nodes comes first
    place = runs["repeat"] * 100 + runs["nodes"] * (-1) ** runs["repeat"]
    runs["started"] = [(day + pd.Timedelta(minutes=int(m))).isoformat() for m in place]
    runs["slurm_settings"] = "{}"
    runs = runs.assign(**GPUS, quality=0.97 + 0.001 * runs["repeat"])
    # asked for: by itself no speed-up compares GPUs with CPUs
    planned = replace(planned, targets={"test_accuracy": 0.9})
    runs["target_reached"], runs["time_to_target_s"] = True, 10.0
    return runs, comparison_table(runs, planned, {"gpus_per_node": 0}), planned


@pytest.fixture
def copy(sweep: Tables) -> Tables:
    runs, comparison, planned = sweep
    return runs.copy(), comparison.copy(), planned


@pytest.mark.parametrize("name", RULES)
def test_every_rule_passes_on_data_that_follow_it(name: str, sweep: Tables) -> None:
    verdict, evidence = judged(sweep, name)
    assert verdict == PASS, evidence
    assert any(digit.isdigit() for digit in evidence)


Change = Callable[[pd.DataFrame, pd.DataFrame], Any]


def in_runs(rows: Callable[[pd.DataFrame], Any], **values: Any) -> Change:
    def change(runs: pd.DataFrame, _: pd.DataFrame) -> None:
        for name, value in values.items():
            runs[name] = runs[name].astype(object)
            runs.loc[rows(runs), name] = value

    return change


def in_points(**values: Any) -> Change:
    """The last point of the comparison gets these values."""

    def change(_: pd.DataFrame, comparison: pd.DataFrame) -> None:
        for name, value in values.items():
            comparison.loc[comparison.index[-1], name] = value

    return change


def first(runs: pd.DataFrame) -> Any:
    return runs.index == runs.index[0]


def by_nodes(runs: pd.DataFrame, _: pd.DataFrame) -> None:
    day, place = pd.Timestamp("2026-01-01", tz="UTC"), runs["nodes"] * 100 + runs["repeat"]
    runs["started"] = [(day + pd.Timedelta(minutes=int(m))).isoformat() for m in place]


TWO_NODES = Point(
    platform="cluster",
    model="mnist_cnn",
    strategy="multi_worker_mirrored",
    recipe="weak",
    nodes=2,
    gpus_per_node=0,
    tasks_per_node=1,
).path
#: Rule → what breaks it, and what its evidence then says.
BROKEN: list[tuple[str, Change, str]] = [
    ("base_case", in_points(baseline_execution_time_s=None), "1 have none: cluster (1)"),
    ("base_case", in_points(baseline_point=None), "3 of 4 configurations have a measured"),
    ("base_case", in_points(baseline_point=TWO_NODES), "1 of 2 base cases are a single replica"),
    (
        "subsets",
        in_runs(first, status="failed", reason=""),
        "0 of 1 runs and configurations left out",
    ),
    (
        "intervals",
        in_points(execution_time_s_low=None),
        "3 of 4 configurations have 6 or more runs",
    ),
    ("comparison", in_points(speedup_low=None), "2 of 3 compared configurations"),
    ("order", by_nodes, "6 of 6 repeats of cluster in one order of nodes"),
    ("setup", in_runs(first, git_commit=None), "1 do not tell git_commit: cluster (1)"),
    ("setup", in_runs(first, kernel="5.4"), "kernel differs between the runs of cluster"),
    ("setup", in_runs(first, shared_with=1), "1 had not: cluster (1)"),
    ("setup", in_runs(first, machines=None), "23 of 24 runs had a machine for each node"),
    ("time", in_runs(first, clock_uncertainty_max_s=None), "23 of 24 runs have clock offsets"),
    ("time", in_runs(first, clock_uncertainty_max_s=30.0), "± 30000.0 ms"),
    ("time", in_runs(first, queue_time_s=None), "23 of 24 queue times are known"),
    ("time", in_runs(first, import_time_s=99.0), "23 of 24 times are the sum of their phases"),
    ("time", in_runs(first, checkpoint_time_s=20.0), "23 of 24 times are the sum of their phases"),
    ("bounds", in_points(scaling_efficiency=None), "3 of 4 configurations have their ideal"),
    (
        "repeats",
        in_points(runs_timed=4),
        "3 of 4 configurations have 5 or more runs with times; 1 have",
    ),
    ("repeats", in_points(runs=5), "3 of 4 configurations count all planned runs"),
    ("target", in_points(runs_at_target=5), "3 of 4 configurations reached the test accuracy"),
    ("held_out", in_runs(first, quality=None), "23 of 24 runs have a test accuracy"),
    ("setup", in_runs(first, cpu_model=None), "1 do not tell cpu_model: cluster (1)"),
    ("setup", in_runs(lambda runs: runs["gpus_per_node"] > 0, gpus=None), "0 of 6 runs tell gpus"),
]


@pytest.mark.parametrize(("name", "change", "said"), BROKEN)
def test_a_rule_fails_on_data_that_break_it(
    name: str, change: Change, said: str, copy: Tables
) -> None:
    change(copy[0], copy[1])
    verdict, evidence = judged(copy, name)
    needs_runs = "too few" in evidence or "have fewer" in evidence
    assert verdict == (NOT_YET if needs_runs else FAIL), evidence
    assert said in evidence


def test_parts_of_the_data_are_found_in_the_parameters(copy: Tables) -> None:
    runs, comparison, planned = copy
    first, *others = planned.runs

    def with_first(spec: RunSpec) -> Manifest:
        return replace(planned, runs=(replace(first, spec=spec), *others))

    recipe = replace(first.spec.recipe, train_examples_max=100)
    other = with_first(replace(first.spec, recipe=recipe))
    verdict, evidence = judged((runs, comparison, other), "subsets")
    assert verdict == FAIL and "23 of 24 runs" in evidence
    short = replace(first.spec.recipe, stop_after_steps=100)
    other = with_first(replace(first.spec, recipe=short))
    verdict, evidence = judged((runs, comparison, other), "subsets")
    assert verdict == FAIL and "23 of 24 runs" in evidence


def test_runs_without_times_are_not_judged_by_their_times(copy: Tables) -> None:
    runs, comparison, planned = copy
    untimed = dict.fromkeys(runs_table.TIMES_OF_RUNS)
    in_runs(first, **untimed)(runs, comparison)
    verdict, evidence = judged((runs, comparison, planned), "time")
    assert verdict == PASS and "23 of 23 runs" in evidence and "1 of 24 runs" in evidence
    none = made_of(runs.assign(**untimed), planned)
    for name in ("time", "intervals", "repeats"):
        verdict = NOT_APPLICABLE if name == "time" else NOT_YET
        assert judged(none, name)[0] == verdict


def test_points_left_out_by_the_grid_alone_have_no_reason() -> None:
    _, runs, planned = measured({("east", 1): around(40.0)})
    point = replace(planned.runs[0].spec.point, nodes=9)
    for reason, verdict in {"excluded by the grid": FAIL, "9 nodes, the limit is 8": PASS}.items():
        without = replace(planned, excluded=(Excluded(point=point, reason=reason),))
        assert judged(made_of(runs, without), "subsets")[0] == verdict


def test_the_order_of_few_runs_shows_nothing(copy: Tables) -> None:
    runs, _, planned = copy
    by_nodes(runs, runs)
    few = runs[runs["repeat"] == 1].copy()
    verdict, evidence = judged((few, comparison_table(few, planned), planned), "order")
    assert verdict == NOT_APPLICABLE
    assert "too few" in evidence


def test_a_rule_that_the_data_cannot_decide_is_not_applicable(copy: Tables) -> None:
    runs, _, planned = copy
    one = runs[(runs["nodes"] == 1) & (runs["repeat"] == 1)].copy()
    table = methodology.table(Study(comparison_table(one, planned), one, planned))
    verdicts = dict(zip(RULES, table["verdict"], strict=True))
    undecided = ("comparison", "order")
    assert {verdicts[name] for name in undecided} == {NOT_APPLICABLE}
    assert (verdicts["intervals"], verdicts["repeats"], verdicts["held_out"]) == (
        NOT_YET,
        NOT_YET,
        PASS,
    )


def test_without_what_a_rule_asks_for_it_never_passes() -> None:
    """Made-up runs have times and accuracies only."""
    comparison, runs, planned = measured({("east", 1): around(40.0), ("east", 2): around(20.0)})
    table = methodology.table(Study(comparison, runs, planned))
    verdicts = dict(zip(RULES, table["verdict"], strict=True))
    assert {verdicts[name] for name in ("setup", "time")} == {FAIL}
    assert not table["evidence"].str.contains("nan").any()


def test_nothing_measured_decides_nothing() -> None:
    _, runs, planned = measured({("east", 1): [], ("east", 2): [], ("west", 1): [1.0]})
    runs = runs.assign(status="failed", reason="rank 1 died")
    table = methodology.table(Study(comparison_table(runs, planned), runs, planned))
    assert set(table["verdict"]) == {NOT_APPLICABLE}
    assert set(table["evidence"]) == {"Nothing is measured yet."}
