"""A study of timings from a file: tables and page without a run."""

from __future__ import annotations

import csv
import os
import random
from pathlib import Path

import pytest
from project import Project


@pytest.fixture
def times_s() -> dict[int, float]:
    return {nodes: round(random.uniform(20, 90), 3) for nodes in (1, 2, 4)}


@pytest.fixture
def project(times_s: dict[int, float], tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    lines = [f"{nodes},64,{seconds}" for nodes, seconds in times_s.items()]
    text = "\n".join(["nodes,global_batch_size,execution_time_s", *lines, ""])
    (made.folder / "mine.csv").write_text(text)
    (made.folder / "mine.yaml").write_text("study: mine\ntimings: mine.csv\n")
    return made


def test_the_tables_and_the_page_have_the_rows_and_nothing_is_run(
    project: Project, times_s: dict[int, float]
) -> None:
    done = project.snakemake(config=["mine.yaml"])
    with (project.folder / "results/mine/comparison.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    found = {int(row["nodes"]): float(row["execution_time_s"]) for row in table}
    # not by time: the rows of the file
    assert found == pytest.approx(times_s)
    assert "results/mine/report.html" in done.stdout
    assert not [*project.folder.glob("results/runs/**/*.json")]
    again = project.snakemake(config=["mine.yaml"])
    assert "collect the run records" not in again.stdout
    # another, older file
    text = (project.folder / "mine.csv").read_text().replace("1,64,", "1,64,9")
    (project.folder / "older.csv").write_text(text)
    os.utime(project.folder / "older.csv", (0, 0))
    (project.folder / "mine.yaml").write_text("study: mine\ntimings: older.csv\n")
    words = "write_config", "results/mine/runs.csv", "--rerun-triggers", "mtime"
    project.snakemake(*words, config=["mine.yaml"])
    (one,) = (row for row in project.table("results/mine/runs.csv") if row["nodes"] == "1")
    assert one["execution_time_s"].startswith("9")


def test_a_plan_is_refused_and_a_wrong_cell_named(project: Project) -> None:
    done = project.snakemake("plan", config=["mine.yaml"], check=False)
    assert done.returncode and "mine.csv" in done.stdout
    (project.folder / "mine.csv").write_text("nodes,global_batch_size,execution_time_s\n1,64,x\n")
    done = project.snakemake(config=["mine.yaml"], check=False)
    assert done.returncode
    assert "mine.csv: line 2: execution_time_s: 'x' is not allowed" in done.stdout
