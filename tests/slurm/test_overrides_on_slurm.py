"""Overrides of resources reach Slurm, records and the configuration alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from project import Project
from virtual_cluster import Cluster, start

pytestmark = pytest.mark.full

SITE = {"launcher": "srun", "nodes_max": 2, "cpus_per_node": 1}
CONTENT: dict[str, Any] = {
    "grid": [{"platform": "site", "strategy": "own", "recipe": "user", "nodes": [1, 2]}],
    "recipes": {"user": {"program": ["sleep", "1"], "per_replica_batch_size": 1, "epochs": 1}},
    "platforms": {"site": SITE},
}


@pytest.fixture(scope="module")
def two_partitions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    words = ("--partition", "cpu:2:cpus=2", "--partition", "other:2:cpus=2")
    cluster = start(tmp_path_factory.mktemp("vc"), *words)
    try:
        yield cluster
    finally:
        cluster.tool("down")


def jobs(project: Project) -> list[dict[str, Any]]:
    """Slurm's facts about the jobs of the records."""
    return [record["environment"]["slurm_job"] for record in project.records()]


def test_a_default_partition_is_honoured_and_a_memory_default_is_not(
    two_partitions: Cluster, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    project.overlay(CONTENT)
    words = ("--default-resources", "slurm_partition=other", "mem_mb=1")
    project.snakemake(*words, profile="slurm", environ=two_partitions.environ)
    found = jobs(project)
    assert {job["partition"] for job in found} == {"other"}
    memory_mb = [re.search(r"mem=(\d+)([MG])", job.get("tres", "")) for job in found]
    assert not [match for match in memory_mb if match and match.group() == "mem=1M"]


def test_an_overridden_partition_and_time_limit_are_in_records_and_configuration(
    two_partitions: Cluster, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    project.overlay({**CONTENT, "platforms": {"site": {**SITE, "partition": "cpu"}}})
    words = ("--set-resources", "train:slurm_partition=other", "train:runtime=7")
    project.snakemake(*words, profile="slurm", environ=two_partitions.environ)
    found = jobs(project)
    assert [job["partition"] for job in found] == ["other", "other"]
    assert sorted(job["nodes_allocated"] for job in found) == ["1", "2"]
    config = json.loads((project.folder / "results/main/details/config.json").read_text())
    site = config["platforms"]["site"]
    assert (site["partition"], site["runtime_min"]) == ("other", 7)
    refused = project.snakemake(
        "--set-resources", "train:nodes=2", profile="slurm", environ=two_partitions.environ,
        check=False,
    )  # fmt: skip
    assert refused.returncode == 1 and "nodes of the grid" in refused.stdout
