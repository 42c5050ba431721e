"""Jobs in Slurm's queue that an earlier start of a sweep submitted."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from snakemake_interface_common.exceptions import WorkflowError

#: States of a job that failed. A preempted job may start again.
FAILED = {
    *("BOOT_FAIL", "CANCELLED", "DEADLINE", "ERROR", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "RECONFIG_FAIL", "TIMEOUT"),
}
COMPLETED, COMPLETING, PENDING, PREEMPTED = "COMPLETED", "COMPLETING", "PENDING", "PREEMPTED"
_ENDED = {*FAILED, COMPLETED, PREEMPTED, "REVOKED"}
_RUNS = {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING"}
#: Slurm's commands wait about a minute for a silent controller.
TIMEOUT_S = 15.0
PING_TIMEOUT_S = 5.0
#: Longest wait for jobs that are completing.
COMPLETING_S = 60.0
#: Queries of a queue that Slurm does not show, and the pause between them.
QUERIES, PAUSE_S = 3, 5.0


class QueuedJob(NamedTuple):
    """A job in Slurm's queue; `start_s` is in seconds since the epoch, where it is known."""

    number: str
    state: str
    name: str
    start_s: float | None
    comment: str

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED

    @property
    def runs(self) -> bool:
        return self.state in _RUNS


def run(*command: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm. Raises OSError if it is missing, and subprocess.TimeoutExpired."""
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def sacct(names: str) -> list[str]:
    """The command that prints number and state of the jobs with these names since two days."""
    since = datetime.now() - timedelta(days=2)
    fields = ("--noheader", "--parsable2", "--format=JobIdRaw,State")
    when = (f"--starttime={since:%Y-%m-%dT%H:00}", "--endtime=now")
    return ["sacct", "-X", *fields, *when, f"--name={names}"]


def answers() -> bool:
    try:
        return run("scontrol", "ping", timeout_s=PING_TIMEOUT_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def jobs_of(workdir: str, sleep: Callable[[float], None] = time.sleep) -> list[QueuedJob]:
    """The user's jobs that were submitted from `workdir`.

    Raises WorkflowError if Slurm does not show its queue: unseen jobs would be submitted again.
    """
    options = ("--me", "--noheader", "--states=all", "--format=%i|%T|%j|%S|%Z|%k")
    why = ""
    for query in range(QUERIES):
        if query:
            sleep(PAUSE_S)
        try:
            done = run("squeue", *options)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
            continue
        if done.returncode == 0:
            lines = (line.strip().split("|", 5) for line in done.stdout.splitlines())
            return [
                QueuedJob(number, state, name, _epoch_s(start), comment)
                for number, state, name, start, folder, comment in (w for w in lines if len(w) == 6)
                if folder == workdir
            ]
        why = done.stderr or f"exit status {done.returncode}"
    raise WorkflowError(
        f"Slurm does not show its queue, in which jobs of an earlier start may be: "
        f"{' '.join(why.split())}; start again when `squeue --me` answers"
    )


def settled(
    query: Callable[[], list[QueuedJob]],
    log: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[QueuedJob]:
    """The queue when no job is completing, or after `COMPLETING_S`.

    A job that Slurm is about to start again is completing before it is pending. A job counts as
    completed if it was completing all the time, or has left the queue.
    """
    begun_s = clock()
    seen = {job.number: job for job in query()}
    always = _completing(seen.values())
    if always:
        log(
            f"waiting up to {COMPLETING_S:g} s for Slurm to end or restart "
            f"job {', '.join(sorted(always))} of an earlier start"
        )
    while _completing(seen.values()) and clock() < begun_s + COMPLETING_S:
        sleep(1.0)
        found = {job.number: job for job in query()}
        seen = {number: _completed(job) for number, job in seen.items()} | found
        always &= _completing(found.values())
    return [_completed(job) if job.number in always else job for job in seen.values()]


def _completed(job: QueuedJob) -> QueuedJob:
    return job if job.has_ended else job._replace(state=COMPLETED)


def _completing(jobs: Iterable[QueuedJob]) -> set[str]:
    return {job.number for job in jobs if job.state == COMPLETING}


def by_comment(jobs: Iterable[QueuedJob]) -> dict[str, QueuedJob]:
    """The jobs that may be adopted, by comment: the last unfinished job, else the last one."""
    # by number, also of the array `17_[1-4]`
    numbered = {job: int(re.split(r"\D", job.number)[0] or 0) for job in jobs}
    ordered = sorted(numbered, key=lambda job: (not job.has_ended, numbered[job]))
    return {job.comment: job for job in ordered if not job.has_ended or job.state == COMPLETED}


def _epoch_s(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # N/A, or the user's SLURM_TIME_FORMAT
        return None
