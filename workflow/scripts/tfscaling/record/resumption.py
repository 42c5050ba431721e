"""A run that was interrupted and went on: what its record says, and what its attempts leave.

Beside the attempts of a run lies the folder of its checkpoints (`FOLDER`), which goes when the run
has its record. Each attempt notes where it began (`Beginning`), and while it trains how many steps
the training has (`POSITION`).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tfscaling.files import atomic
from tfscaling.record import attempts, events, failure_report, run_record
from tfscaling.record.rank_report import RankReport, TrainingReport
from tfscaling.record.run_record import EarlierAttempt, RecordError, Resumed, RunRecord

#: In a run's folder: its checkpoints, or those that a user's program writes.
FOLDER = "checkpoints"
#: In an attempt's folder: its `Beginning`, and the number of steps of the training so far.
BEGINNING, POSITION = "beginning.json", "steps"


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attempt began; `folder` is that of the run's checkpoints."""

    folder: str
    attempt: int
    first_attempt: Annotated[
        int, Meta(description="The first attempt at this training: same parameters, code and data.")
    ]
    checkpoint: Annotated[
        str | None, Meta(description="The folder of the checkpoint, in `folder`; null: from none.")
    ] = None
    steps: Annotated[int, Meta(ge=0, description="Steps that the training had then.")] = 0


_BEGINNING = msgspec.json.Decoder(Beginning)


def read_beginning(attempt: Path) -> Beginning | None:
    """What was noted in an attempt's folder, or None. Raises RecordError."""
    return run_record.decoded(attempt / BEGINNING, _BEGINNING, 0)


def write_beginning(attempt: Path, beginning: Beginning) -> None:
    """Note it in the attempt's folder."""
    run_record.write_json(attempt / BEGINNING, beginning)


def earlier_attempts(run: Path, beginning: Beginning) -> tuple[EarlierAttempt, ...]:
    """The attempts before this one of which the training goes on."""
    numbers = range(beginning.first_attempt, beginning.attempt)
    folders = [attempts.path(run, number) for number in numbers]
    return tuple(
        EarlierAttempt(
            attempt=number,
            duration_s=_duration_s(folder),
            steps=_steps(folder),
            cause=_cause(folder),
        )
        for number, folder in zip(numbers, folders, strict=True)
        if folder.is_dir()
    )


def told(record: RunRecord, run: Path, reports: Sequence[RankReport]) -> RunRecord:
    """The record of an attempt in the folder `run`, with how it went on if it did."""
    beginning = read_beginning(attempts.path(run, record.attempt))
    if beginning is None or beginning.checkpoint is None:
        return record
    earlier = earlier_attempts(run, beginning)
    since = next((r.went_on for r in reports if isinstance(r, TrainingReport)), None)
    steps = [each.steps for each in earlier]
    known = [each for each in steps if each is not None]
    is_known = since is not None and len(known) == len(steps)
    resumed = Resumed(
        epoch=since.epoch if since else None,
        step=since.step if since else None,
        steps_repeated=sum(known) - beginning.steps if is_known else None,
        trained_before_s=since.trained_s if since else None,
        attempts=earlier,
    )
    warnings = (*record.warnings, resumed.sentence)
    return msgspec.structs.replace(record, resumed=resumed, warnings=warnings)


def remove(run: Path) -> None:
    """Delete the run's checkpoints: it has its record, or none of them counts."""
    shutil.rmtree(run / FOLDER, ignore_errors=True)


def write_position(path: Path, steps: int) -> None:
    """Note how many steps the training has."""
    atomic.write_text(path, f"{steps}\n")


def _steps(attempt: Path) -> int | None:
    """Steps that the attempt trained; None if that is not known."""
    try:
        beginning = read_beginning(attempt)
        reached = int((attempt / POSITION).read_text())
    except FileNotFoundError:  # it did not come so far
        return 0 if beginning is not None else None
    except (RecordError, OSError, ValueError):
        return None
    return reached - (beginning.steps if beginning else 0)


def _duration_s(attempt: Path) -> float | None:
    """From the first event of its ranks to the last; None if there is none."""
    found = [
        event["time_s"]
        for path in attempt.glob("rank-*.events.jsonl")
        if re.fullmatch(r"rank-\d+\.events\.jsonl", path.name)
        for event in events.on_launcher_clock(events.read(path))
    ]
    return max(found) - min(found) if found else None


def _cause(attempt: Path) -> str:
    """How it ended, as far as its launcher could still say it."""
    try:
        failure = failure_report.read(attempt)
    except RecordError:
        failure = None
    return failure.cause.sentence if failure else "ended without a word"
