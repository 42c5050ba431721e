"""The state of a planned run: whether it counts, or why it does not.

A run is stale if its record was made with other parameters, by other user code or from other data
than planned now; it is in no median. A change of user code reruns nothing by itself.
"""

from __future__ import annotations

import enum
import functools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tfscaling.files import atomic
from tfscaling.record import attempts, prepared_data, run_record
from tfscaling.record.run_record import DoesNotFit, PreparedData, RunRecord
from tfscaling.spec import run_spec, user_code
from tfscaling.spec.run_spec import RunSpec
from tfscaling.spec.user_code import Checksums, Code

_EARLIER = attempts.backup_of(Path(run_record.RECORD)).name
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
    #: Its record was made with other parameters, by other code or from other data.
    STALE = "stale"
    #: It was not run.
    MISSING = "missing"


def words(status: str) -> str:
    """The status of runs in a sentence."""
    return "not fitting in memory" if status == RunState.DOES_NOT_FIT else status


#: Option of snakemake that reruns stale runs.
RERUN_STALE = "--config rerun=stale"
#: States of a run that trained to its end.
FINISHED = (RunState.OK, RunState.DIVERGED)
#: States of a run that is a result: it has a record and is not run again.
RESULTS = (*FINISHED, RunState.DOES_NOT_FIT)


def other_parameters(spec: RunSpec, record: RunRecord | DoesNotFit) -> str:
    """Which parameters differ from the record's, or an empty text."""
    if record.parameters_hash == spec.parameters_hash:
        return ""
    planned = {**spec.axes, **spec.parameters}
    found = {**record.axes.axes, **record.parameters}
    return f"made with other parameters: {run_spec.differences(planned, found)}"


def change_of(spec: RunSpec, runs_dir: Path) -> str:
    """Return how a planned run differs from the record in its folder, "" without one."""
    try:
        record = run_record.outcome(runs_dir / spec.path / run_record.RECORD)
    except run_record.RecordError:
        return ""
    return other_parameters(spec, record).partition(": ")[2] if record else ""


def other_code(spec: RunSpec, record: RunRecord | DoesNotFit) -> str:
    """Which user files differ from those that the record was made of, or an empty text.

    Records without checksums, made before there were any, are not compared.
    """
    environment = record.environment
    prepared_by = environment.dataset.user_code if environment.dataset else {}
    made_by = (
        (environment.user_code, user_code.of_run(spec)),
        (prepared_by, user_code.of_names(spec.dataset)),
    )
    found: dict[str, str] = {}
    for used, code in made_by:
        if used and (here := now(code, Path.cwd())):  # missing code cannot be compared
            found |= user_code.differences(used, here)
    if not found:
        return ""
    return f"made by other code: {', '.join(found.values())}; make it again with {RERUN_STALE}"


@functools.cache
def now(code: Code, folder: Path) -> Checksums:
    """The checksums of the code in the project folder, computed once in a process."""
    return code.checksums()


def stale(specs: Iterable[RunSpec], runs_dir: Path, name: str = run_record.RECORD) -> set[str]:
    """The folders below `runs_dir` of the runs whose record, the file `name`, is stale."""
    found, data = set(), {}
    for spec, record in _records(specs, runs_dir, name):
        if record and (other_parameters(spec, record) or other_code(spec, record)):
            found.add(spec.path)
        elif record:
            data[spec.path] = record.environment.dataset
    others = other_data([*data.values()], prepared_data.folder_beside(runs_dir))
    return found | {path for path, other in zip(data, others, strict=True) if other}


def to_bring_back(specs: Iterable[RunSpec], runs_dir: Path) -> set[str]:
    """The folders of the runs without a record whose earlier record is not stale.

    They were to be rerun, and no new run is complete.
    """
    lost = [
        spec
        for spec in specs
        # thousands of runs: no more than a look at the file system for each
        if os.path.exists(f"{runs_dir}/{spec.path}/{_EARLIER}")
        and not os.path.exists(f"{runs_dir}/{spec.path}/{run_record.RECORD}")
    ]
    readable = {spec.path for spec, record in _records(lost, runs_dir, _EARLIER) if record}
    return readable - stale(lost, runs_dir, _EARLIER)


def unreadable(specs: Iterable[RunSpec], runs_dir: Path) -> Iterator[tuple[RunSpec, str]]:
    """Yield the runs whose record exists and cannot be read, with the reason."""
    for spec in specs:
        try:
            run_record.outcome(runs_dir / spec.path / run_record.RECORD)
        except run_record.RecordError as error:
            yield spec, str(error)


def restore_record(spec: RunSpec, runs_dir: Path) -> bool:
    """Copy the record of the run's last attempt to its place, if the attempt has a complete one.

    Returns whether it has. The copy is new, so that tables are regenerated.
    """
    record = runs_dir / spec.path / run_record.RECORD
    begun = attempts.numbers(record.parent)
    source = attempts.path(record.parent, begun[-1]) / attempts.RECORD if begun else record
    try:
        if not (found := run_record.outcome(source)) or other_parameters(spec, found):
            return False
    except run_record.RecordError:
        return False
    atomic.write_text(record, source.read_text())
    return True


def to_make(specs: Iterable[RunSpec], runs_dir: Path) -> set[str]:
    """The folders of the runs without a record of their parameters; these are scheduled anyway."""
    return {
        spec.path
        for spec, record in _records(specs, runs_dir)
        if record is None or other_parameters(spec, record)
    }


def _records(
    specs: Iterable[RunSpec], runs_dir: Path, name: str = run_record.RECORD
) -> Iterator[tuple[RunSpec, RunRecord | DoesNotFit | None]]:
    for spec in specs:
        try:
            yield spec, run_record.outcome(runs_dir / spec.path / name)
        except run_record.RecordError:
            yield spec, None


def other_data(used: Sequence[PreparedData | None], datasets_dir: Path) -> list[str]:
    """For the data of each run (None: no record) why it differs from the planned data, or "".

    The planned data of a dataset is prepared in `datasets_dir`; if it is missing, the data of most
    runs counts.
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
