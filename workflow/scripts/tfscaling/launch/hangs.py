"""Where users' programs are when they hang: asked once they are given up, told before they end."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from tfscaling.launch import failures
from tfscaling.launch.launchers import rank_log
from tfscaling.record.attempts import Cause
from tfscaling.record.events import PROGRAM_STARTED

#: The error of a rank that was given up; its message is the line of the user's code, if known.
HUNG = "Hung"
#: The launcher leaves this file in an attempt's folder.
_GIVEN_UP = "given-up"
#: So long the ranks have to end.
_LIMIT_S = 10.0
_POLL_S = 0.2
#: As many places are named.
_PLACES_MAX = 4


def is_given_up(folder: Path) -> bool:
    """Whether the launcher has given up the programs of this attempt."""
    return (folder / _GIVEN_UP).exists()


def with_places(cause: Cause, folder: Path) -> Cause:
    """End the programs of the ranks, and add to the cause at which lines they were.

    As it is for ranks of the workflow's own trainer.
    """
    if not _running(folder):
        return cause
    (folder / _GIVEN_UP).touch()
    until_s = time.monotonic() + _LIMIT_S
    while _running(folder) and time.monotonic() < until_s:
        time.sleep(_POLL_S)
    places: dict[str, list[int]] = {}
    for rank, events in failures.rank_events(folder).items():
        for event in events:
            if event["event"] == "failed" and event["error"] == HUNG and event["message"]:
                places.setdefault(event["message"], []).append(rank)
    said = [
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} hung at {place}"
        for place, ranks in list(places.items())[:_PLACES_MAX]
    ]
    rank = 0 if cause.rank is None else cause.rank
    log = rank_log(folder, rank)
    return msgspec.structs.replace(
        cause,
        message="; ".join([cause.message, *said, f"log: {log}"]),
        last_lines=failures.last_lines(log),
    )


def _running(folder: Path) -> bool:
    """Whether a rank's program has started and its rank has not yet said how it ended."""
    return any(
        events[-1]["event"] not in ("failed", "end")
        for events in failures.rank_events(folder).values()
        if any(event["event"] == PROGRAM_STARTED for event in events)
    )
