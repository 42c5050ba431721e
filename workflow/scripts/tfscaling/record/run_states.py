"""The record of a planned run, and its state: whether it counts, or why it does not.

Parameters are part of a run's folder: changed ones are another run. A run is stale if its record
was made by other user code or from other data than planned now; it is in no median. A change of
user code alone reruns nothing.
"""

from __future__ import annotations

import enum
import functools
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
_SHOWN = 12


class RunState(enum.StrEnum):
    """The `status` of a run in records and tables."""

    #: It passed all checks: it counts.
    OK = "ok"
    #: Its loss became NaN or infinite: a result, which is in no median.
    DIVERGED = "diverged"
    #: It ran out of memory: a result, too.
    DOES_NOT_FIT = "does_not_fit"
    #: It ended without a record, or its record cannot be read.
    FAILED = "failed"
    #: It began and left neither a record nor a failure: still running, or killed.
    UNFINISHED = "unfinished"
    #: Its record was made by other code or from other data.
    STALE = "stale"
    #: It was not run.
    MISSING = "missing"


def words(status: str) -> str:
    """Return a status as words for a sentence, such as `not fitting in memory`."""
    return "not fitting in memory" if status == RunState.DOES_NOT_FIT else status


#: Option of snakemake that reruns stale runs.
RERUN_STALE = "--config rerun=stale"
#: States of a run that trained to its end.
FINISHED = (RunState.OK, RunState.DIVERGED)
#: States of a run that is a result: it has a record and is not run again.
RESULTS = (*FINISHED, RunState.DOES_NOT_FIT)


class FoundRecord(NamedTuple):
    """The record that counts for a run, and its file."""

    file: Path
    record: RunRecord | DoesNotFit


def find_record(spec: RunSpec, folder: Path, replaces: int = 0) -> FoundRecord | None:
    """Return the record that counts for a planned run, or None.

    It is the record in the run's folder, else the newest one that an attempt has kept. A record by
    the present user code is preferred.

    Args:
        spec: The planned run.
        folder: The run's folder.
        replaces: Records of attempts up to this number do not count.

    Raises:
        RecordError: If the record in the folder cannot be read or is of another run, and no attempt
            has kept one.
    """
    file, problem, candidates = folder / run_record.RECORD, None, []
    try:
        record = _read_record_of(spec, file)
        if record is not None and record.attempt > replaces:
            candidates.append(FoundRecord(file, record))
            if not other_code(spec, record):
                return candidates[0]
    except RecordError as error:
        problem = error
    candidates += _kept_records(spec, folder, replaces)
    if problem is not None and not candidates:
        raise problem
    current = (each for each in candidates if not other_code(spec, each.record))
    return next(current, candidates[0] if candidates else None)


def _read_record_of(spec: RunSpec, file: Path) -> RunRecord | DoesNotFit | None:
    """Read the record in a file.

    Raises:
        RecordError: If it cannot be read, or is of another run.
    """
    record = run_record.outcome(file)
    if record is not None and record.parameters_hash != spec.parameters_hash:
        raise RecordError(
            f"{file}: parameters_hash {record.parameters_hash}, expected {spec.parameters_hash} "
            "by the name of its folder: it is the record of another run"
        )
    return record


def _kept_records(spec: RunSpec, folder: Path, replaces: int) -> list[FoundRecord]:
    """Return the complete records that the run's attempts have kept, the newest first."""
    found = []
    for number in reversed(attempts.numbers(folder)):
        file = attempts.path(folder, number) / attempts.RECORD
        try:
            record = _read_record_of(spec, file) if number > replaces else None
        except RecordError:
            continue
        if record is not None:
            found.append(FoundRecord(file, record))
    return found


def nearest_change(spec: RunSpec, runs_dir: Path) -> str:
    """Return how a planned run differs from the most similar record with its axes; "" without one.

    Each changed parameter is `key: before, now value`, as in `describe_change`.
    """
    folder = (runs_dir / spec.path).parent
    defaults = run_spec.defaults_of_omitted_keys()
    planned = {**defaults, **spec.parameters}
    changes: list[list[str]] = []
    for file in sorted(folder.glob(f"{run_spec.PARAMETERS_AXIS}=*/{run_record.RECORD}")):
        try:
            record = run_record.outcome(file)
        except RecordError:
            continue
        if record is not None:
            changes.append(run_spec.describe_changes(planned, {**defaults, **record.parameters}))
    nearest: list[str] = min(changes, key=len, default=[])
    return "; ".join(nearest)


def other_code(spec: RunSpec, record: RunRecord | DoesNotFit) -> str:
    """Return a message that names user files changed since the record was made; "" if none has.

    Records without checksums are not compared.
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
    """Return the checksums of the code's files as they are, computed once in a process.

    `folder`, the working folder, is only part of the cache's key.
    """
    return code.checksums()


def find_stale(
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
        spec.path for spec in specs if spec.path in records and other_code(spec, records[spec.path])
    }
    reasons = other_data([each.environment.dataset for each in records.values()], datasets)
    return of_other_code | {path for path, why in zip(records, reasons, strict=True) if why}


def other_data(used: Sequence[PreparedData | None], datasets_dir: Path) -> list[str]:
    """Return for each run why it read other data than planned; "" if it did not.

    The planned data of a dataset is in `datasets_dir`; if it is missing there, it is the data that
    most runs read.

    Args:
        used: The data that each run read; None without a record.
        datasets_dir: The folder of the prepared datasets.
    """
    reasons = {}
    for name in dict.fromkeys(data.name for data in used if data):
        counts = Counter(data.sha256 for data in used if data and data.name == name)
        here = prepared_data.checksum_here(datasets_dir / f"{name}.npz")
        usual = here or counts.most_common(1)[0][0]
        whose = "the file prepared here" if here else "most runs"
        for found in set(counts) - {usual}:
            reasons[name, found] = (
                f"made of other data: the data of {name} have the checksum {found[:_SHOWN]}, "
                f"the data of {whose} {usual[:_SHOWN]}; make it "
                f"again with {RERUN_STALE}"
            )
    return [reasons.get((data.name, data.sha256), "") if data else "" for data in used]
