"""Short runs of a training and a run of the whole: the sweep projects, checks and says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timed_runs
from project import NO_PLOTS, SMALL_MODEL, Project

pytestmark = pytest.mark.full

EXAMPLES, BATCH, EPOCHS, STOP = 800, 8, 3, 40
STEPS = EPOCHS * EXAMPLES // BATCH
#: Known times: what a run takes before its steps, and each step.
BEGIN_S, STEP_S = 10.0, 0.05
TIME_S = BEGIN_S + STEPS * STEP_S


def set_time(path: Path) -> None:
    """Give the run of a record the known times."""
    record = json.loads(path.read_text())
    short = record.get("short_run")
    steps = short["steps"] if short else STEPS
    timed_runs.timed(record, BEGIN_S + steps * STEP_S)
    if short:
        record["short_run"]["epoch_turn_s"] = 0.0
        for block in record["short_run"]["steady"]:
            block["duration_s"] = block["steps"] * STEP_S
    timed_runs.write(path, record)


def test_a_sweep_projects_the_whole_and_marks_it(mnist: Path, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.link_datasets(mnist)
    whole = {
        "dataset": "mnist", "train_examples_max": EXAMPLES, "test_examples_max": 100,
        "epochs": EPOCHS, "global_batch_size": BATCH, "learning_rate": 0.01,
    }  # fmt: skip
    block = {"platform": "laptop", "model": SMALL_MODEL, "strategy": "single", "nodes": 1}
    project.overlay(
        {
            "grid": [{**block, "recipe": "short", "repeats": 2}, {**block, "recipe": "whole"}],
            "recipes": {"whole": whole, "short": {**whole, "stop_after_steps": STOP}},
            "plots": {name: None for name in NO_PLOTS if name != "speedup"},
        }
    )
    said = project.snakemake("--until", "train").stdout
    assert f"{STOP} of {STEPS} steps" in said and "projected" in said
    of_recipe: dict[str, list[Any]] = {}
    for record in project.records():
        of_recipe.setdefault(record["axes"]["recipe"], []).append(record)
    assert [len(of_recipe[name]) for name in ("short", "whole")] == [2, 1]
    for record in of_recipe["short"]:
        found = record["short_run"]
        assert (found["steps"], found["steps_of_whole"]) == (STOP, STEPS)
        assert sum(block["steps"] for block in found["steady"]) == STOP - 1
        assert record["metrics"]["examples_trained"] == STOP * BATCH
    for path in project.folder.glob("results/runs/**/run.json"):
        set_time(path)
    timed_runs.date_apart(project)
    project.snakemake()
    rows = {row["recipe"]: row for row in project.table()}
    projected_from = [rows[name]["projected_from_steps"] for name in ("short", "whole")]
    assert projected_from == [str(STOP), ""]
    trained = {row["examples_trained"] for row in rows.values()}
    assert trained == {str(EPOCHS * EXAMPLES)}
    assert rows["short"]["test_accuracy"] == "" != rows["whole"]["test_accuracy"]
    (checked,) = project.table("results/main/details/conclusions/projection.csv")
    assert (checked["whole_recipe"], checked["check"]) == ("whole", "no interval")
    for table, key in (
        (rows["short"], "execution_time_s"),
        (checked, "execution_time_s"),
        (checked, "whole_execution_time_s"),
    ):
        assert float(table[key]) == pytest.approx(TIME_S)
    tables = project.folder / "results/main/details"
    for name in ("comparison.md", "conclusions/decision.md", "conclusions/headline.md"):
        assert "projected" in (tables / name).read_text(), name
    assert "projected" in (project.folder / "results/main/details/plots/speedup.svg").read_text()
    assert "Projected from short runs" in (project.folder / "results/main/report.html").read_text()
