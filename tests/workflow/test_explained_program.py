"""A program whose steps exchange for known times: `explain` adds the run that shows how long.

Its events have times by a formula; it waits until the last one has passed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from project import Project

STEPS, COMPUTE_MS, EXCHANGES_MS = 12, 30, (25, 75)
PROGRAM = """
import json
import os
import sys
import time

epochs, exchange_ms, compute_ms, steps = map(int, sys.argv[1:])
ranks = int(os.environ["WORLD_SIZE"])
step_s = (compute_ms + exchange_ms * (ranks > 1)) / 1000
begin_s = time.time()
with open(os.environ["TFSCALING_EVENTS"], "a") as events:
    def write(event, number, **more):
        time_s = begin_s + (number + 1) * step_s
        line = {"event": event, "time_s": time_s, "steps": number, "examples": 8 * number}
        events.write(json.dumps({**line, **more}) + "\\n")

    per_epoch = steps // ranks
    for epoch in range(1, epochs + 1):
        for number in range((epoch - 1) * per_epoch + 1, epoch * per_epoch + 1):
            write("steps", number)
        write("epoch", number, epoch=epoch, metrics={"loss": 0.5})
time.sleep(max(0, begin_s + (number + 2) * step_s - time.time()))
"""


@pytest.mark.full
def test_an_exchange_of_known_time_is_found_by_the_run_that_explain_adds(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (project.folder / "exchanges.py").write_text(PROGRAM)
    words = ["{epochs}", "{parameters.exchange_ms}", str(COMPUTE_MS), str(STEPS)]
    recipe = {
        "program": ["python3", "exchanges.py", *words],
        "observe": "events",
        "per_replica_batch_size": 8,
        "epochs": 2,
        "parameters": {"exchange_ms": [*EXCHANGES_MS]},
    }
    block = {"platform": "laptop", "strategy": "own", "recipe": "exchanges", "nodes": 2}
    project.overlay(
        {"grid": [{**block, "repeats": 1, "explain": True}], "recipes": {"exchanges": recipe}}
    )
    listed = project.snakemake("--dry-run").stdout
    assert "4 runs to do" in listed and listed.count("new, to explain steps") == 2
    project.snakemake("plan")
    rows = project.table("results/main/details/plan.csv")
    assert (
        sorted(row["feasibility"] for row in rows) == ["runs"] * 2 + ["runs to explain steps"] * 2
    )
    project.snakemake()
    assert sorted(record["axes"]["nodes"] for record in project.records()) == [1, 1, 2, 2]
    assert [row["nodes"] for row in project.table("results/main/comparison.csv")] == ["2", "2"]
    assert len(project.table("results/main/runs.csv")) == 4
    assert {row["nodes"] for row in project.table("results/main/details/epochs.csv")} == {"2"}
    attributed = project.table("results/main/details/conclusions/attribution.csv")
    for shown, exchange_ms in zip(attributed, EXCHANGES_MS, strict=True):
        found_ms = 1000 * float(shown["step_time_s"]) * float(shown["communication_share"])
        # not by time: the program reports times by a formula
        assert abs(found_ms - exchange_ms) <= 0.01 * exchange_ms
    lines = project.snakemake("clean_runs").stdout
    assert "removed" not in lines and " 0 runs" in lines
