"""Every strategy and task layout on a real Slurm: learning, compared, nothing left behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project import QUICK, REPOSITORY, SMALL_MODEL, Project
from virtual_cluster import Cluster

pytestmark = pytest.mark.full

SERVED = "synchronous_parameter_server"
MPI = "mpi_all_reduce"
#: A user's program: says its place, and that it trained two steps.
PROGRAM = """
import json
import os
import pathlib
import sys

import observe

names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES")
said = {name: os.environ[name] for name in names}
said["is_first"] = os.environ["MASTER_ADDR"] == os.uname().nodename
pathlib.Path(sys.argv[1], "said.json").write_text(json.dumps(said))
for batch in observe.steps([[1] * 8, [2] * 8]):
    pass
observe.epoch(loss=0.5)
"""
CPUS = {"launcher": "srun", "partition": "cpu", "nodes_max": 2, "cpus_per_node": 2}
#: Two nodes of two tasks with a GPU each.
GPUS = {
    "launcher": "srun", "partition": "gpu", "nodes_max": 6, "cpus_per_node": 2,
    "gpus_per_node_max": 2,
}  # fmt: skip


def image(folder: Path, *places: str) -> str:
    """An image for Charliecloud, a folder into which this machine's programs are bound."""
    for name in ("dev", "etc", "home", "proc", "sys", "tmp", "usr", *places):
        (folder / name.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("passwd", "group", "hosts"):
        (folder / "etc" / name).write_text("")
    return str(folder)


@pytest.fixture(scope="module")
def swept(new_project: Callable[[str], Project], submit: Callable[..., Any]) -> Project:
    project = new_project("strategies")
    (project.folder / "user.py").write_text(PROGRAM)
    point = {"model": SMALL_MODEL, "nodes": 2}
    places = [str(project.folder), str(REPOSITORY), sys.base_prefix, "/opt/venv"]
    container = {
        "image": image(project.folder / "image", *places), "engine": "charliecloud",
        "binds": ["/usr", sys.base_prefix, f"{sys.prefix}:/opt/venv"],
    }  # fmt: skip
    contained = {
        **CPUS,
        "cpu_bind": "cores",
        "switches": "1@1",
        "container": container,
        # this Python is only in the image
        "python": "/opt/venv/bin/python3",
        "env": {"USER": "root"},
        "setup": ["test ! -e /opt/venv"],
    }
    project.overlay(
        {
            "grid": [
                {**point, "platform": "cpu", "recipe": "quick", "tasks_per_node": 2},
                {**point, "platform": "contained", "recipe": "quick", "tasks_per_node": 2},
                # by MPI between nodes, and with shared memory inside a node
                {**point, "platform": "cpu", "recipe": "quick", "strategy": MPI, "nodes": 4},
                {**point, "platform": "cpu", "recipe": "quick", "strategy": MPI,
                 "tasks_per_node": "2+1"},
                # a coordinator, a parameter server and two workers
                {**point, "platform": "gpu", "recipe": "evaluated", "nodes": 4,
                 "strategy": SERVED},
                {"platform": "gpus", "recipe": "program", "strategy": "own", "nodes": 2,
                 "tasks_per_node": 2, "gpus_per_node": 2},
            ],
            "platforms": {"gpus": GPUS, "contained": contained},
            "recipes": {
                "quick": QUICK,
                "evaluated": {**QUICK, "epochs": 3, "evaluation_interval_epochs": 2},
                "program": {
                    "program": ["python3", "user.py", "{folder}"], "observe": "events",
                    "per_replica_batch_size": 8, "epochs": 1, "train_examples": 64,
                },
            },
        }
    )  # fmt: skip
    code, output = submit(project)
    assert code == 0, output[-5000:] + project.logs()
    return project


def records(project: Project, strategy: str) -> list[dict[str, Any]]:
    axes = [(record["axes"], record) for record in project.records()]
    return [r for a, r in axes if a["strategy"] == strategy and a["platform"] != "contained"]


def test_a_container_changes_no_result(swept: Project) -> None:
    (contained,) = [r for r in swept.records() if r["axes"]["platform"] == "contained"]
    (bare,) = records(swept, "multi_worker_mirrored")
    assert contained["parameters"]["container"]["engine"] == "charliecloud"
    (log,) = swept.folder.glob("results/runs/platform=contained/**/launch.log")
    assert "--cpu-bind=cores" in log.read_text()
    assert [rank["topology"] for rank in bare["ranks"]] == [rank["host"] for rank in bare["ranks"]]
    assert len(contained["environment"]["container_sha256"]) == 64
    assert bare["environment"]["container_sha256"] is None
    assert contained["metrics"]["loss"] == bare["metrics"]["loss"]
    assert contained["metrics"]["test_accuracy"] == bare["metrics"]["test_accuracy"]
    assert len({rank["host"] for rank in contained["ranks"]}) == 2


def test_tasks_are_where_they_were_asked(swept: Project) -> None:
    layout = {}
    for record in [*records(swept, "multi_worker_mirrored"), *records(swept, MPI)]:
        hosts = [rank["host"] for rank in record["ranks"]]
        counts = [hosts.count(host) for host in dict.fromkeys(hosts)]
        layout[record["axes"]["nodes"], record["axes"]["tasks_per_node"]] = counts
        assert record["derived"]["replicas"] == len(hosts)
    assert layout == {(2, 2): [2, 2], (2, "2+1"): [2, 1], (4, 1): [1, 1, 1, 1]}


def test_mpi_gives_the_model_that_grpc_gives(swept: Project) -> None:
    """As many replicas have the same batches, however they are spread over nodes."""
    (theirs,) = records(swept, "multi_worker_mirrored")
    by_nodes = {record["axes"]["nodes"]: record for record in records(swept, MPI)}
    assert set(by_nodes) == {2, 4}
    for metric in ("loss", "test_loss", "test_accuracy"):
        own = by_nodes[4]["metrics"][metric]
        assert own == pytest.approx(theirs["metrics"][metric], rel=1e-4)
    for record in by_nodes.values():
        for rank in record["ranks"]:
            assert rank["mpi_library"].startswith("MPICH Version: ")
            assert rank["intra_op_threads"] == {1: 2, "2+1": 1}[record["axes"]["tasks_per_node"]]


def test_a_program_has_its_place_its_gpu_and_its_record(swept: Project) -> None:
    (record,) = records(swept, "own")
    assert record["metrics"]["examples_trained"] == 64
    assert record["phases"]["program_time_s"] > 0
    ranks = record["ranks"]
    assert [rank["gpus_given"] for rank in ranks] == [2] * 4
    assert len({rank["host"] for rank in ranks}) == 2
    folder = next((swept.folder / "results/runs").glob("**/strategy=own/**/attempt=1"))
    said = [json.loads(file.read_text()) for file in sorted(folder.glob("*.files/said.json"))]
    assert said == [
        {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": "0",
         "LOCAL_WORLD_SIZE": "1", "CUDA_VISIBLE_DEVICES": str(rank % 2), "is_first": rank < 2}
        for rank in range(4)
    ]  # fmt: skip


def test_workers_of_a_parameter_server_learn_and_evaluate_between_epochs(swept: Project) -> None:
    (record,) = records(swept, SERVED)
    jobs = [rank["job"] for rank in record["ranks"]]
    assert jobs == ["chief", "ps", "worker", "worker"]
    assert len({rank["host"] for rank in record["ranks"]}) == 4
    assert record["derived"]["replicas"] == 2
    assert record["metrics"]["test_accuracy"] > 0.7  # chance is 0.1
    epochs = record["metrics"]["epochs"]
    assert [epoch["epoch"] for epoch in epochs if "test_accuracy" in epoch] == [2, 3]
    assert epochs[2]["test_accuracy"] == record["metrics"]["test_accuracy"]


def test_strategies_stand_beside_each_other_in_the_comparison(swept: Project) -> None:
    rows = {(row["strategy"], row["tasks_per_node"]): row for row in swept.table()}
    assert rows[SERVED, "1"]["status"] == "ok"
    assert rows[MPI, "2+1"]["replicas"] == "3"


def test_nothing_is_left_on_any_node(swept: Project, cluster: Cluster) -> None:
    assert cluster.run("squeue", "--noheader") == ""
    for number in range(1, 7):
        for partition in ("cpu", "gpu"):
            assert cluster.processes(f"{partition}{number}") == []
