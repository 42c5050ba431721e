"""A slow pipeline on one of two nodes: both wait, and the tables name input, not communication.

The ranks' times are known. That each rank measures its waits: tests/unit/train/test_all_reduce.py.
"""

from __future__ import annotations

from pathlib import Path

import generator
import pytest
from project import SMALL_MODEL, Project
from tfscaling.record import run_record
from tfscaling.record.rank_report import Execution
from tfscaling.study.manifest import Manifest

pytestmark = pytest.mark.full

STEPS = 10
#: Seconds of a step, of its computation, and of the wait for the pipeline on each rank. What rank 0
#: does not wait for input, it waits for rank 1.
STEP_S, COMPUTE_S, WAITS_S = 0.6, 0.05, (0.01, 0.5)


def test_the_input_of_one_rank_is_not_taken_for_communication(tmp_path: Path) -> None:
    project = Project(tmp_path)
    recipe = {"dataset": "mnist", "per_replica_batch_size": 32, "learning_rate": 0.1, "epochs": 1}
    project.overlay({
        "grid": [{"platform": "laptop", "model": SMALL_MODEL, "recipe": "slow", "nodes": 2}],
        "recipes": {"slow": recipe},
    })  # fmt: skip
    project.snakemake("results/main/details/manifest.json")
    (run,) = Manifest.read(project.folder / "results/main/details/manifest.json").runs
    reports = [
        generator.training_report(
            rank,
            epochs=generator.training_report().epochs[:1],
            steps=tuple(Execution(1, n, 1, STEP_S, wait_s) for n in range(STEPS)),
            compute_steps=(COMPUTE_S,) * 3,
        )
        for rank, wait_s in enumerate(WAITS_S)
    ]
    folder = project.folder / "results/runs" / run.spec.path
    folder.mkdir(parents=True)
    run_record.write_record(
        folder / run_record.RECORD, generator.record(run.spec, reports, generator.phases())
    )
    project.snakemake("results/main/comparison.csv")
    (row,) = project.table("results/main/details/conclusions/attribution.csv")
    assert row["held_back_by"] == "input", row
    assert float(row["input_share"]) > 0.5
    assert len(project.records()) == 1
