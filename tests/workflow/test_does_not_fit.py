"""A run that runs out of memory is a result: one attempt, a row, and the sweep has ended."""

from __future__ import annotations

from pathlib import Path

from project import Project

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
    said = project.snakemake("--retries", "2").stdout
    assert "does not fit in memory" in said and "retrying" not in said
    (run,) = project.folder.glob("results/runs/**/recipe=large/**/repeat=1")
    assert [path.name for path in run.glob("attempt=*")] == ["attempt=1"]
    assert not (run / "failure.json").exists()
    rows = {row["recipe"]: row for row in project.table("results/main/tables/runs.csv")}
    assert (rows["small"]["status"], rows["large"]["status"]) == ("ok", "does_not_fit")
    assert float(rows["large"]["rank_memory_gb"]) > 0 and float(rows["large"]["wall_time_s"]) > 0
    assert rows["large"]["failed_attempts"] == "0"
    points = {row["recipe"]: row for row in project.table()}
    assert points["large"]["status"] == "does_not_fit" and points["large"]["runs"] == "0"
    steps = project.table("results/main/tables/next_steps.csv")
    assert "unfinished" not in {step["kind"] for step in steps}
    assert "Nothing to be done" in project.snakemake().stdout
    (run / "run.json").unlink()  # so its user asks for it again
    project.snakemake()
    assert (run / "attempt=2").is_dir() and (run / "run.json").exists()
