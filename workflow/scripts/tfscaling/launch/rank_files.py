"""The files that each rank leaves in the attempt's folder, and waiting for them.

A shared file system may show a node's files to the launcher some time after the rank has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from tfscaling.files import strict_json
from tfscaling.record import events, run_record
from tfscaling.record.rank_report import BenchmarkReport, CheckedRank, Rank, RankReport

_R = TypeVar("_R", bound=Rank)

#: How long a shared file system may take to show a file, as profiles/slurm's latency-wait has it.
LATENCY_WAIT_S = 60.0
_POLL_S = 0.25


class IncompleteError(RuntimeError):
    """Files of ranks that ended well are missing or cut; `ranks` are theirs."""

    def __init__(self, message: str, ranks: list[int]) -> None:
        super().__init__(message)
        self.ranks = ranks


def report_path(folder: Path, rank: int) -> Path:
    """What a rank reports when it has done its work."""
    return folder / f"rank-{rank}.json"


_TRAINING: msgspec.json.Decoder[RankReport] = msgspec.json.Decoder(RankReport)
_CHECK = msgspec.json.Decoder(CheckedRank)
_BENCHMARK = msgspec.json.Decoder(BenchmarkReport)


def training_reports(folder: Path) -> list[RankReport]:
    """What the ranks of a run report, in their order. Raises RecordError if one is broken."""
    return _reports(folder, _TRAINING)


def benchmark_reports(folder: Path) -> list[BenchmarkReport]:
    """What the ranks of a benchmark report, in their order. Raises RecordError likewise."""
    return _reports(folder, _BENCHMARK)


def check_reports(folder: Path) -> list[CheckedRank]:
    """What the ranks of a check of nodes report, in their order. Raises RecordError likewise."""
    return _reports(folder, _CHECK)


def _reports(folder: Path, decoder: msgspec.json.Decoder[_R]) -> list[_R]:
    found = (run_record.decoded(path, decoder, 0) for path in folder.glob("rank-*.json"))
    return sorted((r for r in found if r is not None), key=lambda report: report.rank)


def events_path(folder: Path, rank: int) -> Path:
    """The events of a rank."""
    return folder / f"rank-{rank}.events.jsonl"


def observed_path(folder: Path, rank: int) -> Path:
    """What a user's program says of itself."""
    return folder / f"rank-{rank}.observed.jsonl"


def wait(folder: Path, ranks: Iterable[int], limit_s: float) -> None:
    """Return when all ranks' reports and events are complete.

    Raises IncompleteError after `limit_s`, with each rank and what of it is missing.
    """
    waiting, deadline_s = list(ranks), time.monotonic() + limit_s
    while True:
        # to list a folder opens it, which makes NFS ask the server whether it has changed
        names = {path.name for path in folder.iterdir()}
        missing = {rank: text for rank in waiting if (text := _missing(folder, rank, names))}
        if not missing:
            return
        if time.monotonic() >= deadline_s:
            text = "; ".join(f"rank {rank}: {what}" for rank, what in missing.items())
            message = f"{text}, {limit_s:g} s (latency_wait_s) after the end"
            raise IncompleteError(message, list(missing))
        waiting = list(missing)
        time.sleep(min(_POLL_S, max(0.0, deadline_s - time.monotonic())))


def _missing(folder: Path, rank: int, names: set[str]) -> str | None:
    """What of a rank's files is missing or not yet whole."""
    report, passed = report_path(folder, rank), events_path(folder, rank)
    wrong = []
    if report.name not in names:
        wrong.append(f"no {report.name}")
    else:
        try:
            strict_json.loads(report.read_text())
        except (OSError, ValueError):
            wrong.append(f"{report.name} is cut")
    last = events.last(passed) if passed.name in names else None
    if last is None:
        wrong.append(f"no {passed.name}")
    elif last["event"] != "end":
        wrong.append(f"{passed.name} ends with {last['event']!r}")
    return " and ".join(wrong) or None
