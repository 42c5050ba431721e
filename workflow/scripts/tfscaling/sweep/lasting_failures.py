"""Runs that another attempt would not help are not tried again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from tfscaling.race.terms import TRIES_MAX
from tfscaling.records import failure_report, run_record
from tfscaling.study.manifest import PlannedRun
from tfscaling.sweep.sweep_jobs import Job

#: Exceptions that another attempt may not meet, also in a user's code.
_MAY_PASS = {
    *("OSError", "IOError", "PermissionError", "FileNotFoundError", "BlockingIOError"),
    *(
        "InterruptedError",
        "MemoryError",
        "ResourceExhaustedError",
        "NotFoundError",
        "DataLossError",
    ),
}


class NoRetries(logging.Handler):
    """Hears of failed jobs in Snakemake's log before these are tried again; `jobs` gives all."""

    def __init__(self, jobs: Callable[[], Iterable[Job]]) -> None:
        super().__init__()
        self._jobs = jobs

    def emit(self, record: logging.LogRecord) -> None:
        """A record of Snakemake's log."""
        if str(getattr(record, "event", "")) == "job_error":
            failed = {path for path in getattr(record, "output", ()) if is_lasting(Path(path))}
            for job in self._jobs() if failed else ():
                if not failed.isdisjoint(map(str, job.output)):
                    job.attempt = job.restart_times + 1


def is_lasting(record: Path) -> bool:
    """Whether the run that was to leave this record failed for missing GPUs, or in user code.

    A user's function that raises does so again; not so for what a file or a connection may do.
    """
    if record.name != run_record.RECORD:
        return False
    try:
        failure = failure_report.read(record.parent)
    except run_record.RecordError:
        return False
    if failure is None:
        return False
    cause = failure.cause
    return cause.error == "DeviceError" or (
        cause.place is not None and cause.error not in _MAY_PASS
    )


def is_given_up(run: PlannedRun, runs_dir: Path) -> bool:
    """Whether the run of a search failed so often that its point leaves instead."""
    folder = runs_dir / run.spec.path
    if (folder / run_record.RECORD).exists() or not (folder / run_record.FAILURE).exists():
        return False
    return failure_report.failed_attempts(folder, run.spec.parameters_hash) >= TRIES_MAX
