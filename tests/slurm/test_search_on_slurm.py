"""A search on Slurm, whose driver is killed in every round: it goes on where it was."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from project import Project
from test_driver_on_slurm import Driver, Submit, queue, wait_for
from tfscaling.conclusions.search_results import TAKEN
from virtual_cluster import Cluster

pytestmark = pytest.mark.full

NODES = [1, 4]
REPEATS = 6
#: The more ranks the faster; the platform `gpu` is delayed.
PROGRAM = """
import os, time

time.sleep(12 / int(os.environ["WORLD_SIZE"]) + float(os.environ.get("DELAY_S", 0)))
"""
CONTENT: dict[str, Any] = {
    "grid": [{"platform": ["cpu", "gpu"], "strategy": "own", "recipe": "sleeps", "nodes": NODES,
              "repeats": REPEATS}],
    "search": {},
    "recipes": {
        "sleeps": {"program": ["python3", "sleeps.py"], "per_replica_batch_size": 1, "epochs": 1},
    },
    "platforms": {"gpu": {"env": {"DELAY_S": "6"}}},
}  # fmt: skip


def test_a_search_that_is_killed_in_every_round_ends_with_the_right_answer(
    project: Project, submit: Submit, cluster: Cluster
) -> None:
    (project.folder / "sleeps.py").write_text(PROGRAM)
    project.overlay(CONTENT)

    def rounds() -> int:
        return len(list(project.folder.glob("results/main/details/repeats/round=*.json")))

    killed: set[int] = set()

    def is_due(driver: Driver) -> bool:
        runs = "RUNNING" in queue(cluster).values()
        return driver.ended is not None or (runs and rounds() not in killed)

    while True:
        driver = Driver(project, submit)
        wait_for(lambda d=driver: is_due(d), "a round, or the end")
        if driver.ended is not None:
            break
        killed.add(rounds())
        driver.end(signal.SIGKILL)
        project.snakemake("--unlock", profile="slurm", environ=cluster.environ)
    code, output = driver.join()
    assert code == 0, output[-5000:] + project.logs()
    assert killed == set(range(rounds()))
    table = project.table("results/main/details/conclusions/search.csv")
    assert [(row["platform"], row["nodes"]) for row in table if row["place"] == TAKEN] == [
        ("cpu", "4")
    ]
    assert table[0]["is_decided"] == "True"
    assert len(project.records()) == sum(int(row["runs"]) for row in table) < REPEATS * len(table)
