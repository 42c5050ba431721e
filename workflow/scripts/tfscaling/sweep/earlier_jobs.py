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

from tfscaling.records import attempts
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
    look: Callable[[], list[Queued]], sleep: Callable[[float], None] = time.sleep
) -> list[Queued]:
    """What `look` finds in the queue when no job that it found completing first is so any more.

    A job that Slurm is about to start again is completing, too, and only then pending. After
    `COMPLETING_S` it counts as ended.
    """
    found = look()
    completing = {job.number for job in found if job.state == "COMPLETING"}
    for _ in range(COMPLETING_S):
        if not any(job.state == "COMPLETING" for job in found if job.number in completing):
            break
        sleep(1.0)
        found = look()
    return found


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

        `was_missing` says whether the output was missing when Snakemake planned its jobs. A job
        that runs with another specification than the planned one makes something else: its number
        is then in `after`.
        """
        job = self._left.pop(comment, None)
        if job is None:
            return None
        if job.state in _JUST_ENDED:
            return job.number if was_missing and Path(output).exists() else None
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


def install(plugin: Any, earlier: EarlierJobs) -> None:
    """Let the plugin's executor take `earlier` jobs instead of submitting theirs again."""
    if not earlier.names:
        return
    executor = plugin.Executor
    run_job, submit_command = executor.run_job, plugin.get_submit_command

    def take_or_run(self: Any, job: Any) -> None:
        wildcards = plugin.get_job_wildcards(job)
        comment = f"rule_{job.name}_wildcards_{wildcards}"
        output = str(next(iter(job.output), ""))
        was_missing = output in map(str, job.dag.reason(job).missing_output)
        number = earlier.take(comment, output, was_missing)
        if number is None:
            run_job(self, job)
            return
        log = self.slurm_logdir / f"rule_{job.name}" / wildcards / f"{number}.log"
        self.logger.info(f"Job {job.jobid} goes on as SLURM job {number} (log: {log}).")
        taken = plugin.SubmittedJobInfo(job, external_jobid=number, aux={"slurm_logfile": log})
        self._report_job_submission_threadsafe(taken)

    def after_earlier(job: Any, params: Any, *args: Any, **settings: Any) -> str:
        number = earlier.after.get(params["comment_str"])
        after = f" --dependency=afterany:{number}" if number else ""
        return str(submit_command(job, params, *args, **settings)) + after

    executor.run_job, plugin.get_submit_command = take_or_run, after_earlier
    for name in ("query_job_status_squeue", "query_job_status_sacct"):
        setattr(plugin, name, _with_names(getattr(plugin, name), earlier.names))


def _with_names(query: Callable[[str], str], names: Sequence[str]) -> Callable[[str], str]:
    return lambda name: query(",".join([name, *names]))
