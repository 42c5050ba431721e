"""Jobs in Slurm's queue that an earlier start of the sweep has left: waited for, not made twice.

A snakemake that was killed leaves its jobs, which go on. The executor plugin (2.8.0) would submit
them again, beside those: two jobs that write the same files. Here a job of Snakemake takes its job
of Slurm instead, by the comment that the plugin gives it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tfscaling.records import attempts, earlier
from tfscaling.sweep import slurm_limits

#: Slurm's words for a job that will run, or runs.
_TO_COME = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "REQUEUED"}
_RUNS = {"RUNNING", "SUSPENDED", "STOPPED"}
#: And for one whose files may have come since Snakemake has looked for them.
_JUST_ENDED = {"COMPLETING", "COMPLETED"}
#: So long a job is waited for that is completing.
COMPLETING_S = 60
#: Clocks of hosts and file servers differ by less.
_CLOCKS_S = 60.0


class Queued(NamedTuple):
    """A job in Slurm's queue; `start` is in seconds since the epoch, where it is known."""

    number: str
    state: str
    name: str
    start: float | None
    comment: str


def in_queue(workdir: str, clusters: Iterable[str | None]) -> list[Queued]:
    """The user's jobs that were submitted from `workdir`."""
    options = ("--me", "--noheader", "--states=all", "--format=%i|%T|%j|%S|%Z|%k")
    lines = (
        line.strip().split("|", 5)
        for cluster in clusters
        for line in slurm_limits.told("squeue", *options, cluster=cluster)
    )
    return [
        Queued(number, state, name, _epoch(start), comment)
        for number, state, name, start, folder, comment in (w for w in lines if len(w) == 6)
        if folder == workdir
    ]


def settled(
    look: Callable[[], list[Queued]],
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[Queued]:
    """What `look` finds in the queue when no job in it is completing.

    A job that Slurm is about to start again is completing, too, and only then pending. One that
    has been completing for `COMPLETING_S` counts as ended. `say` prints a line if there is one to
    wait for.
    """
    since: dict[str, float] = {}
    while True:
        found, now = look(), clock()
        completing = [job.number for job in found if job.state == "COMPLETING"]
        has_news = not since and completing
        since = {number: since.get(number, now) for number in completing}
        if all(now - start >= COMPLETING_S for start in since.values()):
            return found
        if has_news:
            say(
                f"waiting for Slurm to end job {', '.join(completing)} of an earlier start, or to "
                f"start it again, up to {COMPLETING_S} s"
            )
        sleep(1.0)


def _epoch(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # N/A, or a format of the user's
        return None


class EarlierJobs:
    """The jobs of `queue` that are left to take.

    `specification` gives what is planned for a job of Snakemake's by its output file, as text, or
    None if the job is not of ranks. `say` prints a line.
    """

    def __init__(
        self,
        queue: Iterable[Queued],
        specification: Callable[[str], str | None],
        say: Callable[[str], None],
    ) -> None:
        self._left = {job.comment: job for job in queue if job.state in _TO_COME | _JUST_ENDED}
        self._specification, self._say = specification, say
        #: The comment of a job of Slurm → the number of the job that it comes after.
        self.after: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """The names by which Slurm is asked for these jobs, too."""
        return sorted({job.name for job in self._left.values()})

    @property
    def running(self) -> int:
        """How many of them run, or wait to run."""
        return sum(job.state in _TO_COME for job in self._left.values())

    def take(self, comment: str, output: str, was_missing: bool) -> str | None:
        """The number of Slurm's job that makes this output; None if there is none to wait for.

        `was_missing` says whether the output was missing when Snakemake planned its jobs: then a
        job that has just ended has made it, and no earlier one is kept any more. A job with another
        specification than the planned one makes something else; while it runs, its number is in
        `after`.
        """
        job = self._left.pop(comment, None)
        if job is None:
            return None
        if job.state in _JUST_ENDED:
            if not was_missing or not Path(output).exists():
                return None
            if self._makes_something_else(job, output):
                return None
            earlier.drop(Path(output))
            return job.number
        if job.state in _RUNS and self._makes_something_else(job, output):
            self.after[comment] = job.number
            self._say(
                f"{output}: job {job.number} of an earlier start runs with other settings; the "
                f"job with the present ones comes after it (scancel {job.number} ends it)"
            )
            return None
        return job.number

    def _makes_something_else(self, job: Queued, output: str) -> bool:
        planned, folder = self._specification(output), Path(output).parent
        begun = attempts.numbers(folder)
        if planned is None or not begun or job.start is None:
            return False
        spec = attempts.path(folder, begun[-1]) / attempts.SPEC
        try:
            is_its_own = spec.stat().st_mtime > job.start - _CLOCKS_S
            return is_its_own and spec.read_text() != planned
        except OSError:
            return False


def install(plugin: Any, jobs: EarlierJobs) -> None:
    """Let the plugin's executor take these `jobs` instead of submitting theirs again."""
    if not jobs.names:
        return
    executor = plugin.Executor
    run_job, submit_command = executor.run_job, plugin.get_submit_command

    def take_or_run(self: Any, job: Any) -> None:
        wildcards = plugin.get_job_wildcards(job)
        comment = f"rule_{job.name}_wildcards_{wildcards}"
        output = str(next(iter(job.output), ""))
        was_missing = output in map(str, job.dag.reason(job).missing_output)
        number = jobs.take(comment, output, was_missing)
        if number is None:
            run_job(self, job)
            return
        log = self.slurm_logdir / f"rule_{job.name}" / wildcards / f"{number}.log"
        self.logger.info(f"Job {job.jobid} goes on as SLURM job {number} (log: {log}).")
        taken = plugin.SubmittedJobInfo(job, external_jobid=number, aux={"slurm_logfile": log})
        self._report_job_submission_threadsafe(taken)

    def after_earlier(job: Any, params: Any, *args: Any, **settings: Any) -> str:
        number = jobs.after.get(params["comment_str"])
        after = f" --dependency=afterany:{number}" if number else ""
        return str(submit_command(job, params, *args, **settings)) + after

    executor.run_job, plugin.get_submit_command = take_or_run, after_earlier
    for name in ("query_job_status_squeue", "query_job_status_sacct"):
        setattr(plugin, name, _with_names(getattr(plugin, name), jobs.names))


def _with_names(query: Callable[[str], str], names: Sequence[str]) -> Callable[[str], str]:
    return lambda name: query(",".join([name, *names]))
