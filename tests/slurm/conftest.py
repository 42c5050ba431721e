"""One real Slurm cluster on this machine for the tests that run the workflow on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from project import REPOSITORY, Project

TOOL = REPOSITORY / "provision/virtual/cluster"


@dataclass
class Cluster:
    """Partitions cpu (cpu1 to cpu6) and gpu (gpu1 to gpu6, four GPUs each)."""

    root: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.root / "etc/slurm.conf")}

    def run(self, *command: str) -> str:
        """A Slurm command's output."""
        return subprocess.run(
            command, env={**os.environ, **self.environ}, capture_output=True, text=True, check=True
        ).stdout

    def tool(self, verb: str, *arguments: str) -> str:
        """A command of provision/virtual/cluster on this cluster."""
        return subprocess.run(
            [str(TOOL), verb, "--root", str(self.root), *arguments],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    def processes(self, node: str) -> list[str]:
        """What runs on a node besides Slurm itself."""
        shown = self.tool("exec", node, "ps", "-eo", "comm,args", "--no-headers").splitlines()
        return [line for line in shown if "train.py" in line or "launch.py" in line]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, up; taken down whatever happens."""
    cluster = Cluster(tmp_path_factory.mktemp("vc"))
    up = subprocess.run(
        [str(TOOL), "up", "--root", str(cluster.root), "--nodes", "12"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        yield cluster
    finally:
        cluster.tool("down")


@pytest.fixture(scope="session")
def submit(cluster: Cluster) -> Callable[..., tuple[int, str]]:
    """Runs the project's sweep through profiles/slurm: (exit code, output)."""

    def run(project: Project, *arguments: str) -> tuple[int, str]:
        done = project.snakemake(
            # polled soon: this cluster's jobs are short
            "--slurm-init-seconds-before-status-checks", "5", *arguments,
            profile="slurm", environ=cluster.environ, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run
