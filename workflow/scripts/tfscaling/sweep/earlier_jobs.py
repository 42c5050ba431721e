"""Jobs in Slurm's queue that an earlier start of the sweep has left: waited for, not made twice.

A snakemake that was killed leaves its jobs, which go on. The executor plugin (2.8.0) would submit
them again, beside those: two jobs that write the same files. Here a job of Snakemake takes its job
of Slurm instead, by the comment that the plugin gives it.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tfscaling.records import attempts, earlier
from tfscaling.sweep import slurm_limits

#: Slurm's words for a job that has ended; all others are of one that will run, or runs.
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"),
}
_RUNS = {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING"}
#: For so long jobs are waited for that are completing.
COMPLETING_S = 60
#: So often a queue that Slurm does not show is asked for, and so long after another.
ASKED, ASKED_AGAIN_S = 3, 5.0
#: Clocks of hosts and file servers differ by less.
_CLOCKS_S = 60.0


class Queued(NamedTuple):
    """A job in Slurm's queue; `start` is in seconds since the epoch, where it is known."""

    number: str
    state: str
    name: str
    start: float | None
    comment: str


class SilentQueueError(RuntimeError):
    """Slurm does not show its queue."""


def in_queue(
    workdir: str, clusters: Iterable[str | None], sleep: Callable[[float], None] = time.sleep
) -> list[Queued]:
    """The user's jobs that were submitted from `workdir`.

    Raises SilentQueueError: jobs of an earlier start that nobody sees would be made twice.
    """
    lines = (line.strip().split("|", 5) for cluster in clusters for line in _queue(cluster, sleep))
    return [
        Queued(number, state, name, _epoch(start), comment)
        for number, state, name, start, folder, comment in (w for w in lines if len(w) == 6)
        if folder == workdir
    ]


def _queue(cluster: str | None, sleep: Callable[[float], None]) -> list[str]:
    """The lines of a cluster's queue."""
    of_cluster = [f"--clusters={cluster}"] if cluster else []
    options = ("--me", "--noheader", "--states=all", "--format=%i|%T|%j|%S|%Z|%k")
    why = ""
    for number in range(ASKED):
        if number:
            sleep(ASKED_AGAIN_S)
        try:
            done = slurm_limits.run("squeue", *of_cluster, *options)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
            continue
        if done.returncode == 0:
            return done.stdout.splitlines()
        why = done.stderr or f"exit status {done.returncode}"
    raise SilentQueueError(
        f"Slurm does not show its queue, in which jobs of an earlier start may be: "
        f"{' '.join(why.split())}; start again when `squeue --me` answers"
    )


def settled(
    look: Callable[[], list[Queued]],
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[Queued]:
    """What `look` finds in the queue when no job in it is completing, or after `COMPLETING_S`.

    A job that Slurm is about to start again is completing, too, and only then pending. One that
    has been completing all the time, or that the queue has no more, counts as completed. `say`
    prints a line if there is one to wait for.
    """
    start_s = clock()
    seen = {job.number: job for job in look()}
    always = _completing(seen.values())
    if always:
        say(
            f"waiting for Slurm to end job {', '.join(sorted(always))} of an earlier start, or to "
            f"start it again, up to {COMPLETING_S} s"
        )
    while _completing(seen.values()) and clock() < start_s + COMPLETING_S:
        sleep(1.0)
        found = {job.number: job for job in look()}
        seen = {number: _completed(job) for number, job in seen.items()} | found
        always &= _completing(found.values())
    return [_completed(job) if job.number in always else job for job in seen.values()]


def _completed(job: Queued) -> Queued:
    return job if job.state in _ENDED else job._replace(state="COMPLETED")


def _completing(jobs: Iterable[Queued]) -> set[str]:
    return {job.number for job in jobs if job.state == "COMPLETING"}


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
        #: Of several jobs of a comment the last one that is to come, or else the last one.
        self._left = {
            job.comment: job
            for job in sorted(queue, key=lambda job: (job.state not in _ENDED, _number(job)))
            if job.state not in _ENDED or job.state == "COMPLETED"
        }
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
        return sum(job.state not in _ENDED for job in self._left.values())

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
        if job.state == "COMPLETED":
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
        spec = _last_spec(output)
        if spec is None or job.start is None:
            return False
        return spec.stat().st_mtime > job.start - _CLOCKS_S and self.is_of_other_settings(output)

    def is_of_other_settings(self, output: str) -> bool:
        """Whether the last attempt at this output was made with another specification.

        A job that was pending reads the configuration files that its own start was given.
        """
        planned, spec = self._specification(output), _last_spec(output)
        return planned is not None and spec is not None and spec.read_text() != planned


def _last_spec(output: str) -> Path | None:
    folder = Path(output).parent
    begun = attempts.numbers(folder)
    spec = attempts.path(folder, begun[-1]) / attempts.SPEC if begun else None
    return spec if spec and spec.exists() else None


def _number(job: Queued) -> int:
    found = re.match(r"\d+", job.number)
    return int(found[0]) if found else 0


def install(plugin: Any, jobs: EarlierJobs) -> None:
    """Let the plugin's executor take these `jobs` instead of submitting theirs again."""
    if not jobs.names:
        return
    executor = plugin.Executor
    run_job, submit_command = executor.run_job, plugin.get_submit_command
    report_success = executor.report_job_success
    taken_numbers: set[str] = set()

    def take(self: Any, job: Any) -> bool:
        wildcards = plugin.get_job_wildcards(job)
        comment = f"rule_{job.name}_wildcards_{wildcards}"
        output = str(next(iter(job.output), ""))
        was_missing = output in map(str, job.dag.reason(job).missing_output)
        number = jobs.take(comment, output, was_missing)
        if number is None:
            return False
        taken_numbers.add(number)
        log = self.slurm_logdir / f"rule_{job.name}" / wildcards / f"{number}.log"
        self.logger.info(f"Job {job.jobid} goes on as SLURM job {number} (log: {log}).")
        taken = plugin.SubmittedJobInfo(job, external_jobid=number, aux={"slurm_logfile": log})
        self._report_job_submission_threadsafe(taken)
        return True

    def take_or_run(self: Any, job: Any) -> None:
        try:
            is_taken = not job.is_group() and take(self, job)
        except Exception as error:  # in this thread nobody would hear of it
            self._report_job_error_threadsafe(plugin.SubmittedJobInfo(job), str(error))
            return
        if not is_taken:
            run_job(self, job)

    def after_earlier(job: Any, params: Any, *args: Any, **settings: Any) -> str:
        number = jobs.after.get(params["comment_str"])
        after = f" --dependency=afterany:{number}" if number else ""
        return str(submit_command(job, params, *args, **settings)) + after

    def report_if_planned(self: Any, submitted: Any) -> None:
        number = str(submitted.external_jobid)
        if number not in taken_numbers:
            report_success(self, submitted)
            return
        output = Path(str(next(iter(submitted.job.output), "")))
        try:
            earlier.drop(output)
            is_planned = not jobs.is_of_other_settings(str(output))
            if not is_planned:
                output.unlink(missing_ok=True)  # its attempt keeps it
        except OSError as error:
            self.report_job_error(submitted, msg=f"{error}. ")
            return
        if is_planned:
            report_success(self, submitted)
            return
        why = f"SLURM job {number} of an earlier start has made {output} with other settings"
        self.report_job_error(submitted, msg=f"{why}. ")

    executor.run_job, plugin.get_submit_command = take_or_run, after_earlier
    executor.report_job_success = report_if_planned
    for name in ("query_job_status_squeue", "query_job_status_sacct"):
        setattr(plugin, name, _with_names(getattr(plugin, name), jobs.names))


def _with_names(query: Callable[[str], str], names: Sequence[str]) -> Callable[[str], str]:
    return lambda name: query(",".join([name, *names]))
