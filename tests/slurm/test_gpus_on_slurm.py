"""The GPUs of runs that are smaller than their allocation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from project import Project
from virtual_cluster import Cluster, start

pytestmark = pytest.mark.full

CONTENT: dict[str, Any] = {
    "grid": [
        {"platform": "four", "strategy": "own", "recipe": "shown", "nodes": 1,
         "gpus_per_node": [1, 2, 4]}
    ],
    "recipes": {
        "shown": {
            "program": ["sh", "-c", 'echo "visible: $CUDA_VISIBLE_DEVICES"'],
            "observe": "nothing", "per_replica_batch_size": 1, "epochs": 1,
        }
    },
    "platforms": {
        "four": {
            "launcher": "srun", "partition": "gpu", "nodes_max": 1, "cpus_per_node": 1,
            "runtime_min": 10, "gpus_per_node_max": 4,
        }
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def gpu_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = start(tmp_path_factory.mktemp("vc"), "--partition", "gpu:1:gpus=4:cpus=2")
    try:
        yield cluster
    finally:
        cluster.tool("down")


def test_runs_of_an_allocation_have_the_gpus_that_they_request(
    project: Project, gpu_cluster: Cluster
) -> None:
    project.overlay(CONTENT)
    project.snakemake(profile="allocation", environ=gpu_cluster.environ)
    records = project.records()
    assert len({record["environment"]["slurm_job"]["id"] for record in records}) == 1
    found = {
        record["axes"]["gpus_per_node"]: {rank["gpus_given"] for rank in record["ranks"]}
        for record in records
    }
    assert found == {1: {1}, 2: {2}, 4: {4}}
