"""A driver that ends while its jobs go on, in every way: what is kept, made again, and said."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from project import Project
from snakemake_server import HangError
from virtual_cluster import Cluster, wait_for

pytestmark = pytest.mark.full

Submit = Callable[..., tuple[int, str]]
RUNS = 2
#: From which the moments follow; the longest is when a driver waits for its jobs.
SEED, MOMENT_MAX_S = 17, 8.0
#: A driver that has not ended after this long hangs, also on a busy machine.
LIFE_MAX_S = 450.0
#: Its ranks end when the file `gate` is there, or that of their run. A run takes four of the six
#: nodes: one runs, one waits.
PROGRAM = """
import pathlib, re, sys, time

own = "gate-" + re.search("repeat=[0-9]+", sys.argv[1])[0]
while not any(pathlib.Path(name).exists() for name in ("gate", own)):
    time.sleep(0.1)
"""
CONTENT: dict[str, Any] = {
    "grid": [
        {"platform": "cpu", "strategy": "own", "recipe": "gated", "nodes": 4, "repeats": RUNS}
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
        self._project, self._submit = project, submit
        self.ended: tuple[int | None, str] | None = None
        self._hang = ""
        self._before = {*self._logs()}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.ended = self._submit(self._project, limit_s=LIFE_MAX_S)
        except AssertionError as error:  # it was killed, and so gives no exit code
            self.ended = (None, str(error))
        except HangError as error:
            self._hang = str(error)

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

    def end(self, number: int, after_s: float = 0.0) -> tuple[int | None, str]:
        pid = self.pid
        time.sleep(after_s)
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(pid, number)
        return self.join()

    def join(self) -> tuple[int | None, str]:
        self._thread.join()
        assert self.ended is not None, self._hang
        return self.ended


class Watch:
    """Looks at the queue and the records as long as the sweep goes on."""

    def __init__(self, project: Project, cluster: Cluster) -> None:
        self._project, self._cluster = project, cluster
        #: Record → its text when it was first seen.
        self.seen: dict[Path, str] = {}
        #: Runs that two jobs of the queue were to make at the same time.
        self.twice: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(0.5):
            # in one answer of Slurm: those to come and those that run
            options = ("--noheader", "--states=PENDING,RUNNING", "--format=%k")
            comments = self._cluster.run("squeue", *options).splitlines()
            self.twice |= {comment for comment in comments if comments.count(comment) > 1}
            for path in self.records():
                self.seen.setdefault(path, path.read_text())

    def records(self) -> list[Path]:
        return sorted(self._project.folder.glob("results/runs/**/run.json"))


def queue(cluster: Cluster) -> dict[str, str]:
    """The jobs in the queue by their numbers: their states."""
    lines = cluster.run("squeue", "--noheader", "--format=%i %T").splitlines()
    return dict(line.split() for line in lines)


@pytest.fixture
def gated(project: Project) -> Iterator[Project]:
    (project.folder / "gated.py").write_text(PROGRAM)
    project.overlay(CONTENT)
    yield project
    (project.folder / "gate").touch()  # of jobs that a failed test has left


def clear(project: Project, cluster: Cluster, submit: Submit | None = None) -> None:
    """Do away with a stale lock, by the option that the next start names."""
    if not [*project.folder.glob(".snakemake/locks/*")]:
        return  # it was killed before it had one
    if submit is not None:
        code, output = submit(project)
        assert code != 0
        assert "--unlock" in output
    project.snakemake("--unlock", profile="slurm", environ=cluster.environ)


def test_a_sweep_whose_driver_ends_at_five_random_moments(
    gated: Project, submit: Submit, cluster: Cluster
) -> None:
    dice = random.Random(SEED)
    with Watch(gated, cluster) as watch:
        driver = Driver(gated, submit)
        wait_for(lambda: sorted(queue(cluster).values()) == ["PENDING", "RUNNING"], "two jobs")
        jobs = set(queue(cluster))
        code, output = submit(gated)  # a second driver
        assert code != 0 and "--unlock" in output
        time.sleep(dice.uniform(0, MOMENT_MAX_S))
        assert driver.end(signal.SIGKILL)[0] is None
        clear(gated, cluster, submit)

        # a terminal that closes, at any moment from the first on
        driver = Driver(gated, submit)
        assert driver.end(signal.SIGHUP, after_s=dice.uniform(0, MOMENT_MAX_S))[0] is None
        assert set(queue(cluster)) == jobs
        (running,) = [job for job, state in queue(cluster).items() if state == "RUNNING"]
        begun = functools.partial(gated.folder.glob, "results/runs/**/attempt=1")
        wait_for(lambda: bool([*begun()]), "a run to begin")
        (attempt,) = begun()
        (gated.folder / f"gate-{attempt.parent.name}").touch()
        wait_for(lambda: running not in queue(cluster), "a run to end without a driver")
        clear(gated, cluster)

        # Ctrl-C: it cancels what it has taken
        driver = Driver(gated, submit)
        wait_for(lambda: "continues as SLURM job" in driver.log, "the other job to be taken")
        assert driver.end(signal.SIGINT, after_s=dice.uniform(0, MOMENT_MAX_S))[0] != 0
        wait_for(lambda: not queue(cluster), "the job to be cancelled")
        assert len(watch.records()) == 1
        clear(gated, cluster)

        driver = Driver(gated, submit)
        assert driver.end(signal.SIGKILL, after_s=dice.uniform(0, MOMENT_MAX_S))[0] is None
        clear(gated, cluster)

        # it waits for what it has submitted
        driver = Driver(gated, submit)
        (gated.folder / "gate").touch()
        driver.end(signal.SIGTERM, after_s=dice.uniform(0, MOMENT_MAX_S))
        wait_for(lambda: not queue(cluster), "the jobs to end")
        clear(gated, cluster)

        code, output = submit(gated)
        assert code == 0, output[-3000:]
    assert watch.twice == set()
    assert {path: path.read_text() for path in watch.records()} == watch.seen
    (row,) = gated.table()
    assert (row["status"], row["runs"]) == ("ok", str(RUNS))
    told = [json.loads(p.read_text()) for p in gated.folder.rglob("attempt=*/failure.json")]
    assert {failure["cause"]["kind"] for failure in told} <= {"cancelled"}


#: Bash reads this file before it runs a command: the job continues after its run has ended.
LINGERS = """
python3() {
    local code=0
    command python3 "$@" || code=$?
    if [[ $1 == */train.py ]]; then sleep 600; fi
    return $code
}
"""


def test_a_run_that_was_finished_before_its_job_was_cancelled_is_not_made_again(
    gated: Project, submit: Submit, cluster: Cluster
) -> None:
    (gated.folder / "gate").touch()
    (gated.folder / "lingers").write_text(LINGERS)
    with Watch(gated, cluster) as watch:
        lingers = {"BASH_ENV": str(gated.folder / "lingers")}
        driver = Driver(gated, functools.partial(submit, environ=lingers))
        wait_for(lambda: len(watch.seen) == 1, "the first record")
        assert driver.end(signal.SIGINT)[0] != 0
        wait_for(lambda: not queue(cluster), "the jobs to end")
        clear(gated, cluster)
        code, output = submit(gated)
        assert code == 0, output[-3000:]
    assert {path: path.read_text() for path in watch.records()} == watch.seen
    assert len(watch.seen) == len([*gated.folder.glob("results/runs/**/attempt=*/record.json")])
