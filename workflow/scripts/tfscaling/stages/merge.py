"""Take another cluster's results into these: all of what is planned here, or nothing.

INPUTS   manifest.json, the run records; the other project, or its folder of results (--from)
OUTPUTS  the folders of runs that are not here yet; the next start makes the tables

A record is taken if it is complete, and made with the planned parameters, the same data and the
same user code. Nothing here is overwritten: a run that both have, measured twice, is a conflict.
Failed attempts stay where they are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tfscaling.console import text_lines
from tfscaling.record import run_record, run_states
from tfscaling.record.run_record import DoesNotFit, RunRecord
from tfscaling.spec.manifest import Manifest
from tfscaling.spec.run_spec import RunSpec
from tfscaling.stages.study_folder import StudyFolder


@dataclass(frozen=True)
class Merge:
    """What a merge would do; `conflicts` name the folder and why it is not taken."""

    #: Folders to copy, below the folders of results.
    taken: tuple[str, ...]
    #: Records that both have, byte for byte.
    alike: int
    conflicts: tuple[str, ...]


def run(study: StudyFolder) -> None:
    """Copy what is missing here. Raises SystemExit with conflicts, or without other results."""
    there = study.other or Path()
    there = there / "results" if (there / "results").is_dir() else there
    here = study.runs_dir.parent
    if not there.is_dir() or there.resolve() == here.resolve():
        sys.exit(f"--from {there}: name the other project's folder, or its folder of results")
    found = compare(study.manifest, here, there)
    for conflict in found.conflicts:
        print(f"conflict: {conflict}")
    if found.conflicts:
        sys.exit(f"nothing is taken: {text_lines.count(len(found.conflicts), 'conflict')}")
    take(found, here, there)
    print(f"{text_lines.count(len(found.taken), 'record')} taken, {found.alike} here already")
    if found.taken:  # by runs of other clusters, which no rule makes here
        for name in ("runs", "comparison"):
            study.table(name).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Found:
    """A record of the other results that is missing here; `problem`: why it cannot be taken."""

    folder: str
    problem: str = ""
    record: RunRecord | DoesNotFit | None = None


def compare(manifest: Manifest, here: Path, there: Path) -> Merge:
    """The results in `there` that are merged into `here`, for what the manifest plans.

    Both are folders of results, with `runs` and `datasets`. User code is read from
    the working directory.
    """
    offered: list[_Found] = []
    alike = 0
    records_here: list[RunRecord | DoesNotFit | None] = []
    for run in manifest.runs:
        folder, name = f"runs/{run.spec.path}", run_record.RECORD
        mine, others = here / folder / name, there / folder / name
        if mine.exists():
            with contextlib.suppress(run_record.RecordError):
                records_here.append(run_record.outcome(mine))
        if mine.exists() and others.exists() and mine.read_bytes() == others.read_bytes():
            alike += 1
        elif others.exists():
            problem = _in_the_way(here / folder, name) or _no_plain_files(there / folder)
            offered.append(_run(run.spec, folder, there, problem))
    offered = _without_other_data(offered, records_here, here)
    taken = [found for found in offered if not found.problem]
    return Merge(
        taken=tuple(found.folder for found in taken),
        alike=alike,
        conflicts=tuple(f"{found.folder}: {found.problem}" for found in offered if found.problem),
    )


def take(merge: Merge, here: Path, there: Path) -> None:
    """Copy what is taken, each folder completely or not at all.

    Files keep their times, so that Snakemake sees no reason to make a run again.
    """
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
    return _Found(folder, other or problem, record)


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
