"""Why runs of a sweep are in Slurm's queue, or were not taken: for the console and the tables."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tfscaling.sweep import slurm_limits

#: The queue is looked at so long after the start, and then again and again; in seconds.
FIRST_S, PERIOD_S = 15.0, 60.0
#: Reasons that pass by themselves.
_USUAL = ("Resources", "Priority", "Dependency", "BeginTime", "Prolog", "Cleaning")
#: Slurm holds a job for some minutes that it starts again, as after a lost node.
_REQUEUED = "BeginTime"
#: Slurm has not looked at the job yet.
_NONE = "None"
_RECORD = re.compile(r"runs/(platform=.*)/run\.json$")
#: What the executor plugin says of a job that sbatch did not take.
_REFUSED = re.compile(r"sbatch failed\. The error message was '(.*?)'\.\n", re.DOTALL)


class Pending(NamedTuple):
    """A job that waits: its number, Slurm's reason, and the folder of its run."""

    job: str
    reason: str
    run: str


def comment_of(rule: str, run: str) -> str:
    """The comment that the Slurm executor plugin gives to the job of a run's folder."""
    values = [part.partition("=")[2] for part in run.split("/")]
    return f"rule_{rule}_wildcards_{'_'.join(values)}"


def pending(lines: Iterable[str], runs: Mapping[str, str], workdir: str) -> list[Pending]:
    """The jobs of `workdir` that wait, from lines `job|reason|workdir|comment` of squeue."""
    found = [line.strip().split("|", 3) for line in lines]
    return [
        Pending(job, reason, runs[comment])
        for job, reason, folder, comment in (each for each in found if len(each) == 4)
        if folder == workdir and comment in runs
    ]


class QueueWatch(logging.Handler):
    """Looks at the queue now and then, and hears what sbatch says of jobs that it does not take.

    `runs` are the folders of runs by the comments of their jobs. `say` prints a line, `keep` takes
    Slurm's words by the folder of a run whenever they change.
    """

    def __init__(
        self,
        runs: Mapping[str, str],
        workdir: str,
        clusters: Iterable[str | None],
        say: Callable[[str], None],
        keep: Callable[[Mapping[str, str]], None],
    ) -> None:
        super().__init__()
        self._runs, self._workdir, self._clusters = runs, workdir, tuple(clusters) or (None,)
        self._say, self._keep = say, keep
        self._refused: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        self._told: set[str] = set()
        self._waiting: list[Pending] = []

    def start(self) -> None:
        """Look from now on, until this process ends."""
        threading.Thread(target=self._look_again_and_again, daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """A record of Snakemake's log; of interest is a job that sbatch refused."""
        said = _REFUSED.search(str(getattr(record, "rule_msg", None) or ""))
        for path in getattr(record, "output", ()) if said else ():
            if said and (run := _RECORD.search(str(path))):
                words = " ".join(said[1].split()).removeprefix("sbatch: error: ")
                self._refused[run[1]] = f"sbatch refused it: {words}"
                self._keep_if_new()

    def look(self) -> None:
        """Ask Slurm once; tell of reasons that were not told before."""
        options = ["--me", "--noheader", "--states=PENDING", "--format=%i|%r|%Z|%k"]
        lines = (
            line
            for cluster in self._clusters
            for line in slurm_limits.told("squeue", *options, cluster=cluster)
        )
        self._waiting = pending(lines, self._runs, self._workdir)
        by_reason: dict[str, list[Pending]] = {}
        for job in self._waiting:
            by_reason.setdefault(job.reason, []).append(job)
        for reason, jobs in by_reason.items():
            numbers = [job.job for job in jobs] if reason == _REQUEUED else []
            if (seen := " ".join([reason, *numbers])) not in self._told and reason != _NONE:
                self._told.add(seen)
                self._say(told(reason, jobs, self._down() if numbers else ()))
        self._keep_if_new()

    def _down(self) -> list[str]:
        """Nodes that are down, with Slurm's reason: `cpu2 (Not responding)`."""
        options = ["--noheader", "--Node", "--states=down", "--format=%N|%E"]
        lines = (
            line.strip().partition("|")
            for cluster in self._clusters
            for line in slurm_limits.told("sinfo", *options, cluster=cluster)
        )
        return list(dict.fromkeys(f"{node} ({why})" for node, _, why in lines if why))

    def _keep_if_new(self) -> None:
        words = {
            job.run: f"waits in Slurm's queue: {job.reason} (job {job.job})"
            for job in self._waiting
            if job.reason != _NONE
        }
        if (now := {**words, **self._refused}) != self._kept:
            self._keep(now)
            self._kept = now

    def _look_again_and_again(self) -> None:
        pause = threading.Event()
        pause.wait(FIRST_S)
        while True:
            self.look()
            pause.wait(PERIOD_S)


def told(reason: str, jobs: list[Pending], down: Iterable[str] = ()) -> str:
    """One line about the jobs that wait for the same reason; of one that may last, a job's name.

    With the nodes that are `down` where Slurm starts the jobs again.
    """
    if nodes := ", ".join(down):
        numbers = ", ".join(job.job for job in jobs)
        return f"down: {nodes}; Slurm starts again in about 2 minutes: jobs {numbers}"
    number = f"{len(jobs)} run{'s wait' if len(jobs) > 1 else ' waits'} in Slurm's queue: {reason}"
    if reason in _USUAL:
        return number
    return f"{number}; the first is job {jobs[0].job}, {jobs[0].run}"
