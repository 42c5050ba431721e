"""Conditional runs, made in rounds: runs of a search, and larger batches of doublings.

All runs of a round end before the next round is decided. A search requests the runs of its next
analysis. A larger batch is run if most runs of the next smaller batch fit in memory; runs that a
search gave up do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tfscaling.plan import retries
from tfscaling.record import run_record
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.search import study_searches
from tfscaling.search.study_searches import StudySearch
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.tables import runs_table, table_files
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.row_values import point_of


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The file round=<n>.json: the conditional runs that rounds 1 to n request.

    Results of other runs decide whether a conditional run is made.

    Attributes:
        round: Number n of the round, from 1.
    """

    round: int
    runs: Annotated[
        tuple[str, ...], Meta(description="Paths of the runs in all rounds up to this one.")
    ]
    added: Annotated[int, Meta(description="How many of them are new.")]


def read_round(path: Path) -> Round | None:
    """Return the content of the file of a round; None if the file does not exist.

    Raises:
        RecordError: The file is not a round.
    """
    return run_record.read_as(path, Round)


def next_round(
    planned: Manifest, runs_dir: Path, before: Collection[str], number: int
) -> tuple[Round, list[StudySearch]]:
    """Return the next round of conditional runs, and the searches with their decisions.

    Args:
        planned: The manifest.
        runs_dir: The folder of all runs.
        before: Folders of the runs that earlier rounds request.
        number: Number of the round, from 1.
    """
    table, _ = runs_table.run_tables(planned.runs, runs_dir, planned.targets)
    done = table[table["status"].isin([*RESULTS])]
    rows = {(point_of(row), row.repeat): row for row in table_files.to_rows(RunRow, done)}
    # short and complete runs of a configuration need the same memory
    complete_of = {
        each.short.path: each.point.path
        for search in planned.searches
        for each in search.points
        if each.short
    }
    given_up = retries.find_given_up_runs(planned, runs_dir)
    due_at: dict[str, list[RunRow | None]] = {}
    for run in planned.runs:
        is_due = not run.is_conditional or run.spec.path in before
        if is_due and run.spec.path not in given_up:
            row, folder = rows.get((run.spec.point, run.spec.repeat)), run.spec.point.path
            due_at.setdefault(complete_of.get(folder, folder), []).append(row)
    searches = study_searches.decide_searches(planned, table)
    extra = {(run.spec.point, run.spec.repeat): run for run in planned.runs if run.extra_repeat}
    wanted = [extra[run] for search in searches for run in search.needed_runs() if run in extra]
    wanted += [run for run in planned.runs if run.smaller and not run.extra_repeat]
    # folders of points all of whose due runs have ended, and most fit in memory
    fitting = {path for path, ended in due_at.items() if all(ended) and _do_most_fit(ended)}
    fitted = {path for path, due in due_at.items() if any(map(_has_fitted, due))}

    def is_allowed(run: PlannedRun) -> bool:
        own, smaller = run.spec.point.path, run.smaller
        is_own_fitting = complete_of.get(own, own) in fitted
        return not smaller or is_own_fitting or complete_of.get(smaller, smaller) in fitting

    wanted = [run for run in wanted if is_allowed(run)]
    added = [run.spec.path for run in wanted if run.spec.path not in before]
    return Round(round=number, runs=(*before, *added), added=len(added)), searches


def _do_most_fit(runs: Sequence[RunRow | None]) -> bool:
    """Return whether more than half of these runs fit in memory."""
    return 2 * sum(map(_has_fitted, runs)) > len(runs)


def _has_fitted(run: RunRow | None) -> bool:
    """Return whether a run has ended and fitted in memory; None is a run that has not ended."""
    return run is not None and run.status != RunState.DOES_NOT_FIT
