"""A grid of users' programs: what runs has its rows, what fails its reason; nothing is prepared."""

from __future__ import annotations

from pathlib import Path

from project import Project

#: Fails on the last of two nodes if it is told to.
PROGRAM = """
import os
import sys

if "--fail" in sys.argv and os.environ["RANK"] == "1":
    raise ValueError("rank 1 has no data")
print(sys.argv[1], "epochs")
"""


def test_programs_are_rows_of_the_tables(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (project.folder / "user.py").write_text(PROGRAM)
    recipe = {"per_replica_batch_size": 32, "epochs": 2}
    program = ["python3", "user.py", "{epochs}"]
    block = {"platform": "laptop", "strategy": "own"}
    project.overlay(
        {
            "grid": [
                {**block, "recipe": "good", "nodes": [1, 2]},
                {**block, "recipe": "bad", "nodes": 2},
            ],
            "recipes": {
                "good": {**recipe, "program": program},
                "bad": {**recipe, "program": [*program, "--fail"]},
            },
        }
    )
    done = project.snakemake(check=False)
    assert done.returncode != 0
    (failure,) = project.failures()
    assert failure["cause"]["kind"] == "program_failed"
    assert failure["cause"]["rank"] == 1
    assert (
        "user.py line 6: ValueError: rank 1 has no data; log: results"
        in (failure["cause"]["message"])
    )
    assert not (project.folder / "results/datasets").exists()
    assert (project.folder / "results/main/partial/report.html").is_file()
    rows = project.table("results/main/partial/tables/comparison.csv")
    assert [row["status"] for row in rows] == ["ok", "ok", "failed"]
    for row in rows[:2]:
        assert float(row["execution_time_s"]) > 0 and float(row["speedup"]) > 0
        assert row["loss"] == row["train_time_s"] == row["examples_trained"] == ""
