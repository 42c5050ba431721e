"""Short runs of a training and a run of the whole: the sweep projects, checks and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from project import SMALL_MODEL, Project

pytestmark = pytest.mark.full


def even_out(path: Path) -> None:
    """Give all steps of a short run their mean duration.

    Nothing is projected from steps that change to the end, as they do on a busy machine.
    """
    record = json.loads(path.read_text())
    steady = record["short_run"]["steady"]
    step_s = sum(block["duration_s"] for block in steady) / sum(block["steps"] for block in steady)
    for block in steady:
        block["duration_s"] = block["steps"] * step_s
    path.write_text(json.dumps(record))


def test_a_sweep_projects_the_whole_and_marks_it(mnist: Path, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.link_datasets(mnist)
    whole = {
        "dataset": "mnist", "train_examples_max": 1600, "test_examples_max": 100, "epochs": 6,
        "global_batch_size": 8, "learning_rate": 0.01,
    }  # fmt: skip
    block = {"platform": "laptop", "model": SMALL_MODEL, "strategy": "single", "nodes": 1}
    project.overlay(
        {
            "grid": [{**block, "recipe": "short", "repeats": 2}, {**block, "recipe": "whole"}],
            "recipes": {"whole": whole, "short": {**whole, "stop_after_steps": 120}},
        }
    )
    project.draw_few_plots()
    said = project.snakemake("--until", "train").stdout
    assert "120 of 1,200 steps" in said and "projected" in said
    of_recipe = {}
    for record in project.records():
        of_recipe.setdefault(record["axes"]["recipe"], []).append(record)
    assert [len(of_recipe[name]) for name in ("short", "whole")] == [2, 1]
    for record in of_recipe["short"]:
        found = record["short_run"]
        assert (found["steps"], found["steps_of_whole"]) == (120, 1200)
        assert sum(block["steps"] for block in found["steady"]) == 119
        assert record["metrics"]["examples_trained"] == 960
    for path in project.folder.glob("results/runs/**/recipe=short/**/run.json"):
        even_out(path)
    project.snakemake()
    rows = {row["recipe"]: row for row in project.table()}
    assert (rows["short"]["projected_from_steps"], rows["whole"]["projected_from_steps"]) == (
        "120",
        "",
    )
    assert rows["short"]["examples_trained"] == rows["whole"]["examples_trained"] == "9600"
    assert rows["short"]["test_accuracy"] == "" != rows["whole"]["test_accuracy"]
    (checked,) = project.table("results/main/details/conclusions/projection.csv")
    # of two short runs: the machine's other load may be another in each
    assert (checked["whole_recipe"], checked["check"]) == ("whole", "no interval")
    assert float(checked["execution_time_s"]) == pytest.approx(
        float(rows["short"]["execution_time_s"])
    )
    measured_s = of_recipe["whole"][0]["phases"]["execution_time_s"]
    assert float(checked["whole_execution_time_s"]) == pytest.approx(measured_s)
    tables = project.folder / "results/main/details"
    for name in ("comparison.md", "conclusions/decision.md", "conclusions/headline.md"):
        assert "projected" in (tables / name).read_text(), name
    assert "projected" in (project.folder / "results/main/details/plots/speedup.svg").read_text()
    assert "Projected from short runs" in (project.folder / "results/main/report.html").read_text()
