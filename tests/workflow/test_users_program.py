"""A grid of users' programs: what runs has its rows, what fails its reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import Project

#: Fails on the last of two nodes if it is told to.
PROGRAM = """
import os
import sys

if "--fail" in sys.argv and os.environ["RANK"] == "1":
    raise ValueError("rank 1 has no data")
print(sys.argv[1], "epochs")
"""


#: Reads what the workflow has prepared for it.
READER = """
import sys

import numpy as np

with np.load(sys.argv[1]) as arrays:
    assert arrays["x_train"].shape == (int(sys.argv[2]), 3)
"""
NUMBERS = """
import numpy as np


def data(size):
    return [(np.zeros((size, 3)), np.zeros(size, int))] * 2
"""
DATA = "numbers_of_mine:data+size=5"


def test_programs_are_rows_of_the_tables(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for name, text in {"user": PROGRAM, "reader": READER, "numbers_of_mine": NUMBERS}.items():
        (project.folder / f"{name}.py").write_text(text)
    recipe = {"per_replica_batch_size": 32, "epochs": 2}
    program = ["python3", "user.py", "{epochs}"]
    block = {"platform": "laptop", "strategy": "own"}
    project.overlay(
        {
            "grid": [
                {**block, "recipe": "good", "nodes": [1, 2]},
                {**block, "recipe": "bad", "nodes": 2},
                {**block, "recipe": "reads", "nodes": 1},
            ],
            "recipes": {
                "good": {**recipe, "program": program},
                "bad": {**recipe, "program": [*program, "--fail"]},
                "reads": {
                    **recipe,
                    "program": ["python3", "reader.py", "{dataset}", "{parameters.size}"],
                    "dataset": "numbers_of_mine:data",
                    "parameters": {"size": 5},
                },
            },
        }
    )
    done = project.snakemake(check=False)
    assert done.returncode != 0
    (failure,) = project.failures()
    assert failure["cause"]["kind"] == "program_failed"
    assert failure["cause"]["rank"] == 1
    assert "user.py:6: ValueError: " in failure["cause"]["message"]
    data = {r["axes"]["recipe"]: r["environment"]["dataset"] for r in project.records()}
    assert data["good"] is None
    assert (data["reads"]["name"], data["reads"]["train_examples"]) == (DATA, 5)
    prepared = (project.folder / "results/datasets").iterdir()
    assert {path.name for path in prepared} == {f"{DATA}.npz", f"{DATA}.json"}
    assert (project.folder / "results/main/partial/report.html").is_file()
    rows = project.table("results/main/partial/comparison.csv")
    assert [row["status"] for row in rows] == ["ok", "ok", "failed", "ok"]
    for row in rows[:2]:
        assert float(row["execution_time_s"]) > 0 and float(row["speedup"]) > 0
        assert row["loss"] == row["train_time_s"] == row["examples_trained"] == ""


EPOCHS = """
import os
import sys

import observe

ranks = int(os.environ["WORLD_SIZE"])
for _ in range(int(sys.argv[1])):
    for _ in observe.steps(range(10), examples=16 // ranks):
        pass
    observe.epoch(loss=0.5)
"""


@pytest.mark.full
def test_a_search_over_short_runs_gives_a_program_fewer_epochs(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (project.folder / "epochs.py").write_text(EPOCHS)
    block = {"platform": "laptop", "strategy": "own", "recipe": "steps", "nodes": [1, 2]}
    program = {"program": ["python3", "epochs.py", "{epochs}"], "observe": "events"}
    project.overlay(
        {
            "grid": [block],
            "search": {"stop_after_epochs": 6, "repeats_max": 2},
            "recipes": {"steps": {"global_batch_size": 16, "epochs": 60, **program}},
        }
    )
    project.snakemake()
    table = project.table("results/main/details/conclusions/search.csv")
    # not by time: all configurations are shown
    assert {row["nodes"] for row in table} == {"1", "2"}
    records = project.records()
    made = sum(int(row[key]) for row in table for key in ("runs", "short_runs"))
    # not by time: as many as the records
    assert made == len(records)
    # the runs of either kind are runs of the program's own numbers of epochs
    epochs = {(r["axes"]["recipe"], r["parameters"]["epochs"]) for r in records}
    assert epochs == {("steps", 60), ("steps+epochs=6", 6)}
