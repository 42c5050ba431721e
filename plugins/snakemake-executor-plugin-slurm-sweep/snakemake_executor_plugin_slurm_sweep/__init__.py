"""Executor plugin of Snakemake: Slurm, for sweeps of many measured runs.

It extends the executor of snakemake-executor-plugin-slurm 2.8.0; why: plugins/upstream/README.md.

- Jobs enter the queue by priority, one after the other.
- After a refusal that is temporary, the submission is repeated: a busy controller, the site's limit
  of queued jobs.
- A submission whose answer was lost is looked for by its comment, and never repeated blindly.
- Jobs in the queue of an earlier, killed Snakemake are adopted, and not submitted again.
- Ctrl-C cancels every job, also a job that is just being submitted or queried. Until then, the
  executor can name the jobs that are left.
- SIGTERM ends the submission: jobs that Slurm does not have yet are left for the next start.
- A query without an answer forgets no job; a job is gone if several answers do not have it.
- The next attempt of a run starts after Slurm has ended the job of the previous one.
- The workflow's `Sweep` gets Slurm's refusals, and decides about retries and excluded nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import re
import shlex
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import snakemake_executor_plugin_slurm as upstream
from snakemake_executor_plugin_slurm import common_settings
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from . import queue
from .slurm_client import (
    CONNECTION_VARIABLES,
    PAUSES_S,
    NoAnswer,
    QueuedJob,
    RefusalKind,
    SlurmClient,
    Submitted,
    submission_options,
)

__all__ = ["Executor", "ExecutorSettings", "Sweep", "common_settings"]

ExecutorSettings = upstream.ExecutorSettings

#: Seconds from the first query until reasons of waiting jobs are logged: most jobs start soon.
REASONS_AFTER_S = 15.0
#: Longest pause between two queries in seconds; and the seconds by which pauses grow while no job
#: ends. Slurm forgets an ended job after MinJobAge, in which there are `QUERIES_PER_AGE` queries.
PAUSE_MAX_S, PAUSE_STEP_S, QUERIES_PER_AGE = 180.0, 10.0, 3
#: Seconds after which Slurm does not restart a preempted job any more.
PREEMPTED_S = 60.0
#: Highest number of jobs in one command line of scancel.
CANCELLED_AT_ONCE = 1000
#: Seconds until a job that exceeds the site's limit is submitted again, if no own job ends before.
LIMIT_PERIOD_S = 60.0
#: Seconds for which a job is looked for if sbatch did not print its number.
LOST_NUMBER_S = 60.0
#: Slurm's reasons of waiting jobs that need no message. Slurm delays a requeued job for two minutes
#: (BeginTime).
_TEMPORARY_REASONS = ("Resources", "Priority", "Dependency", "BeginTime", "Prolog", "Cleaning")


class Sweep:
    """Methods of the workflow that the executor calls; the defaults do nothing.

    In all methods `output` is the first output file of a job and `number` its number in Slurm. For
    a step of an allocation the number is JOB.STEP, or the name of a step that did not begin.
    """

    def is_finished(self, output: Path, number: str) -> bool:
        """Return whether a job that Slurm reports as failed has written its results nevertheless.

        Args:
            output: The job's first output file.
            number: The job's number in Slurm.
        """
        return False

    def report_failure(self, output: Path, number: str, state: str, log: Path) -> None:
        """Record the final state of a failed job; afterwards `is_finished` may be True.

        Args:
            output: The job's first output file.
            number: The job's number.
            state: The state in Slurm's words; `queue.GONE` if Slurm no longer lists the job.
            log: The job's log.
        """

    def has_permanent_failure(self, output: Path) -> bool:
        """Return whether another attempt at the job of `output` would fail for the same cause."""
        return False

    def nodes_to_avoid(self, output: Path) -> Collection[str]:
        """Return the nodes that lacked GPUs; another attempt at `output` must avoid them."""
        return ()

    def report_refusal(self, output: Path, words: str) -> None:
        """Record why sbatch refused the job that makes `output`; `words` is Slurm's message."""


class SubmissionError(Exception):
    """sbatch has refused a job for good, or the job's number is lost (`LostJobError`).

    Args:
        message: For a refusal, Slurm's message and the environment variables that set options of
            sbatch. For a lost number, what sbatch printed and what happens to the job.
        call: The shell line with sbatch.

    Attributes:
        call: The shell line with sbatch.
    """

    def __init__(self, message: str, call: str) -> None:
        super().__init__(message)
        self.call = call


class LostJobError(SubmissionError):
    """sbatch has submitted a job whose number cannot be found.

    It must not be submitted again: both jobs could run at the same time.
    """


class Executor(upstream.Executor):  # type: ignore[misc]  # upstream has no types
    """Snakemake's Slurm executor, which also reports what happens to the jobs of a sweep.

    `follow` sets the `Sweep` to report to. Without it, reports go nowhere.
    """

    _sweep = Sweep()
    #: Text in a job's comment → job of an earlier start.
    _earlier: dict[str, QueuedJob] = {}
    #: The names by which Slurm lists these jobs.
    _names: tuple[str, ...] = ()
    #: The executor of this process; None before Snakemake has made it.
    _current: Executor | None = None
    slurm = SlurmClient()
    next_seconds_between_status_checks: float
    #: States in which a job has failed; Slurm does not restart it.
    _failed_states = frozenset({*queue.FAILED, queue.PREEMPTED, queue.GONE})

    @classmethod
    def follow(cls, sweep: Sweep, workdir: str, log: Callable[[str], None]) -> None:
        """Use the methods of `sweep`, and find jobs of earlier starts in Slurm's queue.

        Call it before jobs are submitted.

        Args:
            sweep: The workflow's callbacks.
            workdir: The working directory of Snakemake.
            log: Logs a line.

        Raises:
            WorkflowError: Slurm does not show its queue, or it has jobs with changed comments.
        """
        found = queue.wait_for_completing(lambda: queue.query_jobs(workdir, cls.slurm), log)
        queue.refuse_unknown_jobs(found)
        cls._sweep, cls._earlier = sweep, queue.map_by_comment(found)
        cls._names = tuple(sorted({job.name for job in cls._earlier.values()}))
        if unfinished := sum(not queue.has_ended(job) for job in cls._earlier.values()):
            log(
                f"{unfinished} jobs of an earlier start are in Slurm's queue: they continue "
                "and are not submitted again"
            )

    @classmethod
    def stop_submissions(cls) -> None:
        """Submit no further jobs; submitted jobs continue.

        Snakemake counts jobs that wait for their submission as running, and would wait for them
        without this call.
        """
        if (executor := Executor._current) is not None:
            executor._is_stopped.set()
            executor._job_has_ended.set()

    @classmethod
    def describe_remaining(cls) -> str:
        """Return which jobs Slurm may still run, with the command that cancels them; "" if none."""
        return "" if Executor._current is None else Executor._current._describe_remaining()

    def __init__(self, workflow: Any, logger: Any) -> None:
        # upstream deletes all variables of Slurm inside a job
        names = (name for name in CONNECTION_VARIABLES if name in os.environ)
        self._connection = {name: os.environ[name] for name in names}
        # Snakemake's thread may query jobs before `__post_init__`
        self._is_cancelled = threading.Event()
        #: Nothing more is submitted, whether jobs are cancelled or not.
        self._is_stopped = threading.Event()
        #: Jobs of Snakemake that still wait in the thread of submissions.
        self._unsubmitted: set[Any] = set()
        super().__init__(workflow, logger)

    def __post_init__(self, test_mode: bool = False) -> None:
        """Prepare the thread of submissions and the first query; Snakemake calls this once."""
        os.environ.update(self._connection)
        super().__post_init__(test_mode)
        self._submitter = ThreadPoolExecutor(1, thread_name_prefix="slurm_submit")
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Jobs that Slurm has, by number. `active_jobs` is empty while Slurm is queried.
        self._submitted: dict[str, SubmittedJobInfo] = {}
        self._adopted: set[str] = set()
        #: Numbers of jobs that Slurm has been told to cancel; and whether that holds for all jobs
        #: of this start, also for those without a known number.
        self._cancelled: set[str] = set()
        self._has_cancelled_all = False
        #: Text in a comment → number of the previous job, after whose end the next one starts.
        self._after: dict[str, str] = {}
        #: All numbers that this start knows, also of jobs that have ended.
        self._numbers: set[str] = set()
        #: Outputs of jobs that must not be submitted again.
        self._lost: set[Path] = set()
        self._job_has_ended = threading.Event()
        self._is_silent = False
        self._absences = queue.Absences()
        #: Number → when an adopted job without output was first found completed.
        self._completed_since_s: dict[str, float] = {}
        #: When jobs were first found preempted.
        self._preempted_since_s: dict[str, float] = {}
        self._first_query_s: float | None = None
        #: Reasons of waiting jobs that were logged; and (reason, number) of held jobs, which each
        #: need a command of the user.
        self._told: set[str] = set()
        self._told_held: set[tuple[str, str]] = set()
        #: Longest pause between two queries here; None before Slurm has shown its settings.
        self._pause_max_s: float | None = None
        Executor._current = self

    # Submission

    def additional_general_args(self) -> str:
        """Return the option with which the Snakemake inside a job runs the rule's command itself.

        With upstream's option it would start a job step with a second Snakemake, which takes two
        seconds of CPU time.
        """
        return "--executor local"

    def run_jobs(self, jobs: Sequence[Any]) -> None:
        """Submit jobs in a thread, one after the other, by descending priority.

        The call returns at once.
        """
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self._unsubmitted.update(jobs)
        for job in sorted(jobs, key=lambda job: -job.priority):
            self.run_job_pre(job)
            submission = self._submitter.submit(self.run_job, job)
            submission.add_done_callback(partial(self._end_submission, job))

    def _end_submission(self, job: Any, submission: Future[None]) -> None:
        """Record that a job waits no longer, and end the sweep after an unexpected error.

        Otherwise Snakemake would wait for this job for ever. The next start adopts jobs in the
        queue.

        Args:
            job: Snakemake's job.
            submission: The finished call of `run_job`.
        """
        self._unsubmitted.discard(job)
        if not submission.cancelled() and (error := submission.exception()):
            self.workflow.scheduler.executor_error_callback(error)

    def run_job(self, job: Any) -> None:
        """Adopt a job of an earlier start or submit a new one, and report it to Snakemake.

        Waits while Slurm accepts no jobs.
        """
        try:
            if self._is_cancelled.is_set():
                return
            # a job of an earlier start may have ended since Snakemake planned its jobs
            output = output_of(job)
            was_missing = str(output) in map(str, self.dag.reason(job).missing_output)
            if was_missing and output.exists():
                self._call_in_loop(super().report_job_success, SubmittedJobInfo(job))
                return
            info = self._adopt(job) or self._submit(job)
        except SubmissionError as error:
            if isinstance(error, LostJobError):
                self._lost.add(output_of(job))
            self._sweep.report_refusal(output_of(job), str(error))
            message = f"sbatch refused the job: {error}\n    sbatch call:\n        {error.call}\n"
            self._call_in_loop(self.report_job_error, SubmittedJobInfo(job), message)
            return
        except Exception as error:
            message = f"the job was not submitted: {error}. "
            self._call_in_loop(self.report_job_error, SubmittedJobInfo(job), message)
            return
        if info is not None:
            self._numbers.add(info.external_jobid)
            self._submitted[info.external_jobid] = info
            self._call_in_loop(self.report_job_submission, info)
        elif not self._is_cancelled.is_set():
            self._leave_to_next_start(job)

    def _leave_to_next_start(self, job: Any) -> None:
        """End a job that was not submitted, without a message; the next start submits it."""
        self._lost.add(output_of(job))
        self._call_in_loop(self.workflow.scheduler.error_callback, job)

    def _call_in_loop(self, report: Callable[..., None], *arguments: Any) -> None:
        """Call a function of Snakemake in the thread of its event loop; in this thread without one.

        Args:
            report: The function, such as `report_job_error`.
            *arguments: Its arguments.
        """
        if self._loop is None:
            report(*arguments)
        else:
            self._loop.call_soon_threadsafe(report, *arguments)

    def _submit(self, job: Any) -> SubmittedJobInfo | None:
        """Submit a job and return Snakemake's record of it; None if submissions are stopped.

        Raises:
            SubmissionError: Slurm refuses the job for good.
        """
        log = self._log_path(job, "%j")
        log.parent.mkdir(parents=True, exist_ok=True)
        # what is not named, Slurm takes from the user's environment or its defaults
        partition, comment = job.resources.get("slurm_partition"), comment_of(job)
        accounts = str(job.resources.get("slurm_account") or "").replace(",", " ").split()
        params = {
            "run_uuid": self.run_uuid,
            "slurm_logfile": log,
            "comment_str": queue.mark_comment(comment),
            "account": f" -A {shlex.quote(accounts[0])}" if accounts else "",
            "partition": f" -p {shlex.quote(str(partition))}" if partition else "",
            "workdir": self.workflow.workdir_init,
        }
        settings = self.executor_settings
        failed = {node.strip() for node in (settings.exclude_failed_nodes or "").split(",")} - {""}
        call = get_submit_command(job, params, settings=settings, failed_nodes=failed)
        call += gres_option(job.resources.get("gres"))
        if hosts := self._sweep.nodes_to_avoid(output_of(job)):
            # sbatch uses the last one of several such options
            call += f" --exclude={shlex.quote(','.join([*excluded_nodes(call), *hosts]))}"
        if number := self._after.get(comment):
            others = _last_option_value(call, "--dependency", "-d")
            call += f" --dependency={shlex.quote(','.join([*others, f'afterany:{number}']))}"
        command, script = self.format_job_exec(job), None
        if settings.pass_command_as_script:
            call, script = f"{call} /dev/stdin", f"#!/bin/sh\n{command}\n"
        else:
            call += f" --wrap={shlex.quote(command)}"
        number = self._submit_until_accepted(call, script, comment)
        if number is None:
            return None
        self._after[comment] = number
        log = self._log_path(job, number)
        self.logger.info(
            f"Job {job.jobid} has been submitted with SLURM jobid {number} (log: {log})."
        )
        return SubmittedJobInfo(job, external_jobid=number, aux={"slurm_logfile": log})

    def _submit_until_accepted(self, call: str, script: str | None, comment: str) -> str | None:
        """Submit a job until Slurm accepts it, and return its number.

        Args:
            call: The shell line with sbatch.
            script: The job's script; None if it is in `call`.
            comment: The text in the job's comment, by which it is found if Slurm's answer was lost.

        Returns:
            None if submissions are stopped.

        Raises:
            SubmissionError: Slurm refuses the job for good.
            LostJobError: Slurm has the job, but its number cannot be found.
        """
        pauses_s = itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1]))
        has_warned = False
        while not self._is_stopped.is_set():
            self._job_has_ended.clear()
            answer = self.slurm.submit(call, script)
            if isinstance(answer, Submitted):
                return answer.number or self._number_by_comment(comment, answer.printed, call)
            if answer.kind is RefusalKind.FINAL:
                raise SubmissionError(answer.words + describe_environment_options(), call)
            if answer.kind is RefusalKind.QUEUE_LIMIT:
                self._log_limit(answer.words)
                if not self._is_stopped.is_set():
                    self._job_has_ended.wait(LIMIT_PERIOD_S)
                continue
            if not has_warned:
                has_warned = True
                self.logger.warning(
                    f"Slurm does not take jobs now ({answer.words}); the submission is repeated"
                )
            # Slurm may have accepted the job although its answer was lost
            found: str | NoAnswer | None = NoAnswer("")
            while isinstance(found, NoAnswer):
                is_last = self._is_stopped.wait(next(pauses_s))
                if self._is_cancelled.is_set():
                    return None
                found = self._find_by_comment(comment)
                if isinstance(found, NoAnswer) and is_last:
                    return None  # the next start adopts it, if Slurm has it
            if found is not None:
                return found
        return None

    def _find_by_comment(self, comment: str) -> str | NoAnswer | None:
        """Look up a submitted job whose number is not known yet; return its number.

        The job has this comment, unless the site replaces comments. Then it is the last job with a
        replaced comment, because jobs are submitted one after the other.

        Returns:
            None if Slurm lists no such job; NoAnswer without an answer.
        """
        jobs = queue.confirm_empty_answer(
            lambda: self.slurm.jobs(names=[self.run_uuid]), self._is_cancelled.wait
        )
        if isinstance(jobs, NoAnswer):
            return jobs
        numbers = [job.number for job in jobs if queue.has_other_comment(job)]
        numbers += [job.number for job in jobs if queue.executor_text(job.comment) == comment]
        return next((n for n in reversed(numbers) if n not in self._numbers), None)

    def _number_by_comment(self, comment: str, printed: str, call: str) -> str | None:
        """Return the number of a job for which sbatch printed none; None after a cancellation.

        squeue is queried for `LOST_NUMBER_S` seconds.

        Args:
            comment: The text in the job's comment.
            printed: What sbatch printed.
            call: The shell line with sbatch.

        Raises:
            LostJobError: Slurm does not list the job.
        """
        until_s = time.monotonic() + LOST_NUMBER_S
        for pause_s in itertools.chain((0.0,), itertools.repeat(PAUSES_S[0])):
            if self._is_cancelled.wait(pause_s):
                return None
            found = self._find_by_comment(comment)
            if isinstance(found, str):
                return found
            if found is None and time.monotonic() >= until_s:
                break
        words = (
            f"sbatch ended without an error, but printed no number of a job ({printed!r}), and "
            f"squeue lists no job named {self.run_uuid} for it; it is not submitted again"
        )
        raise LostJobError(words, call)

    def _log_limit(self, words: str) -> None:
        """Log once that the site's limit of jobs is reached, with the number of submitted jobs.

        Args:
            words: Slurm's message.
        """
        if "limit" not in self._told:
            self._told.add("limit")
            number = len(self._submitted)
            self.logger.warning(
                f"Slurm takes no more jobs than {number} of this sweep now ({words}); the others "
                "are submitted as these end"
            )

    def _log_path(self, job: Any, number: str) -> Path:
        """Return the path of the log that Slurm writes for a job.

        Args:
            job: Snakemake's job.
            number: The job's number, or `%j`, which sbatch replaces by the number.
        """
        kind = "group" if job.is_group() else "rule"
        folder = Path(self.slurm_logdir, f"{kind}_{job.name}", *_quoted_wildcards(job))
        return folder / f"{number}.log"

    # Jobs of an earlier start

    def _adopt(self, job: Any) -> SubmittedJobInfo | None:
        """Return the queued or running Slurm job that an earlier start submitted; None without one.

        Args:
            job: Snakemake's job.
        """
        comment = comment_of(job)
        earlier = None if job.is_group() else self._earlier.pop(comment, None)
        if earlier is None or queue.has_ended(earlier):
            return None
        self._adopted.add(earlier.number)
        self._after[comment] = earlier.number
        log = self._log_path(job, earlier.number)
        self.logger.info(f"Job {job.jobid} continues as SLURM job {earlier.number} (log: {log}).")
        return SubmittedJobInfo(job, external_jobid=earlier.number, aux={"slurm_logfile": log})

    # Ends of jobs

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        """Report a successful job to Snakemake; report an adopted job without output as failed."""
        number = self._remove_submitted(job_info)
        output = output_of(job_info.job)
        if number in self._adopted and not output.exists():
            # Snakemake would wait for it and follow no other job meanwhile. The command of a
            # pending job needs a folder that its own start removes when it ends.
            log = Path(job_info.aux["slurm_logfile"])
            self._sweep.report_failure(output, number, queue.COMPLETED, log)
            text = f"SLURM job {number} of an earlier start left no {output}. "
            super().report_job_error(job_info, msg=text)
            return
        super().report_job_success(job_info)

    def report_job_error(
        self, job_info: SubmittedJobInfo, msg: str | None = None, **details: Any
    ) -> None:
        """Report a failed job to Snakemake, and remove it from the submitted jobs.

        Args:
            job_info: Snakemake's record of the job.
            msg: A message for the log.
            **details: Further arguments of Snakemake's method.
        """
        self._remove_submitted(job_info)
        super().report_job_error(job_info, msg, **details)

    def handle_job_error(self, job: Any) -> None:
        """Handle a failed job as Snakemake does, but without useless retries.

        A job is not retried if it would fail for the same cause, if Slurm may still run it, or if
        it is left to the next start.
        """
        super().handle_job_error(job)
        if output_of(job) in self._lost or self._sweep.has_permanent_failure(output_of(job)):
            job.attempt = job.restart_times + 1

    def _remove_submitted(self, info: SubmittedJobInfo) -> str:
        """Remove a job from the submitted jobs and return its number."""
        number = str(info.external_jobid)
        self._submitted.pop(number, None)
        self._job_has_ended.set()
        return number

    def _report_end(self, info: SubmittedJobInfo, state: str) -> None:
        """Report an ended job to Snakemake as success or failure.

        Args:
            info: Snakemake's record of the job.
            state: The final state in Slurm's words; `Sweep.is_finished` may overrule a failure.
        """
        output, log = output_of(info.job), info.aux["slurm_logfile"]
        number = self._number_in_slurm(info)
        has_failed = state in self._failed_states
        if has_failed and not self._sweep.is_finished(output, number):
            self._sweep.report_failure(output, number, state, Path(log))
            if not self._sweep.is_finished(output, number):
                text = f"SLURM-job '{number}' failed, SLURM status is: '{state}'. "
                if state == queue.GONE:
                    text = f"Slurm no longer lists job {number}, which left no {output}. "
                self.report_job_error(info, msg=text, aux_logs=[str(log)])
                return
        self.report_job_success(info)
        if not has_failed and not self.executor_settings.keep_successful_logs:
            with contextlib.suppress(OSError):
                log.unlink(missing_ok=True)

    def _number_in_slurm(self, info: SubmittedJobInfo) -> str:
        """Return the number by which a user finds a job in Slurm."""
        return str(info.external_jobid)

    # Queries

    async def check_active_jobs(
        self, active_jobs: Sequence[SubmittedJobInfo]
    ) -> AsyncIterator[SubmittedJobInfo]:
        """Query Slurm once, report the jobs that have ended, and yield the other jobs."""
        first_s = self.executor_settings.init_seconds_before_status_checks
        has_ended, is_missing, waiting = not active_jobs, False, []
        numbers = [str(info.external_jobid) for info in active_jobs]
        answer = await self._states(numbers) if active_jobs else {}
        judged = [(info, *self._judge_state(info, answer)) for info in active_jobs]
        gone = [info for info, state, _ in judged if state == queue.GONE]
        ends = await asyncio.to_thread(self._states_of_gone, gone) if gone else {}
        for info, state, reason in judged:
            is_missing |= answer is not None and info.external_jobid not in answer
            if state == queue.GONE:
                state = ends[info.external_jobid]
            if state == queue.COMPLETED and self._is_output_awaited(info):
                is_missing = True
                yield info
                continue
            if state in self._failed_states or state == queue.COMPLETED:
                has_ended = True
                self._report_end(info, state)
                continue
            if state in queue.HELD:
                waiting.append((state, info))
            elif state == queue.PENDING and reason not in ("", "None"):
                waiting.append((reason, info))
            yield info
        if active_jobs and answer is not None:
            self._log_waiting(waiting)
        if has_ended or is_missing or answer is None:
            self.next_seconds_between_status_checks = first_s
        else:
            pause_s = self.next_seconds_between_status_checks + PAUSE_STEP_S
            if self._pause_max_s is None:
                self._pause_max_s = await asyncio.to_thread(self._query_longest_pause_s)
            longest_s = PAUSE_MAX_S if self._pause_max_s is None else self._pause_max_s
            self.next_seconds_between_status_checks = min(pause_s, max(first_s, longest_s))

    def _query_longest_pause_s(self) -> float | None:
        """Return the longest pause between two queries in seconds; None if Slurm does not answer.

        Slurm must be queried several times while it remembers an ended job (MinJobAge).
        """
        settings = self.slurm.configuration()
        if isinstance(settings, NoAnswer):
            return None
        age = re.match(r"\d+", settings.get("MinJobAge", ""))
        if age is None or age[0] == "0":  # it forgets none
            return PAUSE_MAX_S
        return min(PAUSE_MAX_S, int(age[0]) / QUERIES_PER_AGE)

    def _is_output_awaited(self, info: SubmittedJobInfo) -> bool:
        """Return whether the output of a completed job of an earlier start may still appear.

        A shared file system may show it `--latency-wait` seconds late. Snakemake waits for the
        outputs of other jobs itself.

        Args:
            info: Snakemake's record of the job.
        """
        number, now_s = str(info.external_jobid), time.monotonic()
        if number not in self._adopted or output_of(info.job).exists():
            return False
        since_s = self._completed_since_s.setdefault(number, now_s)
        return bool(now_s - since_s < self.workflow.execution_settings.latency_wait)

    def _states_of_gone(self, infos: Sequence[SubmittedJobInfo]) -> dict[str | None, str]:
        """Return the final states of jobs that Slurm's controller no longer lists.

        A job that left its output is COMPLETED. For the others accounting is queried, whatever
        `status_command` is: the controller may have forgotten a job before a query.

        Args:
            infos: Snakemake's records of the jobs.

        Returns:
            Snakemake's number of a job → state in Slurm's words; GONE if it is not known.
        """
        states: dict[str | None, str] = {}
        numbers: dict[str | None, str] = {}
        for info in infos:
            output, number = output_of(info.job), self._number_in_slurm(info)
            if output.exists() or self._sweep.is_finished(output, number):
                states[info.external_jobid] = queue.COMPLETED
            else:
                numbers[info.external_jobid] = number
        ends = self.slurm.accounted_ends([*numbers.values()]) if numbers else {}
        for key, number in numbers.items():
            state = "" if isinstance(ends, NoAnswer) else ends.get(number, "")
            has_ended = state in queue.FAILED or state in (queue.COMPLETED, queue.PREEMPTED)
            states[key] = state if has_ended else queue.GONE
        return states

    async def _states(self, numbers: Sequence[str]) -> dict[str, tuple[str, str]] | None:
        """Return number → (state, reason) of jobs; None if Slurm does not answer.

        Jobs that Slurm does not list are missing in the result.
        """
        async with self.status_rate_limiter:
            found = await asyncio.to_thread(self._query, numbers)
        if (found is None) != self._is_silent:
            self._is_silent = found is None
            silent = "Slurm does not answer; jobs continue, and the query is repeated"
            self.logger.warning(silent if self._is_silent else "Slurm answers again")
        return found

    def _query(self, numbers: Sequence[str]) -> dict[str, tuple[str, str]] | None:
        """Query the states of jobs from Slurm; the call blocks.

        Args:
            numbers: Numbers of the jobs.

        Returns:
            Number → (state, Slurm's reason why the job waits); None if Slurm does not answer.
        """
        names, found = [self.run_uuid, *self._names], dict[str, tuple[str, str]]()
        uses_squeue = self.executor_settings.status_command == "squeue"
        if not uses_squeue:
            accounted = self.slurm.accounted_states(names)
            if isinstance(accounted, NoAnswer):
                return None
            # sacct names who has cancelled a job: CANCELLED by 0
            found = {number: (words.partition(" ")[0], "") for number, words in accounted.items()}
        waiting = ",".join((queue.PENDING, *queue.HELD))
        listed = self.slurm.jobs(names=names, states="all" if uses_squeue else waiting)
        if not isinstance(listed, NoAnswer):
            # a job that is not found by its name is asked for by its number
            known = {job.number for job in listed} | found.keys()
            if missing := [number for number in numbers if number not in known]:
                others = self.slurm.jobs(numbers=missing)
                listed = others if isinstance(others, NoAnswer) else [*listed, *others]
        if isinstance(listed, NoAnswer):
            unknown = dict.fromkeys(numbers, ("", ""))  # the database may not have them yet
            return None if uses_squeue else unknown | found
        return found | {job.number: (job.state, job.reason) for job in listed}

    def _judge_state(
        self, info: SubmittedJobInfo, answer: dict[str, tuple[str, str]] | None
    ) -> tuple[str, str]:
        """Return the state of a job, and Slurm's reason why the job waits.

        Usually the state is Slurm's. It is COMPLETED for a job that was started on another cluster
        of a federation and is finished. It is GONE for a job that the answer does not list, if the
        job is finished, or if enough answers in succession did not list it (`Absences`).

        The state is "" if nothing can be concluded yet:

        - Slurm does not answer, or its answer has no state of the job.
        - The job was preempted less than PREEMPTED_S ago, and may restart.
        - The job's node failed, and Slurm requeues the job.
        - The job was started on another cluster of a federation and is not finished.
        - The answer does not list the job, but `Absences` requires more such answers.

        Args:
            info: Snakemake's record of the job.
            answer: Number → (state, reason), from `_states`; None without an answer.
        """
        number, now_s = str(info.external_jobid), time.monotonic()
        if answer is None:
            return "", ""
        state, reason = answer.get(number, ("", ""))
        if state == queue.PREEMPTED:
            since_s = self._preempted_since_s.setdefault(number, now_s)
            return (state if now_s - since_s >= PREEMPTED_S else ""), reason
        self._preempted_since_s.pop(number, None)
        if state == queue.REVOKED:
            self._absences.mark_listed(number)
            is_finished = self._sweep.is_finished(output_of(info.job), number)
            return (queue.COMPLETED if is_finished else ""), reason
        if state:
            self._absences.mark_listed(number)
            is_requeued = state == "NODE_FAIL" and self.executor_settings.requeue
            return ("" if is_requeued else state), reason
        if number in answer:
            return "", ""
        has_gone = self._sweep.is_finished(output_of(info.job), number)
        return queue.GONE if has_gone or self._absences.count_absence(number, now_s) else "", ""

    def _log_waiting(self, waiting: Sequence[tuple[str, SubmittedJobInfo]]) -> None:
        """Log why jobs wait: each of Slurm's reasons once, with the number of such jobs.

        Held jobs are logged once each, because the user must release each of them.

        Args:
            waiting: (reason, Snakemake's record) of each waiting job.
        """
        now_s = time.monotonic()
        self._first_query_s = self._first_query_s or now_s
        if now_s - self._first_query_s < REASONS_AFTER_S:
            return
        groups: dict[str, list[SubmittedJobInfo]] = {}
        for reason, info in waiting:
            groups.setdefault(reason, []).append(info)
        held = {
            (reason, self._queued_number(info))
            for reason, infos in groups.items()
            if _is_held(reason)
            for info in infos
        }
        self._told_held &= held  # a job may be held once more
        for reason, infos in groups.items():
            if _is_held(reason):
                known = self._told_held
                infos = [i for i in infos if (reason, self._queued_number(i)) not in known]
            elif reason in self._told:
                continue
            if not infos:
                continue
            self._told.add(reason)
            number = f"{len(infos)} job{'s wait' if len(infos) > 1 else ' waits'}"
            text, first = f"{number} in Slurm's queue: {reason}", infos[0]
            if reason not in _TEMPORARY_REASONS:
                job = f"job {self._queued_number(first)}, {output_of(first.job)}"
                text += f"; the first is {job}"
            if _is_held(reason):
                numbers = " ".join(dict.fromkeys(map(self._queued_number, infos)))
                text += f"; `scontrol release {numbers}` lets {_it_or_them(infos)} start"
            self.logger.warning(text)
        self._told_held = held

    def _queued_number(self, info: SubmittedJobInfo) -> str:
        """Return the number of the Slurm job for whose start a job of Snakemake waits."""
        return str(info.external_jobid)

    async def sleep(self) -> None:
        """Wait until the next query of Slurm is due."""
        until_s = time.monotonic() + self.next_seconds_between_status_checks
        while self.wait and time.monotonic() < until_s:
            await asyncio.sleep(min(1.0, self.next_seconds_between_status_checks))

    # Ends of the sweep

    def cancel(self) -> None:
        """Submit no further jobs and cancel all submitted jobs."""
        self._is_cancelled.set()
        self._is_stopped.set()
        self._job_has_ended.set()
        known = dict(self._submitted)
        self.cancel_jobs(list(known.values()))
        self._submitter.shutdown(wait=True, cancel_futures=True)
        self.cancel_jobs([info for n, info in self._submitted.items() if n not in known])
        # a job whose submission had no answer
        self._has_cancelled_all = self._log_cancel_failure(self.slurm.cancel(name=self.run_uuid))
        self.shutdown()

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel these jobs, in several calls of scancel if there are many."""
        numbers = [str(info.external_jobid) for info in active_jobs if info.external_jobid]
        parts = (
            numbers[n : n + CANCELLED_AT_ONCE] for n in range(0, len(numbers), CANCELLED_AT_ONCE)
        )
        for part in parts:
            if self._log_cancel_failure(self.slurm.cancel(part)):
                self._cancelled.update(part)

    def _log_cancel_failure(self, answer: NoAnswer | None) -> bool:
        """Return whether scancel succeeded; log a warning if not.

        Args:
            answer: The answer of `SlurmClient.cancel`.
        """
        if answer is not None:
            self.logger.warning(f"scancel failed: {answer.why}; `squeue --me` lists what is left")
        return answer is None

    def _describe_remaining(self) -> str:
        """Return which jobs Slurm may still run, with the command that cancels them; "" if none."""
        left = [
            number
            for number in dict(self._submitted)
            if number not in self._cancelled
            and not (self._has_cancelled_all and number not in self._adopted)
        ]
        names, commands = [f"SLURM jobs {' '.join(left)}"] if left else [], []
        if not self._has_cancelled_all:
            names.append(f"jobs named {self.run_uuid}")
            commands.append(f"scancel --name={self.run_uuid}")
        if adopted := [number for number in left if number in self._adopted]:
            commands.append(f"scancel {' '.join(adopted)}")
        return f"{' and '.join(names)} may still run: {'; '.join(commands)}" if names else ""

    def shutdown(self) -> None:
        """Wait for the thread of submissions, and stop the executor."""
        self._submitter.shutdown(wait=True)
        super().shutdown()


def output_of(job: Any) -> Path:
    """Return the path of a job's first output file; an empty path without output."""
    return Path(str(next(iter(job.output), "")))


def comment_of(job: Any) -> str:
    """Return the text between the marks of a job's comment in Slurm: `rule_train/cpu/x/1`.

    Two jobs of a workflow have the same text only if they have the same rule and wildcards.
    """
    return "/".join([f"{queue.COMMENT_PREFIX}{job.name}", *_quoted_wildcards(job)])


def _quoted_wildcards(job: Any) -> list[str]:
    """Return the wildcards of a job, escaped for names of folders; [] for a group of jobs.

    Different wildcards give different names. Slashes, percent signs and braces are escaped, because
    sbatch interprets percent signs, and braces end the text in a comment.
    """
    values = () if job.is_group() else job.wildcards or ()
    return [re.sub("[/~%{}]", lambda char: f"~{ord(char[0]):x}", value) for value in values]


def gres_option(gres: str | None) -> str:
    """Return the option --gres to append to an sbatch line; "" without a gres.

    Upstream's function rejects lists of resources, and GPU types with a hyphen.
    """
    return f" --gres={shlex.quote(str(gres))}" if gres else ""


def _is_held(reason: str) -> bool:
    """Return whether a job with this reason or state waits until somebody releases it."""
    return "held" in reason.lower() or reason in queue.HELD


def _it_or_them(infos: Sequence[SubmittedJobInfo]) -> str:
    """Return the pronoun for these jobs."""
    return "them" if len(infos) > 1 else "it"


def describe_environment_options() -> str:
    """Return a clause for error messages: environment variables that set options of sbatch.

    It begins with "; ". Without such variables it is "".
    """
    options = submission_options(os.environ)
    return f"; the environment has {', '.join(options)}" if options else ""


def excluded_nodes(call: str) -> list[str]:
    """Return the node lists that an sbatch line excludes; a file of nodes is read."""
    texts = (
        Path(text).read_text() if "/" in text else text
        for text in _last_option_value(call, "--exclude", "-x")
    )
    return [nodes for text in texts for nodes in text.split()]


def _last_option_value(call: str, *names: str) -> list[str]:
    """Return [last value of an option in an sbatch line]; [] without the option.

    If an option occurs several times, sbatch uses the last value.

    Args:
        call: The shell line with sbatch.
        *names: The option's names, such as `--exclude` and `-x`.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(*names, dest="values", action="append", default=[])
    found: list[str] = parser.parse_known_args(shlex.split(call))[0].values
    return found[-1:]
