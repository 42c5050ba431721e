"""What a real Slurm can never start is refused with its reason before anything is queued."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from project import QUICK, SMALL_MODEL, Project
from virtual_cluster import Cluster, start

pytestmark = pytest.mark.full

#: Platform → its settings, and what Slurm says of them.
IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "cpus": (
        {"partition": "cpu", "cpus_per_node": 8},
        "allocation failure: Requested node configuration is not available",
    ),
    "partition": (
        {"partition": "cpux"},
        "invalid partition specified: cpux; allocation failure: Invalid partition name specified",
    ),
    "gpu_type": (
        {"partition": "gpu", "gpu_gres": "gpu:a100", "gpus_per_node_max": 1, "devices": "logical"},
        "allocation failure: Requested node configuration is not available",
    ),
    "gpu_name": (
        {"partition": "gpu", "gpu_gres": "gpux", "gpus_per_node_max": 1, "devices": "logical"},
        "Invalid generic resource (gres) specification",
    ),
    "time": (
        {"partition": "short", "runtime_min": 60},
        "PartitionTimeLimit: partition short has MaxTime=00:30:00, runtime_min is 60",
    ),
    "account": (
        {"partition": "lab", "account": "nosuch"},
        "AccountNotAllowed: partition lab has AllowAccounts=lab",
    ),
    "memory": ({"partition": "cpu", "mem_mb": 2_000_000}, "allocation failure: "),
    "constraint": (
        {"partition": "cpu", "constraint": "nosuch"},
        "allocation failure: Invalid feature specification",
    ),
}
USUAL = {"launcher": "srun", "nodes_max": 2, "cpus_per_node": 2, "runtime_min": 10}


def block(platform: str, **axes: Any) -> dict[str, Any]:
    gpus = 1 if platform.startswith("gpu_") else 0
    usual = {"model": SMALL_MODEL, "recipe": "quick", "nodes": 1, "gpus_per_node": gpus}
    return {"platform": platform, **usual, **axes}


def content(*blocks: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A configuration with the impossible platforms and one that is possible, `fine`."""
    named = {name: {**USUAL, **keys} for name, (keys, _) in IMPOSSIBLE.items()}
    named["fine"] = {**USUAL, "partition": "cpu", **settings}
    return {"grid": list(blocks), "recipes": {"quick": QUICK}, "platforms": named}


@pytest.fixture(scope="module")
def small_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes of a partition, one of others, one of them with a time limit; none with a job."""
    shape = ("cpu:2:cpus=2", "short:1:cpus=2", "lab:1:cpus=2", "gpu:1:gpus=2:cpus=2")
    words = [word for each in shape for word in ("--partition", each)]
    cluster = start(tmp_path_factory.mktemp("vc"), *words)
    try:
        cluster.run("scontrol", "update", "partitionname=short", "MaxTime=30")
        cluster.run("scontrol", "update", "partitionname=lab", "AllowAccounts=lab")
        yield cluster
    finally:
        cluster.tool("down")


def sweep(project: Project, cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return project.snakemake(*words, profile="slurm", environ=cluster.environ, check=False)


def test_what_slurm_can_never_start_is_refused_with_its_reason(
    project: Project, small_cluster: Cluster
) -> None:
    project.overlay(content(*map(block, IMPOSSIBLE), block("fine")))
    done = sweep(project, small_cluster)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout, done.stdout[-3000:]
    for name, (_, reason) in IMPOSSIBLE.items():
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"  {name}, ")]
        assert line.startswith(f"  {name}, nodes 1") and reason in line
    assert "  fine, " not in done.stdout
    assert small_cluster.run("squeue", "--noheader", "--states=all") == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SBATCH_ARRAY_INX", "1-2"), ("SBATCH_WAIT", "1"), ("SBATCH_MEM_PER_NODE", "100")],
)
def test_options_of_the_environment_that_change_jobs_are_refused(
    variable: str, value: str, project: Project, small_cluster: Cluster
) -> None:
    """Slurm would take them: as several jobs of one run, or with a limit of memory."""
    program = {"program": ["false"], "per_replica_batch_size": 1, "epochs": 1}
    fine = {"platform": "fine", "strategy": "own", "recipe": "short", "nodes": 1}
    project.overlay({**content(fine), "recipes": {"short": program}})
    environ = {**small_cluster.environ, variable: value}
    done = project.snakemake(profile="slurm", environ=environ, check=False)
    jobs = small_cluster.run("squeue", "--noheader", "--states=all", "--format=%i %T %m %k")
    assert jobs == "", done.stdout[-3000:]
    assert done.returncode == 1 and f"{variable}={value}" in done.stdout


def test_the_plan_says_what_slurm_says(project: Project, small_cluster: Cluster) -> None:
    project.overlay(content(block("partition"), block("fine", nodes=[1, 2])))
    assert sweep(project, small_cluster, "plan").returncode == 1
    rows = project.table("results/main/details/plan.csv")
    assert [(row["platform"], row["nodes"], row["starts"]) for row in rows] == [
        ("partition", "1", "refused"), ("fine", "1", "at once"), ("fine", "2", "at once"),
    ]  # fmt: skip
    page = (project.folder / "results/main/details/plan.md").read_text()
    assert IMPOSSIBLE["partition"][1] in page
    assert not any(row["wait_bound_s"] for row in rows)  # without accounting
    assert small_cluster.run("squeue", "--noheader", "--states=all") == ""


def test_nodes_that_are_out_of_service_are_waited_for(
    project: Project, small_cluster: Cluster
) -> None:
    project.overlay(content(block("fine", nodes=2)))
    small_cluster.run("scontrol", "update", "nodename=cpu1", "state=drain", "reason=test")
    try:
        sweep(project, small_cluster, "plan")
        (row,) = project.table("results/main/details/plan.csv")
    finally:
        small_cluster.run("scontrol", "update", "nodename=cpu1", "state=resume")
    assert row["starts"] == "waits"
    page = (project.folder / "results/main/details/plan.md").read_text()
    assert "out of service: cpu1" in page
