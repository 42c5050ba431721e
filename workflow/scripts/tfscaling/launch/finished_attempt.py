"""A job that begins once more after its run was finished: the record is kept, not made again.

Slurm starts a job again that is requeued, preempted or loses its node, and Snakemake one that
Slurm reports as failed; the run may have been finished just before. Snakemake has then removed the
record in the run's folder, but the attempt has all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tfscaling.cluster.slurm_environment import job_id, restarts
from tfscaling.record import attempts, run_record, run_states
from tfscaling.record.run_record import RecordError, RunRecord
from tfscaling.spec.run_spec import RunSpec

#: What a finished run has beside its record.
OF_RUN = (run_record.EVENTS, run_record.STEPS, run_record.COMPUTE_STEPS)


def publish(attempt: Path, path: Path, names: Iterable[str] = OF_RUN) -> None:
    """Give the files of a finished attempt their places in the job's folder, the record last.

    `path` is that of the record. What was kept of an earlier record goes. Raises OSError.
    """
    for name in names:
        attempts.publish(attempt / name, path.with_name(name))
    attempts.publish(attempt / attempts.RECORD, path)
    attempts.drop_backup(path)


def bring_back(
    path: Path, spec: RunSpec, dataset_file: Path | None, environ: Mapping[str, str]
) -> int | None:
    """The attempt whose record is in its place again; None if the run is to be made.

    It is the last one, it was finished, and then its job was started again, or failed. A run that
    somebody wants again, or that has other parameters, code or data now, is made again.
    """
    begun = attempts.numbers(path.parent)
    if not begun:
        return None
    attempt = attempts.path(path.parent, begun[-1])
    try:
        record = run_record.read(attempt / attempts.RECORD)
    except RecordError:
        return None
    if record is None or not (_is_of_this_job(record, environ) or _has_failed_since(attempt, path)):
        return None
    if _is_stale(spec, record, dataset_file):
        return None
    attempts.reopen(attempt)
    publish(attempt, path)
    for folder in (attempt, path.parent):
        (folder / run_record.FAILURE).unlink(missing_ok=True)
    return begun[-1]


def _is_of_this_job(record: RunRecord, environ: Mapping[str, str]) -> bool:
    """Whether an earlier start of Slurm's job that we are in has made it.

    It is then what this job was asked for, also if another start of the sweep has kept it since.
    By the job's own environment: the controller may be away, as after the fault that ended it.
    """
    made_by = record.environment.slurm_job
    if made_by is None or made_by.id != job_id(environ):
        return False
    return restarts(environ) > made_by.restarts


def _has_failed_since(attempt: Path, path: Path) -> bool:
    """Whether its job failed after it had finished the run; nobody wants the run again."""
    return (attempt / run_record.FAILURE).exists() and not attempts.backup_of(path).exists()


def _is_stale(spec: RunSpec, record: RunRecord, dataset_file: Path | None) -> bool:
    if run_states.other_parameters(spec, record) or run_states.other_code(spec, record):
        return True
    if dataset_file is None:
        return False
    return any(run_states.other_data([record.environment.dataset], dataset_file.parent))
