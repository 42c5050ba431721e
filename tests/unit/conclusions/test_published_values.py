"""Published results: one clear error for a wrong file, and what was measured beside each point."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import (
    DIVERGENCE,
    REPOSITORY,
    manifest_of,
    raw_config,
    write_failure,
    write_record,
)
from msgspec.structs import replace
from rows import published_result
from tfscaling.conclusions import published_values
from tfscaling.conclusions.evidence import Study
from tfscaling.study import config_files, config_validation
from tfscaling.study.config_types import Recipe
from tfscaling.study.manifest import Manifest
from tfscaling.tables import published_results, runs_table
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.display import MISSING
from tfscaling.tables.published_results import PublishedPoint, PublishedResult
from tfscaling.train.strategies import STRATEGIES

STUDY = REPOSITORY / "resources/published_results.csv"

SYNCHRONOUS = [name for name, strategy in STRATEGIES.items() if strategy.synchronous]


def planned_of(*blocks: dict[str, Any], **platform: Any) -> Manifest:
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": 1}
    raw = raw_config((("grid",), [{**usual, **block} for block in blocks]))
    raw["platforms"]["cluster"].update(platform)
    raw["recipes"]["longer"] = {**raw["recipes"]["weak"], "epochs": 3}
    return manifest_of(config_validation.convert_to_types(raw))


def table(
    planned: Manifest, runs_dir: Path, *rows: PublishedResult, tolerance: float = 0.25
) -> list[dict[str, Any]]:
    runs, _ = runs_table.run_tables(planned.runs, runs_dir)
    comparison = comparison_table(runs, planned, None, rows)
    found = published_values.table(Study(comparison, runs, planned, rows, tolerance))
    return [{str(key): value for key, value in row.items()} for row in found.to_dict("records")]


def test_one_row_for_each_published_point_measured_or_not(tmp_path: Path) -> None:
    planned = planned_of({"nodes": [1, 2, 4], "repeats": 2})
    for run in planned.runs[:4]:
        write_record(tmp_path, run, 40.0)
    write_failure(tmp_path, planned.runs[4])
    rows = [published_result(nodes=n, global_batch_size=64 * n) for n in (8, 4, 2, 1)]
    found = table(planned, tmp_path, *rows)
    assert [(row["nodes"], row["status"], row["runs"]) for row in found] == [
        (8, "not measured", 0),
        (4, "not measured", 0),
        (2, "measured", 2),
        (1, "measured", 2),
    ]
    assert found[2]["execution_time_s"] == 40.0
    assert found[2]["execution_time_ratio"] == 0.5
    shown = published_values.as_text(pd.DataFrame(found)).cells["execution_time_ratio"]
    assert [*map(str, shown)] == [MISSING, MISSING, "0.500", "0.500"]
    assert pd.isna(found[0]["execution_time_s"]) and pd.isna(found[0]["execution_time_ratio"])
    assert {row["published_execution_time_s"] for row in found} == {80.0}
    assert {row["source"] for row in found} == {"a paper, p. 3"}


def test_loss_and_accuracy_are_compared_with_the_same_training_anywhere(tmp_path: Path) -> None:
    # one task with a batch of 128 here, two nodes with 64 each there
    other = {"platform": "laptop", "recipe": "both", "strategy": "single", "repeats": 6}
    raw = raw_config((("grid", 0), {"model": "mnist_cnn", "nodes": 1, **other}))
    both = {"global_batch_size": 128, "learning_rate": 0.1, "epochs": 2}
    raw["recipes"]["both"] = both
    planned = manifest_of(config_validation.convert_to_types(raw))
    for run in planned.runs:
        write_record(tmp_path, run, 40.0)
    (row,) = table(planned, tmp_path, published_result(nodes=2, global_batch_size=128))
    assert (row["status"], row["training_runs"]) == ("not measured", 6)
    assert (row["loss_median"], row["loss_low"], row["loss_high"]) == (0.25, 0.25, 0.25)
    assert (row["loss_verdict"], row["accuracy_verdict"]) == ("within", "within")


@pytest.mark.parametrize(
    "axes",
    [{"model": "cifar10_cnn"}, {"nodes": 3, "strategy": "parameter_server"}],
    ids=["other_model", "asynchronous"],
)
def test_runs_that_give_another_model_do_not_count(tmp_path: Path, axes: dict[str, Any]) -> None:
    raw = raw_config()
    raw["grid"] = [
        {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": 1, "repeats": 1}
    ]
    raw["grid"][0].update(axes)
    planned = manifest_of(config_validation.convert_to_types(raw))
    (run,) = planned.runs
    assert run.spec.global_batch_size == 64
    write_record(tmp_path, run, 40.0)
    (row,) = table(planned, tmp_path, published_result())
    assert (row["training_runs"], row["loss_verdict"]) == (0, "not measured")


#: Keys of a recipe that leave the model as it is, or of which published results cannot tell.
SAME_MODEL = {
    *("loss", "test_examples_max", "evaluation_interval_epochs"),
    *("steps_per_execution", "communication", "jit_compile", "measure_computation"),
    *("parameter_servers", "checkpoint_every_epochs", "checkpoint_every_s", "compare_resumed"),
    *("quality", "program", "environment", "observe", "patterns", "train_examples"),
}


def test_every_key_of_a_recipe_tells_trainings_apart_or_leaves_the_model_as_it_is() -> None:
    batch = {"per_replica_batch_size", "per_worker_batch_size", "global_batch_size"}
    compared = {*published_results.Training._fields} - {"model"} | batch
    assert compared.isdisjoint(SAME_MODEL)
    assert compared | SAME_MODEL == {*Recipe.__struct_fields__}


@pytest.mark.parametrize(
    "change",
    [
        {"label_smoothing": 0.1},
        {"stop_after_steps": 20},
        {"parameters": {"depth": 3}},
        {"decay": "cosine"},
    ],
)
def test_what_gives_another_model_is_another_training(change: dict[str, Any]) -> None:
    spec = planned_of({}).runs[0].spec
    changed = replace(spec, recipe=replace(spec.recipe, **change))
    assert published_results.trains_same_model(published_result(), spec, SYNCHRONOUS)
    assert not published_results.trains_same_model(published_result(), changed, SYNCHRONOUS)


#: Three runs of the same training; the tolerance widens their range.
LOSSES, ACCURACIES = (0.2, 0.3, 0.4), (0.80, 0.88, 0.90)


def verdicts(tmp_path: Path, loss: float, accuracy: float, tolerance: float) -> tuple[str, str]:
    planned = planned_of({"repeats": 3})
    for run in planned.runs:
        write_record(tmp_path, run, 40.0)
    runs, _ = runs_table.run_tables(planned.runs, tmp_path)
    runs["loss"], runs["accuracy"] = LOSSES, ACCURACIES
    rows = [published_result(loss=loss, accuracy=accuracy)]
    comparison = comparison_table(runs, planned, None, rows)
    (row,) = published_values.table(Study(comparison, runs, planned, rows, tolerance)).to_dict(
        "records"
    )
    assert (row["loss_min"], row["loss_median"], row["loss_max"]) == LOSSES
    assert (row["accuracy_min"], row["accuracy_median"], row["accuracy_max"]) == ACCURACIES
    assert pd.isna(row["loss_low"])  # three runs are too few for an interval
    return row["loss_verdict"], row["accuracy_verdict"]


# with 0.25: losses from 0.15 to 0.5; errors from 0.075 to 0.25, accuracies from 0.75 to 0.925
EDGES = [
    (0.25, 0.1501, 0.7501, True), (0.25, 0.1499, 0.7499, False),
    (0.25, 0.4999, 0.9249, True), (0.25, 0.5001, 0.9251, False),
    (0.25, 0.3, 0.85, True),
    (0.0, 0.2, 0.9, True), (0.0, 0.1999, 0.9001, False),
    (1.0, 0.0, 1.0, True), (1.0, 0.7999, 0.6001, True), (1.0, 0.8001, 0.5999, False),
]  # fmt: skip


@pytest.mark.parametrize(("tolerance", "loss", "accuracy", "within"), EDGES)
def test_verdicts_at_the_edges_of_the_tolerance(
    tmp_path: Path, tolerance: float, loss: float, accuracy: float, within: bool
) -> None:
    verdict = "within" if within else "outside"
    assert verdicts(tmp_path, loss, accuracy, tolerance) == (verdict, verdict)


@functools.cache
def study(name: str) -> Manifest:
    """Return what is planned with the configuration in a folder of studies/."""
    overlay = f"studies/{name}/config.yaml"
    files = [REPOSITORY / file for file in ("provision/clouds/platforms.yaml", overlay)]
    merged = config_files.merge_configurations(
        [(str(path), config_files.read_config_file(path)) for path in files]
    )
    config = config_validation.convert_to_types(merged)
    assert config.published.path in (None, str(STUDY.relative_to(REPOSITORY)))
    return manifest_of(config)


def by_point() -> dict[PublishedPoint, PublishedResult]:
    return {result.point: result for result in published_results.read_published(STUDY)}


def points_of(planned: Manifest) -> list[PublishedPoint]:
    return [PublishedPoint.from_point(run.spec.point, planned.platforms) for run in planned.runs]


def test_the_published_study_is_read() -> None:
    results = published_results.read_published(STUDY)
    assert len(results) == 41
    assert {result.cloud for result in results} == {"gcp", "aws"}
    slowest = max(results, key=lambda result: result.execution_time_s)
    assert (slowest.platform, slowest.nodes) == ("aws-m4-large", 2)
    assert (slowest.execution_time_s, slowest.loss) == (750.046, 0.0156)


@pytest.mark.parametrize(("name", "repeats"), [("published", 6), ("virtual", 1)])
def test_the_studies_run_exactly_the_published_points(name: str, repeats: int) -> None:
    points = points_of(study(name))
    assert len(points) == 41 * repeats
    assert {point: points.count(point) for point in points} == dict.fromkeys(by_point(), repeats)
    assert study(name).excluded == ()


def test_the_published_study_trains_as_was_published_and_the_virtual_one_does_less() -> None:
    results = by_point()
    for name, same in {"published": True, "virtual": False}.items():
        planned = study(name)
        for run, point in zip(planned.runs, points_of(planned), strict=True):
            assert (
                published_results.trains_same_model(results[point], run.spec, SYNCHRONOUS) is same
            )
            assert run.spec.global_batch_size == results[point].global_batch_size


def test_the_accuracy_study_trains_all_published_global_batches() -> None:
    specs = [run.spec for run in study("accuracy").runs]
    for result in published_results.read_published(STUDY):
        assert (
            sum(published_results.trains_same_model(result, spec, SYNCHRONOUS) for spec in specs)
            == 6
        )


def of_diverged(tmp_path: Path, *repeats: int, loss: float = 0.25) -> dict[str, Any]:
    """The row of a point of six runs, of which these repeats diverged."""
    planned = planned_of({"repeats": 6})
    for run in planned.runs:
        divergence = DIVERGENCE if run.spec.repeat in repeats else ""
        write_record(tmp_path, run, 40.0, divergence)
    (row,) = table(planned, tmp_path, published_result(loss=loss))
    return row


@pytest.mark.parametrize("loss", [0.25, 0.8])
def test_the_verdict_does_not_depend_on_which_repeat_diverged(tmp_path: Path, loss: float) -> None:
    found = [of_diverged(tmp_path / str(repeat), repeat, loss=loss) for repeat in (1, 3, 6)]
    kept = [{name: row[name] for name in row if not pd.isna(row[name])} for row in found]
    assert kept == [kept[0]] * 3
    row = found[0]
    assert (row["training_runs"], row["training_runs_diverged"]) == (5, 1)
    assert row["loss_verdict"] == ("within" if loss == 0.25 else "outside")
    assert row["remark"].startswith("1 of 6 runs")


def test_a_point_of_which_all_runs_diverged_is_outside(tmp_path: Path) -> None:
    row = of_diverged(tmp_path, *range(1, 7))
    assert (row["status"], row["runs"], row["training_runs"]) == ("diverged", 0, 0)
    assert (row["loss_verdict"], row["accuracy_verdict"]) == ("outside", "outside")
    assert row["remark"].startswith("6 of 6 runs")
    assert pd.isna(row["loss_median"]) and pd.isna(row["execution_time_s"])


def test_a_published_loss_of_zero_leaves_the_point_measured(tmp_path: Path) -> None:
    row = of_diverged(tmp_path, loss=0.0)
    assert (row["status"], row["runs"], row["loss_verdict"]) == ("measured", 6, "outside")


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_results_stand_in_the_comparison_with_their_whole_spread(metric: str) -> None:
    ends = {"min": 1.0, "max": 2.0, "low": 3.0, "high": 4.0}
    names = [each for each in published_values.COLUMNS if each.startswith(("loss_", "accuracy_"))]
    row: Any = published_values.PublishedRow(
        **dict.fromkeys(published_values.PublishedRow.__struct_fields__, 0)  # type: ignore[arg-type]
    )
    assert {*names} >= {f"{metric}_{end}" for end in ends}
    row.training_runs = 7
    setattr(row, f"{metric}_median", 5.0)
    for end, value in ends.items():
        setattr(row, f"{metric}_{end}", value)
    assert row.comparison_columns(metric) == {
        "runs": 7, metric: 5.0, **{f"{metric}_{end}": value for end, value in ends.items()}
    }  # fmt: skip
