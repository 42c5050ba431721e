"""Jobs of an earlier start in Slurm's queue, and jobs that Slurm no longer lists."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from snakemake_interface_common.exceptions import WorkflowError

from .slurm_client import NoAnswer, QueuedJob, SlurmClient

#: States of a failed job. A preempted job may start again.
FAILED = {
    *("BOOT_FAIL", "CANCELLED", "DEADLINE", "ERROR", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "RECONFIG_FAIL", "TIMEOUT"),
}
#: States of a job that waits until somebody releases it; others are pending with such a reason.
HELD = ("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
#: State of a job that another cluster of a federation has started. It does not change when the job
#: ends there.
REVOKED = "REVOKED"
#: State of a job that Slurm no longer lists and whose end is not known. Slurm has no such word.
GONE = "GONE"
COMPLETED, COMPLETING, PENDING, PREEMPTED = "COMPLETED", "COMPLETING", "PENDING", "PREEMPTED"
_T = TypeVar("_T")
_ENDED = {*FAILED, COMPLETED, PREEMPTED}
_RUNNING = {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING"}
#: Beginning of the text by which a job is recognised in its comment, and the end of its name.
COMMENT_PREFIX = "rule_"
#: An executor's text in a comment: a job's, or the folder and options of an allocation.
_MARKED = re.compile(r"\{\{((?:rule_|/).*?)\}\}")
_NAME = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
#: Longest wait for jobs that are completing.
COMPLETING_S = 60.0
#: Number of queries of a queue that Slurm does not show, and the pause in seconds between them.
QUERIES, PAUSE_S = 3, 5.0


#: A job is gone if at least this many answers over at least this many seconds do not list it.
ABSENT_ANSWERS, ABSENT_S = 3, 60.0


class Absences:
    """Counts for each job how many answers of Slurm do not list it, and decides when it is gone.

    A single answer is no evidence: a restarted controller, or a program that caches Slurm's
    answers, may list no job.
    """

    def __init__(self) -> None:
        self._answers: dict[str, int] = {}
        self._since_s: dict[str, float] = {}

    def count_absence(self, number: str, now_s: float) -> bool:
        """Count one more answer that does not list a job; return whether the job is now gone.

        Args:
            number: The job's number.
            now_s: Present time on a monotonic clock, in seconds.
        """
        self._answers[number] = self._answers.get(number, 0) + 1
        since_s = self._since_s.setdefault(number, now_s)
        return self._answers[number] >= ABSENT_ANSWERS and now_s - since_s >= ABSENT_S

    def mark_listed(self, number: str) -> None:
        """Reset the count for a job that Slurm lists."""
        self._answers.pop(number, None)
        self._since_s.pop(number, None)


def has_ended(job: QueuedJob) -> bool:
    """Return whether the job has ended; False for a preempted job, which may start again."""
    return job.state in _ENDED


def is_running(job: QueuedJob) -> bool:
    """Return whether the job has begun and has not ended."""
    return job.state in _RUNNING


def mark_comment(text: str) -> str:
    """Return the text between marks, as a job's comment; a site may add text outside the marks."""
    return "{{" + text + "}}"


def executor_text(comment: str) -> str:
    """Return the part of a job's comment between the marks of `mark_comment`.

    It identifies what an executor submitted. For a job it has the rule and the wildcards, such as
    `rule_train/cpu/x/1`; for an allocation, the folder and the options of sbatch.

    Args:
        comment: The job's comment in Slurm; a site may have added text outside the marks.

    Returns:
        "" if the comment has no such part.
    """
    return marked[1] if (marked := _MARKED.search(comment)) else ""


def has_other_comment(job: QueuedJob) -> bool:
    """Return whether an executor submitted a job, but its comment lacks the text of this executor.

    The executor is recognised by the job's name. The site has replaced the comment, or the plain
    Slurm executor has submitted the job.
    """
    return bool(_NAME.search(job.name)) and not executor_text(job.comment)


def refuse_unknown_jobs(jobs: Iterable[QueuedJob]) -> None:
    """Raise an error if unfinished jobs lack the comments of this executor.

    Without their comments, jobs of an earlier start cannot be assigned to their runs. The runs
    would be submitted twice.

    Args:
        jobs: The jobs that were submitted from the folder of this start.

    Raises:
        WorkflowError: There is such a job.
    """
    if unknown := [job for job in jobs if not has_ended(job) and has_other_comment(job)]:
        numbers = " ".join(job.number for job in unknown)
        raise WorkflowError(
            f"{len(unknown)} jobs of an earlier start are in Slurm's queue with other comments, "
            f"such as {unknown[0].comment!r}: the site changed them, or `--executor slurm` "
            f"submitted the jobs. Which runs they make is not known. Wait for them, or end them: "
            f"scancel {numbers}"
        )


def query_jobs(
    workdir: str, slurm: SlurmClient, sleep: Callable[[float], None] = time.sleep
) -> list[QueuedJob]:
    """Return the user's jobs that were submitted from a directory.

    Args:
        workdir: The directory.
        slurm: Calls Slurm's programs.
        sleep: Waits for a number of seconds.

    Raises:
        WorkflowError: Slurm does not show its queue; jobs could be submitted twice.
    """
    jobs = require_answer(
        lambda: confirm_empty_answer(slurm.jobs, sleep), "jobs of an earlier start", sleep
    )
    return [job for job in jobs if job.workdir == workdir]


def require_answer(
    query: Callable[[], _T | NoAnswer],
    what: str,
    sleep: Callable[[float], object] = time.sleep,
) -> _T:
    """Return the first answer of `query`, which is called up to `QUERIES` times.

    Args:
        query: Returns the answer, or NoAnswer.
        what: What may be in the queue, for the message.
        sleep: Waits for a number of seconds.

    Raises:
        WorkflowError: Slurm does not answer.
    """
    why = ""
    for number in range(QUERIES):
        if number:
            sleep(PAUSE_S)
        answer = query()
        if not isinstance(answer, NoAnswer):
            return answer
        why = answer.why
    raise WorkflowError(
        f"Slurm does not show its queue, in which {what} may be: "
        f"{why}; start again when `squeue --me` answers"
    )


def confirm_empty_answer(
    query: Callable[[], list[_T] | NoAnswer], sleep: Callable[[float], object]
) -> list[_T] | NoAnswer:
    """Call `query`, and once more if its answer lists nothing; return the last answer.

    Args:
        query: Returns the jobs or steps in the queue, or NoAnswer.
        sleep: Waits for a number of seconds.
    """
    answer = query()
    if isinstance(answer, NoAnswer) or answer:
        return answer
    sleep(PAUSE_S)
    return query()


def wait_for_completing(
    query: Callable[[], list[QueuedJob]],
    log: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[QueuedJob]:
    """Wait until no job in the queue has the state COMPLETING, and return the jobs.

    A job that Slurm is about to restart has this state before it is pending. Jobs that still have
    it after `COMPLETING_S` seconds count as completed. So do jobs that have left the queue.

    Args:
        query: Returns the jobs in the queue.
        log: Logs a line.
        sleep: Waits for a number of seconds.
        clock: Returns the present time in seconds.
    """
    begun_s = clock()
    seen = {job.number: job for job in query()}
    always = _completing_numbers(seen.values())
    if always:
        log(
            f"waiting up to {COMPLETING_S:g} s for Slurm to end or restart "
            f"job {', '.join(sorted(always))} of an earlier start"
        )
    while _completing_numbers(seen.values()) and clock() < begun_s + COMPLETING_S:
        sleep(1.0)
        found = {job.number: job for job in query()}
        seen = {number: _as_completed(job) for number, job in seen.items()} | found
        always &= _completing_numbers(found.values())
    return [_as_completed(job) if job.number in always else job for job in seen.values()]


def _as_completed(job: QueuedJob) -> QueuedJob:
    """Return an ended job unchanged; any other job with the state COMPLETED."""
    return job if has_ended(job) else job._replace(state=COMPLETED)


def _completing_numbers(jobs: Iterable[QueuedJob]) -> set[str]:
    """Return the numbers of the jobs that are completing."""
    return {job.number for job in jobs if job.state == COMPLETING}


def map_by_comment(jobs: Iterable[QueuedJob]) -> dict[str, QueuedJob]:
    """Return the executor's text in the comment → the job to adopt or to wait for.

    Jobs without such a text are left out. If several jobs have the same text, the last unfinished
    one is chosen, else the last completed one.
    """
    # by number, also of the array `17_[1-4]`
    numbered = {job: int(re.split(r"\D", job.number)[0] or 0) for job in jobs}
    ordered = sorted(numbered, key=lambda job: (not has_ended(job), numbered[job]))
    kept = (job for job in ordered if not has_ended(job) or job.state == COMPLETED)
    return {text: job for job in kept if (text := executor_text(job.comment))}
