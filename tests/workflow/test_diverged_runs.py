"""A run whose loss is not finite is a result that does not count, and is not run again."""

from __future__ import annotations

from project import QUICK, SMALL_MODEL, Project
from tfscaling.record import run_record

DIVERGING = {**QUICK, "optimizer": "sgd", "learning_rate": 1.0e38, "epochs": 3}


def test_a_sweep_in_which_everything_diverges_ends_with_its_tables(project: Project) -> None:
    project.overlay(
        {
            "grid": [{"platform": "laptop", "model": SMALL_MODEL, "recipe": "diverging",
                      "nodes": [1, 2]}],
            "recipes": {"diverging": DIVERGING},
        }
    )  # fmt: skip
    assert project.snakemake(check=False).returncode == 1
    assert project.failures() == []
    for path in project.folder.glob("results/runs/**/run.json"):
        record = run_record.read_record(path)  # strict JSON that follows the schema
        assert record is not None
        assert record.validity.status == "diverged"
        assert record.validity.reason.startswith("diverged: loss is NaN ")
        # one epoch of three was trained, on all ranks alike, and the rest saved
        assert [epoch.loss for epoch in record.metrics.epochs] == [None]
        assert record.metrics.examples_trained == QUICK["train_examples_max"]
    rows = project.table()
    assert [(r["nodes"], r["status"], r["runs"], r["runs_diverged"]) for r in rows] == [
        ("1", "diverged", "0", "1"), ("2", "diverged", "0", "1"),
    ]  # fmt: skip
    runs = project.table("results/main/runs.csv")
    assert [(r["status"], r["loss"], r["execution_time_s"]) for r in runs] == [
        ("diverged", "", ""), ("diverged", "", ""),
    ]  # fmt: skip
    table = project.folder / "results/main/details/comparison.md"
    assert "1 of 1 diverged" in table.read_text()
    assert (project.folder / "results/main/report.html").is_file()
    made = project.made()
    assert project.snakemake(check=False).returncode == 1
    assert project.made() == made
