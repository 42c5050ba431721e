"""A study on two Slurm clusters, `gcp` and `aws`, merged into one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from project import QUICK, REPOSITORY, SMALL_MODEL, Project
from virtual_cluster import Cluster, start

#: Cluster → its platform in config/platforms.yaml, and the partition that the platform names.
CLOUDS = {
    "gcp": ("gcp-n1-standard-2", "n1-standard-2"),
    "aws": ("aws-m4-large", "m4-large"),
}
STUDY = {
    "study": "clouds",
    "grid": [
        {"platform": platform, "model": SMALL_MODEL, "recipe": "quick", "nodes": 1}
        for platform, _ in CLOUDS.values()
    ],
    "recipes": {"quick": QUICK},
}


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


def merge(into: Project, there: Path) -> subprocess.CompletedProcess[str]:
    """`make merge FROM=there STUDY=clouds` in a project."""
    program = REPOSITORY / "workflow/scripts/tfscaling"
    return subprocess.run(
        [sys.executable, str(program), "merge", "--from", str(there), "--study", "results/clouds"],
        cwd=into.folder, env={**os.environ}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def record_of(project: Project) -> Path:
    (path,) = project.folder.glob("results/runs/**/run.json")
    return path


def truncated(_gcp: Project, aws: Project) -> None:
    path = record_of(aws)
    path.write_bytes(path.read_bytes()[:1000])


def of_other_parameters(_gcp: Project, aws: Project) -> None:
    record = json.loads(record_of(aws).read_text())
    record["parameters"]["learning_rate"] *= 2
    record_of(aws).write_text(json.dumps({**record, "parameters_hash": "0" * 16}))


def of_other_data(_gcp: Project, aws: Project) -> None:
    record = json.loads(record_of(aws).read_text())
    record["environment"]["dataset"]["sha256"] = "0" * 64
    record_of(aws).write_text(json.dumps(record))


def of_other_code(gcp: Project, _aws: Project) -> None:
    code = gcp.folder / "small.py"
    code.write_text(code.read_text().replace("Dense(10)", "Dense(10, use_bias=False)"))


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        (truncated, "not JSON"),
        (of_other_parameters, "made with other parameters: learning_rate"),
        (of_other_data, "made of other data"),
        (of_other_code, "made by other code: small.py"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(
    breaks: Callable[[Project, Project], None], reason: str, measured: dict[str, Project]
) -> None:
    gcp, aws = measured["gcp"], measured["aws"]
    files = (record_of(gcp), record_of(aws), gcp.folder / "small.py")
    whole = {file: file.read_bytes() for file in files}
    breaks(gcp, aws)
    refused = merge(gcp, aws.folder)
    for file, content in whole.items():
        if file.read_bytes() != content:
            file.write_bytes(content)
    assert refused.returncode == 1
    said = " ".join(refused.stdout.split())
    assert f"conflict: runs/platform={CLOUDS['aws'][0]}/" in said
    assert reason in said
    assert "nothing is taken" in refused.stderr
    assert len(gcp.records()) == 1


def test_the_clouds_are_compared_after_the_merge(measured: dict[str, Project]) -> None:
    gcp, aws = measured["gcp"], measured["aws"]
    for name, project in measured.items():
        (record,) = project.records()
        assert record["environment"]["slurm_job"]["partition"] == CLOUDS[name][1]
    done = merge(gcp, aws.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    records = gcp.records()
    assert len(records) == 2
    gcp.snakemake("--config", "cluster=gcp")
    assert gcp.records() == records  # nothing was trained again
    rows = gcp.table("results/clouds/tables/comparison.csv")
    assert {(row["platform"], row["status"]) for row in rows} == {
        (platform, "ok") for platform, _ in CLOUDS.values()
    }
    compared = gcp.table("results/clouds/tables/clouds.csv")
    assert {row["metric"] for row in compared} >= {"execution_time_s", "loss"}
    for row in compared:
        assert {row["cloud_a"], row["cloud_b"]} == {"gcp", "aws"}
