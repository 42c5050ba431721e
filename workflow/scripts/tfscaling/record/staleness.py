"""Why a record is not of the run that is planned now: other parameters, other code, other data.

Such a run is stale: it takes part in no median. The code of the user's is what is in the project
folder now; a change of it reruns nothing by itself.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfscaling.record import earlier, prepared_data, run_record
from tfscaling.record.run_record import PreparedData, RunRecord
from tfscaling.record.run_states import RERUN_STALE
from tfscaling.spec import run_spec, user_code
from tfscaling.spec.run_spec import RunSpec
from tfscaling.spec.user_code import Checksums, Code

_EARLIER = f"{earlier.PREFIX}{run_record.RECORD}"


def other_parameters(spec: RunSpec, record: RunRecord) -> str:
    """Which parameters differ from those of the record, or an empty text."""
    if record.parameters_hash == spec.parameters_hash:
        return ""
    planned = {**spec.axes, **spec.parameters}
    found = {**record.axes.axes, **record.parameters}
    return f"made with other parameters: {run_spec.differences(planned, found)}"


def other_code(spec: RunSpec, record: RunRecord) -> str:
    """Which files of the user's differ from those that the record was made of, or an empty text.

    Records without checksums, made before there were any, are not compared.
    """
    environment = record.environment
    prepared_by = environment.dataset.user_code if environment.dataset else {}
    return changed_code(
        (environment.user_code, user_code.of_run(spec)),
        (prepared_by, user_code.of_names(spec.dataset)),
    )


def changed_code(*made_by: tuple[Checksums, Code]) -> str:
    """The same of checksums in a record, each with the code that they are of."""
    found: dict[str, str] = {}
    for used, code in made_by:
        if used and (here := now(code, Path.cwd())):  # what is not here cannot be compared
            found |= user_code.differences(used, here)
    if not found:
        return ""
    return f"made by other code: {', '.join(found.values())}; make it again with {RERUN_STALE}"


@functools.cache
def now(code: Code, folder: Path) -> Checksums:
    """The checksums of the code in the project folder; a process asks for them once."""
    return code.checksums()


def stale(specs: Iterable[RunSpec], runs_dir: Path, name: str = run_record.RECORD) -> set[str]:
    """The folders below `runs_dir` of the runs whose record, the file `name`, is stale."""
    found, paths = set(), []
    data: list[PreparedData | None] = []
    for spec, record in _records(specs, runs_dir, name):
        paths.append(spec.path)
        if record and (other_parameters(spec, record) or other_code(spec, record)):
            found.add(spec.path)
            data.append(None)
        else:
            data.append(record.environment.dataset if record else None)
    others = prepared_data.other_data(data, prepared_data.folder_beside(runs_dir))
    return found | {path for path, other in zip(paths, others, strict=True) if other}


def to_bring_back(specs: Iterable[RunSpec], runs_dir: Path) -> set[str]:
    """The folders of the runs that have no record, and an earlier one which is not stale.

    They were to be made again, and no new run is whole.
    """
    lost = [
        spec
        for spec in specs
        # thousands of runs: no more than a look at the file system for each
        if os.path.exists(f"{runs_dir}/{spec.path}/{_EARLIER}")
        and not os.path.exists(f"{runs_dir}/{spec.path}/{run_record.RECORD}")
    ]
    if not lost:
        return set()
    readable = {spec.path for spec, record in _records(lost, runs_dir, _EARLIER) if record}
    return readable - stale(lost, runs_dir, _EARLIER)


def to_make(specs: Iterable[RunSpec], runs_dir: Path) -> set[str]:
    """Those of the runs that have no record of their parameters, which need no asking for."""
    return {
        spec.path
        for spec, record in _records(specs, runs_dir)
        if record is None or other_parameters(spec, record)
    }


def _records(
    specs: Iterable[RunSpec], runs_dir: Path, name: str = run_record.RECORD
) -> Iterator[tuple[RunSpec, RunRecord | None]]:
    for spec in specs:
        try:
            yield spec, run_record.read(runs_dir / spec.path / name)
        except run_record.RecordError:
            yield spec, None
