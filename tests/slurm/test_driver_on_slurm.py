"""A driver that ends while its jobs go on, in every way: what is kept, made again, and said."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from project import Project
from virtual_cluster import Cluster

Submit = Callable[..., tuple[int, str]]
RUNS = 2
#: Its ranks end when the file `gate` is there. A run takes four of the six nodes: one runs, one
#: waits.
PROGRAM = """
import pathlib, time

while not pathlib.Path("gate").exists():
    time.sleep(0.1)
"""
CONTENT: dict[str, Any] = {
    "grid": [
        {"platform": "cpu", "strategy": "own", "recipe": "gated", "nodes": 4, "repeats": RUNS}
    ],
    "recipes": {
        "gated": {
            "program": ["python3", "gated.py"], "per_replica_batch_size": 1, "epochs": 1,
            "observe": "nothing",
        }
    },
}  # fmt: skip


class Driver:
    """A sweep in a thread; `end` sends a signal to its snakemake."""

    def __init__(self, project: Project, submit: Submit) -> None:
        self._project, self._submit = project, submit
        self.ended: tuple[int | None, str] | None = None
        self._before = set(self._told())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.ended = self._submit(self._project)
        except AssertionError as error:  # it was killed, and so gives no exit code
            self.ended = (None, str(error))

    def _told(self) -> list[Path]:
        return list(self._project.folder.glob(".snakemake/drivers/*.json"))

    @property
    def pid(self) -> int:
        wait_for(lambda: bool(set(self._told()) - self._before), "the driver to begin")
        (path,) = set(self._told()) - self._before
        return int(json.loads(path.read_text())["pid"])

    def log(self) -> str:
        """Its log, when it has one of its own."""
        logs = sorted(self._project.folder.glob(".snakemake/log/*.log"))
        return logs[-1].read_text() if logs else ""

    def end(self, number: int) -> tuple[int | None, str]:
        os.kill(self.pid, number)
        return self.join()

    def join(self) -> tuple[int | None, str]:
        self._thread.join(timeout=300)
        assert self.ended is not None
        return self.ended


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


def queue(cluster: Cluster) -> dict[str, str]:
    """The jobs in the queue by their numbers: their states."""
    lines = cluster.run("squeue", "--noheader", "--format=%i %T").splitlines()
    return dict(tuple(line.split()) for line in lines)


@pytest.fixture
def gated(project: Project) -> Iterator[Project]:
    (project.folder / "gated.py").write_text(PROGRAM)
    project.overlay(CONTENT)
    yield project
    (project.folder / "gate").touch()  # of jobs that a failed test has left


def test_jobs_outlive_their_driver_and_are_not_submitted_again(
    gated: Project, submit: Submit, cluster: Cluster
) -> None:
    driver = Driver(gated, submit)
    wait_for(lambda: sorted(queue(cluster).values()) == ["PENDING", "RUNNING"], "two jobs")
    jobs = set(queue(cluster))

    code, output = submit(gated)  # a second driver
    assert code != 0 and f"Another snakemake works in this folder: PID {driver.pid}" in output
    for number in (signal.SIGKILL, signal.SIGHUP):
        assert driver.end(number)[0] is None
        code, output = submit(gated)
        assert code != 0
        (said,) = [line for line in output.splitlines() if "is stale" in line]
        assert said.endswith(" --unlock")
        gated.snakemake("--unlock", profile="slurm", environ=cluster.environ)
        driver = Driver(gated, submit)
        wait_for(lambda d=driver: d.log().count("goes on as SLURM job") == RUNS, "jobs taken")
        assert set(queue(cluster)) == jobs

    # it cancels what it has submitted, and what it has taken
    assert driver.end(signal.SIGINT)[0] != 0
    wait_for(lambda: not queue(cluster), "the jobs to be cancelled")
    assert gated.records() == []

    driver = Driver(gated, submit)
    wait_for(lambda: sorted(queue(cluster).values()) == ["PENDING", "RUNNING"], "two jobs")
    again = set(queue(cluster))
    assert not again & jobs
    os.kill(driver.pid, signal.SIGTERM)  # it waits for them
    (gated.folder / "gate").touch()
    driver.join()
    assert len(gated.records()) == RUNS
    made = gated.made()

    code, output = submit(gated)
    assert code == 0, output[-3000:]
    assert gated.made() == made
    (row,) = gated.table()
    assert (row["status"], row["runs"]) == ("ok", str(RUNS))
    assert {r["environment"]["slurm_job"]["id"] for r in gated.records()} == again
    # of the first jobs one had begun, and has left why it ended
    told = [json.loads(p.read_text()) for p in gated.folder.rglob("attempt=*/failure.json")]
    assert [failure["cause"]["kind"] for failure in told] == ["cancelled"]
