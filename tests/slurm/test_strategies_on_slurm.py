"""Every strategy and task layout on a real Slurm: learning, compared, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project import TINY, Project
from virtual_cluster import Cluster

PARAMETER_SERVERS = ("parameter_server", "synchronous_parameter_server")
#: Ten classes: chance is 0.1. Small parts of the datasets, but clearly learned.
LEARNED = {"mnist_cnn": 0.7, "cifar10_cnn": 0.25}


@pytest.fixture(scope="module")
def swept(
    new_project: Callable[[str], Project], fetched: Path, submit: Callable[..., Any]
) -> Project:
    project = new_project("strategies")
    project.link_datasets(fetched, "cifar10")
    cifar = {**TINY, "per_replica_batch_size": 64, "learning_rate": 0.002, "epochs": 4,
             "evaluation_interval_epochs": 3, "train_examples_max": 6400,
             "test_examples_max": 1000}  # fmt: skip
    project.overlay(
        {
            "grid": [
                {"platform": "cpu", "model": "mnist_cnn", "recipe": "tiny", "nodes": [1, 2],
                 "tasks_per_node": 2},
                {"platform": "cpu", "model": "mnist_cnn", "recipe": "tiny", "nodes": 2,
                 "tasks_per_node": "2+1"},
                # a coordinator, a parameter server and two workers
                {"platform": "gpu", "model": "mnist_cnn", "recipe": "tiny", "nodes": 4,
                 "strategy": list(PARAMETER_SERVERS)},
                {"platform": "gpu", "model": "cifar10_cnn", "recipe": "cifar", "nodes": 4,
                 "strategy": list(PARAMETER_SERVERS)},
            ],
            "recipes": {"tiny": TINY, "cifar": cifar},
        }
    )  # fmt: skip
    code, output = submit(project)
    assert code == 0, output[-5000:] + project.logs()
    return project


def records(project: Project, strategy: str) -> list[dict[str, Any]]:
    return [r for r in project.records() if r["axes"]["strategy"] == strategy]


def test_tasks_are_where_they_were_asked(swept: Project) -> None:
    layout = {}
    for record in records(swept, "multi_worker_mirrored"):
        hosts = [rank["host"] for rank in record["ranks"]]
        counts = [hosts.count(host) for host in dict.fromkeys(hosts)]
        layout[record["axes"]["nodes"], record["axes"]["tasks_per_node"]] = counts
        assert record["derived"]["replicas"] == len(hosts)
    assert layout == {(1, 2): [2], (2, 2): [2, 2], (2, "2+1"): [2, 1]}


@pytest.mark.parametrize("strategy", PARAMETER_SERVERS)
def test_parameter_servers_learn(strategy: str, swept: Project) -> None:
    found = records(swept, strategy)
    assert {r["axes"]["model"] for r in found} == set(LEARNED)
    for record in found:
        jobs = [rank["job"] for rank in record["ranks"]]
        assert jobs == ["chief", "ps", "worker", "worker"]
        assert len({rank["host"] for rank in record["ranks"]}) == 4
        assert record["derived"]["replicas"] == 2
        assert record["metrics"]["test_accuracy"] > LEARNED[record["axes"]["model"]]


def test_parameter_servers_evaluate_between_epochs(swept: Project) -> None:
    found = [r for r in swept.records() if r["axes"]["recipe"] == "cifar"]
    assert len(found) == 2
    for record in found:
        epochs, phases = record["metrics"]["epochs"], record["phases"]
        assert [epoch["epoch"] for epoch in epochs if "test_accuracy" in epoch] == [3, 4]
        assert epochs[3]["test_accuracy"] == record["metrics"]["test_accuracy"]
        spent_s = sum(epoch.get("evaluation_time_s", 0.0) for epoch in epochs)
        assert phases["evaluation_time_s"] == pytest.approx(spent_s, rel=0.5, abs=1.0)


def test_strategies_stand_beside_each_other_in_the_comparison(swept: Project) -> None:
    rows = {(r["model"], r["strategy"], r["nodes"], r["tasks_per_node"]): r for r in swept.table()}
    for model in LEARNED:
        for strategy in PARAMETER_SERVERS:
            assert rows[model, strategy, "4", "1"]["status"] == "ok"
    assert rows["mnist_cnn", "multi_worker_mirrored", "2", "2+1"]["replicas"] == "3"
    text = (swept.folder / "results/main/tables/comparison.md").read_text()
    assert all(strategy in text for strategy in PARAMETER_SERVERS)


def test_nothing_is_left_on_any_node(swept: Project, cluster: Cluster) -> None:
    assert cluster.run("squeue", "--noheader") == ""
    for number in range(1, 7):
        for partition in ("cpu", "gpu"):
            assert cluster.processes(f"{partition}{number}") == []
