"""A job that begins again after its run was finished: the record is kept, the run not repeated.

Slurm restarts a job that is requeued, preempted or loses its node, and Snakemake a job that Slurm
reports as failed; the run may have been finished just before. Snakemake has then removed the
record in the run's folder, but the attempt has all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tfscaling.cluster.slurm_environment import job_id, restarts
from tfscaling.record import attempts, run_record, run_states
from tfscaling.record.run_record import DoesNotFit, RecordError, RunRecord
from tfscaling.spec.run_spec import RunSpec

#: Files of a finished run next to its record.
OF_RUN = (run_record.EVENTS, run_record.STEPS, run_record.COMPUTE_STEPS)


def publish(attempt: Path, path: Path, names: Iterable[str] = OF_RUN) -> None:
    """Move the files of a finished attempt to the job's folder, last the record to `path`.

    The backup of an earlier record is removed. Raises OSError.
    """
    for name in names:
        attempts.publish(attempt / name, path.with_name(name))
    attempts.publish(attempt / attempts.RECORD, path)
    attempts.drop_backup(path)


def bring_back(
    path: Path, spec: RunSpec, dataset_file: Path | None, environ: Mapping[str, str]
) -> int | None:
    """Put the record of the last attempt in its place; None if the run is to be made.

    Returns the attempt's number if it was finished, and then its job was started again, or failed.
    A run that is requested again, or that has other parameters, code or data now, is repeated.
    """
    begun = attempts.numbers(path.parent)
    if not begun:
        return None
    attempt = attempts.path(path.parent, begun[-1])
    try:
        record = run_record.outcome(attempt / attempts.RECORD)
    except RecordError:
        return None
    if record is None or not (_is_of_this_job(record, environ) or _has_failed_since(attempt, path)):
        return None
    if _is_stale(spec, record, dataset_file):
        return None
    attempts.reopen(attempt)
    publish(attempt, path, OF_RUN if isinstance(record, RunRecord) else ())
    for folder in (attempt, path.parent):
        (folder / run_record.FAILURE).unlink(missing_ok=True)
    return begun[-1]


def _is_of_this_job(record: RunRecord | DoesNotFit, environ: Mapping[str, str]) -> bool:
    """Whether an earlier start of the Slurm job that we are in has made the record.

    By the job's own environment: the controller may be away, as after the fault that ended it.
    """
    made_by = record.environment.slurm_job
    if made_by is None or made_by.id != job_id(environ):
        return False
    return restarts(environ) > made_by.restarts


def _has_failed_since(attempt: Path, path: Path) -> bool:
    """Whether the job failed after it had finished the run, and the run is not requested again."""
    return (attempt / run_record.FAILURE).exists() and not attempts.backup_of(path).exists()


def _is_stale(spec: RunSpec, record: RunRecord | DoesNotFit, dataset_file: Path | None) -> bool:
    if run_states.other_parameters(spec, record) or run_states.other_code(spec, record):
        return True
    data = [record.environment.dataset]
    return dataset_file is not None and any(run_states.other_data(data, dataset_file.parent))
