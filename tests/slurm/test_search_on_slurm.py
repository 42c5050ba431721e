"""A search on Slurm, whose driver is killed in every round: it goes on where it was.

Only one configuration keeps the limit of accuracy, so that the runs and rounds do not depend on
times. Searches of known times: tests/workflow/test_search.py.
"""

from __future__ import annotations

import signal
from collections import Counter
from functools import partial
from typing import Any

import pytest
from project import Project
from sweep_drivers import Driver, Submit, queue
from tfscaling.conclusions.search_results import TAKEN
from tfscaling.estimation.run_counts import KEPT_RUNS
from tfscaling.search.search_types import Reason
from virtual_cluster import Cluster, wait_for

pytestmark = pytest.mark.full

NODES = [1, 4]
#: So many complete runs must keep the limit before their configuration is named.
REPEATS = KEPT_RUNS
RIGHT = ("cpu", "4")
#: All others miss the limit twice.
RUNS = {(name, str(nodes)): 2 for name in ("cpu", "gpu") for nodes in NODES} | {RIGHT: REPEATS}
#: Its runs last long enough to kill a driver while one is running.
PROGRAM = """
import os
import time

import observe

ranks = int(os.environ["WORLD_SIZE"])
for _ in observe.steps(range(4), examples=4 // ranks):
    time.sleep(1)
is_right = (os.environ["PLACE"], ranks) == ("cpu", 4)
observe.epoch(loss=0.5)
observe.eval(accuracy=0.9 if is_right else 0.1)
"""
CONTENT: dict[str, Any] = {
    "grid": [{"platform": ["cpu", "gpu"], "strategy": "own", "recipe": "reports", "nodes": NODES,
              "repeats": REPEATS}],
    "search": {"repeats_max": REPEATS},
    "question": {"limits": {"test_accuracy": {"at_least": 0.5}}},
    "recipes": {
        "reports": {"program": ["python3", "reports.py"], "observe": "events",
                    "per_replica_batch_size": 1, "epochs": 1},
    },
    "platforms": {name: {"env": {"PLACE": name}} for name in ("cpu", "gpu")},
}  # fmt: skip


def test_a_search_that_is_killed_in_every_round_ends_with_the_right_answer(
    project: Project, submit: Submit, cluster: Cluster
) -> None:
    (project.folder / "reports.py").write_text(PROGRAM)
    project.overlay(CONTENT)

    def rounds() -> int:
        return len(list(project.folder.glob("results/main/details/repeats/round=*.json")))

    killed: set[int] = set()

    def is_due(driver: Driver) -> bool:
        runs = "RUNNING" in queue(cluster).values()
        return driver.has_ended or (runs and rounds() not in killed)

    while True:
        driver = Driver(project, submit)
        wait_for(partial(is_due, driver), "a round, or the end")
        if driver.has_ended:
            break
        killed.add(rounds())
        driver.end(signal.SIGKILL)
        project.snakemake("--unlock", profile="slurm", environ=cluster.environ)
    code, output = driver.join()
    assert code == 0, output[-5000:] + project.logs()
    assert killed == set(range(rounds()))
    table = project.table("results/main/details/conclusions/search.csv")
    found = {
        (row["platform"], row["nodes"]): (row["place"] == TAKEN, row["why"], int(row["runs"]))
        for row in table
    }
    # not by time: all others miss the limit in their first two runs
    assert found == {
        point: (True, "", runs) if point == RIGHT else (False, Reason.NOT_ALLOWED.value, runs)
        for point, runs in RUNS.items()
    }
    # not by time: likewise
    assert table[0]["is_decided"] == "True"
    axes = [record["axes"] for record in project.records()]
    assert Counter((each["platform"], str(each["nodes"])) for each in axes) == RUNS
