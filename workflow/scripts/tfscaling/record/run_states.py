"""The record of a planned run, and its state: whether it counts, or why it does not.

Parameters are part of a run's folder: changed parameters are a different run. A run is stale if its
record was made by other user code or from other data than planned now; it is in no median. A change
of user code alone reruns nothing. Launcher, plan and tables use it.
"""

from __future__ import annotations

import enum
import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tfscaling.record import attempts, prepared_data, run_record
from tfscaling.record.run_record import DoesNotFit, PreparedData, RecordError, RunRecord
from tfscaling.study import run_spec, user_code
from tfscaling.study.run_spec import RunSpec
from tfscaling.study.user_code import Checksums, CustomCode

#: Hexadecimal digits of a checksum that a message shows.
_SHOWN_DIGITS = 12


class RunState(enum.StrEnum):
    """The state of a run: the `status` in records and tables."""

    #: It passed all checks, and counts.
    OK = "ok"
    #: Its loss became NaN or infinite: a result, which is in no median.
    DIVERGED = "diverged"
    #: It ran out of memory: a result, which is in no median.
    DOES_NOT_FIT = "does_not_fit"
    #: It ended without a record, or its record cannot be read.
    FAILED = "failed"
    #: It began and left neither a record nor a failure: it is still running, or was killed.
    UNFINISHED = "unfinished"
    #: Its record was made by other user code or from other data.
    STALE = "stale"
    #: It was not run.
    MISSING = "missing"


def status_words(status: str) -> str:
    """Return a status as words for a sentence, such as `not fitting in memory`."""
    return "not fitting in memory" if status == RunState.DOES_NOT_FIT else status


#: Option of snakemake that reruns stale runs.
RERUN_STALE = "--config rerun=stale"
#: States of a run that trained to its end.
FINISHED = (RunState.OK, RunState.DIVERGED)
#: States of a run that has a result: it has a record and is not run again.
RESULTS = (*FINISHED, RunState.DOES_NOT_FIT)


class FoundRecord(NamedTuple):
    """The record that counts for a run.

    Attributes:
        file: The file of the record, in the run's folder or in an attempt's folder.
        record: Its content.
    """

    file: Path
    record: RunRecord | DoesNotFit


def find_record(spec: RunSpec, folder: Path, replaces: int = 0) -> FoundRecord | None:
    """Return the record that counts for a planned run.

    Records are in the run's folder and in the folders of its attempts. The first of these counts:

    1. The record in the run's folder, unless other user code than the present made it.
    2. The newest record of an attempt, among the records that no other user code made.
    3. The record in the run's folder.
    4. The newest record of an attempt.

    Args:
        spec: The planned run.
        folder: The run's folder.
        replaces: Number of the last attempt whose record is ignored, because the user requested a
            rerun; 0 if none is ignored. Records of earlier attempts are ignored, too.

    Returns:
        None if the run has no record that counts.

    Raises:
        RecordError: If the record in the run's folder cannot be read or is of another run, and no
            attempt has a record that counts.
    """
    if not _may_exist(folder):  # as of all runs of a new study
        return None
    file, problem, candidates = folder / run_record.RECORD, None, []
    try:
        record = _read_matching_record(spec, file)
        if record is not None and record.attempt > replaces:
            candidates.append(FoundRecord(file, record))
            if not describe_code_change(spec, record):
                return candidates[0]
    except RecordError as error:
        problem = error
    candidates += _read_kept_records(spec, folder, replaces)
    if problem is not None and not candidates:
        raise problem
    current = (each for each in candidates if not describe_code_change(spec, each.record))
    return next(current, candidates[0] if candidates else None)


def _may_exist(folder: Path) -> bool:
    """Return whether a folder exists; True also if that cannot be found out."""
    try:
        os.stat(folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _read_matching_record(spec: RunSpec, file: Path) -> RunRecord | DoesNotFit | None:
    """Read a file with a record, and check that the record belongs to a planned run.

    Args:
        spec: The planned run.
        file: The file of the record.

    Returns:
        A RunRecord if the run trained, a DoesNotFit if it ran out of memory; None if the file does
        not exist.

    Raises:
        RecordError: If the file cannot be read, or if its record belongs to a run with other axes
            or parameters.
    """
    record = run_record.read_outcome(file)
    if record is not None and record.parameters_hash != spec.parameters_hash:
        raise RecordError(
            f"{file}: parameters_hash {record.parameters_hash}, expected {spec.parameters_hash} "
            "by the name of its folder: it is the record of another run"
        )
    return record


def _read_kept_records(spec: RunSpec, folder: Path, after_attempt: int) -> list[FoundRecord]:
    """Return the records of a planned run that its attempts have kept, the newest first.

    Args:
        spec: The planned run.
        folder: The run's folder.
        after_attempt: Only records of attempts with a higher number are returned.
    """
    found = []
    for number in reversed(attempts.attempt_numbers(folder)):
        file = attempts.attempt_folder(folder, number) / attempts.RECORD
        try:
            record = _read_matching_record(spec, file) if number > after_attempt else None
        except RecordError:
            continue
        if record is not None:
            found.append(FoundRecord(file, record))
    return found


def describe_nearest_change(spec: RunSpec, runs_dir: Path) -> str:
    """Return how a planned run differs from the most similar record with its axes.

    Args:
        spec: The planned run.
        runs_dir: The folder of all runs.

    Returns:
        Each changed parameter as `key: before, now value`; "" without such a record.
    """
    folder = (runs_dir / spec.path).parent
    if not _may_exist(folder):  # as of all runs of a new study
        return ""
    files = sorted(folder.glob(f"{run_spec.PARAMETERS_AXIS}=*/{run_record.RECORD}"))
    if not files:
        return ""
    defaults = run_spec.defaults_of_omitted_keys()
    planned = {**defaults, **spec.parameters}
    changes: list[list[str]] = []
    for file in files:
        try:
            record = run_record.read_outcome(file)
        except RecordError:
            continue
        if record is not None:
            changes.append(run_spec.describe_changes(planned, {**defaults, **record.parameters}))
    nearest: list[str] = min(changes, key=len, default=[])
    return "; ".join(nearest)


def describe_code_change(spec: RunSpec, record: RunRecord | DoesNotFit) -> str:
    """Return a message that names user files changed since a record was made; "" if none has.

    A record without checksums is not compared.

    Args:
        spec: The planned run, with the present code.
        record: The record.
    """
    environment = record.environment
    prepared_by = environment.dataset.user_code if environment.dataset else {}
    made_by = (
        (environment.user_code, user_code.code_of_run(spec)),
        (prepared_by, user_code.code_of_functions(spec.dataset)),
    )
    found: dict[str, str] = {}
    for used, code in made_by:
        current = current_checksums(code, Path.cwd()) if used else {}
        if current:  # missing code cannot be compared
            found |= user_code.describe_differences(used, current)
    if not found:
        return ""
    return f"made by other code: {', '.join(found.values())}; make it again with {RERUN_STALE}"


@functools.cache
def current_checksums(code: CustomCode, folder: Path) -> Checksums:
    """Return file or package → checksum of the present user code, cached for this process.

    Args:
        code: The user code of a run.
        folder: The working folder. It is used only as a part of the key in the cache.
    """
    return code.checksums()


def find_stale_runs(
    found: Mapping[str, FoundRecord], specs: Iterable[RunSpec], datasets: Path
) -> set[str]:
    """Return the folders of the runs whose record was made by other code or from other data.

    Args:
        found: Folder of a run → its record.
        specs: The planned runs.
        datasets: The folder of the prepared datasets.
    """
    records = {spec.path: found[spec.path].record for spec in specs if spec.path in found}
    of_other_code = {
        spec.path
        for spec in specs
        if spec.path in records and describe_code_change(spec, records[spec.path])
    }
    reasons = describe_data_changes(
        [each.environment.dataset for each in records.values()], datasets
    )
    return of_other_code | {path for path, why in zip(records, reasons, strict=True) if why}


def describe_data_changes(used: Sequence[PreparedData | None], datasets_dir: Path) -> list[str]:
    """Return for each run how its data differs from the planned data; "" if it does not.

    The planned data of a dataset is the file in `datasets_dir`. Without a file, it is the data that
    most runs read.

    Args:
        used: The data that each run read; None without a record.
        datasets_dir: The folder of the prepared datasets.
    """
    reasons = {}
    for name in dict.fromkeys(data.name for data in used if data):
        counts = Counter(data.sha256 for data in used if data and data.name == name)
        here = prepared_data.current_checksum(datasets_dir / f"{name}.npz")
        usual = here or counts.most_common(1)[0][0]
        whose = "the file prepared here" if here else "most runs"
        for found in set(counts) - {usual}:
            reasons[name, found] = (
                f"made of other data: the data of {name} have the checksum "
                f"{found[:_SHOWN_DIGITS]}, the data of {whose} {usual[:_SHOWN_DIGITS]}; make it "
                f"again with {RERUN_STALE}"
            )
    return [reasons.get((data.name, data.sha256), "") if data else "" for data in used]
