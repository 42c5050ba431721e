"""A run that runs out of memory is a result: one attempt, a row, and the sweep has ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from project import Project, axis

pytestmark = pytest.mark.full

#: Has the words of PyTorch on a GPU whose memory a batch of this many examples exceeds.
PROGRAM = """
import sys

if int(sys.argv[1]) > 100:
    raise RuntimeError("CUDA out of memory. Tried to allocate 24.50 GiB.")
"""
BLOCK = {"platform": "laptop", "strategy": "own", "nodes": 1}
RECIPE = {"program": ["python3", "fits.py", "{per_replica_batch_size}"], "epochs": 1}


def begin(folder: Path) -> Project:
    project = Project(folder)
    (project.folder / "fits.py").write_text(PROGRAM)
    return project


def test_it_is_run_once_and_the_sweep_has_ended(tmp_path: Path) -> None:
    project = begin(tmp_path)
    project.overlay({
        "grid": [{**BLOCK, "recipe": ["small", "large"]}],
        "recipes": {
            name: {**RECIPE, "per_replica_batch_size": size}
            for name, size in (("small", 64), ("large", 128))
        },
    })  # fmt: skip
    assert "retrying" not in project.snakemake("--retries", "2").stdout
    (run,) = project.folder.glob("results/runs/**/recipe=large/**/repeat=1/*")
    assert [path.name for path in run.glob("attempt=*")] == ["attempt=1"]
    assert not (run / "failure.json").exists()
    rows = {row["recipe"]: row for row in project.table("results/main/runs.csv")}
    assert (rows["small"]["status"], rows["large"]["status"]) == ("ok", "does_not_fit")
    assert float(rows["large"]["rank_memory_gb"]) > 0 and float(rows["large"]["wall_time_s"]) > 0
    assert rows["large"]["failed_attempts"] == "0"
    points = {row["recipe"]: row for row in project.table()}
    assert points["large"]["status"] == "does_not_fit" and points["large"]["runs"] == "0"
    steps = project.table("results/main/details/conclusions/next_steps.csv")
    assert "unfinished" not in {step["kind"] for step in steps}
    assert "Nothing to be done" in project.snakemake().stdout
    (run / "run.json").unlink()  # so its user asks for it again
    project.snakemake()
    assert (run / "attempt=2").is_dir() and (run / "run.json").exists()


def test_a_batch_that_does_not_fit_leaves_the_larger_ones_out(tmp_path: Path) -> None:
    project = begin(tmp_path)
    project.overlay({
        "grid": [{**BLOCK, "recipe": "size", "repeats": 2}],
        "recipes": {"size": {**RECIPE, "per_replica_batch_size": {"from": 32, "to": 500}}},
    })  # fmt: skip
    project.snakemake()
    rows = project.table("results/main/runs.csv")
    found = [(r["per_replica_batch_size"], r["status"], r["attempt"] != "") for r in rows]
    ok, unfit = [("32", "ok", True), ("64", "ok", True)], ("128", "does_not_fit", True)
    assert found == [each for each in (*ok, unfit, ("256", "missing", False)) for _ in (1, 2)]
    assert not [*project.folder.glob("results/runs/**/*_size=256/**/attempt=*")]
    (reason,) = {row["reason"] for row in rows if row["per_replica_batch_size"] == "256"}
    (run,) = project.folder.glob("results/runs/**/*_size=128/**/repeat=1/*")
    assert str(run.relative_to(project.folder / "results/runs")) in reason
    # each batch is run only after all runs of the smaller one
    rounds = sorted(project.folder.glob("results/main/details/repeats/round=*.json"))
    runs = [json.loads(path.read_text())["runs"] for path in rounds]
    sizes = [sorted(axis(path, "recipe").rpartition("=")[2] for path in of_round)
             for of_round in runs]  # fmt: skip
    assert sizes[:3] == [["64"] * 2, ["128"] * 2 + ["64"] * 2, ["128"] * 2 + ["64"] * 2]
    assert {row["status"] for row in project.table()} == {"ok", "does_not_fit", "missing"}
    assert "Nothing to be done" in project.snakemake().stdout
