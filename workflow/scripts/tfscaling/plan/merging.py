"""Results of another cluster, taken into these: all of what is planned here, or nothing.

A record is taken if it is whole, of the parameters that are planned here, of the same data and of
the same user code. Nothing here is overwritten: a run that both have, measured twice, is a
conflict. Failed attempts stay where they are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tfscaling.conclusions import communication
from tfscaling.record import benchmark_record, run_record, run_states
from tfscaling.record.run_record import DoesNotFit, RunRecord
from tfscaling.spec.manifest import Manifest
from tfscaling.spec.run_spec import BenchmarkSpec, RunSpec

RUNS, BENCHMARKS = "runs", "all_reduce"


@dataclass(frozen=True)
class Merge:
    """What a merge would do; `conflicts` name the folder and why it is not taken."""

    #: Folders to copy, below the folders of results.
    taken: tuple[str, ...]
    #: Records that both have, byte for byte.
    alike: int
    #: Records there that nothing planned here asks for.
    unplanned: int
    conflicts: tuple[str, ...]
    #: Commit of the workflow → how many of the records to take are of it.
    commits: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Found:
    """A record of the other results that is missing here; `problem`: why it cannot be taken."""

    folder: str
    problem: str = ""
    record: RunRecord | DoesNotFit | None = None
    commit: str | None = None


def compare(manifest: Manifest, here: Path, there: Path) -> Merge:
    """The results in `there` that are merged into `here`, for what the manifest plans.

    Both are folders of results, with `runs`, `datasets` and `all_reduce`. User code is read from
    the working directory.
    """
    specs: dict[str, RunSpec | BenchmarkSpec] = {
        f"{RUNS}/{run.spec.path}": run.spec for run in manifest.runs
    }
    benchmarks = [each.spec for each in manifest.all_reduce_benchmarks if each.spec]
    specs |= {f"{BENCHMARKS}/{spec.path}": spec for spec in benchmarks}
    offered: list[_Found] = []
    alike = 0
    records_here: list[RunRecord | DoesNotFit | None] = []
    for folder, spec in specs.items():
        name = run_record.RECORD if isinstance(spec, RunSpec) else benchmark_record.RECORD
        mine, others = here / folder / name, there / folder / name
        if mine.exists() and isinstance(spec, RunSpec):
            with contextlib.suppress(run_record.RecordError):
                records_here.append(run_record.outcome(mine))
        if mine.exists() and others.exists() and mine.read_bytes() == others.read_bytes():
            alike += 1
        elif others.exists():
            problem = _in_the_way(here / folder, name) or _no_plain_files(there / folder)
            if isinstance(spec, RunSpec):
                offered.append(_run(spec, folder, there, problem))
            else:
                offered.append(_benchmark(spec, folder, there, problem))
    offered = _without_other_data(offered, records_here, here)
    taken = [found for found in offered if not found.problem]
    commits = Counter(found.commit or "unknown" for found in taken)
    return Merge(
        taken=tuple(found.folder for found in taken),
        alike=alike,
        unplanned=sum(folder not in specs for folder in _records(there)),
        conflicts=tuple(f"{found.folder}: {found.problem}" for found in offered if found.problem),
        commits=tuple(commits.most_common()),
    )


def take(merge: Merge, here: Path, there: Path) -> None:
    """Copy what is taken, each folder whole or not at all. Raises FileExistsError before it begins.

    Files keep their times, so that Snakemake sees no reason to make a run again.
    """
    if merge.conflicts:
        raise FileExistsError("; ".join(merge.conflicts))
    for folder in merge.taken:
        target = here / folder
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
        try:
            shutil.copytree(there / folder, temporary)
            os.rename(temporary, target)  # refuses a folder that exists and is not empty
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _run(spec: RunSpec, folder: str, there: Path, problem: str) -> _Found:
    path = there / folder / run_record.RECORD
    try:
        record = run_record.outcome(path)
    except run_record.RecordError as error:
        return _Found(folder, f"its record cannot be read: {str(error).removeprefix(f'{path}: ')}")
    assert record is not None, "it existed a moment ago"
    if record.axes.axes != spec.axes:
        return _Found(folder, "its record is of another run; the folder was moved")
    other = run_states.other_parameters(spec, record) or run_states.other_code(spec, record)
    return _Found(folder, other or problem, record, record.environment.git_commit)


def _benchmark(spec: BenchmarkSpec, folder: str, there: Path, problem: str) -> _Found:
    found = communication.read(spec, there / BENCHMARKS)
    if found.record is None:
        return _Found(folder, found.reason)
    return _Found(folder, problem, commit=found.record.environment.git_commit)


def _in_the_way(folder: Path, record: str) -> str:
    """What is in a folder that is to be copied to, or an empty text."""
    if (folder / record).exists():
        return "both have a record, and they differ: remove the one that is not to count"
    if folder.exists() and any(folder.iterdir()):
        return f"{folder} has an attempt without a record: remove it, or let it finish"
    return ""


def _no_plain_files(folder: Path) -> str:
    """Name a link or special file in a folder, which a copy would follow or hang on, or ""."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return f"{path.relative_to(folder)} is a link or no plain file: remove it there"
    return ""


def _without_other_data(
    offered: list[_Found], here: list[RunRecord | DoesNotFit | None], results: Path
) -> list[_Found]:
    """The offered records, where runs of other data have a problem."""
    records = [*here, *(found.record if not found.problem else None for found in offered)]
    used = [record.environment.dataset if record else None for record in records]
    reasons = run_states.other_data(used, results / "datasets")[len(here) :]
    return [
        replace(found, problem=found.problem or reason)
        for found, reason in zip(offered, reasons, strict=True)
    ]


def _records(results: Path) -> Iterator[str]:
    """The folders of all records, below the folder of results."""
    for kind, name in ((RUNS, run_record.RECORD), (BENCHMARKS, benchmark_record.RECORD)):
        for path in (results / kind).rglob(name):
            if not any(part.startswith("attempt=") for part in path.parts):
                yield str(path.parent.relative_to(results))
