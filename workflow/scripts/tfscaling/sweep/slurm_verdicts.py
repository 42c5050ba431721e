"""What Slurm says that jobs ended of, against what their launchers have left.

A launcher whose node loses its power, or that is killed with its job, leaves no failure.json. One
that has left its record has finished, whatever happened to its job then.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tfscaling.records import attempts, failure_report, run_record
from tfscaling.records.failure_report import Cause, FailureReport, Kind
from tfscaling.study.run_spec import JobSpec

#: What the executor plugin says of a job that failed: its number, and Slurm's state.
_FAILED = re.compile(r"SLURM-job '(\S+?)' failed.*?SLURM status is:\s*'(\w+)'", re.DOTALL)
_KINDS: dict[str, Kind] = {
    "BOOT_FAIL": "node_failed",
    "CANCELLED": "cancelled",
    "DEADLINE": "time_limit",
    "NODE_FAIL": "node_failed",
    "OUT_OF_MEMORY": "out_of_memory",
    "PREEMPTED": "preempted",
    "TIMEOUT": "time_limit",
}


class SlurmVerdicts(logging.Handler):
    """Hears of failed jobs in Snakemake's log, and reports those that have no report.

    `spec_of` gives the specification of a run or a benchmark by the file of its record; `preempted`
    has the numbers of jobs that did not fail but were preempted.
    """

    def __init__(
        self, spec_of: Callable[[str], JobSpec | None], preempted: Collection[str] = ()
    ) -> None:
        super().__init__()
        self._spec_of, self._preempted = spec_of, preempted

    def emit(self, record: logging.LogRecord) -> None:
        """A record of Snakemake's log."""
        said = _FAILED.search(str(getattr(record, "rule_msg", None) or ""))
        for output in getattr(record, "output", ()) if said else ():
            spec = self._spec_of(str(output))
            if said and spec is not None:
                state = "PREEMPTED" if said[1] in self._preempted else said[2]
                report(Path(output).parent, spec, said[1], state)


def keep_finished(executor: type[Any]) -> None:
    """Let the plugin's class of executors count a job as done that has left its record.

    Slurm may say later that it has failed: its node was lost, or its time limit passed, while it
    ended or while the controller was away. Snakemake would then remove the record.
    """
    report_job_error = executor.report_job_error

    def report_unless_finished(self: Any, submitted: Any, *args: Any, **settings: Any) -> None:
        outputs = [Path(output) for output in submitted.job.output]
        if any(_is_finished(path, str(submitted.external_jobid)) for path in outputs):
            self.report_job_success(submitted)
        else:
            report_job_error(self, submitted, *args, **settings)

    executor.report_job_error = report_unless_finished


def _is_finished(path: Path, number: str) -> bool:
    """Whether the file is the record of a run that Slurm's job of this number has made."""
    try:
        record = run_record.read(path) if path.name == run_record.RECORD else None
    except run_record.RecordError:
        return False
    job = None if record is None else record.environment.slurm_job
    return job is not None and job.id == number


def report(folder: Path, spec: JobSpec, number: str, state: str) -> None:
    """Leave the failure of Slurm's job `number`, unless the launcher left that of its attempt."""
    begun = attempts.numbers(folder)
    last = attempts.path(folder, begun[-1]) if begun else None
    if (last is None and (folder / run_record.FAILURE).exists()) or (
        last is not None and (last / run_record.FAILURE).exists()
    ):
        return
    text = f"Slurm's job {number} ended as {state}, and its launcher could not say more"
    failure = FailureReport(
        axes=spec.axes,
        attempt=begun[-1] if begun else 1,
        cause=Cause(kind=_KINDS.get(state, "launcher_failed"), message=text),
        parameters_hash=spec.parameters_hash,
    )
    with contextlib.suppress(OSError):  # as when the disk is full; the console has said it
        folder.mkdir(parents=True, exist_ok=True)
        for place in filter(None, (last, folder)):
            failure_report.write(place, failure)
