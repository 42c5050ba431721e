"""Every distribution strategy by the local launcher: learning, compared, ended."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from project import TINY, Project


@pytest.fixture(scope="module")
def swept(new_project: Callable[[str], Project]) -> Project:
    project = new_project("strategies")
    strong = {**TINY, "per_replica_batch_size": None, "global_batch_size": 64}
    base = {"platform": "laptop", "model": "mnist_cnn", "recipe": "strong"}
    project.overlay(
        {
            "grid": [
                {**base, "strategy": "single", "nodes": 1},
                {**base, "strategy": "mirrored", "nodes": 1, "gpus_per_node": 2},
                # a coordinator, a parameter server and two workers
                {**base, "strategy": ["parameter_server", "synchronous_parameter_server"],
                 "nodes": 2, "tasks_per_node": 2},
                {**base, "strategy": "multi_worker_mirrored", "nodes": 2},
            ],
            "recipes": {"strong": strong},
        }
    )  # fmt: skip
    project.snakemake()
    return project


def test_all_strategies_learn(swept: Project) -> None:
    rows = {row["strategy"]: row for row in swept.table()}
    assert len(rows) == 5
    for row in rows.values():
        assert row["status"] == "ok"
        assert row["global_batch_size"] == "64"
        assert float(row["test_accuracy"]) > 0.6  # chance is 0.1


def test_synchronous_strategies_give_the_same_model(swept: Project) -> None:
    """The same global batches in the same order: only float summation differs."""
    loss = {row["strategy"]: float(row["loss"]) for row in swept.table()}
    del loss["parameter_server"]
    alone = loss.pop("single")
    assert loss == {strategy: pytest.approx(alone, rel=1e-4) for strategy in loss}


def test_coordinator_servers_and_workers_have_ended(swept: Project) -> None:
    logs = [path.read_text() for path in swept.folder.glob("results/runs/**/launch.log")]
    assert len(logs) == 5
    assert all("train.py" in log and "--recipe=strong" in log for log in logs)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    left = [line for line in running.stdout.splitlines() if "--recipe=strong" in line]
    assert left == []
