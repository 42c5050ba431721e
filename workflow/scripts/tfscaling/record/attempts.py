"""Attempts at a job: their folders, the records that they keep, why they failed, how a run resumed.

The folders `attempt=1`, `attempt=2`, … are in the job's folder. A failed attempt has a
`failure.json`. Each attempt at a training notes where it began (`Beginning`), and while it trains
the number of steps so far (`POSITION`); the run's checkpoints (`CHECKPOINTS`) are next to the
attempts and are deleted when the run has its record. The launcher writes these files; rules, tables
and executor plugins read them.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from tfscaling.files import atomic
from tfscaling.files.outside_text import LENGTH_MAX, make_visible, shorten
from tfscaling.record import events, run_record
from tfscaling.record.rank_report import FromZero, RankReport, TrainingReport
from tfscaling.record.run_record import EarlierAttempt, RecordError, Resumption, RunRecord

#: In an attempt's folder: the file with the specification that all ranks read.
SPEC = "spec.json"
#: In an attempt's folder: the shell script with the lines of `setup`.
SETUP = "setup.sh"
#: In the folder of an attempt that finished its run: the record, a hard link to the record in the
#: run's folder. It stays there, and replaces a record that Snakemake removes.
RECORD = "record.json"
#: In an attempt's folder: a record that does not count, because a newer attempt had begun before.
SUPERSEDED_RECORD = "superseded.json"
#: In the attempt's folder of a finished run: the first rank's log, and an archive of the other
#: ranks' logs.
FIRST_LOG, LOGS = "rank-0.log", "rank-logs.tar.gz"
#: Names of a finished run's files next to its record.
FILES_OF_RUN = (run_record.EVENTS, run_record.STEPS, run_record.COMPUTE_STEPS)
#: In an attempt's folder: a folder from which files move to the job's folder. The next attempt
#: renames it, so that a launcher that outlives its attempt can publish nothing any more.
_OUTBOX = "outbox"
#: In a run's folder: checkpoints of the trainer or a user program; and in this folder: the files of
#: a program.
CHECKPOINTS, PROGRAM_CHECKPOINTS = "checkpoints", "program"
#: In an attempt's folder: its `Beginning`, and the number of steps of the training so far.
BEGINNING, POSITION = "beginning.json", "steps"
#: Failed attempts after which a run of a search is not tried again.
ATTEMPTS_MAX = 3


class SupersededError(FileNotFoundError):
    """A newer attempt at the job has begun."""


def create_attempt(folder: Path, number: int) -> None:
    """Create an attempt's folder, and prevent earlier attempts from publishing results.

    Args:
        folder: The job's folder.
        number: Number of the attempt.

    Raises:
        FileExistsError: If the attempt exists.
    """
    attempt_folder(folder, number).mkdir()
    (attempt_folder(folder, number) / _OUTBOX).mkdir()
    *earlier, newest = attempt_numbers(folder) or [number]
    _block_attempts(folder, earlier, newest)


def _block_attempts(folder: Path, attempts: Iterable[int], newest: int) -> None:
    """Prevent attempts from publishing results in the job's folder from now on.

    Args:
        folder: The job's folder.
        attempts: Numbers of these attempts.
        newest: Number of the attempt that supersedes them.
    """
    for each in attempts:
        old = attempt_folder(folder, each)
        if not old.is_dir():  # a file of the user, or an archive that is away
            continue
        with contextlib.suppress(FileNotFoundError):
            os.rename(old / _OUTBOX, old / f"superseded_by={newest}")


def restore_record(kept: Path, record: Path) -> None:
    """Copy the record in an attempt's folder to the run's folder.

    Other attempts at the run, which may still be running, can write no record afterwards.

    If the run's folder has a valid record of the same run, this record is first saved in its
    attempt's folder. A damaged record, or the record of a different run, is renamed.

    Args:
        kept: The record in the attempt's folder.
        record: The file of the run's record.

    Raises:
        OSError: If a file cannot be written.
        RecordError: If the kept record cannot be read.
    """
    folder, attempt = record.parent, kept.parent
    number = int(attempt.name.partition("=")[2])
    _block_attempts(folder, (each for each in attempt_numbers(folder) if each != number), number)
    counts, present = run_record.read_outcome(kept), None
    with contextlib.suppress(RecordError):
        present = run_record.read_outcome(record)
    if present and counts and present.parameters_hash == counts.parameters_hash:
        keep_record(record, present.attempt)
    elif record.exists():
        _rename_broken(record)
    files = [name for name in FILES_OF_RUN if (attempt / name).exists()]
    for name in files:  # its launcher ended before it published them
        atomic.link(attempt / name, record.with_name(name))
    atomic.link(kept, record)
    for failure in (attempt / run_record.FAILURE, folder / run_record.FAILURE):
        if failure.is_dir():
            _rename_broken(failure)
        else:
            failure.unlink(missing_ok=True)
    if files:
        remove_temporary_files(attempt)


def _rename_broken(damaged: Path) -> None:
    """Rename a damaged file, or a folder in its place, to `broken.NAME`."""
    os.rename(damaged, damaged.with_name(f"broken.{damaged.name}"))


def keep_record(record: Path, number: int) -> None:
    """Save a run's record in the folder of its attempt, if it is missing there.

    Args:
        record: The file of the run's record.
        number: Number of the attempt.

    Raises:
        OSError: If it cannot be written.
    """
    kept = attempt_folder(record.parent, number) / RECORD
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        atomic.link(record, kept)


def publish(source: Path, place: Path) -> None:
    """Publish a file of an attempt as a result: link it to a path in the job's folder.

    Args:
        source: The file in the attempt's folder.
        place: Its path in the job's folder.

    Raises:
        SupersededError: If a newer attempt has begun; nothing is changed.
    """
    outbox = source.parent / _OUTBOX
    try:
        atomic.link(source, outbox / place.name)
        os.rename(outbox / place.name, place)
    except FileNotFoundError as error:
        if outbox.exists():
            raise
        raise SupersededError(f"{source.parent.name} is superseded by a newer attempt") from error


def remove_temporary_files(attempt: Path) -> None:
    """Delete files of a finished attempt that are no longer needed.

    The first rank's log, files of a program, and the record are kept. The logs of the other ranks
    are put into an archive.

    Args:
        attempt: The attempt's folder.
    """
    with os.scandir(attempt) as entries:  # which knows the kind of each without a further call
        found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    logs = [n for n in found if n.startswith("rank-") and n.endswith(".log") and n != FIRST_LOG]
    if logs:
        with atomic.replacement(attempt / LOGS) as path, tarfile.open(path, "w:gz") as archive:
            for name in sorted(logs):
                archive.add(attempt / name, name)
    kept = (RECORD, SUPERSEDED_RECORD, run_record.FAILURE, FIRST_LOG, LOGS)
    for name, is_folder in found.items():
        if not is_folder and name not in kept:
            (attempt / name).unlink(missing_ok=True)


def attempt_folder(folder: Path, number: int) -> Path:
    """Return the folder of an attempt.

    Args:
        folder: The job's folder.
        number: Number of the attempt.
    """
    return folder / f"attempt={number}"


def attempt_numbers(folder: Path) -> list[int]:
    """Return the numbers of all attempts in a job's folder, ascending; [] without the folder."""
    try:
        names = [re.fullmatch(r"attempt=(\d+)", each.name) for each in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name[1]) for name in names if name)


Kind = Literal[
    "cancelled",
    "incomplete",
    "invalid",
    "launch_failed",
    "launcher_failed",
    "missing_gpus",
    "node_failed",
    "out_of_memory",
    "preempted",
    "program_failed",
    "rank_died",
    "rank_failed",
    "requeued",
    "stalled",
    "time_limit",
]


class UserLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of user code.

    Attributes:
        file: Its file, relative to the project folder if it is inside.
        line: Number of the line, from 1.
        function: The function that has the line; None outside of functions.
    """

    file: str
    line: int
    function: str | None = None

    def __str__(self) -> str:
        """Return the line as `FILE:LINE in FUNCTION`, for messages."""
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a job or one of its attempts failed."""

    kind: Kind
    message: str
    rank: int | None = None
    """The first rank that failed; null if no single rank did."""
    host: str | None = None
    exit_code: int | None = None
    """Exit code of the rank; if a signal killed it, the signal's number with a minus sign; null if
    unknown."""
    error: str | None = None
    """Class of the exception; null without an exception."""
    place: UserLine | None = None
    """The line of user code that raised the exception; null if no user code did."""
    log: str | None = None
    """Path of the rank's log, which has the traceback."""
    last_event: str | None = None
    """Name of the rank's last event; null if it had none."""
    last_lines: tuple[str, ...] = ()
    """The last lines of the rank's log."""

    @property
    def sentence(self) -> str:
        """Kind, rank, host, message and log in one sentence, for tables and the console.

        Control characters are written out, and a long text is cut: failure.json has all of it.
        """
        host = f" on {self.host}" if self.host else ""
        where = "" if self.rank is None else f"rank {self.rank}{host}: "
        line = "" if self.place is None else f"{self.place}: "
        log = f"; log: {self.log}" if self.log and self.log not in self.message else ""
        log = shorten(make_visible(log), run_record.FAILURE, LENGTH_MAX // 2)
        text = make_visible(f"{self.kind}: {where}{line}{self.message}")
        return shorten(text, run_record.FAILURE, LENGTH_MAX - len(log)) + log


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """The file failure.json: the job, its attempt, and the cause."""

    axes: dict[str, str | int]
    attempt: int
    cause: Cause
    wall_time_s: float | None = None
    """Seconds from the start of the launcher to this report; null if unknown."""
    slurm_job: str | None = None
    """Number of the Slurm job, or JOB.STEP of a run inside an allocation, as sacct lists it; null
    outside Slurm."""


def write_failure(folder: Path, failure: FailureReport) -> None:
    """Write failure.json to the folder of a job or an attempt.

    Raises:
        OSError: The file cannot be written.
    """
    run_record.write_json(folder / run_record.FAILURE, failure)


def read_failure(folder: Path) -> FailureReport | None:
    """Return the content of failure.json in a job's or attempt's folder; None without the file.

    Raises:
        RecordError: The file is damaged.
    """
    return run_record.read_as(folder / run_record.FAILURE, FailureReport)


def cause_of(folder: Path) -> Cause | None:
    """Return why a job or attempt, given by its folder, failed; None without a readable report."""
    with contextlib.suppress(RecordError):
        return failure.cause if (failure := read_failure(folder)) else None
    return None


class FailedAttempts(NamedTuple):
    """Number and duration of the failed attempts at a job.

    Attributes:
        number: Number of failed attempts.
        wall_time_s: Their total time as far as it is known, in seconds.
        uncancelled_time_s: The part of this time in attempts that were not cancelled, in seconds.
    """

    number: int
    wall_time_s: float
    uncancelled_time_s: float = 0.0


def _read_failures(folder: Path) -> Iterator[FailureReport | None]:
    """Yield the report of each failed attempt in a job's folder; None for a broken report.

    The last one may be the report of a Slurm job that failed before it began an attempt. Such a
    report exists only in the job's folder.
    """
    slurm_jobs = set()
    for attempt in attempt_numbers(folder):
        try:
            failure = read_failure(attempt_folder(folder, attempt))
        except RecordError:
            yield None
        else:
            if failure is not None:
                slurm_jobs.add(failure.slurm_job)
                yield failure
    with contextlib.suppress(RecordError):
        last = read_failure(folder)
        if last is not None and last.slurm_job not in {None, *slurm_jobs}:
            yield last


def failed_attempts(folder: Path) -> FailedAttempts:
    """Return how many attempts in a job's folder failed, and how many seconds they took.

    An attempt with a broken failure report is counted, but its seconds are not.
    """
    found = list(_read_failures(folder))
    known = [each for each in found if each is not None]
    own = [each for each in known if each.cause.kind != "cancelled"]
    all_s, own_s = (sum(each.wall_time_s or 0.0 for each in some) for some in (known, own))
    return FailedAttempts(len(found), all_s, own_s)


def failed_too_often(folder: Path) -> bool:
    """Return whether ATTEMPTS_MAX or more attempts in a job's folder failed.

    Cancelled attempts do not count.
    """
    known = [failure for failure in _read_failures(folder) if failure is not None]
    return sum(failure.cause.kind != "cancelled" for failure in known) >= ATTEMPTS_MAX


class SpentNodeHours(NamedTuple):
    """Node-hours of all attempts at some runs, and what their failed attempts lost.

    Attributes:
        failed_attempts: Number of failed attempts.
        node_hours: Node-hours of all attempts.
        lost_node_hours: Node-hours of failed attempts.
        lost_cost_usd: Cost of failed attempts in US dollars; None if one of them has no price.
    """

    failed_attempts: int = 0
    node_hours: float = 0.0
    lost_node_hours: float = 0.0
    lost_cost_usd: float | None = 0.0


#: Columns of runs.csv that `sum_node_hours` reads.
SPENT_COLUMNS = ("nodes", "wall_time_s", "failed_attempts", "lost_time_s", "lost_cost_usd")


def sum_node_hours(runs: Iterable[Mapping[Any, Any]]) -> SpentNodeHours:
    """Return node-hours of all attempts at some runs, and what failed attempts cost.

    Unknown times count as 0.

    Args:
        runs: SPENT_COLUMNS of rows of runs.csv: column → number, or its text.
    """
    failed, hours, lost_hours, lost_usd = 0, 0.0, 0.0, 0.0
    for run in runs:
        nodes, lost_s = _amount(run, "nodes"), _amount(run, "lost_time_s")
        own = int(_amount(run, "failed_attempts"))
        failed += own
        lost_hours += nodes * lost_s / 3600
        hours += nodes * (lost_s + _amount(run, "wall_time_s")) / 3600
        lost_usd += _amount(run, "lost_cost_usd", math.nan) if own else 0.0
    return SpentNodeHours(failed, hours, lost_hours, None if math.isnan(lost_usd) else lost_usd)


def _amount(run: Mapping[Any, Any], name: str, unknown: float = 0.0) -> float:
    """Return a number in a row; `unknown` if it is missing, empty or NaN.

    Args:
        run: The row: column → number, or its text.
        name: Name of the column.
        unknown: The result for a missing number.
    """
    value = float(run.get(name) or "nan")
    return unknown if math.isnan(value) else value


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attempt's training began: with its first step, or from a checkpoint."""

    folder: str
    attempt: int
    first_attempt: int
    """Number of the first attempt at this training, which had the same parameters, code and
    data."""
    checkpoint: str | None = None
    """Name of the checkpoint's folder, in `folder`; null if the training began with its first
    step."""
    steps: FromZero = 0
    """Number of steps that earlier attempts had trained."""


def read_beginning(attempt: Path) -> Beginning | None:
    """Return where an attempt's training began; None if the attempt did not come so far.

    Args:
        attempt: The attempt's folder.

    Raises:
        RecordError: The file is damaged.
    """
    return run_record.read_as(attempt / BEGINNING, Beginning)


def add_resumption(record: RunRecord, run: Path, reports: Sequence[RankReport]) -> RunRecord:
    """Add facts on earlier attempts to a run's record, if the run resumed their training.

    Args:
        record: The record.
        run: The run's folder.
        reports: Reports of all ranks.

    Returns:
        The record with `resumed` and a warning; the unchanged record if nothing was resumed.
    """
    beginning = read_beginning(attempt_folder(run, record.attempt))
    if beginning is None or beginning.checkpoint is None:
        return record
    earlier = tuple(
        EarlierAttempt(
            attempt=number,
            duration_s=_duration_s(folder),
            steps=_trained_steps(folder),
            cause=cause.sentence if (cause := cause_of(folder)) else "ended without a word",
        )
        for number in range(beginning.first_attempt, beginning.attempt)
        if (folder := attempt_folder(run, number)).is_dir()
    )
    since = next((r.resumed_from for r in reports if isinstance(r, TrainingReport)), None)
    known = [each.steps for each in earlier if each.steps is not None]
    is_known = since is not None and len(known) == len(earlier)
    resumed = Resumption(
        epoch=since.epoch if since else None,
        step=since.step if since else None,
        steps_repeated=sum(known) - beginning.steps if is_known else None,
        trained_before_s=since.trained_s if since else None,
        attempts=earlier,
    )
    warnings = (*record.warnings, resumed.sentence)
    return msgspec.structs.replace(record, resumed=resumed, warnings=warnings)


def remove_checkpoints(run: Path) -> None:
    """Delete the folder of checkpoints in a run's folder, if it exists.

    It is renamed before, so that a new one can be made at once: on NFS, a file that another process
    has open stays in its folder until that process closes it.
    """
    aside = f".{CHECKPOINTS}."
    with contextlib.suppress(OSError):
        if (run / CHECKPOINTS).exists():
            os.rename(run / CHECKPOINTS, Path(tempfile.mkdtemp(dir=run, prefix=aside), CHECKPOINTS))
    for each in (run / CHECKPOINTS, *run.glob(f"{aside}*")):
        shutil.rmtree(each, ignore_errors=True)


def has_checkpoint(run: Path) -> bool:
    """Return whether a run's folder has a checkpoint of the trainer, or files of a program."""
    folder = run / CHECKPOINTS
    return any(folder.glob("steps=*")) or has_program_files(folder)


def has_program_files(folder: Path) -> bool:
    """Return whether a folder of checkpoints has files of a user's program."""
    return any((folder / PROGRAM_CHECKPOINTS).glob("*"))


def _trained_steps(attempt: Path) -> int | None:
    """Return the number of steps that an attempt, given by its folder, trained; None if unknown."""
    try:
        beginning = read_beginning(attempt)
        reached = int((attempt / POSITION).read_text())
    except FileNotFoundError:  # it did not come so far
        return 0 if beginning is not None else None
    except (RecordError, OSError, ValueError):
        return None
    return reached - (beginning.steps if beginning else 0)


def _duration_s(attempt: Path) -> float | None:
    """Return the seconds from the first to the last event of an attempt; None without events."""
    found = [
        event.time_s for lines in events.read_events_by_rank(attempt).values() for event in lines
    ]
    return max(found) - min(found) if found else None
