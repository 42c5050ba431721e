"""failure.json of a job that left no record: the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tfscaling.record import attempts, run_record

#: A run of a search that failed in so many attempts is not tried again.
ATTEMPTS_MAX = 3

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
    "slow_node",
    "stalled",
    "time_limit",
]


class UserLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the user's code; `file` is relative to the project folder if it lies there."""

    file: str
    line: int
    function: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a job failed."""

    kind: Kind
    message: str
    rank: Annotated[int | None, Meta(description="The first rank that failed, if one did.")] = None
    host: str | None = None
    exit_code: Annotated[int | None, Meta(description="Negative: the signal.")] = None
    error: Annotated[str | None, Meta(description="The exception's class.")] = None
    place: Annotated[
        UserLine | None, Meta(description="Where in the user's code it was raised, if it was.")
    ] = None
    log: Annotated[str | None, Meta(description="The rank's log, which has the traceback.")] = None
    reached: Annotated[str | None, Meta(description="The rank's last event.")] = None
    last_lines: Annotated[tuple[str, ...], Meta(description="The end of the rank's log.")] = ()

    @property
    def sentence(self) -> str:
        """The cause as tables and the console have it."""
        host = f" on {self.host}" if self.host else ""
        where = "" if self.rank is None else f"rank {self.rank}{host}: "
        line = "" if self.place is None else f"{self.place}: "
        log = f"; log: {self.log}" if self.log and self.log not in self.message else ""
        return f"{self.kind}: {where}{line}{self.message}{log}"


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which job failed, at which attempt, and why."""

    axes: dict[str, str | int]
    attempt: int
    cause: Cause
    parameters_hash: str = ""
    wall_time_s: Annotated[
        float | None, Meta(description="From the launcher's begin to this report, if known.")
    ] = None


def write(folder: Path, failure: FailureReport) -> None:
    """Leave the failure in a job's folder, or in that of its attempt. Raises OSError."""
    run_record.write_json(folder / run_record.FAILURE, failure)


_DECODER = msgspec.json.Decoder(FailureReport)


def read(folder: Path) -> FailureReport | None:
    """The failure that was left in a job's folder, or None. Raises RecordError."""
    return run_record.decoded(folder / run_record.FAILURE, _DECODER, 0)


class FailedAttempts(NamedTuple):
    """How many attempts at a job have failed, and how long they took together, as far as known.

    `own_time_s` is the part of attempts with the parameters of the job that nobody cancelled.
    """

    number: int
    wall_time_s: float
    own_time_s: float = 0.0


def failed_attempts(folder: Path, parameters_hash: str = "") -> FailedAttempts:
    """The attempts at the job of `folder` that left a failure; a broken report counts no time."""
    number, wall_time_s, own_time_s = 0, 0.0, 0.0
    for attempt in attempts.numbers(folder):
        try:
            failure = read(attempts.path(folder, attempt))
        except run_record.RecordError:
            failure = None
            number += 1
        if failure is not None:
            number += 1
            wall_time_s += failure.wall_time_s or 0.0
            is_own = failure.parameters_hash in ("", parameters_hash)
            if is_own and failure.cause.kind != "cancelled":
                own_time_s += failure.wall_time_s or 0.0
    return FailedAttempts(number, wall_time_s, own_time_s)


def failed_too_often(folder: Path, parameters_hash: str) -> bool:
    """Whether ATTEMPTS_MAX attempts with these parameters failed; cancelled ones do not count."""
    count = 0
    for attempt in folder.glob("attempt=*"):
        try:
            report = read(attempt)
        except run_record.RecordError:
            continue
        if report is not None and report.parameters_hash == parameters_hash:
            count += report.cause.kind != "cancelled"
    return count >= ATTEMPTS_MAX
