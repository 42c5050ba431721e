"""Sweeps on a Slurm cluster whose runs wait for a file, and their drivers, which tests end."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from project import Project
from virtual_cluster import Cluster, wait_for

#: Runs a project's sweep through profiles/slurm: (exit code, output).
Submit = Callable[..., tuple[int, str]]
RUNS = 2
#: A driver that has not ended after this long hangs, also on a busy machine.
LIFE_MAX_S = 450.0
#: Its ranks end when the file `gate` exists, or the gate of their run. A run takes both CPUs
#: of four of the six nodes, one for each task: one run runs, one waits.
PROGRAM = """
import pathlib, re, sys, time

own = "gate-" + re.search("repeat=[0-9]+", sys.argv[1])[0]
while not any(pathlib.Path(name).exists() for name in ("gate", own)):
    time.sleep(0.1)
"""
CONTENT: dict[str, Any] = {
    "grid": [
        {"platform": "cpu", "strategy": "own", "recipe": "gated", "nodes": 4, "tasks_per_node": 2,
         "repeats": RUNS}
    ],
    "recipes": {
        "gated": {
            "program": ["python3", "gated.py", "{folder}"], "observe": "nothing",
            "per_replica_batch_size": 1, "epochs": 1,
        }
    },
}  # fmt: skip


class Driver:
    """A sweep in a thread; `end` sends a signal to its snakemake."""

    def __init__(self, project: Project, submit: Submit) -> None:
        self._project = project
        self._before = {*self._logs()}
        pool = ThreadPoolExecutor(1)
        self._ended = pool.submit(submit, project, limit_s=LIFE_MAX_S)
        pool.shutdown(wait=False)

    def _logs(self) -> list[Path]:
        return list(self._project.folder.glob(".snakemake/log/*.log"))

    @property
    def pid(self) -> int:
        wait_for(lambda: bool(self._project.drivers()), "the driver to begin")
        (pid,) = self._project.drivers()
        return pid

    @property
    def log(self) -> str:
        """Its log; "" before it has one."""
        return "".join(path.read_text() for path in set(self._logs()) - self._before)

    @property
    def has_ended(self) -> bool:
        """Whether the sweep has ended, by itself or by a signal."""
        return self._ended.done()

    def end(self, number: int, after_s: float = 0.0) -> tuple[int, str]:
        """Send the signal and wait for the end: (exit code, output)."""
        pid = self.pid
        time.sleep(after_s)
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(pid, number)
        return self.join()

    def join(self) -> tuple[int, str]:
        """Wait for the end: (exit code, output). Raises HangError after LIFE_MAX_S."""
        return self._ended.result()


class Watch:
    """Looks at the queue and the records as long as the sweep goes on."""

    def __init__(self, project: Project, cluster: Cluster) -> None:
        self._project, self._cluster = project, cluster
        #: Record → its text when it was first seen.
        self.seen: dict[Path, str] = {}
        #: Runs that two jobs of the queue were to make at the same time.
        self.twice: set[str] = set()
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Watch:
        self._watching = self._pool.submit(self._work)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()
        self._watching.result()

    def _work(self) -> None:
        while not self._over.wait(0.5):
            # in one answer of Slurm: those to come and those that run
            options = ("--noheader", "--states=PENDING,RUNNING", "--format=%k")
            comments = self._cluster.run("squeue", *options).splitlines()
            self.twice |= {comment for comment in comments if comments.count(comment) > 1}
            for path in self.records():
                self.seen.setdefault(path, path.read_text())

    def records(self) -> list[Path]:
        return self._project.files_of_runs("run.json")


def queue(cluster: Cluster) -> dict[str, str]:
    """The jobs in the queue by their numbers: their states."""
    lines = cluster.run("squeue", "--noheader", "--format=%i %T").splitlines()
    return dict(line.split() for line in lines)


def clear(project: Project, cluster: Cluster, submit: Submit | None = None) -> None:
    """Remove a stale lock, by the option that the next start names."""
    if not [*project.folder.glob(".snakemake/locks/*")]:
        return  # it was killed before it had one
    if submit is not None:
        code, output = submit(project)
        assert code != 0
        assert "--unlock" in output
    project.snakemake("--unlock", profile="slurm", environ=cluster.environ)
