"""failure.json of a job that left no record: the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tfscaling.records import run_record

Kind = Literal[
    "cancelled",
    "incomplete",
    "invalid",
    "launch_failed",
    "launcher_failed",
    "program_failed",
    "rank_died",
    "rank_failed",
    "stalled",
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


_DECODER = msgspec.json.Decoder(FailureReport)


def read(folder: Path) -> FailureReport | None:
    """The failure that was left in a job's folder, or None. Raises RecordError."""
    return run_record.decoded(folder / run_record.FAILURE, _DECODER, 0)


def failed_attempts(folder: Path, parameters_hash: str) -> int:
    """How many attempts at the job with these parameters failed; cancelled ones are no failures."""
    count = 0
    for attempt in folder.glob("attempt=*"):
        try:
            report = read(attempt)
        except run_record.RecordError:
            continue
        if report is not None and report.parameters_hash == parameters_hash:
            count += report.cause.kind != "cancelled"
    return count
