"""The files of ranks in an attempt's folder: logs, reports, events.

The launcher writes events and reports of the ranks that have a connection; others write their own.
"""

from __future__ import annotations

from pathlib import Path

from tfscaling.record import run_record
from tfscaling.record.rank_report import RankReport

#: File with the reports of ranks that have a connection, one a line.
REPORTS = "ranks.reports.jsonl"


def rank_log(folder: Path, rank: int | str) -> Path:
    """Return the path of a rank's log.

    Args:
        folder: The attempt's folder.
        rank: The rank; `%t` in a path for srun, which replaces it by the rank.
    """
    return folder / f"rank-{rank}.log"


def last_lines(log: Path, count: int = 30) -> tuple[str, ...]:
    """Return the last `count` lines of a log; () if the log does not exist."""
    return tuple(log.read_text(errors="replace").splitlines()[-count:]) if log.exists() else ()


def report_path(folder: Path, rank: int) -> Path:
    """Return the path of a rank's report, which a rank without a connection writes."""
    return folder / f"rank-{rank}.json"


def events_path(folder: Path, rank: int) -> Path:
    """Return the path of a rank's events, which a rank without a connection writes."""
    return folder / f"rank-{rank}.events.jsonl"


def observed_path(folder: Path, rank: int) -> Path:
    """Return the path of the events that a user's program writes itself."""
    return folder / f"rank-{rank}.observed.jsonl"


_REPORT: type[RankReport] = RankReport  # type: ignore[assignment]  # a union is no class


def read_reports(folder: Path) -> list[RankReport]:
    """Read the reports of all ranks of an attempt, by ascending rank.

    Raises:
        RecordError: A report is damaged.
    """
    path = folder / REPORTS
    lines = path.read_bytes().splitlines() if path.exists() else []
    found = [run_record.parse_record(line, path, _REPORT) for line in lines]
    alone = (run_record.read_as(path, _REPORT) for path in folder.glob("rank-*.json"))
    by_rank = {report.rank: report for report in (*found, *alone) if report is not None}
    return [by_rank[rank] for rank in sorted(by_rank)]
