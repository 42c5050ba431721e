"""Which failed runs are tried again, and what the executor plugin slurm-sweep asks about jobs.

Another attempt is for what may not be there next time: a lost node, a preemption, a time limit, a
connection, a process that somebody killed. What it would only repeat is reported at once. How often
a run is tried again is the profile's `retries`.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tfscaling.cluster.slurm_client import SlurmClient
from tfscaling.record import attempts, crashes, run_record
from tfscaling.record.attempts import Cause, FailureReport, Kind
from tfscaling.record.run_record import DoesNotFit, Environment, SlurmJob
from tfscaling.study.manifest import Manifest
from tfscaling.study.run_spec import RunSpec

#: Exceptions that another attempt may not meet, also in a user's code.
_MAY_PASS = {
    *("OSError", "IOError", "PermissionError", "FileNotFoundError", "BlockingIOError"),
    *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"),
    *("ConnectionAbortedError", "TimeoutError", "DistBackendError", "DistNetworkError"),
    *("InterruptedError", "MemoryError", "ResourceExhaustedError", "NotFoundError"),
    "DataLossError",
}
#: How a program ends that crashes of itself; other signals come from outside, or from a file system
#: or memory that failed (SIGBUS).
_CRASHES = ("SIGSEGV", "SIGFPE", "SIGILL")
#: Libraries of communication raise errors of all names, in these words. The last two are SIGBUS, as
#: Python and shells have it.
_MAY_PASS_WORDS = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted|timed out)|socket closed|timed? ?out"
    r"|\bnccl|\bgloo|\bbus error\b|exit code 135\b",
    re.IGNORECASE,
)


def is_permanent(cause: Cause) -> bool:
    """Whether another attempt would meet this cause again."""
    if cause.kind == "missing_gpus":  # of one host
        return False
    if cause.kind == "program_failed":
        return _is_a_crash(cause)
    if cause.kind == "invalid" or cause.error in ("DeviceError", "CpuError"):
        return True
    # a user's function that raises does so again; not so for what a file or a connection may do
    return cause.place is not None and cause.error not in _MAY_PASS


def _is_a_crash(cause: Cause) -> bool:
    """Whether a user's program ended of itself, and of nothing that may pass."""
    error = cause.error or ""
    if crashes.is_abort(error):
        return not crashes.has_lost_connection((cause.message, *cause.last_lines))
    if error.startswith("killed by"):
        return any(name in error for name in _CRASHES)
    return error not in _MAY_PASS and not _MAY_PASS_WORDS.search(cause.message)


def given_up(planned: Manifest, runs_dir: Path) -> frozenset[str]:
    """Return the run folders of search points that failed too often and are eliminated."""
    searched = {point for search in planned.searches for point in search.with_shorts}
    found = set()
    for spec in (run.spec for run in planned.runs if run.spec.point in searched):
        folder = runs_dir / spec.path
        has_failed = (folder / run_record.FAILURE).exists()
        has_failed &= not (folder / run_record.RECORD).exists()
        if has_failed and attempts.failed_too_often(folder):
            found.add(spec.path)
    return frozenset(found)


_KINDS: dict[str, Kind] = {
    "BOOT_FAIL": "node_failed",
    "CANCELLED": "cancelled",
    "DEADLINE": "time_limit",
    "NODE_FAIL": "node_failed",
    "OUT_OF_MEMORY": "out_of_memory",
    "PREEMPTED": "preempted",
    "TIMEOUT": "time_limit",
}


#: Longest wait for Slurm's answer about a job that has ended.
_ANSWER_S = 15.0
#: Snakemake prints the kind of an error, and the message on the next line.
_TITLE_OF_ERROR = re.compile(r"\w*(?:Error|Exception)\b.*:")
_LOG_LINES, _ERROR_CHARACTERS = 200, 500


@dataclass(frozen=True)
class SlurmSweep:
    """Records, failures and attempts of a study: as the plugin's `Sweep`.

    `specs` are runs by the files of their records. `warn` prints what no file can have, as on a
    full disk.
    """

    specs: Mapping[str, RunSpec]
    warn: Callable[[str], object] = print

    def is_finished(self, output: Path, number: str) -> bool:
        """Whether the record was made by Slurm's job of this number.

        Slurm may report a failure later: a lost node or a time limit while the job ended.
        """
        try:
            record = run_record.outcome(output) if output.name == run_record.RECORD else None
        except run_record.RecordError:
            return False
        job = None if record is None else record.environment.slurm_job
        return job is not None and job.id == number

    def failed(self, output: Path, number: str, state: str, log: Path | None = None) -> None:
        """Write a failure report with Slurm's state, unless the launcher has left its own.

        A job that fails before its launcher starts has the reason in its `log`, as when the
        configuration files were changed meanwhile. A run that had too little memory gets a record.
        """
        spec, folder = self.specs.get(str(output)), output.parent
        last = _last_attempt(folder)
        if spec is None or ((last or folder) / run_record.FAILURE).exists():
            return
        text = f"Slurm's job {number} ended as {state}, and its launcher left no report"
        try:
            if state == "OUT_OF_MEMORY":
                folder.mkdir(parents=True, exist_ok=True)
                run_record.write_json(output, _unfit(spec, last, number, text))
                return
        except OSError as error:
            self.warn(f"{text}: {error}")
        cause = Cause(kind=_KINDS.get(state, "launcher_failed"), message=text)
        if cause.kind == "launcher_failed" and log is not None:
            cause = _add_error(cause, log, folder / run_record.LAUNCH_LOG)
        wall_time_s = _run_time_s(number)
        wall_time_s = _age_s(last) if wall_time_s is None else wall_time_s
        self._write(cause, spec, wall_time_s, *filter(None, (last, folder)))

    def refused(self, output: Path, words: str) -> None:
        """Write a failure report with sbatch's words."""
        if spec := self.specs.get(str(output)):
            cause = Cause(kind="launch_failed", message=f"sbatch refused it: {words}")
            self._write(cause, spec, None, output.parent)

    def fails_again(self, output: Path) -> bool:
        """Return whether a run failed for a cause that a retry would meet again."""
        cause = attempts.cause_of(output.parent) if output.name == run_record.RECORD else None
        if cause is None:
            return False
        has_checkpoint = any((output.parent / attempts.CHECKPOINTS).glob("steps=*"))
        return (cause.kind == "time_limit" and not has_checkpoint) or is_permanent(cause)

    def unfit_nodes(self, output: Path) -> list[str]:
        """Return the hosts that lacked GPUs in an attempt at this run."""
        folder = output.parent
        numbers = attempts.numbers(folder) if output.name == run_record.RECORD else ()
        causes = (attempts.cause_of(attempts.path(folder, number)) for number in numbers)
        return sorted({c.host for c in causes if c and c.kind == "missing_gpus" and c.host})

    def _write(
        self, cause: Cause, spec: RunSpec, wall_time_s: float | None, *folders: Path
    ) -> None:
        """Write a failure report to the run's folder, the last one, and to others."""
        failure = FailureReport(
            axes=spec.axes,
            attempt=max(attempts.numbers(folders[-1]), default=1),
            cause=cause,
            wall_time_s=wall_time_s,
        )
        try:
            folders[-1].mkdir(parents=True, exist_ok=True)
            for folder in folders:
                attempts.write_failure(folder, failure)
        except OSError as error:
            self.warn(f"{cause.message}: {error}")


def _run_time_s(number: str) -> float | None:
    """Return for how long Slurm ran a job; None if unknown, as for a step of an allocation."""
    return SlurmClient(_ANSWER_S).run_time_s(number) if number.isdecimal() else None


def _last_lines(log: Path) -> list[str]:
    """Return the last lines of a log that are not blank; none if it cannot be read."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines[-_LOG_LINES:] if line.strip()]


def _add_error(cause: Cause, log: Path, launch_log: Path) -> Cause:
    """Return the cause with the error that ended a job, from the job's log or its launcher's."""
    lines = _last_lines(log)
    if any(line.startswith("Error in rule ") for line in lines):  # the launcher was started
        lines = _last_lines(launch_log)
    if not lines:
        return cause
    titles = [n for n, line in enumerate(lines) if _TITLE_OF_ERROR.fullmatch(line.strip())]
    texts = [line for n, line in enumerate(lines) if n - 1 in titles and n not in titles]
    errors = [line for line in lines if re.search("error", line, re.IGNORECASE)]
    text = texts[0] if texts else (errors or lines)[-1]
    message = f"{cause.message}: {text.strip()[:_ERROR_CHARACTERS]}"
    return replace(cause, message=message, last_lines=lines[-30:])


def _age_s(attempt: Path | None) -> float | None:
    """Return for how long an attempt whose job has just ended ran; None if it began no rank."""
    try:
        began_s = (attempt / attempts.SPEC).stat().st_mtime if attempt else None
    except OSError:
        return None
    return None if began_s is None else round(max(0.0, time.time() - began_s), 3)


def _unfit(spec: RunSpec, last: Path | None, number: str, text: str) -> DoesNotFit:
    """Return the record of a run that Slurm ended for its memory: the launcher's, if any."""
    with contextlib.suppress(run_record.RecordError):
        left = run_record.outcome(last / attempts.RECORD) if last else None
        if isinstance(left, DoesNotFit):
            return left
    environment = Environment(
        launcher_host="",
        git_commit=None,
        slurm_job=SlurmJob(id=number),
        slurm_settings=None,
        dataset=None,
        unchecked=(),
    )
    attempt = int(last.name.partition("=")[2]) if last else 1
    return DoesNotFit.of(spec, attempt, f"out_of_memory: {text}", environment)


def _last_attempt(folder: Path) -> Path | None:
    begun = attempts.numbers(folder)
    return attempts.path(folder, begun[-1]) if begun else None
