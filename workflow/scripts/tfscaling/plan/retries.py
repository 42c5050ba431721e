"""Which failed runs are retried, and what the executor plugin slurm-sweep requests about jobs.

A retry is for causes that may not occur again: a lost node, a preemption, a time limit, a
connection, a killed process. Causes that a retry would meet again are reported at once. The
profile's `retries` is the number of retries.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tfscaling.cluster.slurm_client import SlurmClient
from tfscaling.files import log_files, outside_text
from tfscaling.record import attempts, crashes, run_record
from tfscaling.record.attempts import Cause, FailureReport, Kind
from tfscaling.record.run_record import DoesNotFit, Environment, SlurmJob
from tfscaling.study.manifest import Manifest
from tfscaling.study.run_spec import RunSpec

#: Names of exceptions that a retry may not meet again, also in custom code.
_TRANSIENT_EXCEPTIONS = {
    *("OSError", "IOError", "PermissionError", "FileNotFoundError", "BlockingIOError"),
    *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"),
    *("ConnectionAbortedError", "TimeoutError", "DistBackendError", "DistNetworkError"),
    *("InterruptedError", "MemoryError", "ResourceExhaustedError", "NotFoundError"),
    "DataLossError",
}
#: Signals by which a program ends itself; other signals come from outside, or from a file system or
#: memory that failed (SIGBUS).
_CRASH_SIGNALS = ("SIGSEGV", "SIGFPE", "SIGILL")
#: Communication libraries raise errors of many names with these words. The last two are SIGBUS, as
#: Python and shells report it.
_TRANSIENT_MESSAGES = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted|timed out)|socket closed|timed? ?out"
    r"|\bnccl|\bgloo|\bbus error\b|exit code 135\b",
    re.IGNORECASE,
)


def is_permanent(cause: Cause) -> bool:
    """Return whether a retry of the run would fail for the same cause."""
    if cause.kind == "missing_gpus":  # of one host
        return False
    if cause.kind == "program_failed":
        return _is_permanent_crash(cause)
    if cause.kind == "invalid" or cause.error in ("DeviceError", "CpuError"):
        return True
    # a user's function that raises does so again; not so for what a file or a connection may do
    return cause.place is not None and cause.error not in _TRANSIENT_EXCEPTIONS


def _is_permanent_crash(cause: Cause) -> bool:
    """Return whether a program crashed by itself, and a retry would crash for the same cause."""
    error = cause.error or ""
    if crashes.is_abort(error):
        return not crashes.has_lost_connection((cause.message, *cause.last_lines))
    if error.startswith("killed by"):
        return any(name in error for name in _CRASH_SIGNALS)
    return error not in _TRANSIENT_EXCEPTIONS and not _TRANSIENT_MESSAGES.search(cause.message)


def find_given_up_runs(planned: Manifest, runs_dir: Path) -> frozenset[str]:
    """Return the folders of a search's runs that are not retried: they failed too often."""
    searched = {point for search in planned.searches for point in search.all_points}
    found = set()
    for spec in (run.spec for run in planned.runs if run.spec.point in searched):
        folder = runs_dir / spec.path
        has_failed = (folder / run_record.FAILURE).exists()
        has_failed &= not (folder / run_record.RECORD).exists()
        if has_failed and attempts.failed_too_often(folder):
            found.add(spec.path)
    return frozenset(found)


#: Slurm's state of a job → kind of failure.
_KIND_OF_STATE: dict[str, Kind] = {
    "BOOT_FAIL": "node_failed",
    "CANCELLED": "cancelled",
    "DEADLINE": "time_limit",
    "NODE_FAIL": "node_failed",
    "OUT_OF_MEMORY": "out_of_memory",
    "PREEMPTED": "preempted",
    "REQUEUED": "requeued",
    "TIMEOUT": "time_limit",
}
#: What the executor reports instead of a state if Slurm no longer lists a job.
_GONE = "GONE"


#: Longest wait for Slurm's answer about a job that has ended, in seconds.
_SLURM_TIMEOUT_S = 15.0
#: Pattern of the line of Snakemake's output with the type of an error; its message is on the next.
_ERROR_TITLE = re.compile(r"\w*(?:Error|Exception)\b.*:")
_LOG_LINES, _ERROR_CHARACTERS = 200, 500
#: Lines of srun about the end of a step, in the log of a job inside an allocation.
_END_OF_STEP = re.compile(r"srun: (?:error: \S+: tasks? \S+: |.*Terminat|Job step aborted)")


@dataclass(frozen=True)
class SlurmSweep:
    """Callbacks of a study for the executors slurm-sweep and slurm-allocation.

    Attributes:
        specs: File of a run's record → the run.
        warn: Prints a message that cannot be written to a file, as on a full disk.
    """

    specs: Mapping[str, RunSpec]
    warn: Callable[[str], object] = print

    def is_finished(self, output: Path, number: str) -> bool:
        """Return whether a Slurm job has written the record of its run.

        The run counts as finished even if Slurm then reports the job as failed, for example because
        its time limit ended before the job did.

        Args:
            output: The file of the run's record.
            number: Number of the Slurm job, or JOB.STEP of a step.
        """
        try:
            record = run_record.read_outcome(output) if output.name == run_record.RECORD else None
        except run_record.RecordError:
            return False
        job = None if record is None else record.environment.slurm_job
        return job is not None and job.id == _number_of_job(number)

    def report_failure(
        self, output: Path, number: str, state: str, log: Path | None = None
    ) -> None:
        """Write a failure report with Slurm's state, unless the launcher has written its own.

        The error of a job that failed before its launcher started is read from its log. A job that
        began no attempt has its report in the run's folder only. A run that ran out of memory gets
        a record with the status does_not_fit.

        Args:
            output: The file of the run's record.
            number: Number of the Slurm job, or JOB.STEP of a step.
            state: Slurm's state of the job; GONE if Slurm no longer lists it.
            log: The job's log.
        """
        spec, folder = self.specs.get(str(output)), output.parent
        last = _find_last_attempt(folder)
        if spec is None or _has_report(last or folder, number):
            return
        what = "job" if number.isdecimal() else "step"
        ended = "left the queue" if state == _GONE else f"ended as {state}"
        text = f"Slurm's {what} {number} {ended}, and its launcher left no report"
        try:
            if state == "OUT_OF_MEMORY":
                folder.mkdir(parents=True, exist_ok=True)
                run_record.write_json(output, _out_of_memory_record(spec, last, number, text))
                return
        except OSError as error:
            self.warn(f"{text}: {error}")
        cause = Cause(kind=_KIND_OF_STATE.get(state, "launcher_failed"), message=text)
        if cause.kind == "launcher_failed" and log is not None:
            cause = _add_log_error(cause, log, folder / run_record.LAUNCH_LOG)
            settings = spec.measured
            environ = {**os.environ, **settings.env}
            secrets = crashes.find_secrets(environ, spec.recipe.program, settings.setup)
            cause = crashes.mask_secrets_of_cause(cause, secrets)
        # an attempt with a report or a record is an earlier job's
        reported = (run_record.FAILURE, attempts.RECORD)
        if last is not None and any((last / name).exists() for name in reported):
            last = None
        wall_time_s = _job_time_s(number)
        wall_time_s = _attempt_time_s(last) if wall_time_s is None else wall_time_s
        folders = filter(None, (last, folder))
        self._write_failure(cause, spec, *folders, wall_time_s=wall_time_s, slurm_job=number)

    def report_refusal(self, output: Path, words: str) -> None:
        """Write a failure report for a job that sbatch refused.

        Args:
            output: The file of the run's record.
            words: The message of sbatch.
        """
        if spec := self.specs.get(str(output)):
            cause = Cause(kind="launch_failed", message=f"sbatch refused it: {words}")
            self._write_failure(cause, spec, output.parent)

    def has_permanent_failure(self, output: Path) -> bool:
        """Return whether the last attempt of a run failed for a permanent cause.

        Running into the time limit is permanent if the run has no checkpoint.
        """
        cause = attempts.cause_of(output.parent) if output.name == run_record.RECORD else None
        if cause is None:
            return False
        has_checkpoint = attempts.has_checkpoint(output.parent)
        return (cause.kind == "time_limit" and not has_checkpoint) or is_permanent(cause)

    def nodes_to_avoid(self, output: Path) -> list[str]:
        """Return the hosts that lacked GPUs in attempts at a run, which its retry must avoid.

        Slurm would expand a name such as `n[1-9]` to other nodes: such names are left out.
        """
        folder = output.parent
        numbers = attempts.attempt_numbers(folder) if output.name == run_record.RECORD else ()
        causes = (attempts.cause_of(attempts.attempt_folder(folder, number)) for number in numbers)
        hosts = {c.host for c in causes if c and c.kind == "missing_gpus" and c.host}
        return sorted(host for host in hosts if outside_text.is_host_name(host))

    def _write_failure(
        self,
        cause: Cause,
        spec: RunSpec,
        *folders: Path,
        wall_time_s: float | None = None,
        slurm_job: str | None = None,
    ) -> None:
        """Write a failure report to each of some folders.

        Args:
            cause: The cause.
            spec: The run.
            *folders: The folders: of the attempt, if the job began one, and of the run.
            wall_time_s: Wall time of the job in seconds; None if unknown.
            slurm_job: Number of the Slurm job, or JOB.STEP of a step; None without a job.
        """
        number = max(attempts.attempt_numbers(folders[-1]), default=0)
        has_begun = len(folders) > 1
        failure = FailureReport(
            axes=spec.axes,
            attempt=number if has_begun or (number and slurm_job is None) else number + 1,
            cause=cause,
            wall_time_s=wall_time_s,
            slurm_job=slurm_job,
        )
        try:
            folders[-1].mkdir(parents=True, exist_ok=True)
            for folder in folders:
                attempts.write_failure(folder, failure)
        except OSError as error:
            self.warn(f"{cause.sentence}: {error}")


def _has_report(folder: Path, number: str) -> bool:
    """Return whether the launcher of a Slurm job has written a failure report.

    A damaged report, or one without the number of its job, counts as well.

    Args:
        folder: Folder of the run's last attempt, or of a run without attempts.
        number: Number of the Slurm job, or JOB.STEP of a step.
    """
    try:
        failure = attempts.read_failure(folder)
    except run_record.RecordError:
        return True
    return failure is not None and failure.slurm_job in (None, number)


def _number_of_job(number: str) -> str:
    """Return the number of a Slurm job, from JOB or JOB.STEP: `7` for `7` and `7.3`."""
    return number.partition(".")[0]


def _job_time_s(number: str) -> float | None:
    """Return for how long Slurm ran the job with this number, in seconds; None if unknown."""
    return SlurmClient(_SLURM_TIMEOUT_S).run_time_s(number) if number.isdecimal() else None


def _last_lines(log: Path) -> list[str]:
    """Return the last lines of a log; [] if it cannot be read.

    Blank lines, and lines of srun about the end of a step, are left out.
    """
    try:
        lines = log_files.last_lines(log, _LOG_LINES)
    except OSError:
        return []
    return [line for line in lines if line.strip() and not _END_OF_STEP.match(line)]


def _add_log_error(cause: Cause, log: Path, launch_log: Path) -> Cause:
    """Return the cause with the last lines of a job's log; unchanged if the log is empty.

    The error that these lines show, or else the last line, is added to the cause's message.

    Args:
        cause: The cause.
        log: The log of the job.
        launch_log: The log of its launcher, which is read instead if the launcher was started.
    """
    lines = _last_lines(log)
    if any(line.startswith("Error in rule ") for line in lines):  # the launcher was started
        lines = _last_lines(launch_log)
    if not lines:
        return cause
    titles = [n for n, line in enumerate(lines) if _ERROR_TITLE.fullmatch(line.strip())]
    texts = [line for n, line in enumerate(lines) if n - 1 in titles and n not in titles]
    errors = [line for line in lines if re.search("error", line, re.IGNORECASE)]
    text = texts[0] if texts else (errors or lines)[-1]
    message = f"{cause.message}: {text.strip()[:_ERROR_CHARACTERS]}"
    return replace(cause, message=message, last_lines=lines[-30:])


def _attempt_time_s(attempt: Path | None) -> float | None:
    """Return the seconds since an attempt started its ranks; None if it started none.

    The attempt has just ended, so that this is its duration.
    """
    try:
        began_s = (attempt / attempts.SPEC).stat().st_mtime if attempt else None
    except OSError:
        return None
    return None if began_s is None else round(max(0.0, time.time() - began_s), 3)


def _out_of_memory_record(spec: RunSpec, last: Path | None, number: str, text: str) -> DoesNotFit:
    """Return a does_not_fit record of a run that Slurm killed because it used too much memory.

    If the launcher has already written such a record, it is returned.

    Args:
        spec: The run.
        last: Folder of the last attempt.
        number: Number of the Slurm job, or JOB.STEP of a step.
        text: Why the run ended.
    """
    with contextlib.suppress(run_record.RecordError):
        left = run_record.read_outcome(last / attempts.RECORD) if last else None
        if isinstance(left, DoesNotFit):
            return left
    environment = Environment(
        launcher_host="",
        git_commit=None,
        slurm_job=SlurmJob(id=_number_of_job(number)),
        slurm_settings=None,
        dataset=None,
        unchecked=(),
    )
    attempt = int(last.name.partition("=")[2]) if last else 1
    return DoesNotFit.from_spec(spec, attempt, f"out_of_memory: {text}", environment)


def _find_last_attempt(folder: Path) -> Path | None:
    """Return the folder of a run's last attempt; None without one."""
    begun = attempts.attempt_numbers(folder)
    return attempts.attempt_folder(folder, begun[-1]) if begun else None
