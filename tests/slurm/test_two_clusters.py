"""A study on two Slurm clusters, `gcp` and `aws`, copied into one table."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from project import REPOSITORY, Project
from virtual_cluster import Cluster, start

pytestmark = pytest.mark.full

#: Cluster → its platform in `PLATFORMS`, and the partition that the platform names.
PLATFORMS = yaml.safe_load((REPOSITORY / "provision/clouds/platforms.yaml").read_text())
CLOUDS = {"gcp": ("gcp-n1-standard-2", "n1-standard-2"), "aws": ("aws-m4-large", "m4-large")}
STUDY = {
    **PLATFORMS,
    "study": "clouds",
    "grid": [
        {"platform": platform, "strategy": "own", "recipe": "short", "nodes": 1}
        for platform, _ in CLOUDS.values()
    ],
    "recipes": {
        "short": {
            "program": ["sh", "-c", "echo loss: 0.25"], "observe": "output",
            "patterns": {"loss": "loss: (.+)"}, "per_replica_batch_size": 1, "epochs": 1,
        }
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, Cluster]]:
    """Both are up at once and know nothing of each other."""
    running: dict[str, Cluster] = {}
    # pytest's folders are so deep that names of sockets, which end in a node's, become too long
    with tempfile.TemporaryDirectory(prefix="vc-") as folder:
        try:
            for name, (_, partition) in CLOUDS.items():
                running[name] = start(Path(folder, name), "--partition", f"{partition}:1:cpus=2")
            yield running
        finally:
            for cluster in running.values():
                cluster.tool("down")


@pytest.fixture(scope="module")
def measured(
    clusters: dict[str, Cluster], new_project: Callable[[str], Project]
) -> dict[str, Project]:
    """A project on each cluster, with the runs of its own platform."""
    projects = {}
    for name, cluster in clusters.items():
        projects[name] = new_project(name)
        projects[name].overlay(STUDY)
        projects[name].snakemake(
            "--config", f"cluster={name}", "--slurm-sweep-init-seconds-before-status-checks", "5",
            profile="slurm", environ=cluster.environ,
        )  # fmt: skip
    return projects


def test_the_clouds_are_compared_after_a_copy(measured: dict[str, Project]) -> None:
    gcp, aws = measured["gcp"], measured["aws"]
    for name, project in measured.items():
        (record,) = project.records()
        assert record["environment"]["slurm_job"]["partition"] == CLOUDS[name][1]
    there, here = f"{aws.folder}/results/runs/.", gcp.folder / "results/runs"
    # as rsync --archive --ignore-existing
    subprocess.run(["cp", "-a", "-n", there, here], check=True)
    records = gcp.records()
    assert len(records) == 2
    gcp.snakemake("--config", "cluster=gcp", "--forcerun", "collect")
    assert gcp.records() == records  # nothing was trained again
    rows = gcp.table("results/clouds/comparison.csv")
    assert {(row["platform"], row["status"]) for row in rows} == {
        (platform, "ok") for platform, _ in CLOUDS.values()
    }
    compared = gcp.table("results/clouds/details/conclusions/clouds.csv")
    assert {row["metric"] for row in compared} >= {"execution_time_s", "loss"}
    for row in compared:
        assert {row["cloud_a"], row["cloud_b"]} == {"gcp", "aws"}
