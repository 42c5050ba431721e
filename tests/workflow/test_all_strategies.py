"""Every distribution strategy by the local launcher: learning, compared, ended."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from project import QUICK, SMALL_MODEL, Project

pytestmark = pytest.mark.full

#: Strategies of several workers that exchange gradients, a device each.
WORKERS = ("multi_worker_mirrored", "mpi_all_reduce")


@pytest.fixture(scope="module")
def swept(new_project: Callable[[str], Project]) -> Project:
    project = new_project("strategies")
    strong = {**QUICK, "per_replica_batch_size": None, "global_batch_size": 64, "epochs": 2,
              "train_examples_max": 960, "evaluation_interval_epochs": 1}  # fmt: skip
    base = {"platform": "laptop", "model": SMALL_MODEL, "recipe": "strong"}
    project.overlay(
        {
            # as on many clusters, and no way to the other ranks
            "platforms": {"laptop": {"env": {"http_proxy": "http://127.0.0.1:9"}}},
            "grid": [
                {**base, "strategy": "single", "nodes": 1},
                {**base, "strategy": "mirrored", "nodes": 1, "gpus_per_node": 2},
                # a coordinator, a parameter server and two workers
                {**base, "strategy": ["parameter_server", "synchronous_parameter_server"],
                 "nodes": 2, "tasks_per_node": 2},
                {**base, "strategy": list(WORKERS), "nodes": 2},
            ],
            "recipes": {"strong": strong},
            "question": {"limits": {"test_accuracy": {"at_least": 0.6}}},
        }
    )  # fmt: skip
    project.snakemake()
    return project


def test_all_strategies_learn(swept: Project) -> None:
    rows = {row["strategy"]: row for row in swept.table()}
    assert len(rows) == 6
    for row in rows.values():
        assert row["status"] == "ok"
        assert row["global_batch_size"] == "64"
        assert float(row["test_accuracy"]) > 0.6  # chance is 0.1


def test_time_to_the_target_is_that_of_the_first_evaluation_at_it(swept: Project) -> None:
    rows = {row["strategy"]: row for row in swept.table()}
    for record in swept.records():
        row, (first, last) = rows[record["axes"]["strategy"]], record["metrics"]["epochs"]
        assert last["test_accuracy"] == pytest.approx(float(row["test_accuracy"]))
        assert first["evaluation_time_s"] > 0
        ends_s = [0.0, first["ended_s"], last["ended_s"]]
        assert ends_s == sorted(ends_s)
        reached = first if first["test_accuracy"] >= 0.6 else last
        assert float(row["time_to_target_s"]) == pytest.approx(reached["ended_s"])


def test_synchronous_strategies_give_the_same_model(swept: Project) -> None:
    """The same global batches in the same order: only float summation differs."""
    loss = {row["strategy"]: float(row["loss"]) for row in swept.table()}
    del loss["parameter_server"]
    alone = loss.pop("single")
    assert loss == {strategy: pytest.approx(alone, rel=1e-4) for strategy in loss}


def test_coordinator_servers_and_workers_have_ended(swept: Project) -> None:
    logs = [path.read_text() for path in swept.folder.glob("results/runs/**/repeat=*/*/launch.log")]
    assert len(logs) == 6
    assert all("run_rank.py --spec " in log and "/recipe=strong/" in log for log in logs)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    ranks = [line for line in running.stdout.splitlines() if "run_rank.py --spec " in line]
    assert [line for line in ranks if "/recipe=strong/" in line] == []
