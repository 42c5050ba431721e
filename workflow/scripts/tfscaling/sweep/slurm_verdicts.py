"""Failures of jobs whose launcher could not report them: what Slurm says they ended of.

A launcher whose node loses its power, or that is killed with its job, leaves no failure.json.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable
from pathlib import Path

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

    `spec_of` gives the specification of a run or a benchmark by the file of its record.
    """

    def __init__(self, spec_of: Callable[[str], JobSpec | None]) -> None:
        super().__init__()
        self._spec_of = spec_of

    def emit(self, record: logging.LogRecord) -> None:
        """A record of Snakemake's log."""
        said = _FAILED.search(str(getattr(record, "rule_msg", None) or ""))
        for output in getattr(record, "output", ()) if said else ():
            spec = self._spec_of(str(output))
            if said and spec is not None:
                report(Path(output).parent, spec, said[1], said[2])


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
