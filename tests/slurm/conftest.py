"""One real Slurm cluster on this machine for the tests that run the workflow on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from project import Project
from snakemake_server import LIMIT_S
from sweep_drivers import CONTENT, PROGRAM
from virtual_cluster import Cluster, start


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, up; taken down whatever happens."""
    root = tmp_path_factory.mktemp("vc")
    cluster = start(root, "--nodes", "12", "--cpus-per-node", "2")
    try:
        yield cluster
    finally:
        cluster.tool("down")


@pytest.fixture(scope="session")
def submit(cluster: Cluster) -> Callable[..., tuple[int, str]]:
    """Runs the project's sweep through profiles/slurm: (exit code, output)."""

    def run(
        project: Project,
        *arguments: str,
        limit_s: float = LIMIT_S,
        environ: dict[str, str] | None = None,
    ) -> tuple[int, str]:
        done = project.snakemake(
            # polled soon: this cluster's jobs are short
            "--slurm-sweep-init-seconds-before-status-checks", "5", *arguments,
            profile="slurm", environ={**cluster.environ, **(environ or {})}, check=False,
            limit_s=limit_s,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


@pytest.fixture
def gated(project: Project) -> Iterator[Project]:
    """A project with the sweep of sweep_drivers.py."""
    (project.folder / "gated.py").write_text(PROGRAM)
    project.overlay(CONTENT)
    yield project
    (project.folder / "gate").touch()  # of jobs that a failed test has left
