"""Runs that no study of a folder requests, as after an edit of a recipe.

`snakemake clean_runs` lists or removes them.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Set
from pathlib import Path
from typing import NamedTuple

from tfscaling.record import attempts, run_record
from tfscaling.study.config_types import AXES
from tfscaling.study.manifest import Manifest


class UnrequestedRun(NamedTuple):
    """A run that no study requests.

    Attributes:
        path: Its folder below results/runs.
        node_hours: Node-hours that it took.
        has_record: Whether it has a record.
        is_unfinished: Whether it has begun, but has neither a record nor a failure report: it may
            still be running.
    """

    path: str
    node_hours: float
    has_record: bool
    is_unfinished: bool


def find_unrequested(results: Path, study: str, planned: Manifest) -> list[UnrequestedRun]:
    """Return the runs that neither this study nor any other study below `results` requests.

    Args:
        results: The folder of studies and runs.
        study: The name of this study.
        planned: Its manifest; the other studies have theirs in their folders.

    Raises:
        ManifestError: If the manifest of another study cannot be read.
    """
    requested = {run.spec.path for run in planned.all_runs}
    for name, file in _known_studies(results).items():
        if name != study:
            requested |= {run.spec.path for run in Manifest.read(file).all_runs}
    return [*_list_other_runs(results / "runs", requested)]


def _list_other_runs(runs_dir: Path, requested: Set[str]) -> Iterator[UnrequestedRun]:
    """Yield the runs in a folder that are not requested."""
    for folder in sorted(runs_dir.glob("/".join(["*"] * (len(AXES) + 1)))):
        path = folder.relative_to(runs_dir).as_posix()
        if path in requested:
            continue
        axes = dict(part.split("=", 1) for part in path.split("/"))
        node_hours = int(axes["nodes"]) * attempts.failed_attempts(folder).wall_time_s / 3600
        record = None
        with contextlib.suppress(run_record.RecordError):
            record = run_record.read_outcome(folder / run_record.RECORD)
        if record is not None:
            node_hours += run_record.node_hours(record)
        has_ended = record is not None or (folder / run_record.FAILURE).exists()
        yield UnrequestedRun(
            path,
            node_hours,
            (folder / run_record.RECORD).exists(),
            bool(attempts.attempt_numbers(folder)) and not has_ended,
        )


def report_and_remove(results: Path, study: str, planned: Manifest, *, remove: bool) -> list[str]:
    """List the runs that no study requests, and remove them on request.

    Args:
        results: The folder of studies and runs.
        study: The name of this study.
        planned: Its manifest.
        remove: Whether to remove these runs, except runs that may still be running.

    Returns:
        A line for each of these runs, and a line with their sum.

    Raises:
        ManifestError: If the manifest of another study cannot be read.
        OSError: If a run cannot be removed.
    """
    found = find_unrequested(results, study, planned)
    lines = []
    for run in found:
        kind = "record" if run.has_record else "unfinished" if run.is_unfinished else "no record"
        kept = " (kept: it may still run)" if run.is_unfinished else ""
        lines.append(f"{run.node_hours:.3g} node-hours, {kind}: {run.path}{kept}")
    ended = [run for run in found if not run.is_unfinished]
    if remove:
        for run in ended:
            _remove_run(results / "runs", run.path)
    number = "1 run" if len(ended) == 1 else f"{len(ended)} runs"
    node_hours = sum(run.node_hours for run in ended)
    studies = ", ".join(sorted({study, *_known_studies(results)}))
    verb = "removed" if remove else f"no study known here ({studies}) requests"
    advice = "" if remove or not ended else "; --config clean=remove removes them"
    return [*lines, f"{verb} {number} with {node_hours:.3g} node-hours{advice}"]


def _known_studies(results: Path) -> dict[str, Path]:
    """Return name of each study below a folder → its manifest."""
    return {file.parts[-3]: file for file in sorted(results.glob("*/details/manifest.json"))}


def _remove_run(runs_dir: Path, path: str) -> None:
    """Remove the folder of a run, and empty folders above it."""
    shutil.rmtree(runs_dir / path)
    for folder in (runs_dir / path).parents:
        if folder == runs_dir:
            break
        try:
            folder.rmdir()
        except OSError:  # it has other runs
            break
